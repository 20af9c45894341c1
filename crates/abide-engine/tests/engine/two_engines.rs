//! Engines that take over what others have left, and engines that come back too late.

use abide_core::limits::MAX_RESULT_BYTES;
use abide_core::{Clock, Fence, OnRestart, Owner, State, Status, Task, WhyStopping};

use crate::harness::{HOUR, tool};
use crate::outside::{LEASE, Server, Shared};

const RERUN: OnRestart = OnRestart::Rerun { max_attempts: 2 };

/// Why a failed task has failed, in the word for programs.
fn reason(task: &Task) -> &str {
    let State::Failed { error } = task.state() else { panic!("{task:?}") };
    error.data.as_ref().expect("a reason").as_str()
}

fn result(task: &Task) -> &str {
    let State::Completed { result } = task.state() else { panic!("{task:?}") };
    result.as_str()
}

/// To the last millisecond of its lease nothing of an engine's is touched; then its work is taken
/// up as it is.
#[test]
fn work_that_outlives_its_engine_is_taken_up_when_the_lease_is_over() {
    let shared = Shared::new();
    let a = shared.engine("a", OnRestart::Reattach);
    let id = a.begin(&shared.outside, "a began 1");
    let b = shared.engine("b", OnRestart::Reattach);
    shared.pass(LEASE - 1, &[&b]);
    shared.turn(&[&b; 30]);
    assert_eq!(shared.outside.events(), ["a began 1"]);

    shared.clock.jump(1);
    shared.turn(&[&b; 5]);
    b.sees(&shared.outside, "b resumed 1");
    assert_eq!((shared.task(id).attempts(), shared.task(id).fence()), (1, Fence(2)));
    assert_eq!(shared.task(id).status(), Status::Working);
    shared.outside.finish(id);
    assert!(result(&b.until_status(id, Status::Completed)).contains("b saw the end of 1"));
    assert_eq!(shared.outside.events(), ["a began 1", "b resumed 1"]);
}

/// Work that may be repeated begins again, once nothing of it is left, as often as it may.
#[test]
fn work_that_may_be_repeated_begins_again_and_not_for_ever() {
    let shared = Shared::new();
    let a = shared.engine("a", RERUN);
    let id = a.begin(&shared.outside, "a began 1");
    let b = shared.engine("b", RERUN);
    shared.lapse(&[&b]);
    b.sees(&shared.outside, "b began 2");
    assert_eq!((shared.task(id).attempts(), shared.task(id).status()), (2, Status::Working));

    let c = shared.engine("c", RERUN);
    shared.lapse(&[&c]);
    let task = c.until_status(id, Status::Failed);
    assert_eq!((task.attempts(), reason(&task)), (2, r#"{"reason":"interrupted"}"#));
    let events = ["a began 1", "b discards 1", "b began 2", "c discards 2"];
    assert_eq!(shared.outside.events(), events);
    assert_eq!(shared.outside.jobs(), 0, "nothing runs on");
}

/// Work that must not be repeated is stopped, and its task says that it may be half done.
#[test]
fn work_that_must_not_be_repeated_fails_honestly() {
    let shared = Shared::new();
    let a = shared.engine("a", OnRestart::Fail);
    let id = a.begin(&shared.outside, "a began 1");
    drop(a);
    let b = shared.engine("b", OnRestart::Fail);
    shared.lapse(&[&b]);
    let task = b.until_status(id, Status::Failed);
    assert_eq!(reason(&task), r#"{"reason":"interrupted"}"#);
    let message = task.status_message().expect("a message");
    assert!(message.contains("stopped unexpectedly") && message.contains("may be unfinished"));
    assert_eq!(shared.outside.events(), ["a began 1", "b discards 1"]);
}

/// What has ended while nobody looked counts, whatever the tool says of restarts.
#[test]
fn work_that_has_ended_by_itself_has_its_result() {
    for on_restart in [OnRestart::Reattach, RERUN, OnRestart::Fail] {
        let shared = Shared::new();
        let a = shared.engine("a", on_restart);
        let id = a.begin(&shared.outside, "a began 1");
        drop(a);
        shared.outside.finish(id);
        let b = shared.engine("b", on_restart);
        shared.lapse(&[&b]);
        let task = b.until_status(id, Status::Completed);
        assert!(result(&task).contains("b saw the end of 1"), "{task:?}");
        assert_eq!(task.attempts(), 1);
    }
}

/// An engine that was halted for longer than its lease comes back, sees its work end first, and
/// changes nothing any more.
#[test]
fn an_engine_that_comes_back_too_late_writes_nothing() {
    let shared = Shared::new();
    let a = shared.engine("a", OnRestart::Reattach);
    let id = a.begin(&shared.outside, "a began 1");
    let b = shared.engine("b", OnRestart::Reattach);
    shared.lapse(&[&b]);
    b.sees(&shared.outside, "b resumed 1");
    let taken = shared.task(id);

    shared.outside.finish(id);
    // It has seen the end when it has nothing left to do.
    a.drain();
    assert_eq!(shared.task(id), taken);
    assert!(result(&b.until_status(id, Status::Completed)).contains("b saw the end of 1"));
}

/// The same with work that lives in the engine: both attempts come to their ends, the stale one
/// first, and only the new one counts.
#[test]
fn the_result_is_the_newest_attempts() {
    let shared = Shared::new();
    let named = |name: &'static str| {
        let outside = shared.outside.clone();
        let mut job = tool("job", move |work, _| {
            let outside = outside.clone();
            async move {
                outside.note(&format!("{name} began {}", work.attempt));
                outside.happens(&format!("end {}", work.attempt)).await;
                outside.result(name, work.attempt)
            }
        });
        job.policy.on_restart = RERUN;
        job
    };
    let a = shared.engine_with(named("a"));
    let id = a.begin(&shared.outside, "a began 1");
    let b = shared.engine_with(named("b"));
    shared.lapse(&[&b]);
    b.sees(&shared.outside, "b began 2");
    let begun = shared.task(id);
    assert_eq!(begun.attempts(), 2);

    shared.outside.note("end 1");
    a.drain();
    assert_eq!(shared.task(id), begun);
    shared.outside.note("end 2");
    assert!(result(&b.until_status(id, Status::Completed)).contains("b saw the end of 2"));
}

/// Cancelled, being stopped, and then its engine is gone: nothing but `cancelled` can come of it.
#[test]
fn a_cancelled_task_that_is_taken_over_ends_as_cancelled() {
    for on_restart in [OnRestart::Reattach, RERUN, OnRestart::Fail] {
        let shared = Shared::new();
        let a = shared.engine("a", on_restart);
        let id = a.begin(&shared.outside, "a began 1");
        shared.outside.may_stop(false);
        a.run(a.engine.cancel(&Owner::local(), id)).expect("acknowledged");
        a.sees(&shared.outside, "a stops 1");
        drop(a);
        let task = shared.task(id);
        assert!(matches!(task.state(), State::Stopping { why: WhyStopping::Cancel, .. }));

        let b = shared.engine("b", on_restart);
        shared.lapse(&[&b]);
        if on_restart == OnRestart::Reattach {
            b.sees(&shared.outside, "b stops 1");
            assert_eq!(shared.task(id).status(), Status::Working, "it still runs");
        }
        shared.outside.may_stop(true);
        let task = b.until_status(id, Status::Cancelled);
        assert_eq!((task.attempts(), shared.outside.jobs()), (1, 0));
    }
}

/// Work that outlives a server which is told to stop is let go of, at once, and is the next
/// server's from its start on.
#[test]
fn a_server_that_stops_lets_go_of_work_that_outlives_it() {
    let mut shared = Shared::new();
    let a = shared.engine("a", OnRestart::Reattach);
    let id = a.begin(&shared.outside, "a began 1");
    a.drain();
    a.run(a.engine.close());
    drop(a);
    shared.reopen();
    assert_eq!(shared.task(id).status(), Status::Working);
    let b = shared.engine("b", OnRestart::Reattach);
    b.sees(&shared.outside, "b resumed 1");
    shared.outside.finish(id);
    assert!(result(&b.until_status(id, Status::Completed)).contains("b saw the end of 1"));
    assert_eq!(shared.outside.events(), ["a began 1", "b resumed 1"]);
}

/// The deadline is a moment, which no crash moves.
#[test]
fn a_deadline_outlives_the_engine_that_set_it() {
    let shared = Shared::new();
    let begun = shared.clock.now();
    let a = shared.engine("a", OnRestart::Reattach);
    let id = a.begin(&shared.outside, "a began 1");
    drop(a);
    shared.clock.jump(HOUR / 2);
    let b = shared.engine("b", OnRestart::Reattach);
    b.sees(&shared.outside, "b resumed 1");
    assert_eq!(shared.task(id).deadline(), Some(begun.plus_millis(HOUR as u64)));
    shared.clock.jump(HOUR / 2 - 1);
    shared.turn(&[&b; 61]);
    assert_eq!(shared.outside.events(), ["a began 1", "b resumed 1"]);
    shared.clock.jump(1);
    shared.turn(&[&b; 31]);
    let task = b.until_status(id, Status::Failed);
    assert_eq!(reason(&task), r#"{"reason":"timeout"}"#);
    assert_eq!(shared.outside.events(), ["a began 1", "b resumed 1", "b stops 1"]);
}

/// The time was over while nobody was there: the work is stopped as soon as somebody is.
#[test]
fn a_deadline_that_has_passed_in_the_meantime() {
    let shared = Shared::new();
    let a = shared.engine("a", OnRestart::Reattach);
    let id = a.begin(&shared.outside, "a began 1");
    drop(a);
    shared.clock.jump(2 * HOUR);
    let b = shared.engine("b", OnRestart::Reattach);
    let task = b.until_status(id, Status::Failed);
    assert_eq!(reason(&task), r#"{"reason":"timeout"}"#);
    assert_eq!(shared.outside.jobs(), 0);
}

/// The clock jumps ahead by an hour, and back: all leases look as if they had run out long ago,
/// but everybody lives, and keeps what is theirs.
#[test]
fn a_clock_that_jumps_takes_no_claim_from_anybody_who_lives() {
    let shared = Shared::new();
    let endless = |name| {
        let mut job = shared.job(name, OnRestart::Reattach);
        job.policy.timeout_ms = None;
        shared.engine_with(job)
    };
    let (a, b) = (endless("a"), endless("b"));
    let ids = [a.begin(&shared.outside, "a began 1"), b.begin(&shared.outside, "b began 1")];
    let engines: [&Server; 2] = [&a, &b];
    shared.pass(2 * LEASE, &engines);
    for jump in [HOUR, -HOUR, -HOUR, HOUR] {
        shared.clock.jump(jump);
        // The one looks around before the other has had a chance to say that it lives.
        shared.turn(&[&a; 5]);
        shared.pass(3 * LEASE, &engines);
        assert_eq!(shared.outside.events(), ["a began 1", "b began 1"], "after {jump} ms");
    }
    for (engine, id) in engines.into_iter().zip(ids) {
        shared.outside.finish(id);
        let task = engine.until_status(id, Status::Completed);
        assert_eq!((task.attempts(), task.fence()), (1, Fence(1)));
    }
}

/// Work that takes long to stop is its engine's until it has stopped: nobody else begins to settle
/// the same task.
#[test]
fn a_task_that_is_being_settled_is_not_taken_over() {
    let shared = Shared::new();
    let a = shared.engine("a", OnRestart::Fail);
    let id = a.begin(&shared.outside, "a began 1");
    shared.outside.may_stop(false);
    drop(a);
    let b = shared.engine("b", OnRestart::Fail);
    shared.lapse(&[&b]);
    b.sees(&shared.outside, "b discards 1");
    let c = shared.engine("c", OnRestart::Fail);
    shared.pass(3 * LEASE, &[&b, &c]);
    assert_eq!(shared.outside.events(), ["a began 1", "b discards 1"]);
    shared.outside.may_stop(true);
    b.until_status(id, Status::Failed);
    assert_eq!(shared.task(id).fence(), Fence(2));
}

/// An engine that comes back after its work's deadline, and after another has taken the work up,
/// leaves the stopping to the other.
#[test]
fn an_engine_that_comes_back_too_late_stops_nothing() {
    const TIMEOUT: i64 = 3 * LEASE;
    let shared = Shared::new();
    let brief = |name| {
        let mut job = shared.job(name, OnRestart::Reattach);
        job.policy.timeout_ms = Some(TIMEOUT as u64);
        shared.engine_with(job)
    };
    let (a, b) = (brief("a"), brief("b"));
    let id = a.begin(&shared.outside, "a began 1");
    shared.lapse(&[&b]);
    b.sees(&shared.outside, "b resumed 1");
    let deadline = shared.task(id).deadline().expect("a deadline");
    shared.pass(deadline.millis_since(shared.clock.now()) as i64 - 1, &[&b]);
    shared.clock.jump(1);
    shared.turn(&[&a; 61]);
    assert_eq!(shared.outside.events(), ["a began 1", "b resumed 1"]);
    shared.turn(&[&b; 61]);
    assert_eq!(reason(&b.until_status(id, Status::Failed)), r#"{"reason":"timeout"}"#);
    assert_eq!(shared.outside.events(), ["a began 1", "b resumed 1", "b stops 1"]);
}

/// A result that nobody may keep ends the task all the same.
#[test]
fn a_result_that_is_too_large_is_found_afterwards() {
    for on_restart in [OnRestart::Reattach, OnRestart::Fail] {
        let shared = Shared::new();
        let a = shared.engine("a", on_restart);
        let id = a.begin(&shared.outside, "a began 1");
        drop(a);
        shared.outside.pad(MAX_RESULT_BYTES);
        shared.outside.finish(id);
        let b = shared.engine("b", on_restart);
        shared.lapse(&[&b]);
        let task = b.until_status(id, Status::Failed);
        assert_eq!(reason(&task), r#"{"reason":"result_too_large"}"#);
    }
}

/// More tasks of one's own than are looked at in one go hide nobody else's, however long it takes to
/// settle them.
#[test]
fn tasks_that_are_being_settled_hide_no_others() {
    let shared = Shared::new();
    let b = shared.engine("b", OnRestart::Fail);
    let a = shared.engine("a", OnRestart::Fail);
    // Two and a half times as many as one look brings.
    let first = a.run(futures::future::join_all((0..640).map(|_| a.create())));
    drop(a);
    shared.outside.may_stop(false);
    shared.pass(3 * LEASE, &[&b]);
    assert!(first.iter().all(|id| shared.task(*id).fence() == Fence(2)));
    let c = shared.engine("c", OnRestart::Fail);
    let last = c.begin(&shared.outside, "c began 1");
    drop(c);
    shared.pass(2 * LEASE, &[&b]);
    assert_eq!(shared.task(last).fence(), Fence(2));
    shared.outside.may_stop(true);
    for id in first.into_iter().chain([last]) {
        let task = b.until_status(id, Status::Failed);
        assert_eq!(task.fence(), Fence(2), "taken over once");
    }
}

//! What one step must keep, rule by rule.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::{
    Command, Effect, Fence, InputKey, OnRestart, RawJson, Record, Refusal, Settled, SettledAs,
    State, Status, Task, Timestamp, Transition, WhyStopping,
};

use crate::common::{at, next};

/// The fencing number in a worker's command.
fn held(command: &Command) -> Option<Fence> {
    match command {
        Command::Say { fence, .. }
        | Command::Ask { fence, .. }
        | Command::Withdraw { fence, .. }
        | Command::Complete { fence, .. }
        | Command::Fail { fence, .. }
        | Command::Stopped { fence }
        | Command::TimeUp { fence }
        | Command::TakeOver { from: fence, .. }
        | Command::Requeue { fence, .. }
        | Command::Begin { fence } => Some(*fence),
        Command::Answer { .. }
        | Command::Cancel
        | Command::Claim { .. }
        | Command::Position { .. }
        | Command::Extend => None,
    }
}

fn open(task: &Task) -> BTreeMap<InputKey, RawJson> {
    match task.state() {
        State::InputRequired { outstanding, .. } => outstanding.as_map().clone(),
        _ => BTreeMap::new(),
    }
}

fn effects(result: &Result<Transition, Refusal>) -> &[Effect] {
    match result {
        Ok(Transition::Changed { effects, .. } | Transition::Unchanged { effects }) => effects,
        Err(_) => &[],
    }
}

type Outcome = Result<Transition, Refusal>;

/// Everything that one step must keep.
pub(crate) fn check_step(before: &Task, command: &Command, now: Timestamp, result: &Outcome) {
    let after = &next(before, result);
    check_change(before, now, result);
    check_fence(before, command, after, result);
    check_promise(before, after);
    check_keys(before, command, after, result);
    check_answer(before, command, after, result);
    check_clock(before, command, now, after, result);
    check_stopping(before, command, after);
}

fn check_change(before: &Task, now: Timestamp, result: &Outcome) {
    match result {
        Ok(Transition::Changed { task, .. }) => {
            assert!(!before.status().is_terminal(), "a terminal task changed");
            assert_eq!(task.version(), before.version() + 1);
            assert_eq!(task.last_updated_at(), before.last_updated_at().max(now));
            // The version is not the only thing that changed.
            let mut same = Record::from(before);
            let found = Record::from(&**task);
            (same.version, same.last_updated_at) = (found.version, found.last_updated_at);
            assert_ne!(same, found, "a new version of the same task");
            // What a task is for never changes.
            assert_eq!(task.id(), before.id());
            assert_eq!(task.owner(), before.owner());
            assert_eq!(task.tool(), before.tool());
            assert_eq!(task.arguments(), before.arguments());
            assert_eq!(task.policy(), before.policy());
            assert_eq!(task.created_at(), before.created_at());
        }
        Ok(Transition::Unchanged { effects }) => {
            for effect in effects {
                match effect {
                    Effect::Ignored(_) => {}
                    // To a question that was answered before.
                    Effect::Deliver(key, response) => {
                        let by = &before.settled()[key].by;
                        assert_eq!(*by, SettledAs::Answered(response.clone()));
                    }
                    other => panic!("nothing has changed, and yet: {other:?}"),
                }
            }
        }
        Err(_) => {}
    }
}

fn check_fence(before: &Task, command: &Command, after: &Task, result: &Outcome) {
    assert!(after.fence() >= before.fence(), "the fence went back");
    let claimed = matches!(command, Command::Claim { .. }) && result.is_ok();
    let taken_over = matches!(command, Command::TakeOver { .. }) && result.is_ok();
    assert_eq!(
        after.fence() > before.fence(),
        claimed || taken_over,
        "only a claim moves the fence"
    );
    if taken_over {
        assert_eq!(after.status(), before.status(), "a take-over changes the worker alone");
        assert_ne!(after.state().worker(), None);
    }
    if matches!(command, Command::Requeue { .. }) && result.is_ok() {
        check_requeue(before, after);
    }
    assert_eq!(after.attempts(), before.attempts() + u32::from(claimed));
    if held(command).is_some_and(|held| held != before.fence()) {
        assert!(
            matches!(result, Err(Refusal::StaleFence { .. } | Refusal::Ended(_))),
            "a stale fence got {result:?}"
        );
    }
}

/// Only work that may be repeated goes back to the queue, and only as often as it may begin.
fn check_requeue(before: &Task, after: &Task) {
    let may = match before.policy().on_restart {
        OnRestart::Rerun { max_attempts } => before.attempts() < max_attempts,
        OnRestart::Reattach | OnRestart::Fail => false,
    };
    assert_eq!(after.state() == &State::Queued, may);
    assert_eq!(after.status() == Status::Failed, !may);
}

fn check_promise(before: &Task, after: &Task) {
    match (before.ttl_ms(), after.ttl_ms()) {
        (None, None) => {}
        (Some(old), Some(new)) => assert!(new >= old, "the promise shrank from {old} to {new}"),
        (old, new) => panic!("the promise went from {old:?} to {new:?}"),
    }
    let promised = after.ttl_ms().map(|ttl| after.created_at().plus_millis(ttl));
    let Some(promised) = promised else {
        return assert!(!after.is_expired(at(i64::MAX)), "kept for ever, but expires");
    };
    let kept = after.last_updated_at().plus_millis(after.policy().keep_ms.unwrap_or(0));
    for moment in [promised, kept] {
        let just_before = at(moment.as_millis() - 1);
        assert!(!after.is_expired(just_before), "expired at {just_before:?}, before {moment:?}");
    }
    // And it does end: kept is not for ever.
    assert_eq!(after.is_expired(promised.max(kept)), after.status().is_terminal());
}

fn check_keys(before: &Task, command: &Command, after: &Task, result: &Outcome) {
    let (was_open, now_open) = (open(before), open(after));
    assert_eq!(after.status() == Status::InputRequired, !now_open.is_empty());
    assert!(now_open.keys().all(|key| !after.settled().contains_key(key)), "open and settled");
    // What was asked and what was answered stays as it was.
    for (key, settled) in before.settled() {
        assert_eq!(after.settled().get(key), Some(settled), "{key} was settled");
    }
    for (key, request) in &was_open {
        let kept = now_open.get(key).or_else(|| after.settled().get(key).map(|s| &s.request));
        assert_eq!(kept, Some(request), "{key} was asked");
    }
    if let Command::Ask { key, request, .. } = command {
        if let Some(Settled { request: asked, by: SettledAs::Answered(response) }) =
            before.settled().get(key)
            && asked == request
            && result.is_ok()
        {
            let again = Effect::Deliver(key.clone(), response.clone());
            assert_eq!(effects(result), [again], "the same question has the same answer");
        } else if was_open.get(key) == Some(request) {
            assert!(!matches!(result, Ok(Transition::Changed { .. })), "{key} is open already");
        } else if was_open.contains_key(key) || before.settled().contains_key(key) {
            assert!(result.is_err(), "{key} was used before");
        } else if result.is_ok() {
            assert!(now_open.contains_key(key));
        }
    }
    let fresh = now_open.len() + after.settled().len() - was_open.len() - before.settled().len();
    let asked =
        matches!(command, Command::Ask { .. }) && matches!(result, Ok(Transition::Changed { .. }));
    assert_eq!(fresh, usize::from(asked), "only an Ask opens a request");
}

fn check_answer(before: &Task, command: &Command, after: &Task, result: &Outcome) {
    let Command::Answer { responses } = command else {
        let delivered = effects(result).iter().any(|e| matches!(e, Effect::Deliver(..)));
        let asked = matches!(command, Command::Ask { .. });
        return assert!(!delivered || asked, "only an answer is delivered");
    };
    let (was_open, now_open) = (open(before), open(after));
    let mut expected = BTreeMap::new();
    let mut ignored = Vec::new();
    for (key, response) in responses {
        if was_open.contains_key(key) && !expected.contains_key(key) {
            expected.insert(key.clone(), response.clone());
        } else {
            ignored.push(key.clone());
        }
    }
    let mut delivered = BTreeMap::new();
    let mut said = Vec::new();
    for effect in effects(result) {
        match effect {
            Effect::Deliver(key, response) => {
                assert!(delivered.insert(key.clone(), response.clone()).is_none(), "{key} twice");
            }
            Effect::Ignored(keys) => said.clone_from(keys),
            _ => {}
        }
    }
    assert_eq!(delivered, expected);
    assert_eq!(said, ignored);
    for (key, response) in &expected {
        assert_eq!(after.settled()[key].by, SettledAs::Answered(response.clone()));
    }
    let rest: BTreeSet<_> = was_open.keys().filter(|key| !expected.contains_key(*key)).collect();
    assert_eq!(now_open.keys().collect::<BTreeSet<_>>(), rest, "the others stay open");
}

/// The clock of `timeout` stands still while a question is open, and goes on where it stood.
fn check_clock(before: &Task, command: &Command, now: Timestamp, after: &Task, result: &Outcome) {
    let changed = matches!(result, Ok(Transition::Changed { .. }));
    match (before.state(), after.state()) {
        (State::Working { deadline, .. }, State::InputRequired { time_left_ms, .. }) => {
            assert_eq!(*time_left_ms, deadline.map(|deadline| deadline.millis_since(now)));
        }
        (
            State::InputRequired { time_left_ms: left, .. },
            State::InputRequired { time_left_ms, .. },
        ) => {
            assert_eq!(time_left_ms, left);
        }
        (State::InputRequired { time_left_ms, .. }, State::Working { deadline, .. }) => {
            assert_eq!(*deadline, time_left_ms.map(|left| now.plus_millis(left)));
        }
        (State::Working { deadline: old, .. }, State::Working { deadline, .. }) => {
            let begun = after.policy().timeout_ms.map(|ms| now.plus_millis(ms));
            let is_begun = matches!(command, Command::Begin { .. }) && *deadline == begun;
            assert!(deadline == old || is_begun, "{old:?} became {deadline:?}");
        }
        (State::Queued, State::Working { deadline, .. }) => {
            assert_eq!(*deadline, after.policy().timeout_ms.map(|ms| now.plus_millis(ms)));
        }
        _ => {}
    }
    if !matches!(after.state(), State::Working { .. }) {
        assert_eq!(after.deadline(), None, "a deadline in {:?}", after.state());
    }
    // Whoever keeps the timer is told of every change of the deadline.
    let told = effects(result).iter().rev().find_map(|effect| match effect {
        Effect::Deadline(deadline) => Some(*deadline),
        _ => None,
    });
    match told {
        Some(deadline) => assert_eq!(deadline, after.deadline()),
        None => assert_eq!(before.deadline(), after.deadline(), "nobody was told"),
    }
    let ended = effects(result).contains(&Effect::Ended(after.status()));
    assert_eq!(ended, changed && after.status().is_terminal());
}

fn check_stopping(before: &Task, command: &Command, after: &Task) {
    match (before.state(), command) {
        (State::Queued, Command::Cancel) => assert_eq!(after.state(), &State::Cancelled),
        (State::Working { .. } | State::InputRequired { .. }, Command::Cancel) => {
            let State::Stopping { why: WhyStopping::Cancel, .. } = after.state() else {
                panic!("cancelled into {:?}", after.state())
            };
        }
        (State::Stopping { .. }, Command::Complete { fence, .. }) if *fence == before.fence() => {
            assert_eq!(after.status(), Status::Completed);
        }
        (State::Stopping { why, .. }, Command::Stopped { fence }) if *fence == before.fence() => {
            let status = match why {
                WhyStopping::Cancel => Status::Cancelled,
                WhyStopping::Timeout => Status::Failed,
            };
            assert_eq!(after.status(), status);
        }
        // Nothing else makes a claimed task `cancelled`.
        _ => {
            let cancelled = after.status() == Status::Cancelled;
            assert_eq!(cancelled, before.status() == Status::Cancelled);
        }
    }
}

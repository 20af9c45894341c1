//! Each kind of loss that the ledger knows is noticed, and what is no loss is not.

use std::fs;

use serde_json::json;

use super::*;
use crate::torture::tools::{ASKS, COMMANDS, TAKEN_OVER};

/// The tool of this name.
fn named(name: &str) -> Tool {
    let all = [COMMANDS, ASKS, TAKEN_OVER].concat();
    all.into_iter().find(|tool| tool.name == name).unwrap()
}

/// Some tool of this kind.
fn of(kind: Kind) -> Tool {
    let all = [COMMANDS, ASKS, TAKEN_OVER].concat();
    all.into_iter().find(|tool| tool.kind == kind).unwrap()
}

/// A ledger with one task `t`, and the marks that it has left.
fn ledger(kind: Kind, marks: &str) -> (tempfile::TempDir, Ledger) {
    ledger_of(of(kind), marks)
}

fn ledger_of(tool: Tool, marks: &str) -> (tempfile::TempDir, Ledger) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t"), marks).unwrap();
    let mut ledger = Ledger::new(folder.path().to_owned());
    let task = json!({ "taskId": "t", "ttlMs": 60_000 });
    ledger.created(tool, Instant::now(), &task);
    (folder, ledger)
}

fn poll(ledger: &mut Ledger, mut task: Value) {
    task["taskId"] = json!("t");
    ledger.polled("t", &json!({ "result": task }).to_string());
}

fn found(ledger: &Ledger) -> Vec<&'static str> {
    let mut found: Vec<_> = ledger.losses.described().map(|(what, _)| what).collect();
    found.dedup();
    found
}

fn failed(reason: &str) -> Value {
    json!({ "status": "failed", "error": { "data": { "reason": reason } } })
}

fn numbered(attempt: u64, key: &str, number: u64) -> Value {
    let result = json!({ "attempt": attempt, "key": key, "number": number });
    json!({ "status": "completed", "result": { "structuredContent": result } })
}

#[test]
fn ends_of_commands_are_held_against_their_effects() {
    let completed = json!({ "status": "completed", "result": {} });
    let is_error = json!({ "status": "completed", "result": { "isError": true } });
    let cancelled = json!({ "status": "cancelled" });
    for (kind, marks, task, expected) in [
        (Kind::Reattach, "start 0\ndone\n", &completed, &[][..]),
        (Kind::Reattach, "start 0\n", &completed, &["missing effects"]),
        (Kind::Reattach, "start 0\nstart 0\ndone\n", &completed, &["doubled effects"]),
        (Kind::Rerun, "start 0\nstart 0\ndone\n", &completed, &[]),
        (Kind::Rerun, &"start 0\ndone\n".repeat(5), &completed, &["doubled effects"]),
        (Kind::Fail, "start 0\n", &is_error, &["wrong ends"]),
        (Kind::Fail, "start 0\n", &cancelled, &["wrong ends"]),
        (Kind::Fail, "start 0\n", &failed("interrupted"), &["wrong ends"]),
        (Kind::Late, "start 0\n", &failed("timeout"), &[]),
        (Kind::Reattach, "start 0\n", &failed("timeout"), &["wrong ends"]),
        (Kind::Reattach, "", &json!({ "status": "lost" }), &["wrong ends"]),
    ] {
        let (_folder, mut ledger) = ledger(kind, marks);
        poll(&mut ledger, task.clone());
        assert_eq!(found(&ledger), expected, "{kind:?} {marks:?} {task}");
    }
}

#[test]
fn what_was_done_to_a_task_explains_its_end() {
    let (_folder, mut reattach) = ledger(Kind::Reattach, "start 0\n");
    reattach.server_ends();
    poll(&mut reattach, failed("interrupted"));
    assert_eq!(found(&reattach), ["wrong ends"], "it is taken up again");
    let (_folder, mut hurt) = ledger(Kind::Reattach, "start 0\n");
    hurt.hurts("t", true);
    poll(&mut hurt, failed("interrupted"));
    let (_folder, mut fails) = ledger(Kind::Fail, "start 0\n");
    fails.server_ends();
    poll(&mut fails, failed("interrupted"));
    let (_folder, mut cancelled) = ledger(Kind::Fail, "start 0\n");
    cancelled.cancelling("t");
    poll(&mut cancelled, json!({ "status": "cancelled" }));
    for ledger in [hurt, fails, cancelled] {
        assert!(!ledger.losses.any(), "{:?}", ledger.losses);
    }
}

#[test]
fn answers_count_and_come_once() {
    for (marks, answered, task, expected) in [
        ("start 1\nanswer 1 k 7\n", Some(("k", 7)), numbered(1, "k", 7), &[][..]),
        // Acknowledged or not is the same to the task.
        ("start 1\nanswer 1 k 7\n", None, numbered(1, "k", 7), &[]),
        // Each attempt is told.
        (
            "start 1\nanswer 1 k 7\nstart 2\nanswer 2 k 7\n",
            Some(("k", 7)),
            numbered(2, "k", 7),
            &[],
        ),
        ("start 1\nanswer 1 k 8\n", Some(("k", 7)), numbered(1, "k", 8), &["lost updates"]),
        ("start 1\n", Some(("k", 7)), numbered(1, "k", 7), &["lost updates"]),
        ("start 1\nanswer 1 l 8\n", Some(("k", 7)), numbered(1, "l", 8), &["lost updates"]),
        (
            "start 1\nanswer 1 k 7\nanswer 1 k 7\n",
            Some(("k", 7)),
            numbered(1, "k", 7),
            &["doubled updates"],
        ),
        (
            "start 1\nanswer 1 k 7\nstart 2\n",
            Some(("k", 7)),
            numbered(1, "k", 7),
            &["stale writes"],
        ),
    ] {
        let (_folder, mut ledger) = ledger(Kind::Asks, marks);
        if let Some((key, number)) = answered {
            ledger.answered("t", key, number);
        }
        poll(&mut ledger, task.clone());
        assert_eq!(found(&ledger), expected, "{marks:?} {task}");
    }
}

#[test]
fn commands_are_told_what_was_acknowledged() {
    for (marks, expected) in [
        ("start 0\nanswer 1 k 7\ndone\n", &[][..]),
        ("start 0\ndone\n", &["lost updates"]),
        ("start 0\nanswer 1 k 8\ndone\n", &["lost updates"]),
        ("start 0\nanswer 1 k 7\nanswer 1 k 7\ndone\n", &["doubled updates"]),
    ] {
        let (_folder, mut ledger) = ledger_of(named("asking"), marks);
        ledger.answered("t", "k", 7);
        poll(&mut ledger, json!({ "status": "completed", "result": {} }));
        assert_eq!(found(&ledger), expected, "{marks:?}");
    }
}

/// The protocol has answers to questions that are not open acknowledged.
#[test]
fn answers_to_what_may_have_been_taken_back_count_or_not() {
    type Before = fn(&mut Ledger);
    let cases: [(&str, Before, &[&str]); 7] = [
        ("asks", |_| {}, &["lost updates"]),
        ("asks", |ledger| ledger.server_starts(false), &["lost updates"]),
        ("asks", Ledger::server_stops, &[]),
        ("asking", |ledger| ledger.server_starts(false), &["lost updates"]),
        ("asking_again", |_| {}, &["lost updates"]),
        ("asking_again", |ledger| ledger.server_starts(false), &[]),
        ("asking_again", |ledger| ledger.hurts("t", true), &[]),
    ];
    for (at, (name, before, expected)) in cases.into_iter().enumerate() {
        let marks = "start 1\nstart 2\nanswer 2 l 8\ndone\n";
        let (_folder, mut ledger) = ledger_of(named(name), marks);
        before(&mut ledger);
        ledger.answered("t", "k", 7);
        poll(&mut ledger, numbered(2, "l", 8));
        let lost: Vec<_> =
            found(&ledger).into_iter().filter(|what| *what != "doubled effects").collect();
        assert_eq!(lost, expected, "case {at}: {name}");
    }
}

#[test]
fn a_handle_is_there_until_its_time_is_over_and_its_end_does_not_change() {
    let unknown = json!({ "error": { "code": -32602 } }).to_string();
    let (folder, mut early) = ledger(Kind::Reattach, "");
    early.polled("t", &unknown);
    assert_eq!(found(&early), ["lost handles"]);

    let mut late = Ledger::new(folder.path().to_owned());
    let task = json!({ "taskId": "t", "ttlMs": 0 });
    late.created(of(Kind::Reattach), Instant::now(), &task);
    late.polled("t", &unknown);
    assert!(!late.losses.any());
    assert_eq!(late.counts.expired, 1);

    let (_folder, mut changed) = ledger(Kind::Reattach, "start 0\ndone\n");
    poll(&mut changed, json!({ "status": "completed", "result": {}, "lastUpdatedAt": 1 }));
    poll(&mut changed, json!({ "status": "completed", "result": {}, "lastUpdatedAt": 1 }));
    assert!(!changed.losses.any());
    poll(&mut changed, json!({ "status": "completed", "result": {}, "lastUpdatedAt": 2 }));
    assert_eq!(found(&changed), ["changed ends"]);
}

#[test]
fn what_never_ends_is_stuck_or_its_cancel_is_lost() {
    let (_folder, mut stuck) = ledger(Kind::Reattach, "");
    stuck.stuck("log");
    assert_eq!(found(&stuck), ["stuck tasks"]);

    let folder = tempfile::tempdir().unwrap();
    let mut endless = Ledger::new(folder.path().to_owned());
    endless.created(named("endless_again"), Instant::now(), &json!({ "taskId": "t" }));
    endless.cancelling("t");
    endless.cancelled("t");
    endless.stuck("log");
    assert_eq!(found(&endless), ["lost cancels"]);
}

#[test]
fn marks_of_tasks_that_nobody_has_heard_of_count() {
    let (folder, mut ledger) = ledger(Kind::Reattach, "start 0 tool\nstart 0 tool\ndone\n");
    fs::write(folder.path().join("unheard"), "start 0 tool\nstart 0 tool\n").unwrap();
    fs::write(folder.path().join("good"), "start 0 tool\ndone\n").unwrap();
    poll(&mut ledger, json!({ "status": "completed", "result": {} }));
    ledger.look_through_marks(|tool| (tool == "tool").then_some(Kind::Reattach));
    // The known one is counted once.
    assert_eq!(ledger.losses.count("doubled effects"), 2);
}

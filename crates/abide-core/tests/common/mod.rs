//! What the tests of the state machine share: short ways to write tasks and their parts.

use abide_core::{
    InputKey, NewTask, Owner, Policy, RawJson, Refusal, Start, Task, TaskId, Timestamp, ToolName,
    Transition, WorkerId,
};

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn key(name: &str) -> InputKey {
    InputKey::new(name).unwrap()
}

pub(crate) fn json(text: &str) -> RawJson {
    RawJson::parse(text).unwrap()
}

pub(crate) fn worker() -> WorkerId {
    WorkerId::new("worker-1").unwrap()
}

/// The worker that takes over.
#[allow(dead_code, reason = "each test binary uses its own part of this module")]
pub(crate) fn other_worker() -> WorkerId {
    WorkerId::new("worker-2").unwrap()
}

pub(crate) fn task(policy: Policy, start: Start, now: Timestamp) -> Task {
    let new = NewTask {
        id: TaskId::new(now, [7; TaskId::RANDOM_LEN]),
        owner: Owner::new("alice").unwrap(),
        tool: ToolName::new("deploy").unwrap(),
        arguments: json(r#"{"build":12345678901234567890,"ratio":1.10}"#),
        policy,
    };
    Task::create(new, start, now)
}

/// The task after what was done to `before`: the changed one, or the same if nothing changed or
/// it was refused.
pub(crate) fn next(before: &Task, result: &Result<Transition, Refusal>) -> Task {
    match result {
        Ok(Transition::Changed { task, .. }) => (**task).clone(),
        Ok(Transition::Unchanged { .. }) | Err(_) => before.clone(),
    }
}

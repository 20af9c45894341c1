//! Tasks to put into stores: one of every state, with everything in it that a state can have.
//!
//! [`every_state`] also is what the stored fixtures of each schema version hold. A specimen never
//! changes; new ones go to the end.

use abide_core::{
    Command, Fence, InputKey, NewTask, OnRestart, Owner, Policy, RawJson, RpcError, Start, Task,
    TaskId, Timestamp, ToolName, Transition, WorkerId,
};

/// When specimens are created, in milliseconds since the epoch.
pub const CREATED_MS: i64 = 1_785_283_200_000;

/// JSON whose bytes any re-writing would change: number forms, key order, repeated keys, escapes,
/// lone surrogates, spaces, unusual characters.
pub const ODD_JSON: &str = concat!(
    r#"{ "z": 1.10, "a": 12345678901234567890123, "e": 1E5, "m": -0.0, "tiny": 5e-324, "#,
    r#""i": 9223372036854775807, "u": "\u00e9é🦀\ud800\u0000\/", "z": null,"combining": "e"#,
    "\u{301}\", \"direction\": \"\u{202e}شكرا\", \"marks\": \"\u{feff}\u{2028}\u{2029}\u{10ffff}",
    "\u{7f}\u{85}\" }"
);

/// The moment `millis` after [`CREATED_MS`].
#[must_use]
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(CREATED_MS + millis)
}

/// JSON of a literal.
///
/// # Panics
/// When it is not JSON.
#[must_use]
pub fn json(text: &str) -> RawJson {
    RawJson::parse(text).expect("specimens are JSON")
}

/// The owner of that name.
///
/// # Panics
/// When it is not a name.
#[must_use]
pub fn owner(name: &str) -> Owner {
    Owner::new(name).expect("specimens have good names")
}

/// The tool of that name.
///
/// # Panics
/// When it is not a name.
#[must_use]
pub fn tool(name: &str) -> ToolName {
    ToolName::new(name).expect("specimens have good names")
}

/// The worker of that name.
///
/// # Panics
/// When it is not a name.
#[must_use]
pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("specimens have good names")
}

/// The input key of that name.
///
/// # Panics
/// When it is not a name.
#[must_use]
pub fn key(name: &str) -> InputKey {
    InputKey::new(name).expect("specimens have good names")
}

/// The id of the specimen with this number, created `millis` after [`CREATED_MS`].
#[must_use]
pub fn id(number: u64, millis: i64) -> TaskId {
    let mut random = [0; TaskId::RANDOM_LEN];
    random[TaskId::RANDOM_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    TaskId::new(at(millis), random)
}

/// What a task is created from: alice's, of the tool `deploy`, with plain arguments, a timeout of
/// a minute and an hour of retention.
#[must_use]
pub fn new_task(number: u64, millis: i64) -> NewTask {
    NewTask {
        id: id(number, millis),
        owner: owner("alice"),
        tool: tool("deploy"),
        arguments: json(r#"{"env":"staging"}"#),
        policy: Policy {
            timeout_ms: Some(60_000),
            keep_ms: Some(3_600_000),
            poll_interval_ms: 5_000,
            on_restart: OnRestart::Fail,
        },
    }
}

/// A queued task.
#[must_use]
pub fn queued(number: u64, millis: i64) -> Task {
    Task::create(new_task(number, millis), Start::Queued { ahead: 0 }, at(millis))
}

/// A task that the worker `w` is on, with fence 1.
#[must_use]
pub fn working(number: u64, millis: i64) -> Task {
    started(new_task(number, millis), millis)
}

/// The same from other parts.
#[must_use]
pub fn started(new: NewTask, millis: i64) -> Task {
    let start = Start::Claimed { worker: worker("w"), since: at(millis) };
    Task::create(new, start, at(millis))
}

/// The fencing number of a first claim.
pub const FIRST: Fence = Fence(1);

/// The task after `command`.
///
/// # Panics
/// When the task refuses the command or does not change.
#[must_use]
pub fn after(task: &Task, command: Command, millis: i64) -> Task {
    match task.apply(command, at(millis)) {
        Ok(Transition::Changed { task, .. }) => *task,
        other => panic!("the specimen did not change: {other:?}"),
    }
}

/// The task, completed with `result`.
#[must_use]
pub fn completed(task: &Task, result: &str, millis: i64) -> Task {
    after(task, Command::Complete { fence: FIRST, result: json(result) }, millis)
}

/// A task at work since its creation, with that much to happen when its worker is gone.
#[must_use]
pub fn restartable(number: u64, on_restart: OnRestart) -> Task {
    let new = new_task(number, 0);
    let policy = Policy { on_restart, ..new.policy };
    started(NewTask { policy, ..new }, 0)
}

/// One task of every state, and of every shape that a state can have.
#[must_use]
pub fn every_state() -> Vec<Task> {
    let ask = |task: &Task, name: &str, request: &str, millis| {
        let (key, request) = (key(name), json(request));
        after(task, Command::Ask { fence: FIRST, key, request }, millis)
    };
    let answer = |task: &Task, name: &str, response: &str, millis| {
        let responses = vec![(key(name), json(response))];
        after(task, Command::Answer { responses }, millis)
    };
    let odd = |number| NewTask {
        owner: owner("https://id.example/üser|🦀 42"),
        tool: tool("übersetzen.🚀"),
        arguments: json(ODD_JSON),
        ..new_task(number, 0)
    };
    let forever = |number| NewTask {
        policy: Policy {
            timeout_ms: None,
            keep_ms: None,
            poll_interval_ms: 1,
            on_restart: OnRestart::Fail,
        },
        ..new_task(number, 0)
    };
    let approve = r#"{"method":"elicitation/create","params":{"message":"Go?"}}"#;

    let asking = ask(&working(6, 0), "approve", approve, 1_000);
    let asked_twice = ask(&asking, "größe", ODD_JSON, 2_000);
    let part_answered =
        answer(&asked_twice, "approve", r#"{"action":"accept","content":{"ok":true}}"#, 3_000);
    let asked_for_ever = ask(&started(forever(7), 0), "q", approve, 1_000);
    let withdrawn = after(
        &ask(&working(8, 0), "w", approve, 1_000),
        Command::Withdraw { fence: FIRST, key: key("w") },
        2_000,
    );
    let said = Command::Say { fence: FIRST, message: "Step 2 of 3: \u{0}nul, \ttab, ü".into() };
    let time_up = Command::TimeUp { fence: FIRST };
    let stopped = |task: &Task, millis| after(task, Command::Stopped { fence: FIRST }, millis);
    let error =
        RpcError { code: -32_000, message: "Kaputt 💥".into(), data: Some(json(ODD_JSON)) };

    vec![
        queued(1, 0),
        Task::create(odd(2), Start::Queued { ahead: 7 }, at(0)),
        working(3, 0),
        started(forever(4), 0),
        after(&working(5, 0), said, 500),
        part_answered,
        asked_for_ever,
        withdrawn,
        after(&ask(&working(9, 0), "open", approve, 1_000), Command::Cancel, 2_000),
        after(&working(10, 0), time_up.clone(), 60_000),
        completed(&started(odd(11), 0), ODD_JSON, 4_000),
        completed(&started(forever(12), 0), "null", 4_000),
        after(&started(odd(13), 0), Command::Fail { fence: FIRST, error }, 4_000),
        stopped(&after(&working(14, 0), time_up, 60_000), 60_500),
        after(&queued(15, 0), Command::Cancel, 4_000),
        stopped(&after(&working(16, 0), Command::Cancel, 4_000), 5_000),
        restartable(17, OnRestart::Reattach),
        restartable(18, OnRestart::Rerun { max_attempts: 3 }),
    ]
}

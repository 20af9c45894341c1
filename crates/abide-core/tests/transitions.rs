//! What every command does in every state, as one table.

mod common;

use abide_core::{
    Command, Effect, Fence, OnRestart, Policy, Refusal, RpcError, SettledAs, Start, State, Status,
    Task, Timestamp, Transition, WhyStopping, limits,
};
use common::{at, json, key, next, task, worker};

const FENCE: Fence = Fence(1);
const TIMEOUT_MS: u64 = 10_000;
const NOW: Timestamp = Timestamp::from_millis(50_000);

/// What a cell of the table expects.
#[derive(Debug, PartialEq)]
enum Cell {
    /// Changed into the state with this number.
    To(usize),
    /// Nothing to change, and no refusal.
    Same,
    Ended,
    Stale,
    NotQueued,
    NotStopping,
    Stopping,
}
use Cell::{Ended, NotQueued, NotStopping, Same, Stale, To};

// Rows, in the order of `row`.
const QUEUED: usize = 0;
const WORKING: usize = 1;
const INPUT_REQUIRED: usize = 2;
const STOPPING: usize = 3;
const COMPLETED: usize = 4;
const FAILED: usize = 5;
const CANCELLED: usize = 6;

/// A new state has no number until it has a row.
fn row(state: &State) -> usize {
    match state {
        State::Queued => QUEUED,
        State::Working { .. } => WORKING,
        State::InputRequired { .. } => INPUT_REQUIRED,
        State::Stopping { .. } => STOPPING,
        State::Completed { .. } => COMPLETED,
        State::Failed { .. } => FAILED,
        State::Cancelled => CANCELLED,
    }
}

/// A new command has no number until it has a column.
fn column(command: &Command) -> usize {
    match command {
        Command::Answer { .. } => 0,
        Command::Cancel => 1,
        Command::Claim { .. } => 2,
        Command::Say { .. } => 3,
        Command::Ask { .. } => 4,
        Command::Withdraw { .. } => 5,
        Command::Complete { .. } => 6,
        Command::Fail { .. } => 7,
        Command::Stopped { .. } => 8,
        Command::TimeUp { .. } => 9,
        Command::Position { .. } => 10,
        Command::Extend => 11,
        Command::TakeOver { .. } => 12,
        Command::Requeue { .. } => 13,
        Command::Begin { .. } => 14,
    }
}

/// One row a state, one column a command. The fence is right wherever there is one, the one open
/// request is the one that is answered or withdrawn, and the deadline has passed.
#[rustfmt::skip]
const TABLE: [[Cell; 15]; 7] = [
    //                 Answer       Cancel         Claim        Say                 Ask                 Withdraw     Complete       Fail        Stopped        TimeUp        Position    Extend    TakeOver    Requeue     Begin
    /* queued    */ [Same,        To(CANCELLED), To(WORKING), Stale,              Stale,              Stale,       Stale,         Stale,      Stale,         Stale,      To(QUEUED), To(QUEUED), Stale,       Stale, Stale],
    /* working   */ [Same,        To(STOPPING),  NotQueued,   To(WORKING),        To(INPUT_REQUIRED), Same,        To(COMPLETED), To(FAILED), NotStopping,   To(STOPPING), NotQueued,  To(WORKING), To(WORKING), To(QUEUED), To(WORKING)],
    /* input     */ [To(WORKING), To(STOPPING),  NotQueued,   To(INPUT_REQUIRED), To(INPUT_REQUIRED), To(WORKING), To(COMPLETED), To(FAILED), NotStopping,   Same, NotQueued,  To(INPUT_REQUIRED), To(INPUT_REQUIRED), To(QUEUED), Same],
    /* stopping  */ [Same,        Same,          NotQueued,   To(STOPPING),       Cell::Stopping,     Same,        To(COMPLETED), To(FAILED), To(CANCELLED), Same, NotQueued,  To(STOPPING), To(STOPPING), Cell::Stopping, Same],
    /* completed */ [Same,        Same,          NotQueued,   Ended,              Ended,              Ended,       Ended,         Ended,      Ended,         Ended,      NotQueued,  Same, Ended, Ended, Ended],
    /* failed    */ [Same,        Same,          NotQueued,   Ended,              Ended,              Ended,       Ended,         Ended,      Ended,         Ended,      NotQueued,  Same, Ended, Ended, Ended],
    /* cancelled */ [Same,        Same,          NotQueued,   Ended,              Ended,              Ended,       Ended,         Ended,      Ended,         Ended,      NotQueued,  Same, Ended, Ended, Ended],
];

/// The task after `command`, which may be refused.
fn after(task: &Task, command: Command, now: Timestamp) -> Task {
    next(task, &task.apply(command, now))
}

fn policy() -> Policy {
    Policy {
        timeout_ms: Some(TIMEOUT_MS),
        keep_ms: Some(5_000),
        poll_interval_ms: 1_000,
        on_restart: OnRestart::Rerun { max_attempts: 2 },
    }
}

fn queued() -> Task {
    task(policy(), Start::Queued { ahead: 3 }, at(0))
}

fn working() -> Task {
    task(policy(), Start::Claimed { worker: worker(), since: at(0) }, at(0))
}

fn asking(name: &str) -> Command {
    Command::Ask {
        fence: FENCE,
        key: key(name),
        request: json(r#"{"method":"elicitation/create"}"#),
    }
}

fn complete() -> Command {
    Command::Complete { fence: FENCE, result: json(r#"{"content":[]}"#) }
}

fn failing() -> RpcError {
    RpcError::new(RpcError::INTERNAL, "broken")
}

fn answer(names: &[&str]) -> Command {
    let responses = names.iter().map(|name| (key(name), json(r#"{"action":"decline"}"#))).collect();
    Command::Answer { responses }
}

fn tasks() -> Vec<Task> {
    vec![
        queued(),
        working(),
        after(&working(), asking("open"), at(10)),
        after(&working(), Command::Cancel, at(10)),
        after(&working(), complete(), at(10)),
        after(&working(), Command::Fail { fence: FENCE, error: failing() }, at(10)),
        after(&queued(), Command::Cancel, at(10)),
    ]
}

fn commands() -> Vec<Command> {
    vec![
        answer(&["open"]),
        Command::Cancel,
        Command::Claim { worker: worker() },
        Command::Say { fence: FENCE, message: "half way".to_owned() },
        asking("fresh"),
        Command::Withdraw { fence: FENCE, key: key("open") },
        complete(),
        Command::Fail { fence: FENCE, error: failing() },
        Command::Stopped { fence: FENCE },
        Command::TimeUp { fence: FENCE },
        Command::Position { ahead: 1 },
        Command::Extend,
        Command::TakeOver { from: FENCE, worker: worker() },
        Command::Requeue { fence: FENCE, error: failing() },
        Command::Begin { fence: FENCE },
    ]
}

fn cell(result: &Result<Transition, Refusal>) -> Cell {
    match result {
        Ok(Transition::Changed { task, .. }) => To(row(task.state())),
        Ok(Transition::Unchanged { .. }) => Same,
        Err(Refusal::Ended(_)) => Ended,
        Err(Refusal::StaleFence { .. }) => Stale,
        Err(Refusal::NotQueued) => NotQueued,
        Err(Refusal::NotStopping) => NotStopping,
        Err(Refusal::Stopping) => Cell::Stopping,
        Err(other @ (Refusal::KeyUsed(_) | Refusal::TooManyInputs | Refusal::TooLarge { .. })) => {
            panic!("no cell expects {other}")
        }
    }
}

#[test]
fn every_command_in_every_state() {
    let (tasks, commands) = (tasks(), commands());
    assert_eq!(
        tasks.iter().map(|task| row(task.state())).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6]
    );
    assert_eq!(commands.iter().map(column).collect::<Vec<_>>(), (0..15).collect::<Vec<_>>());
    for task in &tasks {
        for command in &commands {
            let found = cell(&task.apply(command.clone(), NOW));
            let expected = &TABLE[row(task.state())][column(command)];
            assert_eq!(&found, expected, "{command:?} in {:?}", task.state());
        }
    }
}

#[test]
fn a_wrong_fence_is_refused_in_every_state() {
    let stale = |command: Command, fence: Fence| match command {
        Command::Say { message, .. } => Some(Command::Say { fence, message }),
        Command::Ask { key, request, .. } => Some(Command::Ask { fence, key, request }),
        Command::Withdraw { key, .. } => Some(Command::Withdraw { fence, key }),
        Command::Complete { result, .. } => Some(Command::Complete { fence, result }),
        Command::Fail { error, .. } => Some(Command::Fail { fence, error }),
        Command::Stopped { .. } => Some(Command::Stopped { fence }),
        Command::TimeUp { .. } => Some(Command::TimeUp { fence }),
        Command::TakeOver { worker, .. } => Some(Command::TakeOver { from: fence, worker }),
        Command::Requeue { error, .. } => Some(Command::Requeue { fence, error }),
        Command::Begin { .. } => Some(Command::Begin { fence }),
        Command::Answer { .. }
        | Command::Cancel
        | Command::Claim { .. }
        | Command::Position { .. }
        | Command::Extend => None,
    };
    for task in tasks() {
        for command in commands() {
            for held in [Fence(0), Fence(2), Fence(u64::MAX)] {
                let Some(command) = stale(command.clone(), held) else { continue };
                let expected = if task.status().is_terminal() {
                    Refusal::Ended(task.status())
                } else {
                    Refusal::StaleFence { held, current: task.fence() }
                };
                assert_eq!(task.apply(command, NOW), Err(expected));
            }
        }
    }
}

fn effects(task: &Task, command: Command, now: Timestamp) -> Vec<Effect> {
    match task.apply(command, now).unwrap() {
        Transition::Changed { effects, .. } | Transition::Unchanged { effects } => effects,
    }
}

#[test]
fn effects_follow_the_change() {
    let response = json(r#"{"action":"decline"}"#);
    let asked = after(&working(), asking("open"), at(4_000));
    let stopping = after(&working(), Command::Cancel, at(10));
    let cases = [
        (
            &queued(),
            Command::Claim { worker: worker() },
            vec![Effect::Start, Effect::Deadline(Some(NOW.plus_millis(TIMEOUT_MS)))],
        ),
        (
            &queued(),
            Command::Cancel,
            vec![Effect::Deadline(None), Effect::Ended(Status::Cancelled)],
        ),
        (&working(), asking("a"), vec![Effect::Deadline(None)]),
        (
            &asked,
            answer(&["typo", "open"]),
            vec![
                Effect::Deliver(key("open"), response.clone()),
                Effect::Ignored(vec![key("typo")]),
                Effect::Deadline(Some(NOW.plus_millis(6_000))),
            ],
        ),
        (
            &asked,
            answer(&["open", "open"]),
            vec![
                Effect::Deliver(key("open"), response),
                Effect::Ignored(vec![key("open")]),
                Effect::Deadline(Some(NOW.plus_millis(6_000))),
            ],
        ),
        (&working(), answer(&["open"]), vec![Effect::Ignored(vec![key("open")])]),
        (
            &working(),
            Command::Cancel,
            vec![Effect::Stop(WhyStopping::Cancel), Effect::Deadline(None)],
        ),
        (
            &working(),
            Command::TimeUp { fence: FENCE },
            vec![Effect::Stop(WhyStopping::Timeout), Effect::Deadline(None)],
        ),
        (
            &stopping,
            Command::Stopped { fence: FENCE },
            vec![Effect::Deadline(None), Effect::Ended(Status::Cancelled)],
        ),
        (&stopping, Command::Cancel, vec![]),
    ];
    for (task, command, expected) in cases {
        assert_eq!(effects(task, command.clone(), NOW), expected, "{command:?}");
    }
}

#[test]
fn a_timeout_ends_as_an_error_that_names_the_limit() {
    let early = working().apply(Command::TimeUp { fence: FENCE }, at(9_999)).unwrap();
    assert_eq!(early, Transition::Unchanged { effects: Vec::new() });

    let stopping = after(&working(), Command::TimeUp { fence: FENCE }, at(10_000));
    let failed = after(&stopping, Command::Stopped { fence: FENCE }, at(10_500));
    let State::Failed { error } = failed.state() else { panic!("{:?}", failed.state()) };
    assert_eq!(error.code, RpcError::INTERNAL);
    assert_eq!(error.data, Some(json(r#"{"reason":"timeout"}"#)));
    assert_eq!(failed.status_message(), Some(error.message.as_str()));
    assert!(error.message.contains("10s"), "{}", error.message);
}

#[test]
fn a_result_that_comes_while_stopping_wins() {
    for why in [Command::Cancel, Command::TimeUp { fence: FENCE }] {
        let stopping = after(&working(), why, at(10_000));
        let done = after(&stopping, complete(), at(10_001));
        assert_eq!(done.status(), Status::Completed);
        assert_eq!(done.status_message(), None);
    }
}

#[test]
fn ending_closes_open_requests_and_keeps_their_keys() {
    let asked = after(&working(), asking("open"), at(10));
    for command in [Command::Cancel, complete(), Command::Fail { fence: FENCE, error: failing() }] {
        let closed = after(&asked, command, at(20));
        assert_eq!(closed.settled()[&key("open")].by, SettledAs::Withdrawn);
        assert_ne!(closed.status(), Status::InputRequired);
    }
}

#[test]
fn the_same_question_again_has_the_same_answer() {
    let open = after(&working(), asking("q"), at(10));
    assert_eq!(open.apply(asking("q"), at(15)), Ok(Transition::Unchanged { effects: Vec::new() }));
    let answered = after(&open, answer(&["q"]), at(20));
    let asked = answered.apply(asking("q"), at(30));
    let Ok(Transition::Unchanged { effects }) = asked else { panic!("{asked:?}") };
    assert_eq!(effects, [Effect::Deliver(key("q"), json(r#"{"action":"decline"}"#))]);
    let another =
        Command::Ask { fence: FENCE, key: key("q"), request: json(r#"{"method":"roots/list"}"#) };
    assert_eq!(answered.apply(another, at(30)), Err(Refusal::KeyUsed(key("q"))));
    // One that was taken back may have been answered too late; its key stays used.
    let withdraw = Command::Withdraw { fence: FENCE, key: key("q") };
    let withdrawn = after(&after(&working(), asking("q"), at(10)), withdraw, at(20));
    assert_eq!(withdrawn.apply(asking("q"), at(30)), Err(Refusal::KeyUsed(key("q"))));
    let stopping = after(&answered, Command::Cancel, at(40));
    assert!(stopping.apply(asking("q"), at(50)).is_err());
}

#[test]
fn what_is_too_large_or_too_often_is_refused() {
    let text = |len: usize| json(&format!("\"{}\"", "x".repeat(len - 2)));
    let ask = |name: &str, len| Command::Ask { fence: FENCE, key: key(name), request: text(len) };
    let max = limits::MAX_INPUT_BYTES;
    let asked = after(&working(), ask("open", max), at(10));
    assert_eq!(asked.status(), Status::InputRequired);
    let reply = |name: &str, len| Command::Answer { responses: vec![(key(name), text(len))] };
    let result = |len| Command::Complete { fence: FENCE, result: text(len) };
    for (command, fits) in [
        (ask("next", max), true),
        (ask("next", max + 1), false),
        (reply("open", max), true),
        (reply("open", max + 1), false),
        // For a key that is not open it is ignored, whatever its size.
        (reply("other", max + 1), true),
        (result(limits::MAX_RESULT_BYTES), true),
        (result(limits::MAX_RESULT_BYTES + 1), false),
    ] {
        let refused = matches!(asked.apply(command, at(20)), Err(Refusal::TooLarge { .. }));
        assert_eq!(refused, !fits);
    }

    let mut task = working();
    for number in 0..limits::MAX_INPUTS_PER_TASK {
        let name = format!("key-{number}");
        task = after(&task, asking(&name), at(10));
        if number % 2 == 0 {
            task = after(&task, answer(&[&name]), at(10));
        }
    }
    assert_eq!(task.apply(asking("one-more"), at(20)), Err(Refusal::TooManyInputs));
}

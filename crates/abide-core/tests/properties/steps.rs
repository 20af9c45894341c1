//! Random tasks and random steps that a task is taken through.

use abide_core::{Command, Fence, InputKey, OnRestart, Policy, RawJson, RpcError, Start, Task};
use proptest::prelude::*;

use crate::common::{at, json, key, other_worker, task, worker};

/// One step: the clock jumps, then something is asked of the task.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) jump_ms: i64,
    /// The fencing number that the command carries: the task's own, or this one.
    stale: Option<u64>,
    what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Answer(Vec<(u8, u8)>),
    Cancel,
    Claim,
    Say(String),
    Ask(u8, u8),
    Withdraw(u8),
    Complete(u8),
    Fail(u8),
    Stopped,
    TimeUp,
    Position(u32),
    Extend,
    TakeOver,
    Requeue,
    Begin,
}

/// JSON that likes to get lost on the way to a store and back.
const VALUES: [&str; 8] = [
    "null",
    r#"{"action":"accept","content":{"confirm":true}}"#,
    r#"{"content":[],"isError":true,"n":12345678901234567890123,"f":1.10E+5}"#,
    r#""\ud800 \u0000 \" \\""#,
    r#"{"z":1,"a":{"response":null,"withdrawn":true}}"#,
    "[]",
    "false",
    "[[[[[[[[[[-0.0]]]]]]]]]]",
];

fn value(number: u8) -> RawJson {
    json(VALUES[usize::from(number) % VALUES.len()])
}

pub(crate) fn error(number: u8) -> RpcError {
    let data = (!number.is_multiple_of(3)).then(|| value(number));
    RpcError { code: -32_000 - i32::from(number), message: format!("broken {number} \"ü\""), data }
}

fn input_key(number: u8) -> InputKey {
    key(["a", "b", "ключ", "a b", "\"quoted\\", "🦀"][usize::from(number) % 6])
}

fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0..5_000_i64,
        2 => -20_000..0_i64,
        1 => -1_000_000_000_000..1_000_000_000_000_i64,
    ]
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        6 => prop::collection::vec((0..6_u8, any::<u8>()), 0..4).prop_map(What::Answer),
        1 => Just(What::Cancel),
        4 => Just(What::Claim),
        2 => "\\PC{0,8}".prop_map(What::Say),
        8 => (0..6_u8, any::<u8>()).prop_map(|(key, value)| What::Ask(key, value)),
        2 => (0..6_u8).prop_map(What::Withdraw),
        1 => any::<u8>().prop_map(What::Complete),
        1 => any::<u8>().prop_map(What::Fail),
        2 => Just(What::Stopped),
        3 => Just(What::TimeUp),
        1 => (0..4_u32).prop_map(What::Position),
        2 => Just(What::Extend),
        2 => Just(What::TakeOver),
        2 => Just(What::Requeue),
        1 => Just(What::Begin),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    (jump(), prop::option::weighted(0.15, 0..4_u64), what())
        .prop_map(|(jump_ms, stale, what)| Step { jump_ms, stale, what })
}

fn policy() -> impl Strategy<Value = Policy> {
    let period = || prop_oneof![4 => 0..20_000_u64, 1 => any::<u64>()];
    let on_restart = prop_oneof![
        Just(OnRestart::Reattach),
        (0..4_u32).prop_map(|max_attempts| OnRestart::Rerun { max_attempts }),
        Just(OnRestart::Fail),
    ];
    let keep = prop::option::weighted(0.8, period());
    (prop::option::of(period()), keep, any::<u64>(), on_restart).prop_map(
        |(timeout_ms, keep_ms, poll_interval_ms, on_restart)| Policy {
            timeout_ms,
            keep_ms,
            poll_interval_ms,
            on_restart,
        },
    )
}

pub(crate) fn created() -> impl Strategy<Value = Task> {
    (policy(), any::<bool>(), 0..100_000_i64, 0..9_000_i64).prop_map(
        |(policy, queued, now, ago)| {
            let start = if queued {
                Start::Queued { ahead: 2 }
            } else {
                Start::Claimed { worker: worker(), since: at(now - ago) }
            };
            task(policy, start, at(now))
        },
    )
}

pub(crate) fn command(task: &Task, step: &Step) -> Command {
    let fence = step.stale.map_or(task.fence(), Fence);
    match &step.what {
        What::Answer(responses) => Command::Answer {
            responses: responses.iter().map(|(k, v)| (input_key(*k), value(*v))).collect(),
        },
        What::Cancel => Command::Cancel,
        What::Claim => Command::Claim { worker: worker() },
        What::Say(message) => Command::Say { fence, message: message.clone() },
        What::Ask(k, v) => Command::Ask { fence, key: input_key(*k), request: value(*v) },
        What::Withdraw(k) => Command::Withdraw { fence, key: input_key(*k) },
        What::Complete(v) => Command::Complete { fence, result: value(*v) },
        What::Fail(n) => Command::Fail { fence, error: error(*n) },
        What::Stopped => Command::Stopped { fence },
        What::TimeUp => Command::TimeUp { fence },
        What::Position(ahead) => Command::Position { ahead: *ahead },
        What::Extend => Command::Extend,
        What::TakeOver => Command::TakeOver { from: fence, worker: other_worker() },
        What::Requeue => Command::Requeue { fence, error: error(2) },
        What::Begin => Command::Begin { fence },
    }
}

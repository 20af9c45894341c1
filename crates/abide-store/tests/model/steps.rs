//! Steps: what is done to a store, in words that survive when other steps are taken away.
//!
//! Steps name tasks (`t3`) and fencing numbers ("the right one"); what these are is found out when
//! the step is done. So a case can be shrunk by leaving steps out, and prints as a short story.

use std::fmt;

use abide_core::{
    Command, Fence, InputKey, OnRestart, Owner, RawJson, RpcError, ToolName, WorkerId,
};
use abide_store::suite::specimens::{ODD_JSON, json, key, owner, tool, worker};
use proptest::prelude::*;
use proptest::sample::select;

use crate::reference::Model;

/// All times are multiples of this, in milliseconds, but for the retention: that has an offset of
/// its own for each task, so that no two promises end in the same millisecond.
pub(crate) const GRID: u64 = 64;
/// Tasks in one case at most. Their offsets have room in [`GRID`], with one millisecond between
/// them for [`Command::Extend`] of work without a timeout.
const TASKS: u8 = 12;

/// `t0` to `t11`, and one that never exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskName(pub(crate) u8);

impl TaskName {
    pub(crate) const NEVER: Self = Self(u8::MAX);
}

#[derive(Clone)]
pub(crate) enum Step {
    /// One call, and its answer is waited for.
    One(Op),
    /// Calls at the same moment: the store may put them into one commit.
    Together(Vec<Op>),
    /// Calls whose callers are gone before the answer.
    Unheard(Vec<Op>),
    /// The clock moves by milliseconds, either way.
    Clock(i64),
    Restart(Restart),
}

#[derive(Clone)]
pub(crate) enum Restart {
    /// The store is closed, and opened again.
    Closed,
    /// The store is dropped, with these calls under way, and opened again.
    Dropped(Vec<Op>),
    /// What is on disk at this moment is opened, as after a crash: nobody has closed anything.
    Crashed,
}

#[derive(Clone)]
pub(crate) enum Op {
    Create(TaskName, New),
    Apply(TaskName, By, What),
    ClaimNext(ToolName, WorkerId),
    Heartbeat(WorkerId, u64),
    Retire(WorkerId),
    Sweep { ahead: u64, limit: u32 },
}

/// What a task is created with.
#[derive(Clone)]
pub(crate) struct New {
    pub(crate) owner: Owner,
    pub(crate) tool: ToolName,
    /// Queued if nobody has claimed it.
    pub(crate) worker: Option<WorkerId>,
    pub(crate) limit: Option<u32>,
    pub(crate) timeout: Option<u64>,
    pub(crate) keep: Option<u64>,
    pub(crate) on_restart: OnRestart,
}

#[derive(Debug, Clone)]
pub(crate) enum By {
    Owner,
    Stranger,
    Engine,
}

/// The fencing number of the newest claim, or one beside it.
#[derive(Clone, Copy)]
pub(crate) enum Held {
    Right,
    Older,
    Newer,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Answer(Vec<u8>),
    Cancel,
    Extend,
    Claim(WorkerId),
    Position(u32),
    Say(Held, u8),
    Ask(Held, u8),
    Withdraw(Held, u8),
    Complete(Held),
    Fail(Held),
    Stopped(Held),
    TimeUp(Held),
    TakeOver(Held, WorkerId),
    Requeue(Held),
}

impl What {
    /// The command, for a task whose newest claim has this fencing number.
    pub(crate) fn command(&self, fence: Fence) -> Command {
        let number = |held: Held| match held {
            Held::Right => fence,
            Held::Older => Fence(fence.0.saturating_sub(1)),
            Held::Newer => fence.next(),
        };
        match self.clone() {
            Self::Answer(keys) => {
                let response = |n| (input_key(n), json(ODD_JSON));
                Command::Answer { responses: keys.into_iter().map(response).collect() }
            }
            Self::Cancel => Command::Cancel,
            Self::Extend => Command::Extend,
            Self::Claim(worker) => Command::Claim { worker },
            Self::Position(ahead) => Command::Position { ahead },
            Self::Say(h, n) => Command::Say { fence: number(h), message: format!("Step {n} 🚀") },
            Self::Ask(h, n) => {
                Command::Ask { fence: number(h), key: input_key(n), request: request() }
            }
            Self::Withdraw(h, n) => Command::Withdraw { fence: number(h), key: input_key(n) },
            Self::Complete(h) => Command::Complete { fence: number(h), result: json(ODD_JSON) },
            Self::Fail(h) => Command::Fail { fence: number(h), error: error("failed") },
            Self::Stopped(h) => Command::Stopped { fence: number(h) },
            Self::TimeUp(h) => Command::TimeUp { fence: number(h) },
            Self::TakeOver(h, worker) => Command::TakeOver { from: number(h), worker },
            Self::Requeue(h) => Command::Requeue { fence: number(h), error: error("crashed") },
        }
    }
}

fn request() -> RawJson {
    json(r#"{"method":"elicitation/create","params":{"message":"Go?"}}"#)
}

fn error(message: &str) -> RpcError {
    RpcError { code: -32_000, message: message.to_owned(), data: Some(json(ODD_JSON)) }
}

fn input_key(number: u8) -> InputKey {
    key(["go", "größe 🦀"][usize::from(number)])
}

pub(crate) fn owners() -> [Owner; 3] {
    ["alice", "bob", "https://id.example/üser|42"].map(owner)
}

/// One is the other's beginning.
pub(crate) fn tools() -> [ToolName; 2] {
    ["deploy", "deploy2"].map(tool)
}

pub(crate) fn workers() -> [WorkerId; 3] {
    ["w1", "w2", "w3"].map(worker)
}

/// What may be done next.
pub(crate) fn step(model: &Model) -> BoxedStrategy<Step> {
    let several = prop::collection::vec(op(model), 1..6);
    let late = prop::collection::vec(op(model), 0..4);
    let grid = GRID as i64;
    prop_oneof![
        30 => op(model).prop_map(Step::One),
        4 => several.clone().prop_map(Step::Together),
        2 => several.prop_map(Step::Unheard),
        3 => (1..20_i64).prop_map(move |n| Step::Clock(n * grid)),
        1 => (-20..0_i64).prop_map(move |n| Step::Clock(n * grid)),
        2 => Just(Step::Clock(100 * grid)),
        1 => Just(Step::Restart(Restart::Closed)),
        1 => late.prop_map(|ops| Step::Restart(Restart::Dropped(ops))),
        1 => Just(Step::Restart(Restart::Crashed)),
    ]
    .boxed()
}

fn op(model: &Model) -> BoxedStrategy<Op> {
    let worker = || select(workers().to_vec());
    let tool = || select(tools().to_vec());
    prop_oneof![
        6 => create(model),
        24 => (task(model), by(), what()).prop_map(|(name, by, what)| Op::Apply(name, by, what)),
        3 => (tool(), worker()).prop_map(|(tool, worker)| Op::ClaimNext(tool, worker)),
        2 => (worker(), 0..20 * GRID).prop_map(|(worker, ms)| Op::Heartbeat(worker, ms)),
        1 => worker().prop_map(Op::Retire),
        4 => (0..10_u64, 0..6_u32).prop_map(|(n, limit)| Op::Sweep { ahead: n * GRID, limit }),
    ]
    .boxed()
}

/// Mostly a new task; now and then an id again that was given out before.
fn create(model: &Model) -> BoxedStrategy<Op> {
    let next = model.ids.len() as u8;
    let name = if next < TASKS {
        prop_oneof![9 => Just(next), 1 => 0..=next].boxed()
    } else {
        (0..TASKS).boxed()
    };
    let periods = || prop::option::weighted(0.8, 0..8_u64);
    let on_restart =
        [OnRestart::Fail, OnRestart::Reattach, OnRestart::Rerun { max_attempts: 2 }].to_vec();
    (
        name,
        select(owners().to_vec()),
        select(tools().to_vec()),
        prop::option::of(select(workers().to_vec())),
        prop::option::weighted(0.3, 0..4_u32),
        (periods(), periods()),
        select(on_restart),
    )
        .prop_map(|(name, owner, tool, worker, limit, (timeout, keep), on_restart)| {
            let timeout = timeout.map(|n| n * GRID);
            let keep = keep.map(|n| n * GRID + 4 * u64::from(name) + 2);
            let new = New { owner, tool, worker, limit, timeout, keep, on_restart };
            Op::Create(TaskName(name), new)
        })
        .boxed()
}

/// Mostly a task that something can happen to.
fn task(model: &Model) -> BoxedStrategy<TaskName> {
    let known: Vec<_> = model.ids.keys().copied().collect();
    let live: Vec<_> = known
        .iter()
        .copied()
        .filter(|name| {
            model.tasks.get(&model.id(*name)).is_some_and(|task| !task.status().is_terminal())
        })
        .collect();
    let or_never = |names: Vec<TaskName>| {
        if names.is_empty() { Just(TaskName::NEVER).boxed() } else { select(names).boxed() }
    };
    prop_oneof![16 => or_never(live), 4 => or_never(known), 1 => Just(TaskName::NEVER)].boxed()
}

fn by() -> impl Strategy<Value = By> {
    prop_oneof![6 => Just(By::Engine), 3 => Just(By::Owner), 2 => Just(By::Stranger)]
}

fn what() -> impl Strategy<Value = What> {
    let held =
        || prop_oneof![6 => Just(Held::Right), 1 => Just(Held::Older), 1 => Just(Held::Newer)];
    let worker = || select(workers().to_vec());
    let key = || 0..2_u8;
    prop_oneof![
        3 => prop::collection::vec(key(), 0..3).prop_map(What::Answer),
        2 => Just(What::Cancel),
        1 => Just(What::Extend),
        3 => worker().prop_map(What::Claim),
        1 => (0..3_u32).prop_map(What::Position),
        2 => (held(), any::<u8>()).prop_map(|(held, n)| What::Say(held, n)),
        4 => (held(), key()).prop_map(|(held, n)| What::Ask(held, n)),
        1 => (held(), key()).prop_map(|(held, n)| What::Withdraw(held, n)),
        2 => held().prop_map(What::Complete),
        1 => held().prop_map(What::Fail),
        2 => held().prop_map(What::Stopped),
        1 => held().prop_map(What::TimeUp),
        3 => (held(), worker()).prop_map(|(held, worker)| What::TakeOver(held, worker)),
        2 => held().prop_map(What::Requeue),
    ]
}

impl fmt::Debug for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER { f.write_str("no task") } else { write!(f, "t{}", self.0) }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Right => "right fence",
            Self::Older => "older fence",
            Self::Newer => "newer fence",
        })
    }
}

/// One line each, also where `{:#?}` would make many.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(op) => write!(f, "{op:?}"),
            Self::Together(ops) => write!(f, "together {}", list(ops)),
            Self::Unheard(ops) => write!(f, "unheard {}", list(ops)),
            Self::Clock(millis) => write!(f, "clock {millis:+} ms"),
            Self::Restart(Restart::Closed) => f.write_str("restart: closed"),
            Self::Restart(Restart::Dropped(late)) => {
                write!(f, "restart: dropped while {}", list(late))
            }
            Self::Restart(Restart::Crashed) => f.write_str("restart: crashed"),
        }
    }
}

fn list(ops: &[Op]) -> String {
    let ops: Vec<_> = ops.iter().map(|op| format!("{op:?}")).collect();
    format!("[{}]", ops.join("; "))
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = |period: &Option<u64>| period.map_or("none".to_owned(), |ms| format!("{ms}"));
        match self {
            Self::Create(name, new) => {
                let New { owner, tool, .. } = new;
                write!(f, "create {name:?} of {tool} for {owner}")?;
                match &new.worker {
                    Some(worker) => write!(f, " by {worker}")?,
                    None => f.write_str(" queued")?,
                }
                if let Some(limit) = new.limit {
                    write!(f, " limit {limit}")?;
                }
                let (timeout, keep) = (period(&new.timeout), period(&new.keep));
                write!(f, " (timeout {timeout} keep {keep} {:?})", new.on_restart)
            }
            Self::Apply(name, by, what) => write!(f, "{name:?}: {what:?} by {by:?}"),
            Self::ClaimNext(tool, worker) => write!(f, "claim next of {tool} by {worker}"),
            Self::Heartbeat(worker, millis) => write!(f, "{worker} lives {millis} ms"),
            Self::Retire(worker) => write!(f, "{worker} retires"),
            Self::Sweep { ahead, limit } => write!(f, "sweep {limit}, looking {ahead} ms ahead"),
        }
    }
}

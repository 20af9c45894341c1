//! The SQLite store beside a model of it: random operations, restarts among them, on a real file.
//!
//! The model is what a store promises in as few words as possible: a map of tasks, a map of workers,
//! and a clock. How a task changes is not its matter ([`Task::apply`] has tests of its own); which
//! tasks there are, whose they are, in which order they wait, who may take them over and when they
//! are deleted is. After every step everything that can be seen of the store has to be as the model
//! has it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use abide_core::{
    Applied, Authority, Command, Fence, NewTask, OnRestart, Policy, Record, RpcError, Start, State,
    Store as _, StoreError, Sweep, Task, TaskId, Timestamp, ToolName, Transition,
};
use abide_store::sqlite::{Options, SqliteStore};
use abide_store::suite::specimens::{at, id, json, key, owner, tool, worker};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

const OWNERS: [&str; 2] = ["alice", "bob"];
const TOOLS: [&str; 2] = ["deploy", "test"];
const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
/// More than there ever are.
const ALL: u32 = 10_000;
/// How far ahead a sweep looks for promises that run out.
const AHEAD_MS: u64 = 500;

prop_state_machine! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_is_what_the_model_is(sequential 1..60 => StoreTest);
}

/// One operation. Indices choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Create {
        owner: usize,
        tool: usize,
        claimed_by: Option<usize>,
        limit: Option<u32>,
        rerun: bool,
    },
    Apply {
        task: Index,
        by: By,
        stale: bool,
        what: What,
    },
    ClaimNext {
        tool: usize,
        worker: usize,
    },
    Heartbeat {
        worker: usize,
        millis: u64,
    },
    Retire {
        worker: usize,
    },
    Sweep {
        limit: u32,
    },
    Wait {
        millis: i64,
    },
    /// The process ends, with or without having closed the store, and another opens it.
    Restart {
        clean: bool,
    },
}

#[derive(Debug, Clone, Copy)]
enum By {
    Engine,
    Caller(usize),
}

#[derive(Debug, Clone, Copy)]
enum What {
    Answer,
    Cancel,
    Claim,
    Say,
    Ask,
    Withdraw,
    Complete,
    Fail,
    Stopped,
    TimeUp,
    Position,
    Extend,
    TakeOver,
    Requeue,
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        2 => Just(What::Answer),
        2 => Just(What::Cancel),
        1 => Just(What::Claim),
        1 => Just(What::Say),
        2 => Just(What::Ask),
        1 => Just(What::Withdraw),
        3 => Just(What::Complete),
        1 => Just(What::Fail),
        2 => Just(What::Stopped),
        1 => Just(What::TimeUp),
        1 => Just(What::Position),
        1 => Just(What::Extend),
        2 => Just(What::TakeOver),
        2 => Just(What::Requeue),
    ];
    let by = prop_oneof![5 => Just(By::Engine), 2 => (0..OWNERS.len()).prop_map(By::Caller)];
    let claimed_by = proptest::option::of(0..WORKERS.len());
    let limit = proptest::option::of(1_u32..4);
    prop_oneof![
        4 => (0..OWNERS.len(), 0..TOOLS.len(), claimed_by, limit, any::<bool>()).prop_map(
            |(owner, tool, claimed_by, limit, rerun)| {
                Step::Create { owner, tool, claimed_by, limit, rerun }
            }
        ),
        8 => (any::<Index>(), by, proptest::bool::weighted(0.15), what)
            .prop_map(|(task, by, stale, what)| Step::Apply { task, by, stale, what }),
        3 => (0..TOOLS.len(), 0..WORKERS.len())
            .prop_map(|(tool, worker)| Step::ClaimNext { tool, worker }),
        2 => (0..WORKERS.len(), 0_u64..2_000)
            .prop_map(|(worker, millis)| Step::Heartbeat { worker, millis }),
        1 => (0..WORKERS.len()).prop_map(|worker| Step::Retire { worker }),
        2 => prop_oneof![Just(1_u32), Just(ALL)].prop_map(|limit| Step::Sweep { limit }),
        3 => prop_oneof![0_i64..50, 500_i64..3_000, -1_000_i64..0]
            .prop_map(|millis| Step::Wait { millis }),
        1 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
    ]
}

/// What a store is.
#[derive(Debug, Clone, Default)]
struct Model {
    now: i64,
    made: u64,
    tasks: BTreeMap<TaskId, Task>,
    /// Until when each worker's claims hold.
    workers: BTreeMap<&'static str, Timestamp>,
    /// What the last step was answered with, in words.
    answer: String,
}

fn said<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    format!("{answer:?}")
}

impl Model {
    fn now(&self) -> Timestamp {
        at(self.now)
    }

    /// The task that a step is about, in the order of ids.
    fn chosen(&self, index: &Index) -> Option<&Task> {
        (!self.tasks.is_empty())
            .then(|| index.get(&self.tasks.values().collect::<Vec<_>>()).to_owned())
    }

    fn new_task(&self, owner_at: usize, tool_at: usize, rerun: bool) -> NewTask {
        NewTask {
            id: id(self.made, self.now),
            owner: owner(OWNERS[owner_at]),
            tool: tool(TOOLS[tool_at]),
            arguments: json("{}"),
            policy: Policy {
                timeout_ms: Some(700),
                keep_ms: (!self.made.is_multiple_of(4)).then_some(300),
                poll_interval_ms: 1,
                on_restart: if rerun {
                    OnRestart::Rerun { max_attempts: 2 }
                } else {
                    OnRestart::Fail
                },
            },
        }
    }

    fn task(&self, owner: usize, tool: usize, claimed_by: Option<usize>, rerun: bool) -> Task {
        let start = match claimed_by {
            Some(by) => Start::Claimed { worker: worker(WORKERS[by]), since: self.now() },
            None => Start::Queued { ahead: 0 },
        };
        Task::create(self.new_task(owner, tool, rerun), start, self.now())
    }

    fn queued(&self, tool: &ToolName) -> Vec<TaskId> {
        let waits = |task: &&Task| task.tool() == tool && matches!(task.state(), State::Queued);
        self.tasks.values().filter(waits).map(|task| *task.id()).collect()
    }

    fn unfinished(&self) -> Vec<Task> {
        self.tasks.values().filter(|task| !task.status().is_terminal()).cloned().collect()
    }

    fn orphans(&self) -> Vec<Task> {
        let holds = |name: &str| self.workers.get(name).is_some_and(|until| *until > self.now());
        let mut tasks = self.unfinished();
        tasks.retain(|task| task.state().worker().is_some_and(|worker| !holds(worker.as_str())));
        tasks
    }

    fn create(&mut self, task: Task, limit: Option<u32>) -> Result<Arc<Task>, StoreError> {
        let queued = self.queued(task.tool()).len() as u32;
        if limit.is_some_and(|limit| queued >= limit) && matches!(task.state(), State::Queued) {
            return Err(StoreError::QueueFull { queued });
        }
        self.tasks.insert(*task.id(), task.clone());
        Ok(Arc::new(task))
    }

    fn apply(
        &mut self,
        id: &TaskId,
        by: &Authority,
        command: Command,
    ) -> Result<Applied, StoreError> {
        let task = self.tasks.get(id).ok_or(StoreError::NotFound)?;
        if matches!(by, Authority::Caller(owner) if owner != task.owner()) {
            return Err(StoreError::NotFound);
        }
        Ok(match task.apply(command, self.now())? {
            Transition::Changed { task, effects } => {
                self.tasks.insert(*id, (*task).clone());
                Applied { task: Arc::from(task), effects, changed: true }
            }
            Transition::Unchanged { effects } => {
                Applied { task: Arc::new(task.clone()), effects, changed: false }
            }
        })
    }

    fn claim_next(&mut self, tool: &ToolName, by: usize) -> Result<Option<Applied>, StoreError> {
        let Some(oldest) = self.queued(tool).first().copied() else { return Ok(None) };
        let claim = Command::Claim { worker: worker(WORKERS[by]) };
        self.apply(&oldest, &Authority::Engine, claim).map(Some)
    }

    fn sweep(&mut self, limit: u32) -> Sweep {
        let mut ends: Vec<(i64, &Task)> = self
            .tasks
            .values()
            .filter_map(|task| Some((Record::from(task).expires_at?, task)))
            .collect();
        ends.sort_by_key(|(end, task)| (*end, *task.id()));
        let now = self.now().as_millis();
        let horizon = self.now().plus_millis(AHEAD_MS).as_millis();
        let limit = limit as usize;
        let due = |until: i64, ended: bool| {
            let due = ends
                .iter()
                .filter(move |(end, task)| *end <= until && task.status().is_terminal() == ended);
            due.map(|(_, task)| (*task.id(), task.tool().clone())).take(limit).collect::<Vec<_>>()
        };
        let (deleted, extend) = (due(now, true), due(horizon, false));
        for (id, _) in &deleted {
            self.tasks.remove(id);
        }
        let more = deleted.len() == limit || extend.len() == limit;
        Sweep { deleted, extend: extend.into_iter().map(|(id, _)| id).collect(), more }
    }
}

/// The command that a step gives to this task.
fn command(task: &Task, stale: bool, what: What) -> Command {
    let fence = if stale { Fence(task.fence().0 + 1) } else { task.fence() };
    let error = RpcError::new(-1, "broken");
    match what {
        What::Answer => {
            Command::Answer { responses: vec![(key("k"), json(r#"{"action":"accept"}"#))] }
        }
        What::Cancel => Command::Cancel,
        What::Claim => Command::Claim { worker: worker(WORKERS[0]) },
        What::Say => Command::Say { fence, message: "half-way".to_owned() },
        What::Ask => Command::Ask { fence, key: key("k"), request: json(r#"{"method":"m"}"#) },
        What::Withdraw => Command::Withdraw { fence, key: key("k") },
        What::Complete => Command::Complete { fence, result: json(r#"{"content":[1.10]}"#) },
        What::Fail => Command::Fail { fence, error },
        What::Stopped => Command::Stopped { fence },
        What::TimeUp => Command::TimeUp { fence },
        What::Position => Command::Position { ahead: 3 },
        What::Extend => Command::Extend,
        What::TakeOver => Command::TakeOver { from: fence, worker: worker(WORKERS[1]) },
        What::Requeue => Command::Requeue { fence, error },
    }
}

fn authority(by: By) -> Authority {
    match by {
        By::Engine => Authority::Engine,
        By::Caller(at) => Authority::Caller(owner(OWNERS[at])),
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        step().boxed()
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        model.answer = match step {
            Step::Create { owner, tool, claimed_by, limit, rerun } => {
                let task = model.task(*owner, *tool, *claimed_by, *rerun);
                model.made += 1;
                said(model.create(task, *limit))
            }
            Step::Apply { task, by, stale, what } => match model.chosen(task).cloned() {
                None => String::new(),
                Some(task) => {
                    let command = command(&task, *stale, *what);
                    said(model.apply(task.id(), &authority(*by), command))
                }
            },
            Step::ClaimNext { tool: at, worker } => {
                said(model.claim_next(&tool(TOOLS[*at]), *worker))
            }
            Step::Heartbeat { worker, millis } => {
                let until = model.now().plus_millis(*millis);
                let held = model.workers.entry(WORKERS[*worker]).or_insert(until);
                *held = (*held).max(until);
                said(Ok(()))
            }
            Step::Retire { worker } => {
                model.workers.remove(WORKERS[*worker]);
                said(Ok(()))
            }
            Step::Sweep { limit } => said(Ok(model.sweep(*limit))),
            Step::Wait { millis } => {
                model.now += millis;
                String::new()
            }
            // Whoever opens the file is alone with it: no worker of before lives.
            Step::Restart { .. } => {
                model.workers.clear();
                String::new()
            }
        };
        model
    }
}

/// The real store, on a file.
struct StoreTest {
    runtime: tokio::runtime::Runtime,
    store: Option<SqliteStore>,
    path: PathBuf,
    _folder: tempfile::TempDir,
    /// The model before the step, by which the step's indices choose.
    before: Model,
}

impl StoreTest {
    fn store(&self) -> &SqliteStore {
        self.store.as_ref().expect("open between steps")
    }

    fn run(&mut self, step: Step) -> String {
        let (before, store, runtime) = (&self.before, self.store(), &self.runtime);
        match step {
            Step::Create { owner, tool, claimed_by, limit, rerun } => {
                let task = before.task(owner, tool, claimed_by, rerun);
                said(runtime.block_on(store.create(task, limit)))
            }
            Step::Apply { task, by, stale, what } => match before.chosen(&task) {
                None => String::new(),
                Some(task) => {
                    let command = command(task, stale, what);
                    let applied = store.apply(*task.id(), authority(by), command, before.now());
                    said(runtime.block_on(applied))
                }
            },
            Step::ClaimNext { tool: at, worker: by } => {
                let by = worker(WORKERS[by]);
                said(runtime.block_on(store.claim_next(tool(TOOLS[at]), by, before.now())))
            }
            Step::Heartbeat { worker: by, millis } => {
                let until = before.now().plus_millis(millis);
                said(runtime.block_on(store.heartbeat(worker(WORKERS[by]), until)))
            }
            Step::Retire { worker: by } => {
                said(runtime.block_on(store.retire(worker(WORKERS[by]))))
            }
            Step::Sweep { limit } => {
                let horizon = before.now().plus_millis(AHEAD_MS);
                let mut swept = runtime.block_on(store.sweep(before.now(), horizon, limit));
                if let Ok(swept) = &mut swept {
                    // Which comes first of those that end at once is nobody's matter.
                    let end = |id: &TaskId| (Record::from(&before.tasks[id]).expires_at, *id);
                    swept.deleted.sort_by_key(|(id, _)| end(id));
                    swept.extend.sort_by_key(end);
                }
                said(swept)
            }
            Step::Wait { .. } => String::new(),
            Step::Restart { clean } => {
                if clean {
                    runtime.block_on(store.close());
                }
                self.store = None;
                self.store = Some(self.open());
                String::new()
            }
        }
    }

    /// Opens the file; a store that was only dropped lets go of it in the background.
    fn open(&self) -> SqliteStore {
        loop {
            match SqliteStore::open(&self.path, Options::default()) {
                Ok(store) => return store,
                Err(abide_store::sqlite::OpenError::Locked { .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Holds everything that can be seen against the model.
    fn compare(&self, model: &Model) {
        let (store, runtime) = (self.store(), &self.runtime);
        for (id, task) in &model.tasks {
            for name in OWNERS {
                let seen = runtime.block_on(store.get(*id, owner(name))).expect("read");
                let wanted = (task.owner().as_str() == name).then(|| Arc::new(task.clone()));
                assert_eq!(seen, wanted, "{name} looks at {id}");
            }
        }
        for name in TOOLS {
            let queued = runtime.block_on(store.queued(tool(name), ALL)).expect("read");
            assert_eq!(queued, model.queued(&tool(name)), "the queue of {name}");
        }
        let plain = |tasks: Vec<Arc<Task>>| tasks.iter().map(|t| (**t).clone()).collect::<Vec<_>>();
        let unfinished = runtime.block_on(store.unfinished(None, ALL)).expect("read");
        assert_eq!(plain(unfinished), model.unfinished(), "what has not ended");
        let orphans = runtime.block_on(store.orphans(model.now(), ALL)).expect("read");
        assert_eq!(plain(orphans), model.orphans(), "whose worker is gone");
        let ever: Vec<TaskId> = self.before.tasks.keys().copied().collect();
        let existing = runtime.block_on(store.existing(ever.clone())).expect("read");
        let wanted: Vec<_> = ever.into_iter().filter(|id| model.tasks.contains_key(id)).collect();
        assert_eq!(existing, wanted, "what there is");
    }
}

impl StateMachineTest for StoreTest {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(model: &Model) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = Some(SqliteStore::open(&path, Options::default()).unwrap());
        Self { runtime, store, path, _folder: folder, before: model.clone() }
    }

    fn apply(mut test: Self, model: &Model, step: Step) -> Self {
        let answer = test.run(step);
        assert_eq!(answer, model.answer, "the answer");
        test.compare(model);
        test.before = model.clone();
        test
    }

    fn teardown(test: Self, _: Model) {
        test.runtime.block_on(test.store().close());
    }
}

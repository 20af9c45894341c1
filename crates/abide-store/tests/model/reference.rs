//! The model: what a store promises, as maps and a few rules. It knows nothing of SQLite.

use std::collections::BTreeMap;
use std::fmt;

use abide_core::{
    Authority, Command, Effect, Fence, NewTask, Owner, Policy, Start, State, StoreError, Sweep,
    Task, TaskId, Timestamp, ToolName, Transition, WorkerId,
};
use abide_store::suite::specimens::{ODD_JSON, at, json};
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use crate::steps::{self, By, New, Op, Restart, Step, TaskName};

/// A call of the store with everything in it.
#[derive(Clone)]
pub(crate) enum Call {
    Create(Task, Option<u32>),
    Apply(TaskId, Authority, Command, Timestamp),
    ClaimNext(ToolName, WorkerId, Timestamp),
    Heartbeat(WorkerId, Timestamp),
    Retire(WorkerId),
    Sweep { now: Timestamp, horizon: Timestamp, limit: u32 },
}

/// What a call is answered with, in a form that can be compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Created(Task),
    Applied { task: Task, effects: Vec<Effect>, changed: bool },
    Swept(Sweep),
    Nothing,
    Error(String),
}

impl Answer {
    pub(crate) fn error(error: &StoreError) -> Self {
        Self::Error(match error {
            // What exactly is said about it is the store's affair.
            StoreError::Unavailable { .. } => "unavailable".to_owned(),
            other => other.to_string(),
        })
    }

    /// With what has no order in one.
    pub(crate) fn swept(mut sweep: Sweep) -> Self {
        sweep.deleted.sort_unstable();
        Self::Swept(sweep)
    }
}

/// Everything that a store has to know.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) now: Timestamp,
    /// The ids that were given out; not all of them are tasks any more.
    pub(crate) ids: BTreeMap<TaskName, TaskId>,
    /// By id, which is by age.
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    /// Until when each worker's claims hold.
    pub(crate) leases: BTreeMap<WorkerId, Timestamp>,
    /// The calls that the newest step consists of, with the answers that are due.
    pub(crate) calls: Vec<(Call, Answer)>,
}

/// Short, because a failure prints it: every case begins with nothing.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks", self.tasks.len())
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            now: at(0),
            ids: BTreeMap::new(),
            tasks: BTreeMap::new(),
            leases: BTreeMap::new(),
            calls: Vec::new(),
        })
        .boxed()
    }

    fn transitions(model: &Self) -> BoxedStrategy<Step> {
        steps::step(model)
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        model.calls.clear();
        match step {
            Step::One(op) => model.run(op),
            Step::Together(ops) | Step::Unheard(ops) => ops.iter().for_each(|op| model.run(op)),
            Step::Clock(millis) => {
                model.now = Timestamp::from_millis(model.now.as_millis() + millis);
            }
            Step::Restart(how) => {
                if let Restart::Dropped(late) = how {
                    late.iter().for_each(|op| model.run(op));
                }
                // Tasks stay as they are. No worker can outlive the only process that may have
                // the file.
                model.leases.clear();
            }
        }
        model
    }
}

impl Model {
    /// The id of the task with that name, or one that was never given out.
    pub(crate) fn id(&self, name: TaskName) -> TaskId {
        let random = [name.0; TaskId::RANDOM_LEN];
        self.ids.get(&name).copied().unwrap_or_else(|| TaskId::new(self.now, random))
    }

    /// Names for ids, for messages.
    pub(crate) fn names<'a>(&self, ids: impl IntoIterator<Item = &'a TaskId>) -> Vec<String> {
        let name = |id: &TaskId| {
            let named = self.ids.iter().find(|(_, known)| *known == id);
            named.map_or_else(|| id.to_string(), |(name, _)| format!("{name:?}"))
        };
        ids.into_iter().map(name).collect()
    }

    fn run(&mut self, op: &Op) {
        let call = self.call(op);
        let answer = self.answer(&call).unwrap_or_else(|error| Answer::error(&error));
        self.calls.push((call, answer));
    }

    /// What somebody who does `op` now asks of the store.
    fn call(&mut self, op: &Op) -> Call {
        match op {
            Op::Create(name, new) => {
                let id = self.id(*name);
                self.ids.insert(*name, id);
                Call::Create(self.task(id, new), new.limit)
            }
            Op::Apply(name, by, what) => {
                let id = self.id(*name);
                let task = self.tasks.get(&id);
                let owner = task.map_or_else(|| steps::owners()[0].clone(), |t| t.owner().clone());
                let authority = match by {
                    By::Owner => Authority::Caller(owner),
                    By::Stranger => Authority::Caller(stranger(&owner)),
                    By::Engine => Authority::Engine,
                };
                let fence = task.map_or(Fence::default(), Task::fence);
                Call::Apply(id, authority, what.command(fence), self.now)
            }
            Op::ClaimNext(tool, worker) => Call::ClaimNext(tool.clone(), worker.clone(), self.now),
            Op::Heartbeat(worker, millis) => {
                Call::Heartbeat(worker.clone(), self.now.plus_millis(*millis))
            }
            Op::Retire(worker) => Call::Retire(worker.clone()),
            Op::Sweep { ahead, limit } => {
                Call::Sweep { now: self.now, horizon: self.now.plus_millis(*ahead), limit: *limit }
            }
        }
    }

    fn task(&self, id: TaskId, new: &New) -> Task {
        let created = NewTask {
            id,
            owner: new.owner.clone(),
            tool: new.tool.clone(),
            arguments: json(ODD_JSON),
            policy: Policy {
                timeout_ms: new.timeout,
                keep_ms: new.keep,
                poll_interval_ms: 1_000,
                on_restart: new.on_restart,
            },
        };
        let start = match &new.worker {
            Some(worker) => Start::Claimed { worker: worker.clone(), since: self.now },
            None => Start::Queued { ahead: 0 },
        };
        Task::create(created, start, self.now)
    }

    /// The rules of changes.
    fn answer(&mut self, call: &Call) -> Result<Answer, StoreError> {
        match call.clone() {
            Call::Create(task, limit) => {
                let queued = self.queued(task.tool()).len() as u32;
                if matches!(task.state(), State::Queued) && limit.is_some_and(|max| queued >= max) {
                    return Err(StoreError::QueueFull { queued });
                }
                if self.tasks.contains_key(task.id()) {
                    return Err(StoreError::unavailable("the id is taken"));
                }
                self.tasks.insert(*task.id(), task.clone());
                Ok(Answer::Created(task))
            }
            Call::Apply(id, authority, command, now) => {
                let task = self.tasks.get(&id).filter(|task| match &authority {
                    Authority::Caller(owner) => task.owner() == owner,
                    Authority::Engine => true,
                });
                let task = task.cloned().ok_or(StoreError::NotFound)?;
                self.change(task, command, now)
            }
            Call::ClaimNext(tool, worker, now) => match self.queued(&tool).first() {
                None => Ok(Answer::Nothing),
                Some(id) => self.change(self.tasks[id].clone(), Command::Claim { worker }, now),
            },
            Call::Heartbeat(worker, until) => {
                let held = self.leases.entry(worker).or_insert(until);
                *held = until.max(*held);
                Ok(Answer::Nothing)
            }
            Call::Retire(worker) => {
                self.leases.remove(&worker);
                Ok(Answer::Nothing)
            }
            Call::Sweep { now, horizon, limit } => {
                let full = limit as usize;
                let over = self.running_out(now, full, |task| task.status().is_terminal());
                let deleted: Vec<_> =
                    over.iter().map(|id| (*id, self.tasks[id].tool().clone())).collect();
                self.tasks.retain(|id, _| !over.contains(id));
                let extend = self.running_out(horizon, full, |task| !task.status().is_terminal());
                let more = limit > 0 && (deleted.len() >= full || extend.len() >= full);
                Ok(Answer::swept(Sweep { deleted, extend, more }))
            }
        }
    }

    fn change(
        &mut self,
        task: Task,
        command: Command,
        now: Timestamp,
    ) -> Result<Answer, StoreError> {
        Ok(match task.apply(command, now)? {
            Transition::Changed { task, effects } => {
                self.tasks.insert(*task.id(), (*task).clone());
                Answer::Applied { task: *task, effects, changed: true }
            }
            Transition::Unchanged { effects } => Answer::Applied { task, effects, changed: false },
        })
    }

    /// What an owner sees under an id.
    pub(crate) fn seen_by(&self, owner: &Owner, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id).filter(|task| task.owner() == owner)
    }

    /// The queue of a tool, oldest first.
    pub(crate) fn queued(&self, tool: &ToolName) -> Vec<TaskId> {
        let queued = |task: &&Task| matches!(task.state(), State::Queued) && task.tool() == tool;
        self.tasks.values().filter(queued).map(|task| *task.id()).collect()
    }

    /// Tasks that have not ended, by id.
    pub(crate) fn unfinished(&self) -> Vec<&Task> {
        self.tasks.values().filter(|task| !task.status().is_terminal()).collect()
    }

    /// Claimed tasks whose worker is gone at that time, by id.
    pub(crate) fn orphans(&self, now: Timestamp) -> Vec<&Task> {
        let lives = |worker: &WorkerId| self.leases.get(worker).is_some_and(|until| *until > now);
        let orphaned = |task: &&Task| task.state().worker().is_some_and(|worker| !lives(worker));
        self.tasks.values().filter(orphaned).collect()
    }

    /// Those of which `which` holds and whose promise ends by `end`; the first to end come first.
    /// No two promises end at the same time (see [`steps::GRID`]), so the order is never open.
    fn running_out(
        &self,
        end: Timestamp,
        limit: usize,
        which: impl Fn(&Task) -> bool,
    ) -> Vec<TaskId> {
        let mut due: Vec<_> = self
            .tasks
            .values()
            .filter(|task| which(task))
            .filter_map(|task| Some((task.expires_at()?, *task.id())))
            .filter(|(expires, _)| *expires <= end)
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).take(limit).collect()
    }
}

fn stranger(owner: &Owner) -> Owner {
    steps::owners().into_iter().find(|other| other != owner).expect("there are several")
}

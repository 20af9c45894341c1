//! A task as a whole: what it is for, whose it is, what was promised about it, where it stands.

use std::collections::BTreeMap;

use crate::id::{Fence, InputKey, Owner, TaskId, ToolName, WorkerId};
use crate::json::RawJson;
use crate::limits::MAX_PERIOD_MS;
use crate::state::{Settled, State, Status};
use crate::time::Timestamp;

/// What the tool's settings were when the task was created. Later changes of the config do not
/// reach tasks that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long the work may take, in milliseconds; none for no bound.
    pub timeout_ms: Option<u64>,
    /// How long a finished task stays, in milliseconds; none for ever (`ttlMs: null`).
    pub keep_ms: Option<u64>,
    /// The suggested time between two polls, in milliseconds.
    pub poll_interval_ms: u64,
    /// What becomes of the task when its worker is gone.
    pub on_restart: OnRestart,
}

impl Policy {
    /// With each period brought into its bounds ([`MAX_PERIOD_MS`]; the wire allows no poll
    /// interval of zero).
    fn bounded(self) -> Self {
        Self {
            timeout_ms: self.timeout_ms.map(|ms| ms.min(MAX_PERIOD_MS)),
            keep_ms: self.keep_ms.map(|ms| ms.min(MAX_PERIOD_MS)),
            poll_interval_ms: self.poll_interval_ms.clamp(1, MAX_PERIOD_MS),
            on_restart: match self.on_restart {
                OnRestart::Rerun { max_attempts } => {
                    OnRestart::Rerun { max_attempts: max_attempts.max(1) }
                }
                other => other,
            },
        }
    }
}

/// What becomes of a task whose worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnRestart {
    /// The work runs on without its worker, and is taken up again.
    Reattach,
    /// The work is safe to repeat: what is left of it is stopped, and it begins again.
    Rerun {
        /// How often it may begin in all, the first time included; at least 1.
        max_attempts: u32,
    },
    /// What is left of the work is stopped, and the task fails with an honest message.
    Fail,
}

/// What a task is created from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// Its handle.
    pub id: TaskId,
    /// Whose it is.
    pub owner: Owner,
    /// The tool that was called.
    pub tool: ToolName,
    /// The arguments of the call.
    pub arguments: RawJson,
    /// The tool's settings.
    pub policy: Policy,
}

/// How a task begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Behind others.
    Queued {
        /// How many are ahead of it.
        ahead: u32,
    },
    /// Claimed by the worker that creates it, whose work began at the given time.
    Claimed {
        /// The worker.
        worker: WorkerId,
        /// When the work began; `timeout` counts from here.
        since: Timestamp,
    },
}

/// A durable task.
///
/// Fields are read through methods: a task changes only through [`Task::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub(crate) id: TaskId,
    pub(crate) owner: Owner,
    pub(crate) tool: ToolName,
    pub(crate) arguments: RawJson,
    pub(crate) policy: Policy,
    pub(crate) created_at: Timestamp,
    pub(crate) last_updated_at: Timestamp,
    pub(crate) version: u64,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) status_message: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) fence: Fence,
    pub(crate) settled: BTreeMap<InputKey, Settled>,
    pub(crate) state: State,
}

impl Task {
    /// A new task at `now`. It exists once a store has committed it.
    ///
    /// Periods of the policy beyond [`MAX_PERIOD_MS`] count as that.
    #[must_use]
    pub fn create(new: NewTask, start: Start, now: Timestamp) -> Self {
        let NewTask { id, owner, tool, arguments, policy } = new;
        let policy = policy.bounded();
        let mut task = Self {
            id,
            owner,
            tool,
            arguments,
            policy,
            created_at: now,
            last_updated_at: now,
            version: 1,
            // Above zero even if nothing is kept: the wire allows no zero.
            ttl_ms: policy
                .keep_ms
                .map(|keep| keep.saturating_add(policy.timeout_ms.unwrap_or(0)).max(1)),
            status_message: None,
            attempts: 0,
            fence: Fence::default(),
            settled: BTreeMap::new(),
            state: State::Queued,
        };
        match start {
            Start::Queued { ahead } => task.status_message = Some(queue_message(ahead)),
            Start::Claimed { worker, since } => task.begin(worker, since),
        }
        task
    }

    /// The handle.
    #[must_use]
    pub const fn id(&self) -> &TaskId {
        &self.id
    }

    /// Whose it is.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The tool that was called.
    #[must_use]
    pub const fn tool(&self) -> &ToolName {
        &self.tool
    }

    /// The arguments of the call.
    #[must_use]
    pub const fn arguments(&self) -> &RawJson {
        &self.arguments
    }

    /// The tool's settings at creation.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// When it was created.
    #[must_use]
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// When it last changed; of a terminal task, when it ended.
    #[must_use]
    pub const fn last_updated_at(&self) -> Timestamp {
        self.last_updated_at
    }

    /// Counts the committed states, from 1.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// How long from creation on the task stays retrievable, in milliseconds, as promised so far;
    /// none for ever. Extended at need, never shortened.
    #[must_use]
    pub const fn ttl_ms(&self) -> Option<u64> {
        self.ttl_ms
    }

    /// When the promise ends.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.ttl_ms.map(|ttl| self.created_at.plus_millis(ttl))
    }

    /// Whether the task has ended and its promise too: from now on it is unknown.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.status().is_terminal() && self.expires_at().is_some_and(|end| end <= now)
    }

    /// A sentence about where it stands, for people and models.
    #[must_use]
    pub fn status_message(&self) -> Option<&str> {
        self.status_message.as_deref()
    }

    /// How often its work was begun.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The fencing number of the newest claim.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// The input requests that are no longer open, by key.
    #[must_use]
    pub const fn settled(&self) -> &BTreeMap<InputKey, Settled> {
        &self.settled
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Where it stands, in the words of the wire.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.state.status()
    }

    /// When the work has taken too long, while the clock runs.
    #[must_use]
    pub const fn deadline(&self) -> Option<Timestamp> {
        match &self.state {
            State::Working { deadline, .. } => *deadline,
            _ => None,
        }
    }

    /// Makes the promise reach at least until `until` plus the time that a finished task is kept.
    pub(crate) fn promise(&mut self, until: Timestamp) {
        if let (Some(ttl), Some(keep)) = (self.ttl_ms, self.policy.keep_ms) {
            let needed = until.millis_since(self.created_at).saturating_add(keep);
            // Above zero for the wire, and within the integers of stores.
            let needed = needed.clamp(1, i64::MAX.unsigned_abs());
            self.ttl_ms = Some(ttl.max(needed));
        }
    }

    /// Puts a worker on the task, with a new fencing number and a fresh deadline.
    pub(crate) fn begin(&mut self, worker: WorkerId, since: Timestamp) {
        let deadline = self.policy.timeout_ms.map(|timeout| since.plus_millis(timeout));
        self.fence = self.fence.next();
        self.attempts = self.attempts.saturating_add(1);
        self.status_message = None;
        self.promise(deadline.unwrap_or(since));
        self.state = State::Working { worker, deadline };
    }
}

/// What a queued task says of itself.
pub(crate) fn queue_message(ahead: u32) -> String {
    match ahead {
        0 => "Queued; next in line.".to_owned(),
        1 => "Queued; 1 call is ahead.".to_owned(),
        n => format!("Queued; {n} calls are ahead."),
    }
}

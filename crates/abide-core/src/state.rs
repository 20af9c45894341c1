//! Where a task stands. Each state carries only the data that belongs to it.

use std::collections::BTreeMap;

use crate::error::RpcError;
use crate::id::{InputKey, WorkerId};
use crate::json::RawJson;
use crate::time::Timestamp;

/// The status on the wire (Tasks extension, "Task Status").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Queued, being worked on, or being stopped.
    Working,
    /// At least one input request is open.
    InputRequired,
    /// There is a result, which may say `isError`.
    Completed,
    /// The request ended in a JSON-RPC error.
    Failed,
    /// Stopped on request, before there was a result.
    Cancelled,
}

impl Status {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a task in this status never changes again.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Where a task stands, in abide's own terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waits for a free slot; nothing has run.
    Queued,
    /// A worker is on it.
    Working {
        /// Whose claim it is; the claim's fencing number is the task's.
        worker: WorkerId,
        /// When the work has taken too long; none if it may take for ever.
        deadline: Option<Timestamp>,
    },
    /// A worker is on it and has asked; the clock of `timeout` stands still.
    InputRequired {
        /// Whose claim it is.
        worker: WorkerId,
        /// The open requests, at least one.
        outstanding: Outstanding,
        /// What was left of `timeout` when the first question came, in milliseconds.
        time_left_ms: Option<u64>,
    },
    /// The worker has been told to stop, and has not stopped yet.
    Stopping {
        /// Whose claim it is.
        worker: WorkerId,
        /// What the stopping is for.
        why: WhyStopping,
        /// Since when.
        since: Timestamp,
    },
    /// There is a result.
    Completed {
        /// The bytes that a synchronous call would have answered.
        result: RawJson,
    },
    /// There is a JSON-RPC error instead of a result.
    Failed {
        /// The error.
        error: RpcError,
    },
    /// Stopped on request.
    Cancelled,
}

impl State {
    /// The status on the wire.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Queued | Self::Working { .. } | Self::Stopping { .. } => Status::Working,
            Self::InputRequired { .. } => Status::InputRequired,
            Self::Completed { .. } => Status::Completed,
            Self::Failed { .. } => Status::Failed,
            Self::Cancelled => Status::Cancelled,
        }
    }

    /// The worker that holds the claim, while there is one.
    #[must_use]
    pub const fn worker(&self) -> Option<&WorkerId> {
        match self {
            Self::Working { worker, .. }
            | Self::InputRequired { worker, .. }
            | Self::Stopping { worker, .. } => Some(worker),
            _ => None,
        }
    }
}

/// What a task in [`State::Stopping`] becomes once its work has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhyStopping {
    /// The owner asked for it: it becomes `cancelled`.
    Cancel,
    /// It took longer than its `timeout`: it becomes `failed`.
    Timeout,
}

/// The open input requests of a task: never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outstanding(BTreeMap<InputKey, RawJson>);

impl Outstanding {
    /// The first request.
    #[must_use]
    pub fn one(key: InputKey, request: RawJson) -> Self {
        Self(BTreeMap::from([(key, request)]))
    }

    /// Takes a map, unless it is empty.
    #[must_use]
    pub fn from_map(map: BTreeMap<InputKey, RawJson>) -> Option<Self> {
        (!map.is_empty()).then_some(Self(map))
    }

    /// The requests by key.
    #[must_use]
    pub const fn as_map(&self) -> &BTreeMap<InputKey, RawJson> {
        &self.0
    }

    /// The requests by key.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<InputKey, RawJson> {
        self.0
    }

    pub(crate) fn insert(&mut self, key: InputKey, request: RawJson) {
        self.0.insert(key, request);
    }
}

/// An input request that is no longer open. Its key is never used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// What was asked.
    pub request: RawJson,
    /// How it ended.
    pub by: SettledAs,
}

/// How an input request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettledAs {
    /// With this response.
    Answered(RawJson),
    /// Taken back by the job, or closed because the task ended or is being stopped.
    Withdrawn,
}

//! The store, seen from the engine. One contract suite (`abide-store::suite`) holds every
//! implementation to it.

use std::sync::Arc;

use crate::backend::BoxFuture;
use crate::command::{Command, Effect, Refusal};
use crate::id::{Owner, TaskId, ToolName, WorkerId};
use crate::record::CorruptRecord;
use crate::task::Task;
use crate::time::Timestamp;

/// On whose authority a task is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// A caller, who reaches only what is theirs; another's task is
    /// [`StoreError::NotFound`], as an unknown one is.
    Caller(Owner),
    /// The engine, on behalf of a worker or of its own housekeeping. What a worker writes carries
    /// the claim's fencing number in the command.
    Engine,
}

/// A committed command.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The task as it is on disk now.
    pub task: Arc<Task>,
    /// What follows, to be carried out once.
    pub effects: Vec<Effect>,
    /// Whether the command changed anything.
    pub changed: bool,
}

/// What one pass of the sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Terminal tasks past their end that were deleted, with their tools.
    pub deleted: Vec<(TaskId, ToolName)>,
    /// Tasks still at work whose promise runs out, to be extended.
    pub extend: Vec<TaskId>,
    /// Whether the batch was full, so that another pass is due at once.
    pub more: bool,
}

/// Whether the store can take writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Ok,
    /// It could not, the last time it tried.
    Failing {
        /// What went wrong, without internals.
        problem: String,
    },
}

/// Why the store did not do what it was asked. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No such task, or not this caller's.
    #[error("no such task")]
    NotFound,
    /// The task refused the command.
    #[error("the task refused: {0}")]
    Refused(#[from] Refusal),
    /// The tool's queue is full.
    #[error("the queue is full: {queued} calls wait already")]
    QueueFull {
        /// How many wait.
        queued: u32,
    },
    /// A row can't be read as a task.
    #[error(transparent)]
    Corrupt(#[from] CorruptRecord),
    /// The database did not take it: disk full, read-only, input/output error, or closing.
    /// Trying again may help.
    #[error("the database is unavailable: {problem}")]
    Unavailable {
        /// What went wrong.
        problem: String,
    },
}

impl StoreError {
    /// An [`StoreError::Unavailable`].
    #[must_use]
    pub fn unavailable(problem: impl Into<String>) -> Self {
        Self::Unavailable { problem: problem.into() }
    }
}

/// A durable home for tasks.
///
/// Every method that changes something returns after the change is on disk, or fails; so nothing
/// that was acknowledged is lost to a crash or a power cut. Futures may be dropped at any time:
/// the change then happens wholly or not at all.
pub trait Store: Send + Sync + 'static {
    /// Commits a new task.
    ///
    /// `queue_limit` bounds the queued tasks of its tool, this one included if it is queued.
    ///
    /// # Errors
    /// [`StoreError::QueueFull`], [`StoreError::Unavailable`].
    fn create(
        &self,
        task: Task,
        queue_limit: Option<u32>,
    ) -> BoxFuture<'_, Result<Arc<Task>, StoreError>>;

    /// Reads the task, applies [`Task::apply`] to it and commits, in one transaction.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Refused`], [`StoreError::Corrupt`],
    /// [`StoreError::Unavailable`].
    fn apply(
        &self,
        id: TaskId,
        authority: Authority,
        command: Command,
        now: Timestamp,
    ) -> BoxFuture<'_, Result<Applied, StoreError>>;

    /// A caller's read: none if there is no such task or it is another's.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::Unavailable`].
    fn get(&self, id: TaskId, owner: Owner)
    -> BoxFuture<'_, Result<Option<Arc<Task>>, StoreError>>;

    /// Claims the oldest queued task of `tool`, if there is one. Rows that are no task are logged
    /// and passed over.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn claim_next(
        &self,
        tool: ToolName,
        worker: WorkerId,
        now: Timestamp,
    ) -> BoxFuture<'_, Result<Option<Applied>, StoreError>>;

    /// The queued tasks of `tool`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn queued(&self, tool: ToolName, limit: u32) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>>;

    /// The engine's read: tasks that have not ended, by id, after `after`, at most `limit`. Rows that
    /// are no task are logged and passed over.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn unfinished(
        &self,
        after: Option<TaskId>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Arc<Task>>, StoreError>>;

    /// Which of `ids` are tasks, in any state and of any owner.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn existing(&self, ids: Vec<TaskId>) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>>;

    /// Says that `worker` lives, and that its claims hold until `until`. A worker that has said
    /// nothing, or whose time has passed, is gone.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn heartbeat(
        &self,
        worker: WorkerId,
        until: Timestamp,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The claimed tasks whose worker is gone at `now`, by id, at most `limit`. Rows that are no task
    /// are logged and passed over.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn orphans(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Arc<Task>>, StoreError>>;

    /// Says that `worker` is done: it is gone from now on.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn retire(&self, worker: WorkerId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes at most `limit` ended tasks whose promise has run out at `now`, and names at most
    /// `limit` others whose promise runs out by `horizon` although they have not ended.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn sweep(
        &self,
        now: Timestamp,
        horizon: Timestamp,
        limit: u32,
    ) -> BoxFuture<'_, Result<Sweep, StoreError>>;

    /// Whether writes go through.
    fn health(&self) -> Health;

    /// Finishes what is under way, then releases the database. Later calls are
    /// [`StoreError::Unavailable`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

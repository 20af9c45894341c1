//! The engine as a whole: its parts, its life, and what callers may do with a task.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_core::{
    Authority, Clock, Command, Health, InputKey, Owner, RawJson, StopReason, Store, StoreError,
    Task, TaskId, Timestamp, ToolName, WorkerId,
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::input::{self, InvalidInput};
use crate::run::{Phase, Run};
use crate::tool::Tool;

/// How long, beyond its own grace, work that was told to stop may take to be gone and committed
/// before the engine gives up on it.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// Settings of the engine itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often ended tasks whose time is over are deleted.
    pub sweep_every: Duration,
    /// How long this engine's claims hold after its last sign of life. Another engine on the same
    /// store takes over after that.
    pub lease: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { sweep_every: Duration::from_secs(60), lease: Duration::from_secs(15) }
    }
}

/// Why a caller did not get what they asked of a task.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// Unknown, expired, or somebody else's: one answer for all three.
    #[error("no such task")]
    UnknownTask,
    /// A response does not fit its request.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    /// Our fault; details are for the log.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::UnknownTask,
            other => Self::Store(other),
        }
    }
}

/// What was still running when the engine stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// Pieces of work that did not stop in time.
    pub running: usize,
}

/// Runs tasks. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct ToolState {
    pub(crate) tool: Tool,
    /// One permit is one call that is worked on.
    pub(crate) slots: Arc<Semaphore>,
    /// Plain calls that wait for a slot.
    pub(crate) waiting: AtomicU32,
    /// Calls that are on their way into the queue.
    pub(crate) creating: AtomicU32,
    /// Rung when a task was queued.
    pub(crate) wake: Notify,
    /// Rung when the queue has moved.
    pub(crate) moved: Notify,
}

/// The work of this process.
#[derive(Default)]
struct Runs {
    by_id: HashMap<TaskId, Arc<Run>>,
    /// Stops that were committed after a claim was and before its work was here to be told.
    early_stops: HashMap<TaskId, StopReason>,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) worker: WorkerId,
    pub(crate) tools: HashMap<ToolName, ToolState>,
    pub(crate) options: Options,
    /// Changes of tasks that the store has not taken yet and that are tried again.
    pub(crate) unwritten: AtomicU32,
    runs: Mutex<Runs>,
    /// Until when this engine's claims hold, as far as it has said so.
    pub(crate) leased_until: Mutex<Option<Timestamp>>,
    /// Tasks that were taken over and are not settled yet.
    pub(crate) settling: AtomicUsize,
    /// No new work from here on.
    pub(crate) closing: CancellationToken,
    /// The draining is over.
    pub(crate) drained: CancellationToken,
    /// All work has ended or was let go; its claims need not hold any more.
    pub(crate) released: CancellationToken,
    /// Waiting for the store is over.
    pub(crate) abandoned: CancellationToken,
    /// Everything that must have ended before the store is closed.
    pub(crate) tracker: TaskTracker,
}

impl Engine {
    /// Takes over the store: tasks whose worker is gone are settled, queued ones go on.
    ///
    /// # Errors
    /// [`StoreError`] when what a former process left can't be settled, or there is no randomness.
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        tools: Vec<Tool>,
        options: Options,
    ) -> Result<Self, StoreError> {
        let tools = tools
            .into_iter()
            .map(|tool| {
                let slots = Arc::new(Semaphore::new(tool.concurrency.max(1) as usize));
                let state = ToolState {
                    slots,
                    waiting: AtomicU32::new(0),
                    creating: AtomicU32::new(0),
                    wake: Notify::new(),
                    moved: Notify::new(),
                    tool,
                };
                (state.tool.name.clone(), state)
            })
            .collect();
        let inner = Arc::new(Inner {
            worker: fresh_worker(clock.as_ref())?,
            store,
            clock,
            tools,
            options,
            unwritten: AtomicU32::new(0),
            runs: Mutex::default(),
            leased_until: Mutex::default(),
            settling: AtomicUsize::new(0),
            released: CancellationToken::new(),
            drained: CancellationToken::new(),
            closing: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            tracker: TaskTracker::new(),
        });
        inner.recover().await?;
        for name in inner.tools.keys() {
            inner.tracker.spawn(inner.clone().serve_queue(name.clone()));
            inner.tracker.spawn(inner.clone().tell_positions(name.clone()));
        }
        inner.tracker.spawn(inner.clone().sweep_for_ever());
        // Not tracked: it ends after everything else has.
        tokio::spawn(inner.clone().keep_lease());
        Ok(Self(inner))
    }

    /// The caller's task, or none: unknown, expired and another's are the same.
    ///
    /// # Errors
    /// [`EngineError::Store`].
    pub async fn get(&self, owner: &Owner, id: TaskId) -> Result<Option<Arc<Task>>, EngineError> {
        let task = self.0.store.get(id, owner.clone()).await?;
        Ok(task.filter(|task| !task.is_expired(self.0.clock.now())))
    }

    /// Takes responses to open input requests; durable when it returns. Responses for other keys
    /// are ignored (`sep-2663-update-ignore-unknown-keys`).
    ///
    /// # Errors
    /// [`EngineError::UnknownTask`]; [`EngineError::InvalidInput`], and nothing is changed;
    /// [`EngineError::Store`].
    pub async fn answer(
        &self,
        owner: &Owner,
        id: TaskId,
        responses: Vec<(InputKey, RawJson)>,
    ) -> Result<(), EngineError> {
        let task = self.get(owner, id).await?.ok_or(EngineError::UnknownTask)?;
        // Only what was checked is passed on: a question that is asked right now is not open yet.
        let (responses, ignored) = input::check(&task, responses)?;
        if ignored > 0 {
            tracing::info!(
                task = %id, keys = ignored,
                "responses for input requests that are not open were ignored"
            );
        }
        if responses.is_empty() {
            return Ok(());
        }
        let command = Command::Answer { responses };
        self.0.apply(id, Authority::Caller(owner.clone()), command).await?;
        Ok(())
    }

    /// Asks that the task stop; the wish is durable when this returns. Does nothing to a task that
    /// has ended.
    ///
    /// # Errors
    /// [`EngineError::UnknownTask`], [`EngineError::Store`].
    pub async fn cancel(&self, owner: &Owner, id: TaskId) -> Result<(), EngineError> {
        let authority = Authority::Caller(owner.clone());
        let applied = self.0.apply(id, authority, Command::Cancel).await?;
        if applied.task.is_expired(self.0.clock.now()) {
            return Err(EngineError::UnknownTask);
        }
        Ok(())
    }

    /// Whether writes reach the disk, and no change of a task is waiting to be written. Asking is what
    /// makes the store try again, so that health comes back although nobody writes.
    #[must_use]
    pub fn health(&self) -> Health {
        let unwritten = match self.0.unwritten.load(Ordering::Relaxed) {
            0 => return self.0.store.health(),
            1 => "a change of a task waits in memory to be written".to_owned(),
            many => format!("{many} changes of tasks wait in memory to be written"),
        };
        Health::Failing {
            problem: match self.0.store.health() {
                Health::Ok => unwritten,
                Health::Failing { problem } => format!("{problem}; {unwritten}"),
            },
        }
    }

    /// Takes no more calls and lets go of tasks whose work outlives the server. Other work has
    /// `grace` to end by itself; then it is stopped, and what became of it is committed. Queued
    /// tasks stay queued. Tasks can still be read.
    pub async fn drain(&self, grace: Duration) -> Remaining {
        let inner = &self.0;
        inner.closing.cancel();
        inner.tracker.close();
        for run in inner.all_runs().iter().filter(|run| run.outlives()) {
            run.let_go.cancel();
        }
        if tokio::time::timeout(grace, inner.tracker.wait()).await.is_err() {
            let runs = inner.all_runs();
            tracing::info!(running = runs.len(), "stopping the work that is still running");
            for run in &runs {
                // Held, so that no call becomes a task between the question and the stop.
                let phase = run.phase.lock().await;
                if !(run.outlives() && matches!(*phase, Phase::Durable(_))) {
                    run.stop(StopReason::Shutdown);
                }
            }
            let graces = inner.tools.values().map(|state| state.tool.backend.grace());
            let patience = graces.max().unwrap_or_default().saturating_add(STOP_PATIENCE);
            if tokio::time::timeout(patience, inner.tracker.wait()).await.is_err() {
                inner.abandoned.cancel();
            }
        }
        inner.drained.cancel();
        Remaining { running: inner.all_runs().len() }
    }

    /// Waits until a [`drain`](Self::drain) is done; returns at once if none has begun.
    pub async fn drained(&self) {
        if self.0.closing.is_cancelled() {
            self.0.drained.cancelled().await;
        }
    }

    /// Closes the store. From here on everything is refused.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.drained.cancel();
        self.0.abandoned.cancel();
        self.0.released.cancel();
        // So that a successor need not wait for the lease to run out.
        if let Err(error) = self.0.store.retire(self.0.worker.clone()).await {
            tracing::warn!(%error, "the lease could not be given back; it will run out");
        }
        self.0.store.close().await;
    }

    /// Drains, then closes.
    pub async fn shutdown(&self, grace: Duration) -> Remaining {
        let remaining = self.drain(grace).await;
        self.close().await;
        remaining
    }
}

impl Inner {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find_run(&self, id: &TaskId) -> Option<Arc<Run>> {
        self.runs().by_id.get(id).cloned()
    }

    pub(crate) fn add_run(&self, run: Arc<Run>) {
        let mut runs = self.runs();
        if let Some(reason) = runs.early_stops.remove(&run.id) {
            run.stop(reason);
        }
        // What is claimed in the moment in which the engine is told to stop.
        if run.outlives() && self.closing.is_cancelled() {
            run.let_go.cancel();
        }
        runs.by_id.insert(run.id, run);
    }

    pub(crate) fn remove_run(&self, id: &TaskId) {
        self.runs().by_id.remove(id);
    }

    /// Tells the work of a task to stop, now or as soon as it is here.
    pub(crate) fn stop_run(&self, task: &Task, reason: StopReason) {
        let mut runs = self.runs();
        if let Some(run) = runs.by_id.get(task.id()) {
            run.stop(reason);
        } else if task.state().worker() == Some(&self.worker) {
            runs.early_stops.insert(*task.id(), reason);
        }
    }

    pub(crate) fn forget_early_stop(&self, id: &TaskId) {
        self.runs().early_stops.remove(id);
    }

    /// How many calls of a tool wait for an answer, or for a slot after that.
    pub(crate) fn count_waiting(&self, tool: &ToolName) -> usize {
        let waits = |run: &&Arc<Run>| run.tool == *tool && run.is_waiting();
        self.runs().by_id.values().filter(waits).count()
    }

    pub(crate) fn has_runs(&self) -> bool {
        !self.runs().by_id.is_empty()
    }

    fn all_runs(&self) -> Vec<Arc<Run>> {
        self.runs().by_id.values().cloned().collect()
    }

    /// A fresh handle.
    pub(crate) fn new_id(&self) -> Result<TaskId, StoreError> {
        Ok(TaskId::new(self.clock.now(), random()?))
    }
}

fn fresh_worker(clock: &dyn Clock) -> Result<WorkerId, StoreError> {
    let id = TaskId::new(clock.now(), random()?);
    WorkerId::new(id.as_str()).map_err(|error| StoreError::unavailable(error.to_string()))
}

fn random() -> Result<[u8; TaskId::RANDOM_LEN], StoreError> {
    let mut bytes = [0; TaskId::RANDOM_LEN];
    getrandom::fill(&mut bytes).map_err(|error| {
        StoreError::unavailable(format!("the operating system gave no random bytes: {error}"))
    })?;
    Ok(bytes)
}

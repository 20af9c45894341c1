//! Applies commands and carries out what follows from the commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_core::{
    Applied, Authority, Command, Effect, StopReason, StoreError, Task, TaskId, WhyStopping,
};

use crate::engine::Inner;

/// The first and the longest pause between attempts to write while the store is unavailable.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

impl Inner {
    /// Commits one command, then carries out its effects: both or neither, even if the caller
    /// stops waiting in between.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        id: TaskId,
        authority: Authority,
        command: Command,
    ) -> Result<Applied, StoreError> {
        let inner = self.clone();
        let applied = self.tracker.spawn(async move {
            let now = inner.clock.now();
            let applied = inner.store.apply(id, authority, command, now).await?;
            #[cfg(feature = "torture")]
            abide_torture::point("engine-effects");
            inner.carry_out(&applied);
            Ok(applied)
        });
        applied.await.unwrap_or_else(|error| Err(StoreError::unavailable(error.to_string())))
    }

    /// Commits a command of the engine's, however long the store takes to be available again.
    /// What must not be lost goes this way: nothing in memory claims what is not on disk.
    pub(crate) async fn apply_until_done(
        self: &Arc<Self>,
        id: TaskId,
        command: Command,
    ) -> Result<Applied, StoreError> {
        let mut pause = RETRY_FIRST;
        let mut waiting = None;
        loop {
            match self.apply(id, Authority::Engine, command.clone()).await {
                Err(StoreError::Unavailable { problem }) if !self.abandoned.is_cancelled() => {
                    tracing::error!(
                        task = %id, problem,
                        "a change of a task could not be written; it is tried again"
                    );
                    waiting.get_or_insert_with(|| Waiting::new(self.clone()));
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.abandoned.cancelled() => {}
                    }
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                other => return other,
            }
        }
    }

    /// Does what a commit asks for. Each effect is harmless if the work is not in this process.
    pub(crate) fn carry_out(&self, applied: &Applied) {
        let Applied { task, effects, .. } = applied;
        let run = self.find_run(task.id());
        for effect in effects {
            match effect {
                Effect::Start => {}
                Effect::Requeued => {
                    if let Some(tool) = self.tools.get(task.tool()) {
                        tool.wake.notify_one();
                    }
                }
                Effect::Stop(why) => {
                    self.stop_run(task, stop_reason(*why));
                }
                Effect::Deliver(key, response) => {
                    if let Some(run) = &run {
                        run.deliver(key, response.clone());
                    }
                }
                Effect::Ignored(keys) => {
                    tracing::info!(
                        task = %task.id(), keys = keys.len(),
                        "responses for input requests that are not open were ignored"
                    );
                }
                Effect::Deadline(deadline) => {
                    if let Some(run) = &run {
                        run.take_deadline(task, *deadline);
                    }
                }
                Effect::Ended(status) => self.ended(task, *status),
            }
        }
    }

    fn ended(&self, task: &Arc<Task>, status: abide_core::Status) {
        tracing::info!(
            task = %task.id(), tool = %task.tool(), status = status.as_str(),
            attempts = task.attempts(), "task ended"
        );
        // A task that ended while no work of it was here was queued: those behind it move up.
        if self.find_run(task.id()).is_none()
            && let Some(tool) = self.tools.get(task.tool())
        {
            tool.moved.notify_one();
        }
    }
}

/// A change that is kept in memory and tried again until the store takes it.
struct Waiting(Arc<Inner>);

impl Waiting {
    fn new(engine: Arc<Inner>) -> Self {
        engine.unwritten.fetch_add(1, Ordering::Relaxed);
        Self(engine)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.unwritten.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why work of a task that is being stopped is told to stop.
pub(crate) fn stop_reason(why: WhyStopping) -> StopReason {
    match why {
        WhyStopping::Cancel => StopReason::Cancelled,
        WhyStopping::Timeout => StopReason::TimedOut,
    }
}

//! Watches one piece of work: forwards what it says, stops it in time, brings its outcome home.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    BoxFuture, Command, Fence, Outcome, Refusal, RpcError, State, StopReason, StoreError, Timestamp,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Inner;
use crate::outcome;
use crate::recovery::interrupted;
use crate::run::{Phase, Run};

/// The shortest time between two status messages that are written for one task.
const SAY_INTERVAL: Duration = Duration::from_millis(250);
/// The longest sleep before the wall clock is read again, which may have jumped.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

impl Inner {
    /// Supervises work until its outcome is delivered, or it is let go. The permit is the slot.
    pub(crate) fn start(
        self: &Arc<Self>,
        work: BoxFuture<'static, Outcome>,
        run: Arc<Run>,
        slot: Option<OwnedSemaphorePermit>,
    ) {
        self.add_run(run.clone());
        let inner = self.clone();
        self.tracker.spawn(async move {
            let work = AbortOnDropHandle::new(tokio::spawn(work));
            let outcome = tokio::select! {
                biased;
                outcome = inner.watch(&run, work) => Some(outcome),
                () = inner.let_go(&run) => None,
            };
            match outcome {
                Some(outcome) => inner.bring_home(&run, outcome::checked(outcome)).await,
                None => tracing::info!(
                    task = %run.id, tool = %run.tool, "let go; the work goes on without this server"
                ),
            }
            inner.remove_run(&run.id);
            run.give_slot_back();
            drop(slot);
        });
    }

    /// Resolves when the work is to go on without us. Work without a task is never let go.
    async fn let_go(&self, run: &Run) {
        run.let_go.cancelled().await;
        let mut fence = run.fence.subscribe();
        while fence.borrow_and_update().is_none() {
            if fence.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the work to end.
    async fn watch(
        self: &Arc<Self>,
        run: &Arc<Run>,
        mut work: AbortOnDropHandle<Outcome>,
    ) -> Outcome {
        let mut deadline = run.watch_deadline();
        let mut progress = run.progress.subscribe();
        // What the work said before anybody listened counts too.
        progress.mark_changed();
        let mut fence = run.fence.subscribe();
        let mut said = Said::default();
        loop {
            let (_, at) = *deadline.borrow_and_update();
            tokio::select! {
                outcome = &mut work => {
                    return outcome.unwrap_or_else(|error| {
                        tracing::error!(task = %run.id, tool = %run.tool, %error, "a tool panicked");
                        Outcome::Failed(RpcError::internal("panic", "The tool failed unexpectedly."))
                    });
                }
                // Work that has not begun takes no time.
                () = self.until(at), if run.stop_reason().is_none() && !run.is_waiting() => {
                    if self.time_is_up(run).await {
                        tracing::info!(
                            task = %run.id, tool = %run.tool, "timeout; the work is stopped"
                        );
                        run.stop(StopReason::TimedOut);
                    }
                }
                Ok(()) = deadline.changed() => {}
                Ok(()) = progress.changed() => said.note(&progress.borrow_and_update().message),
                Ok(()) = fence.changed() => {}
                () = said.pause() => {
                    let fence = *run.fence.borrow();
                    if let (Some(fence), Some(message)) = (fence, said.take()) {
                        // Only the newest matters, so a message that can't be written is let go.
                        let say = Command::Say { fence, message };
                        let _ = self.apply(run.id, abide_core::Authority::Engine, say).await;
                    }
                }
            }
            said.durable = run.fence.borrow().is_some();
        }
    }

    /// Whether the work has to stop, now that its deadline has passed. A task decides that itself:
    /// it may have asked for input in the same moment, and then its clock stands still.
    async fn time_is_up(self: &Arc<Self>, run: &Arc<Run>) -> bool {
        let fence = *run.fence.borrow();
        let Some(fence) = fence else { return true };
        let time_up = Command::TimeUp { fence };
        match self.apply(run.id, abide_core::Authority::Engine, time_up).await {
            Ok(applied) => {
                run.take_deadline(&applied.task, applied.task.deadline());
                matches!(applied.task.state(), State::Stopping { .. })
            }
            // Another engine has taken it over, and will stop it.
            Err(StoreError::Refused(Refusal::StaleFence { .. })) => {
                run.let_go.cancel();
                false
            }
            // Work must not run on because the disk is full; `bring_home` does the rest.
            Err(_) => true,
        }
    }

    /// Sleeps until the wall clock says `at`; for ever if there is no such time.
    async fn until(&self, at: Option<Timestamp>) {
        let Some(at) = at else { return std::future::pending().await };
        loop {
            let left = at.remaining(self.clock.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(CLOCK_CHECK)).await;
        }
    }

    /// Delivers the outcome: to the waiting caller, or to the disk.
    async fn bring_home(self: &Arc<Self>, run: &Arc<Run>, outcome: Outcome) {
        let outcome = match (outcome, run.stop_reason()) {
            // An error of work that was told to stop is how it stopped.
            (Outcome::Failed(error), Some(reason)) => {
                tracing::info!(
                    task = %run.id, tool = %run.tool, ?reason, code = error.code,
                    "the work ended in an error after it was told to stop"
                );
                Outcome::Stopped
            }
            (outcome, _) => outcome,
        };
        let mut phase = run.phase.lock().await;
        match std::mem::replace(&mut *phase, Phase::Ended) {
            Phase::Plain(caller) => {
                // A caller who is gone needs no result.
                let _ = caller.send(outcome);
                self.forget(&run.tool, vec![run.id]);
            }
            Phase::Durable(fence) => {
                drop(phase);
                self.commit_outcome(run, fence, outcome).await;
            }
            Phase::Ended => {}
        }
    }

    async fn commit_outcome(self: &Arc<Self>, run: &Run, fence: Fence, outcome: Outcome) {
        #[cfg(feature = "torture")]
        abide_torture::point("engine-outcome");
        let command = match outcome {
            Outcome::Completed(result) => {
                let result = self.with_log(&run.tool, run.id, run.attempt, result).await;
                Command::Complete { fence, result }
            }
            Outcome::Failed(error) => Command::Fail { fence, error },
            Outcome::Declined => {
                let _ = self.apply_until_done(run.id, Command::Cancel).await;
                Command::Stopped { fence }
            }
            // Begun again, or failed, as the tool says.
            Outcome::Lost(error) if run.stop_reason().is_none() => {
                Command::Requeue { fence, error }
            }
            Outcome::Stopped | Outcome::Lost(_) => match run.stop_reason() {
                Some(StopReason::Cancelled) => Command::Stopped { fence },
                Some(StopReason::TimedOut) => {
                    // Usually done already when the time was up; then it changes nothing.
                    let _ = self.apply_until_done(run.id, Command::TimeUp { fence }).await;
                    Command::Stopped { fence }
                }
                Some(StopReason::Shutdown) => Command::Requeue { fence, error: interrupted() },
                Some(StopReason::Abandoned) | None => Command::Fail {
                    fence,
                    error: RpcError::internal("stopped", "The work stopped without a result."),
                },
            },
        };
        let mut result = self.apply_until_done(run.id, command).await;
        if let Err(StoreError::Refused(Refusal::TooLarge { size, max, .. })) = result {
            let error = outcome::too_large(size, max);
            result = self.apply_until_done(run.id, Command::Fail { fence, error }).await;
        }
        if let Err(StoreError::Refused(Refusal::Stopping)) = result {
            // Cancelled while the server was stopping the work anyway.
            result = self.apply_until_done(run.id, Command::Stopped { fence }).await;
        }
        if let Err(StoreError::Refused(Refusal::NotStopping)) = result {
            // The work stopped although its task was never told to; it must not stay at work.
            let error = plain_stop(run.stop_reason());
            result = self.apply_until_done(run.id, Command::Fail { fence, error }).await;
        }
        if let Err(error) = result {
            tracing::error!(task = %run.id, tool = %run.tool, %error, "an outcome was not stored");
        }
    }
}

/// What the work said and is not written yet.
#[derive(Default)]
struct Said {
    message: Option<String>,
    durable: bool,
    next: Option<tokio::time::Instant>,
}

impl Said {
    fn note(&mut self, message: &Option<String>) {
        if let Some(message) = message {
            self.message = Some(message.clone());
        }
    }

    /// Resolves when there is something to write and enough time has passed since the last.
    async fn pause(&self) {
        if self.message.is_none() || !self.durable {
            std::future::pending::<()>().await;
        }
        if let Some(next) = self.next {
            tokio::time::sleep_until(next).await;
        }
    }

    fn take(&mut self) -> Option<String> {
        self.next = Some(tokio::time::Instant::now() + SAY_INTERVAL);
        self.message.take()
    }
}

/// What a plain call is answered with when its work stopped without a result.
pub(crate) fn plain_stop(reason: Option<StopReason>) -> RpcError {
    match reason {
        Some(StopReason::TimedOut) => {
            RpcError::internal("timeout", "The work took longer than its timeout and was stopped.")
        }
        Some(StopReason::Shutdown) => RpcError::internal(
            "interrupted",
            "The server is stopping, and the work was stopped with it. Call the tool again if it \
             is safe to repeat.",
        ),
        _ => RpcError::internal("stopped", "The work stopped without a result."),
    }
}

/// The two ends over which a plain call's outcome travels.
pub(crate) fn plain() -> (Phase, oneshot::Receiver<Outcome>) {
    let (sender, receiver) = oneshot::channel();
    (Phase::Plain(sender), receiver)
}

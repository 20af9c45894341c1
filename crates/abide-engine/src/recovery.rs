//! What becomes of tasks whose worker is gone: taken up again, begun again, or failed honestly.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    Authority, Command, OnRestart, Outcome, Refusal, RpcError, State, StoreError, Task, TaskId,
    Work,
};
use futures::future::join_all;

use crate::engine::Inner;
use crate::outcome;

/// Tasks that are looked at in one go.
const BATCH: u32 = 256;
/// How long a start waits for the work of a former process to be settled.
const SETTLING: Duration = Duration::from_secs(2);

impl Inner {
    /// Settles every task that a former process left unfinished: claimed ones by what their tool
    /// says; queued ones stay queued, unless their tool is gone.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        let settling = self.take_over_orphans().await?;
        let taken_over = settling.len();
        // Before anybody can ask, so that no task says that it is at work when it is not. What is
        // still being stopped is at work.
        if tokio::time::timeout(SETTLING, join_all(settling)).await.is_err() {
            tracing::info!("still stopping work that a former process left");
        }
        let queued = self.look_through_queue().await?;
        if taken_over + queued > 0 {
            tracing::info!(taken_over, queued, "found tasks that a former process left unfinished");
        }
        for state in self.tools.values() {
            state.wake.notify_one();
        }
        Ok(())
    }

    async fn look_through_queue(self: &Arc<Self>) -> Result<usize, StoreError> {
        let mut after: Option<TaskId> = None;
        let mut queued = 0;
        loop {
            let tasks = self.store.unfinished(after, BATCH).await?;
            let Some(last) = tasks.last() else { return Ok(queued) };
            after = Some(*last.id());
            let waiting = tasks.iter().filter(|task| matches!(task.state(), State::Queued));
            let (offered, gone): (Vec<_>, Vec<_>) =
                waiting.partition(|task| self.tools.contains_key(task.tool()));
            queued += offered.len();
            for refused in join_all(gone.into_iter().map(|task| self.refuse(task))).await {
                refused?;
            }
        }
    }

    /// Fails a queued task whose tool this server no longer has.
    async fn refuse(self: &Arc<Self>, task: &Task) -> Result<(), StoreError> {
        self.hold_lease().await?;
        let claim = Command::Claim { worker: self.worker.clone() };
        let claimed = match self.apply(*task.id(), Authority::Engine, claim).await {
            Ok(applied) => applied.task,
            Err(StoreError::Refused(_) | StoreError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        let fail = Command::Fail { fence: claimed.fence(), error: tool_gone(&claimed) };
        self.apply(*task.id(), Authority::Engine, fail).await.map(drop)
    }

    /// Decides about one task that was taken over.
    pub(crate) async fn settle(self: Arc<Self>, task: Arc<Task>) {
        let id = *task.id();
        let Some(state) = self.tools.get(task.tool()) else {
            tracing::warn!(task = %id, tool = %task.tool(), "taken over, but its tool is gone");
            let fail = Command::Fail { fence: task.fence(), error: tool_gone(&task) };
            self.settle_with(&task, fail).await;
            self.forget_early_stop(&id);
            return;
        };
        let backend = &state.tool.backend;
        // Nothing was interrupted of work that has asked and was not begun.
        let asked =
            !task.settled().is_empty() || matches!(task.state(), State::InputRequired { .. });
        let waits = asked && backend.asks_first() && !backend.begun(&work(&task));
        let goes_on = task.policy().on_restart == OnRestart::Reattach || waits;
        if goes_on && backend.outlives() {
            tracing::info!(task = %id, tool = %task.tool(), "taken over; its work is taken up again");
            // More may run than there are slots if fewer are configured now.
            let slot = if waits { None } else { state.slots.clone().try_acquire_owned().ok() };
            self.resume(task, slot);
            return;
        }
        let ended = backend.discard(work(&task)).await;
        let fence = task.fence();
        let command = match (ended.map(outcome::checked), task.state()) {
            // It had ended before anybody could interrupt it.
            (Some(Outcome::Completed(result)), _) => Command::Complete {
                fence,
                result: self.with_log(task.tool(), id, task.attempts(), result).await,
            },
            (_, State::Stopping { .. }) => Command::Stopped { fence },
            (Some(Outcome::Failed(error)), _) => Command::Fail { fence, error },
            (Some(Outcome::Lost(error)), _) => Command::Requeue { fence, error },
            (Some(Outcome::Stopped | Outcome::Declined) | None, _) => {
                Command::Requeue { fence, error: crashed() }
            }
        };
        tracing::info!(task = %id, tool = %task.tool(), "taken over; nothing of its work runs");
        self.settle_with(&task, command).await;
        self.forget_early_stop(&id);
    }

    async fn settle_with(self: &Arc<Self>, task: &Task, command: Command) {
        let mut settled = self.apply_until_done(*task.id(), command).await;
        if let Err(StoreError::Refused(Refusal::TooLarge { size, max, .. })) = settled {
            let error = outcome::too_large(size, max);
            let fail = Command::Fail { fence: task.fence(), error };
            settled = self.apply_until_done(*task.id(), fail).await;
        }
        if matches!(settled, Err(StoreError::Refused(Refusal::Stopping))) {
            // Cancelled in the meantime: nothing is left to stop.
            let stopped = Command::Stopped { fence: task.fence() };
            settled = self.apply_until_done(*task.id(), stopped).await;
        }
        if let Err(error) = settled {
            tracing::error!(task = %task.id(), %error, "a task could not be settled");
        }
    }
}

/// A task's work as its backend knows it.
pub(crate) fn work(task: &Task) -> Work {
    Work {
        task_id: *task.id(),
        owner: task.owner().clone(),
        tool: task.tool().clone(),
        arguments: task.arguments().clone(),
        attempt: task.attempts(),
    }
}

fn tool_gone(task: &Task) -> RpcError {
    let message =
        format!("The tool {:?} is no longer offered by this server.", task.tool().as_str());
    RpcError::internal("tool_gone", message)
}

/// What is said of work whose server was told to stop.
pub(crate) fn interrupted() -> RpcError {
    RpcError::internal(
        "interrupted",
        "The server was stopped while the work was running, and the work was stopped with it. \
         Call the tool again if it is safe to repeat.",
    )
}

/// What is said of work whose server was killed or crashed, and that can't be taken up again.
fn crashed() -> RpcError {
    RpcError::internal(
        "interrupted",
        "The server stopped unexpectedly while the work was running. The work may be unfinished, \
         and what it started may still be running. Check its effects before you call the tool \
         again.",
    )
}

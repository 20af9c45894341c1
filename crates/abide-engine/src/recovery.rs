//! What a start finds of a former process.

use std::sync::Arc;

use abide_core::{Authority, Command, RpcError, State, StoreError, Task, TaskId};
use futures::future::join_all;

use crate::engine::Inner;

/// Tasks that are settled in one go.
const BATCH: u32 = 256;

impl Inner {
    /// Settles every task that a former process left unfinished: what was running has failed, with
    /// an honest message; what was queued stays queued.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut after: Option<TaskId> = None;
        let (mut interrupted, mut queued) = (0usize, 0usize);
        loop {
            let tasks = self.store.unfinished(after, BATCH).await?;
            let Some(last) = tasks.last() else { break };
            after = Some(*last.id());
            let settled = join_all(tasks.iter().map(|task| self.settle(task))).await;
            for outcome in settled {
                match outcome? {
                    Settled::Interrupted => interrupted += 1,
                    Settled::Queued => queued += 1,
                }
            }
        }
        if interrupted + queued > 0 {
            tracing::info!(interrupted, queued, "settled what a former process left unfinished");
        }
        for state in self.tools.values() {
            state.wake.notify_one();
        }
        Ok(())
    }

    async fn settle(&self, task: &Arc<Task>) -> Result<Settled, StoreError> {
        let (fence, error) = match task.state() {
            State::Queued if self.tools.contains_key(task.tool()) => return Ok(Settled::Queued),
            State::Queued => {
                let claim = Command::Claim { worker: self.worker.clone() };
                let claimed = self.apply(*task.id(), Authority::Engine, claim).await?;
                let message = format!(
                    "The tool {:?} is no longer offered by this server; the queued call was not \
                     started.",
                    task.tool().as_str()
                );
                (claimed.task.fence(), RpcError::internal("tool_gone", message))
            }
            _ => {
                let message = "The server stopped unexpectedly while the work was running. The \
                               work may be unfinished, and what it started may still be running. \
                               Check its effects before you call the tool again.";
                (task.fence(), RpcError::internal("interrupted", message))
            }
        };
        self.apply(*task.id(), Authority::Engine, Command::Interrupt { fence, error }).await?;
        Ok(Settled::Interrupted)
    }
}

enum Settled {
    Interrupted,
    Queued,
}

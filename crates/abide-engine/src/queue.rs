//! Queued tasks: who starts next, and what those who wait are told.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{Applied, Authority, Command, StoreError, ToolName};
use futures::future::join_all;

use crate::engine::Inner;

/// The pause after the store could not say what is queued.
const RETRY: Duration = Duration::from_secs(1);
/// How long moves of the queue are gathered before those who wait are told.
const GATHER: Duration = Duration::from_millis(500);

impl Inner {
    /// Starts queued tasks of one tool as slots become free, oldest first.
    pub(crate) async fn serve_queue(self: Arc<Self>, name: ToolName) {
        let Some(state) = self.tools.get(&name) else { return };
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                () = state.wake.notified() => {}
            }
            loop {
                let slot = tokio::select! {
                    biased;
                    () = self.closing.cancelled() => return,
                    slot = state.slots.clone().acquire_owned() => slot,
                };
                let Ok(slot) = slot else { return };
                match self.claim_next(&name).await {
                    Ok(Some(claimed)) => {
                        self.start_durable(claimed.task, slot);
                        state.moved.notify_one();
                    }
                    Ok(None) => break,
                    Err(error) => {
                        drop(slot);
                        tracing::error!(tool = %name, %error, "the queue can't be read; trying again");
                        tokio::select! {
                            () = tokio::time::sleep(RETRY) => {}
                            () = self.closing.cancelled() => return,
                        }
                    }
                }
            }
        }
    }

    async fn claim_next(&self, tool: &ToolName) -> Result<Option<Applied>, StoreError> {
        self.hold_lease().await?;
        self.store.claim_next(tool.clone(), self.worker.clone(), self.clock.now()).await
    }

    /// Keeps the status messages of queued tasks true.
    pub(crate) async fn tell_positions(self: Arc<Self>, name: ToolName) {
        let Some(state) = self.tools.get(&name) else { return };
        loop {
            tokio::select! {
                () = state.moved.notified() => {}
                () = self.closing.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = self.closing.cancelled() => return,
            }
            let Ok(queued) = self.store.queued(name.clone(), state.tool.queue).await else {
                continue;
            };
            let told = queued
                .into_iter()
                .zip(0u32..)
                .map(|(id, ahead)| self.apply(id, Authority::Engine, Command::Position { ahead }));
            for result in join_all(told).await {
                match result {
                    // Those that started or were cancelled in between need no telling.
                    Ok(_) | Err(StoreError::Refused(_) | StoreError::NotFound) => {}
                    Err(error) => {
                        tracing::warn!(tool = %name, %error, "a queue position was not written");
                    }
                }
            }
        }
    }
}

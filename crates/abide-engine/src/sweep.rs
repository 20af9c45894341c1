//! Deletes ended tasks whose time is over, and renews the promise of those still at work.

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::{Authority, Command, StoreError, TaskId, ToolName};
use futures::future::join_all;

use crate::engine::Inner;

/// Tasks deleted in one transaction, so that a sweep never holds others up for long.
const BATCH: u32 = 500;

impl Inner {
    /// Sweeps now and then until the engine stops. Each pass is the same whatever came before it.
    pub(crate) async fn sweep_for_ever(self: Arc<Self>) {
        let mut every = tokio::time::interval(self.options.sweep_every);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.closing.cancelled() => return,
            }
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "a sweep failed; the next one starts afresh");
            }
        }
    }

    /// Tells the backend of `tool` that nobody can ask for these any more.
    pub(crate) fn forget(&self, tool: &ToolName, tasks: Vec<TaskId>) {
        if let Some(state) = self.tools.get(tool) {
            state.tool.backend.forget(tasks);
        }
    }

    async fn sweep(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut deleted = 0;
        loop {
            let now = self.clock.now();
            // Two rounds ahead, so that a promise is renewed before it runs out.
            let ahead = u64::try_from(self.options.sweep_every.as_millis()).unwrap_or(u64::MAX);
            let horizon = now.plus_millis(ahead.saturating_mul(2));
            let swept = self.store.sweep(now, horizon, BATCH).await?;
            deleted += swept.deleted.len();
            let full = swept.deleted.len() >= BATCH as usize;
            let mut by_tool: HashMap<ToolName, Vec<TaskId>> = HashMap::new();
            for (id, tool) in swept.deleted {
                by_tool.entry(tool).or_default().push(id);
            }
            for (tool, tasks) in by_tool {
                self.forget(&tool, tasks);
            }
            let extended = swept
                .extend
                .into_iter()
                .map(|id| self.apply(id, Authority::Engine, Command::Extend));
            for extended in join_all(extended).await {
                match extended {
                    Ok(_) | Err(StoreError::NotFound | StoreError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            // Those with short promises are due again at once and would never let this end; the
            // next pass is early enough for more of them.
            if !full || self.closing.is_cancelled() {
                break;
            }
        }
        if deleted > 0 {
            tracing::info!(deleted, "deleted tasks whose time is over");
        }
        Ok(())
    }
}

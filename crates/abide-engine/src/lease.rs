//! Whether this engine's claims hold, and taking over the claims of engines that are gone.

use std::sync::{Arc, PoisonError};

use abide_core::{Applied, Authority, Command, StoreError, Timestamp};
use futures::future::join_all;
use tokio::task::JoinHandle;

use crate::engine::Inner;

/// Tasks that are taken over in one go.
const BATCH: u32 = 256;

impl Inner {
    /// Makes sure that a claim made now will hold for a while. Called before every claim; writes
    /// only when the lease is about to run out.
    pub(crate) async fn hold_lease(&self) -> Result<(), StoreError> {
        #[cfg(feature = "torture")]
        if abide_torture::spell("lease-renewal", self.worker.as_str()) {
            return Ok(());
        }
        let lease = millis(self.options.lease);
        let now = self.clock.now();
        let fresh = |until: Timestamp| until.millis_since(now) > lease / 3 * 2;
        // A clock that was set back makes the lease look too long; it is renewed all the same.
        let plausible = |until: Timestamp| until.millis_since(now) <= lease;
        let held = *self.leased_until.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some_and(|until| fresh(until) && plausible(until)) {
            return Ok(());
        }
        let until = now.plus_millis(lease);
        self.store.heartbeat(self.worker.clone(), until).await?;
        *self.leased_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        Ok(())
    }

    /// Renews the lease while there is work that it protects, and looks for tasks whose worker is
    /// gone.
    pub(crate) async fn keep_lease(self: Arc<Self>) {
        let mut every = tokio::time::interval(self.options.lease / 3);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                // While work is still ending, its claims must hold.
                () = self.released.cancelled() => return,
            }
            if self.has_runs()
                && let Err(error) = self.hold_lease().await
            {
                tracing::error!(%error, "the lease could not be renewed; it is tried again");
            }
            if !self.closing.is_cancelled()
                && let Err(error) = self.take_over_orphans().await
            {
                tracing::warn!(%error, "looking for tasks without a worker failed; trying again");
            }
        }
    }

    /// Takes over every task whose worker is gone, and begins to settle each by what its tool says.
    /// Returns the settling, which goes on whether it is waited for or not.
    pub(crate) async fn take_over_orphans(
        self: &Arc<Self>,
    ) -> Result<Vec<JoinHandle<()>>, StoreError> {
        let mut taken = Vec::new();
        loop {
            let mut orphans = self.store.orphans(self.clock.now(), BATCH).await?;
            // Our own only look orphaned, when the clock has jumped: their worker is here.
            orphans.retain(|task| task.state().worker() != Some(&self.worker));
            if orphans.is_empty() {
                return Ok(taken);
            }
            self.hold_lease().await?;
            let claims = orphans.iter().map(|task| {
                let take = Command::TakeOver { from: task.fence(), worker: self.worker.clone() };
                self.apply(*task.id(), Authority::Engine, take)
            });
            for claim in join_all(claims).await {
                match claim {
                    Ok(Applied { task, .. }) => {
                        taken.push(self.tracker.spawn(self.clone().settle(task)));
                    }
                    // Another engine was faster, or the old one has just ended it.
                    Err(StoreError::Refused(_) | StoreError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

//! Whether this engine's claims hold, and taking over the claims of engines that are gone.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use abide_core::{Applied, Authority, Command, StoreError, Task, Timestamp};
use futures::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::engine::Inner;

/// Tasks that are taken over in one go.
const BATCH: u32 = 256;
/// Looks for tasks without a worker, and signs of life, in the time of one lease.
const LOOKS: u32 = 3;

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
        let mut every = tokio::time::interval(self.options.lease / LOOKS);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // When more time has passed by the clock than has passed, the clock was set, or this
        // machine was suspended. Then leases of others look over that are not: those who live get
        // the time of one lease to say so.
        let jump = millis(self.options.lease) / (2 * u64::from(LOOKS));
        let mut looked = (self.clock.now(), Instant::now());
        let mut passed_over = 0;
        loop {
            tokio::select! {
                _ = every.tick() => {}
                // While work is still ending, its claims must hold.
                () = self.released.cancelled() => return,
            }
            if self.has_claims()
                && let Err(error) = self.hold_lease().await
            {
                tracing::error!(%error, "the lease could not be renewed; it is tried again");
            }
            let now = (self.clock.now(), Instant::now());
            if now.0.millis_since(looked.0) > millis(now.1 - looked.1).saturating_add(jump) {
                passed_over = LOOKS;
            }
            looked = now;
            if passed_over > 0 {
                passed_over -= 1;
            } else if !self.closing.is_cancelled()
                && let Err(error) = self.take_over_orphans().await
            {
                tracing::warn!(%error, "looking for tasks without a worker failed; trying again");
            }
        }
    }

    /// Whether there is anything that the lease protects: work that runs, or work of others that
    /// is being settled.
    fn has_claims(&self) -> bool {
        self.has_runs() || self.settling.load(Ordering::Relaxed) > 0
    }

    /// Takes over every task whose worker is gone, and begins to settle each by what its tool says.
    /// Returns the settling, which goes on whether it is waited for or not.
    pub(crate) async fn take_over_orphans(
        self: &Arc<Self>,
    ) -> Result<Vec<JoinHandle<()>>, StoreError> {
        let mut taken = Vec::new();
        loop {
            let orphans = self.orphans().await?;
            if orphans.is_empty() {
                return Ok(taken);
            }
            self.hold_lease().await?;
            let claims = orphans.iter().map(|task| {
                let take = Command::TakeOver { from: task.fence(), worker: self.worker.clone() };
                self.apply(*task.id(), Authority::Engine, take)
            });
            let mut failed = None;
            for claim in join_all(claims).await {
                match claim {
                    Ok(Applied { task, .. }) => taken.push(self.begin_to_settle(task)),
                    // Another engine was faster, or the old one has just ended it.
                    Err(StoreError::Refused(_) | StoreError::NotFound) => {}
                    // Those that were taken have to be settled all the same.
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }

    /// Tasks whose worker is gone.
    async fn orphans(&self) -> Result<Vec<Arc<Task>>, StoreError> {
        let ours = |task: &Arc<Task>| task.state().worker() == Some(&self.worker);
        let mut orphans = self.store.orphans(self.clock.now(), BATCH).await?;
        if orphans.iter().any(ours) {
            // Our own only look orphaned: their worker is here. It says so, lest they fill the
            // batch and hide others.
            self.hold_lease().await?;
            orphans = self.store.orphans(self.clock.now(), BATCH).await?;
            orphans.retain(|task| !ours(task));
        }
        Ok(orphans)
    }

    /// Settles a task that was taken over. Until that is done the lease is kept.
    fn begin_to_settle(self: &Arc<Self>, task: Arc<Task>) -> JoinHandle<()> {
        self.settling.fetch_add(1, Ordering::Relaxed);
        let settling = Settling(self.clone());
        self.tracker.spawn(async move {
            settling.0.clone().settle(task).await;
            drop(settling);
        })
    }
}

/// One task that is being settled, however that ends.
struct Settling(Arc<Inner>);

impl Drop for Settling {
    fn drop(&mut self) {
        self.0.settling.fetch_sub(1, Ordering::Relaxed);
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

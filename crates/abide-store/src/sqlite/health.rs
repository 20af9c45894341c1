//! Whether writes go through, as last seen, and the log lines when that changes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use abide_core::Health;

use super::error;

/// The writer's health, shared with whoever asks.
#[derive(Debug)]
pub(super) struct Gauge {
    path: PathBuf,
    health: Mutex<Health>,
    probing: AtomicBool,
    damaged: AtomicBool,
}

impl Gauge {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            health: Mutex::new(Health::Ok),
            probing: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
        }
    }

    /// A page that can't be read stays so, also while writes elsewhere in the file go through.
    pub(super) fn health(&self) -> Health {
        if self.damaged.load(Ordering::Relaxed) {
            return Health::Failing { problem: error::DAMAGED.to_owned() };
        }
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A write is on disk.
    pub(super) fn works(&self) {
        self.probing.store(false, Ordering::Relaxed);
        if self.change(Health::Ok) {
            tracing::info!(database = %self.path.display(), "the database takes writes again");
        }
    }

    /// A write failed and was rolled back.
    pub(super) fn failed(&self, error: &rusqlite::Error) {
        self.probing.store(false, Ordering::Relaxed);
        self.note(error);
        let problem = error::problem(error);
        if self.change(Health::Failing { problem: problem.to_owned() }) {
            tracing::error!(
                database = %self.path.display(),
                error = %error,
                "the database takes no writes: {problem}; nothing is acknowledged until it does"
            );
        }
    }

    /// Remembers an error that says that the file is damaged; others are no matter of health.
    pub(super) fn note(&self, error: &rusqlite::Error) {
        if error::is_damage(error) && !self.damaged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                database = %self.path.display(),
                error = %error,
                "the database is damaged; tasks whose pages can't be read are answered with errors: \
                 look at it with `abide db check`, then stop abide and restore a backup, or start it \
                 again, which sets the file aside and begins with an empty one"
            );
        }
    }

    /// The writer is gone, and with it every later write.
    pub(super) fn died(&self) {
        let problem = "the database's writer has died; restart abide".to_owned();
        tracing::error!(database = %self.path.display(), "{problem}");
        self.change(Health::Failing { problem });
    }

    /// Whether a probe is due: one at a time.
    pub(super) fn may_probe(&self) -> bool {
        !self.probing.swap(true, Ordering::Relaxed)
    }

    pub(super) fn probe_not_sent(&self) {
        self.probing.store(false, Ordering::Relaxed);
    }

    /// Whether it was different before.
    fn change(&self, to: Health) -> bool {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *health != to;
        *health = to;
        changed
    }
}

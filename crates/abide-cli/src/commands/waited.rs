//! How long this process has waited for somebody.

use std::time::{Duration, Instant};

/// A wait that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waited(Instant);

impl Waited {
    /// Begins to wait.
    #[expect(clippy::disallowed_methods, reason = "it is this very process that waits")]
    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }

    /// How long it was so far.
    pub(super) fn so_far(self) -> Duration {
        self.0.elapsed()
    }
}

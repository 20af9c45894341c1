//! The system's clocks. The runner is a process of its own, so nobody can hand it one.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the runner has no clock but the system's")]
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// For deadlines, which clock jumps must not move.
#[expect(clippy::disallowed_methods, reason = "the runner has no clock but the system's")]
pub(super) fn instant() -> Instant {
    Instant::now()
}

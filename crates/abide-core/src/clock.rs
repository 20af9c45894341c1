//! The clock, from outside.

use crate::time::Timestamp;

/// Tells the time. The wiring passes the system's; tests pass their own.
pub trait Clock: Send + Sync + 'static {
    /// The time now, which may jump either way.
    fn now(&self) -> Timestamp;
}

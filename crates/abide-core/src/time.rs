//! Points in time, as they are stored and as they are sent.

use std::fmt;
use std::time::Duration;

/// A point in time in milliseconds since the Unix epoch: the form in which times are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Takes milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This time plus `millis`; stays at the end of time instead of wrapping.
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        let millis = if millis > i64::MAX as u64 { i64::MAX } else { millis as i64 };
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this time; zero when `earlier` is later.
    #[must_use]
    pub const fn millis_since(self, earlier: Self) -> u64 {
        let millis = self.0.saturating_sub(earlier.0);
        if millis > 0 { millis as u64 } else { 0 }
    }

    /// The time from `now` until this time; zero when it has passed.
    #[must_use]
    pub const fn remaining(self, now: Self) -> Duration {
        Duration::from_millis(self.millis_since(now))
    }
}

/// RFC 3339 in UTC with `Z` and milliseconds, the form on the wire.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        });
        write!(f, "{time:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_rfc3339_in_utc() {
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            Timestamp::from_millis(1_785_283_200_042).to_string(),
            "2026-07-29T00:00:00.042Z"
        );
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Timestamp::from_millis(i64::MAX);
        assert_eq!(end.plus_millis(u64::MAX), end);
        assert_eq!(Timestamp::from_millis(5).millis_since(end), 0);
        assert!(!end.to_string().is_empty());
    }
}

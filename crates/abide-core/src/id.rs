//! The names of things: tasks, owners, tools, workers, input keys, fencing numbers.

use std::fmt;
use std::str::FromStr;

use crate::limits;
use crate::time::Timestamp;

/// Crockford's base32 alphabet in lower case: digits before letters, so that the text sorts as
/// the bytes do.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A name that came from outside does not fit its form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not the text form of a task id.
    #[error("not a task id")]
    NotATaskId,
    /// Empty, too long, or with control characters in it.
    #[error("{what} must have 1 to {max} bytes and no control characters")]
    BadName {
        /// What was being named.
        what: &'static str,
        /// The most bytes it may have.
        max: usize,
    },
}

/// A task's handle: 48 bits of milliseconds, then 144 random bits, written as 39 characters that
/// are safe in URLs and headers.
///
/// The time comes first so that new rows land at the end of the index; the random part is above
/// the 128 bits that make a handle unguessable (Tasks extension, "Task ID unguessability").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId([u8; TaskId::TEXT_LEN]);

impl TaskId {
    /// Characters in the text form.
    pub const TEXT_LEN: usize = 39;
    /// Random bytes that [`TaskId::new`] takes.
    pub const RANDOM_LEN: usize = 18;

    /// Makes an id from the time of creation and fresh random bytes.
    #[must_use]
    pub fn new(now: Timestamp, random: [u8; Self::RANDOM_LEN]) -> Self {
        let mut bytes = [0u8; 24];
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&random);

        let mut text = [0u8; Self::TEXT_LEN];
        let (mut buffer, mut bits, mut at) = (0u32, 0u32, 0usize);
        for byte in bytes {
            buffer = (buffer << 8) | u32::from(byte);
            bits += 8;
            while bits >= 5 {
                bits -= 5;
                text[at] = ALPHABET[((buffer >> bits) & 31) as usize];
                at += 1;
            }
        }
        text[at] = ALPHABET[((buffer << (5 - bits)) & 31) as usize];
        Self(text)
    }

    /// The text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for TaskId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bytes: [u8; Self::TEXT_LEN] =
            text.as_bytes().try_into().map_err(|_| IdError::NotATaskId)?;
        if bytes.iter().all(|byte| ALPHABET.contains(byte)) {
            Ok(Self(bytes))
        } else {
            Err(IdError::NotATaskId)
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

/// Declares a bounded text name.
macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks the form and takes the name.
            ///
            /// # Errors
            /// [`IdError::BadName`] when it is empty, too long or has control characters.
            pub fn new(text: &str) -> Result<Self, IdError> {
                if text.is_empty() || text.len() > $max || text.chars().any(char::is_control) {
                    return Err(IdError::BadName { what: $what, max: $max });
                }
                Ok(Self(text.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &*self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_name!(
    /// Who a task belongs to: the verified identity of the caller who created it.
    Owner,
    "an owner",
    limits::MAX_NAME_BYTES
);
text_name!(
    /// The name under which a tool is listed and called.
    ToolName,
    "a tool name",
    limits::MAX_NAME_BYTES
);
text_name!(
    /// One running engine. Fresh at every start, so that a claim tells whether its worker lives.
    WorkerId,
    "a worker id",
    limits::MAX_NAME_BYTES
);
text_name!(
    /// Names one input request, once in a task's life
    /// (`sep-2663-input-request-key-unique-per-task`).
    InputKey,
    "an input key",
    limits::MAX_INPUT_KEY_BYTES
);

impl Owner {
    /// The owner of every task while no identities are configured.
    #[must_use]
    pub fn local() -> Self {
        Self("local".into())
    }
}

/// A fencing number: each claim of a task gets a higher one, and only the holder of the highest
/// may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(pub u64);

impl Fence {
    /// The number for the next claim.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ids_round_trip_and_sort_by_time() {
        let early = TaskId::new(Timestamp::from_millis(1_000), [0xff; 18]);
        let late = TaskId::new(Timestamp::from_millis(1_001), [0; 18]);
        assert!(early.as_str() < late.as_str());
        assert!(early < late);
        assert_eq!(early.as_str().parse::<TaskId>().unwrap(), early);
        assert_eq!(early.as_str().len(), TaskId::TEXT_LEN);
    }

    #[test]
    fn every_random_bit_reaches_the_text() {
        let now = Timestamp::from_millis(1_000);
        let base = TaskId::new(now, [0; 18]);
        for bit in 0..144 {
            let mut random = [0u8; 18];
            random[bit / 8] = 1 << (bit % 8);
            assert_ne!(TaskId::new(now, random), base, "bit {bit} is lost");
        }
    }

    #[test]
    fn foreign_text_is_not_a_task_id() {
        let long = "x".repeat(10_000_000);
        for text in ["", "abc", "ABCDEFGHJKMNPQRSTVWXYZ0123456789ABCDEFG", "ü", &long] {
            assert_eq!(text.parse::<TaskId>(), Err(IdError::NotATaskId));
        }
    }

    #[test]
    fn names_are_bounded() {
        assert!(Owner::new("alice").is_ok());
        assert!(ToolName::new("übersetzen 🚀").is_ok());
        for bad in ["", "a\nb", "nul\0"] {
            assert!(ToolName::new(bad).is_err());
        }
        assert!(InputKey::new(&"k".repeat(limits::MAX_INPUT_KEY_BYTES + 1)).is_err());
    }
}

//! Every limit on what comes from outside and ends up in a task, by name.
//!
//! Limits on requests live in the server, limits on a command's output in its backend; a limit
//! that the config can change has its default here.

/// Bytes of an owner, tool or worker name.
pub const MAX_NAME_BYTES: usize = 256;
/// Bytes of an input key.
pub const MAX_INPUT_KEY_BYTES: usize = 128;
/// Input requests in a task's life, answered ones included.
pub const MAX_INPUTS_PER_TASK: usize = 256;
/// Bytes of one input request, and of one response to it.
pub const MAX_INPUT_BYTES: usize = 256 * 1024;
/// Bytes of a status message; longer ones are cut at a character and marked with an ellipsis.
pub const MAX_STATUS_MESSAGE_BYTES: usize = 1024;
/// Bytes of a tool's arguments as JSON.
pub const MAX_ARGUMENTS_BYTES: usize = 1024 * 1024;
/// Bytes of a result as JSON; a backend that returns more has failed.
pub const MAX_RESULT_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of the message of an error that a tool ends with; longer ones are cut as status messages
/// are.
pub const MAX_ERROR_MESSAGE_BYTES: usize = 16 * 1024;
/// Bytes of the data of such an error as JSON; larger data is left out.
pub const MAX_ERROR_DATA_BYTES: usize = 256 * 1024;
/// Calls of one tool that may wait for approval, or for their turn after that.
pub const MAX_WAITING_FOR_APPROVAL: usize = 10_000;
/// The most attempts that a config may allow a task.
pub const MAX_ATTEMPTS: u32 = 100;
/// Milliseconds of a task's timeout, retention or poll interval: a thousand years. Longer ones
/// count as this, so that every sum of them fits the integers of stores and of JSON readers.
pub const MAX_PERIOD_MS: u64 = 1_000 * 365 * 24 * 60 * 60 * 1_000;

/// Cuts `message` to [`MAX_STATUS_MESSAGE_BYTES`] at a character boundary.
#[must_use]
pub fn bounded_message(message: &str) -> String {
    bounded(message, MAX_STATUS_MESSAGE_BYTES)
}

/// Cuts `text` to `max` bytes at a character boundary, with an ellipsis where it was cut.
#[must_use]
pub fn bounded(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let cut = bounded_message(&"ü".repeat(MAX_STATUS_MESSAGE_BYTES));
        assert!(cut.len() <= MAX_STATUS_MESSAGE_BYTES && cut.ends_with('…'));
        assert_eq!(bounded_message("short"), "short");
    }
}

//! Limits on the config file and on what it may set, by name.

use std::time::Duration;

/// Bytes of the config file.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Bytes of a JSON Schema file.
pub const MAX_SCHEMA_FILE_BYTES: u64 = 256 * 1024;
/// Tools in one file: each is listed to every client.
pub const MAX_TOOLS: usize = 500;
/// Problems that are shown at once.
pub const MAX_PROBLEMS: usize = 50;
/// The smallest `max_body`.
pub const MIN_BODY_BYTES: u64 = 1024;
/// The largest `max_body`.
pub const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;
/// The smallest `max_output`, which is the backend's.
pub const MIN_OUTPUT_BYTES: u64 = abide_backends::command::SMALLEST_MAX_OUTPUT_BYTES as u64;
/// The largest `max_output`, which is the backend's.
pub const MAX_OUTPUT_BYTES: u64 = abide_backends::command::LARGEST_MAX_OUTPUT_BYTES as u64;
/// The largest `max_log`.
pub const MAX_LOG_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// The largest `max_attempts`.
pub const MAX_ATTEMPTS: u64 = abide_core::limits::MAX_ATTEMPTS as u64;
/// The largest `concurrency`.
pub const MAX_CONCURRENCY: u64 = 1024;
/// The largest `queue`.
pub const MAX_QUEUE: u64 = 100_000;
/// The largest length or number of items in a short-form schema.
pub const MAX_LENGTH_KEYWORD: u64 = 1_000_000_000;
/// The longest duration: a hundred years of 365 days.
pub const MAX_DURATION: Duration = Duration::from_secs(36_500 * 86_400);
/// Characters of a tool name that every client understands (MCP specification, "Tool Names").
pub const MAX_TOOL_NAME_CHARS: usize = 128;

//! Every limit on requests, by name.

use std::time::Duration;

/// Bytes of one request: an HTTP body, or a line on standard input. Default of `max_body`.
pub const DEFAULT_MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// How deep the JSON of a request may be nested.
pub const MAX_JSON_DEPTH: usize = 64;
/// Bytes of a JSON-RPC request id.
pub const MAX_ID_BYTES: usize = 256;
/// How long a request's body may take to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a caller who waits for a plain result gets a sign of life, if the request has a
/// progress token.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// Bytes of a log that are read at a time.
pub const MAX_LOG_PART_BYTES: usize = 1024 * 1024;
/// How long clients may use the list of tools before they ask again.
pub const TOOLS_TTL: Duration = Duration::from_secs(60);
/// How long answers under way may take once the server is told to stop. Default of
/// `shutdown_grace`.
pub const DEFAULT_SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// How long connections and lanes that should have ended may linger after that.
pub const LINGER: Duration = Duration::from_secs(2);
/// How long a session of an older client lives without a message in either direction. Calls that
/// take longer than that end with it.
pub const SESSION_IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of a body beyond the limit that are read and thrown away, so that the client gets to read
/// why it is refused.
pub const MAX_DISCARDED_BYTES: usize = 64 * 1024 * 1024;

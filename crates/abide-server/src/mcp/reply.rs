//! JSON-RPC answers, written by hand so that stored JSON passes through unparsed.

use abide_core::RawJson;
use http::StatusCode;
use serde_json::json;

/// An error of the protocol: what it is, and how HTTP says it.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) data: Option<RawJson>,
}

/// The extension's identifier (Tasks extension, "Extension Identifier").
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The revision of the protocol that has the Tasks extension.
pub(crate) const PROTOCOL_VERSION: &str = "2026-07-28";

impl Fault {
    fn new(status: StatusCode, code: i32, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// -32700: the text is not JSON.
    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32700, message)
    }

    /// -32600: JSON, but not one JSON-RPC request.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32600, message)
    }

    /// -32600 with HTTP 413: larger than a request may be.
    pub(crate) fn too_large(max: usize) -> Self {
        let message = format!("The request is larger than the {max} bytes that are allowed.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, -32600, message)
    }

    /// -32601: no such method.
    pub(crate) fn method_not_found(method: &str) -> Self {
        let message = format!("Method not found: {}", shown(method));
        Self::new(StatusCode::NOT_FOUND, -32601, message)
    }

    /// -32602 of a request that is well-formed.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, -32602, message)
    }

    /// -32602 of a request whose `_meta` lacks what the revision requires.
    pub(crate) fn malformed_meta(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32602, message)
    }

    /// -32602: one message for unknown, expired and somebody else's.
    pub(crate) fn unknown_task() -> Self {
        Self::invalid_params(
            "Unknown task: there is no such task for this caller, or it has expired.",
        )
    }

    /// -32603: our fault; details are in the log.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, -32603, message)
    }

    /// -32020: a header is missing or at odds with the body.
    pub(crate) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32020, message)
    }

    /// -32021: the request did not declare the Tasks extension
    /// (`sep-2663-tasks-methods-non-declaring`).
    pub(crate) fn missing_capability() -> Self {
        let data = json!({ "requiredCapabilities": { "extensions": { TASKS_EXTENSION: {} } } });
        Self {
            data: RawJson::from_value(&data).ok(),
            ..Self::new(
                StatusCode::BAD_REQUEST,
                -32021,
                format!("This request must declare the {TASKS_EXTENSION} extension."),
            )
        }
    }

    /// -32022: the version is not served here.
    pub(crate) fn unsupported_version(requested: &str) -> Self {
        let requested = shown(requested);
        let data = json!({ "supported": [PROTOCOL_VERSION], "requested": requested });
        Self {
            data: RawJson::from_value(&data).ok(),
            ..Self::new(
                StatusCode::BAD_REQUEST,
                -32022,
                format!(
                    "Tasks are served in protocol version {PROTOCOL_VERSION}, not {requested}."
                ),
            )
        }
    }

    /// The answer to the request with this id; `null` for a request that has none to name.
    pub(crate) fn to_json(&self, id: &str) -> String {
        let message = serde_json::Value::from(self.message.as_str());
        let data =
            self.data.as_ref().map_or(String::new(), |data| format!(",\"data\":{}", data.as_str()));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{},"message":{message}{data}}}}}"#,
            self.code
        )
    }
}

/// The answer that carries a result.
pub(crate) fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// Text from outside as it may appear in a message: bounded, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let mut short: String =
        text.chars().take(MAX_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

//! A JSON-RPC error as data, the only thing a `failed` task carries.

use serde::{Deserialize, Serialize};

use crate::json::RawJson;

/// The JSON-RPC error object of a failed task
/// (`sep-2663-failed-status-jsonrpc-only`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// JSON-RPC error code.
    pub code: i32,
    /// One sentence for people.
    pub message: String,
    /// More, for programs.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        deserialize_with = "crate::json::present"
    )]
    pub data: Option<RawJson>,
}

impl RpcError {
    /// JSON-RPC "internal error".
    pub const INTERNAL: i32 = -32603;
    /// JSON-RPC "invalid params".
    pub const INVALID_PARAMS: i32 = -32602;

    /// An error without data.
    #[must_use]
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// An internal error whose `data.reason` is a word that programs can switch on.
    #[must_use]
    pub fn internal(reason: &'static str, message: impl Into<String>) -> Self {
        let data = RawJson::parse(&format!(r#"{{"reason":"{reason}"}}"#)).ok();
        Self { code: Self::INTERNAL, message: message.into(), data }
    }
}

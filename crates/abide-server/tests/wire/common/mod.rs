//! What the tests share: a server with tools that tests steer, clients for both transports, the
//! extension's schema.

mod gates;
mod http;
mod schema;
mod server;
mod stdio;
mod tools;

pub(crate) use gates::Gates;
pub(crate) use http::{Http, Request, raw_exchange};
pub(crate) use schema::{fits, task_of, unnest};
pub(crate) use server::{Fixture, Running, error_code};
pub(crate) use stdio::Stdio;
pub(crate) use tools::{UNICODE_TOOL, tools};

use std::time::Duration;

use serde_json::{Value, json};

/// The revision that has tasks.
pub(crate) const VERSION: &str = "2026-07-28";
/// The extension.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// No test waits longer than this for something that has to happen; none passes because of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Stops the clock from moving on by itself in a test that has paused it, until dropped.
pub(crate) struct Awake(tokio::task::JoinHandle<()>);

impl Awake {
    pub(crate) fn new() -> Self {
        Self(tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        }))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for something that has to happen.
pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}: never happened"))
}

/// A request's `_meta` that declares the extension.
pub(crate) fn declared() -> Value {
    meta(json!({ "extensions": { TASKS: {} } }))
}

/// A request's `_meta` that declares nothing.
pub(crate) fn undeclared() -> Value {
    meta(json!({}))
}

/// A request's `_meta` with these capabilities.
pub(crate) fn meta(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" }
    })
}

/// The params of a call.
pub(crate) fn call(meta: Value, tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments, "_meta": meta })
}

/// The params of `tasks/get` and `tasks/cancel`.
pub(crate) fn task(meta: Value, id: &str) -> Value {
    json!({ "taskId": id, "_meta": meta })
}

/// The params of `tasks/update`.
pub(crate) fn update(meta: Value, id: &str, responses: Value) -> Value {
    json!({ "taskId": id, "inputResponses": responses, "_meta": meta })
}

/// One JSON-RPC request as text.
pub(crate) fn request(id: &Value, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

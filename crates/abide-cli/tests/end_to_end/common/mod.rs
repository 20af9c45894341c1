//! What the tests share: servers as processes, clients for both transports, waiting, chance.

mod chance;
mod folder;
mod http;
mod logs;
mod processes;
mod server;
mod small_disk;
mod stdio;

pub(crate) use chance::Chance;
pub(crate) use folder::{Folder, example};
pub(crate) use http::{Http, Reply, Request};
pub(crate) use processes::{alive, pids_in, signal_process};
pub(crate) use server::{Ended, Server, abide, ended};
pub(crate) use small_disk::{mount, on_a_small_disk};
pub(crate) use stdio::Stdio;

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

/// The revision that has tasks.
pub(crate) const VERSION: &str = "2026-07-28";
/// The extension.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// No test waits longer than this for something that has to happen; none passes because of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often a condition is looked at that nobody tells of.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for something that has to happen.
pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}: never happened"))
}

/// Looks until there is something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(LOOK).await;
        }
    })
    .await
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, async || is_so().then_some(())).await;
}

/// Says something past the test harness, which keeps the output of tests that pass.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether a request declares that its sender can take tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declares {
    Tasks,
    Nothing,
}

impl Declares {
    /// The request's `_meta`.
    pub(crate) fn meta(self) -> Value {
        let capabilities = match self {
            Self::Tasks => json!({ "extensions": { TASKS: {} } }),
            Self::Nothing => json!({}),
        };
        json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" }
        })
    }

    /// The params of a call.
    pub(crate) fn call(self, tool: &str, arguments: &Value) -> Value {
        json!({ "name": tool, "arguments": arguments, "_meta": self.meta() })
    }
}

/// The params of `tasks/get` and `tasks/cancel`.
pub(crate) fn task(id: &str) -> Value {
    json!({ "taskId": id, "_meta": Declares::Tasks.meta() })
}

/// One JSON-RPC request as text.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// The handle in the answer to a call that became a task.
#[track_caller]
pub(crate) fn handle(answer: &Value) -> String {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "task", "no task: {answer}");
    result["taskId"].as_str().expect("a task has an id").to_owned()
}

/// The result in the answer to a call that was answered plainly.
#[track_caller]
pub(crate) fn plain(answer: &Value) -> &Value {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "complete", "no plain result: {answer}");
    result
}

/// A task's result without the link to the log, which a plain call's does not have.
#[track_caller]
pub(crate) fn without_log(result: &Value) -> Value {
    let mut result = result.clone();
    let content = result["content"].as_array_mut().expect("content");
    content.retain(|block| block["type"] != "resource_link");
    result
}

/// Whether a task's status is one that never changes.
pub(crate) fn is_terminal(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "cancelled")
}

/// The texts of a result's content, joined.
#[track_caller]
pub(crate) fn text(result: &Value) -> String {
    let content = result["content"].as_array().unwrap_or_else(|| panic!("no content: {result}"));
    let texts: Vec<_> = content.iter().filter_map(|block| block["text"].as_str()).collect();
    texts.join("\n")
}

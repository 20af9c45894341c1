//! What a task looks like at each step of its life, in both envelopes.

use abide_server::Envelope;
use serde_json::{Map, Value, json};

use crate::common::*;

/// A server, and how to see its answers flat.
struct Wrapped {
    server: Running,
    envelope: Envelope,
}

impl Wrapped {
    async fn start(envelope: Envelope) -> Self {
        Self { server: Fixture::new().envelope(envelope).start().await, envelope }
    }

    /// A result that carries a task, as the schema has it.
    fn flat(&self, result: &Value) -> Value {
        match self.envelope {
            Envelope::Flat => {
                assert!(result.get("task").is_none(), "{result:#}");
                result.clone()
            }
            Envelope::Nested => unnest(result),
        }
    }

    /// Calls a tool over one of the transports; gives the flat `CreateTaskResult`.
    async fn create(&self, tool: &str, arguments: Value) -> Map<String, Value> {
        let params = call(declared(), tool, arguments);
        let over_http = self.server.http.ask("tools/call", &params).await;
        assert!(!over_http.is_stream());
        let over_stdio = self.server.stdio().ask("tools/call", &params).await;
        let mut keys = Vec::new();
        let mut last = Map::new();
        for message in [over_http.json(), over_stdio] {
            let result = self.flat(&message["result"]);
            // `sep-2663-result-type-task-on-create`
            assert_eq!(result["resultType"], "task");
            fits("CreateTaskResult", &result);
            fits("Task", &Value::Object(task_of(&result)));
            for member in ["task", "result", "error", "inputRequests", "requestState"] {
                assert!(result.get(member).is_none(), "{member} in {result:#}");
            }
            let members = result.as_object().expect("an object").clone();
            keys.push(members.keys().cloned().collect::<Vec<_>>());
            last = members;
        }
        assert_eq!(keys[0], keys[1]);
        last
    }

    /// The flat result of `tasks/get` once the task has this status.
    async fn until(&self, id: &Value, status: &str) -> Map<String, Value> {
        let id = id.as_str().expect("a handle");
        let got = self.flat(&self.server.until_status(id, status).await);
        // `sep-2663-result-type-complete-on-tasks-get`
        assert_eq!(got["resultType"], "complete");
        fits("GetTaskResult", &got);
        let definition = match status {
            "working" => "WorkingTask",
            "input_required" => "InputRequiredTask",
            "completed" => "CompletedTask",
            "failed" => "FailedTask",
            _ => "CancelledTask",
        };
        let task = task_of(&got);
        fits(definition, &Value::Object(task.clone()));
        fits("DetailedTask", &Value::Object(task.clone()));
        times_are_times(&task);
        assert_eq!(task["pollIntervalMs"], 250);
        // Each status carries what belongs to it and nothing else.
        for (member, owner) in
            [("result", "completed"), ("error", "failed"), ("inputRequests", "input_required")]
        {
            assert_eq!(task.contains_key(member), status == owner, "{member} in {got:#}");
        }
        assert!(!got.to_string().contains("related-task"), "{got:#}");
        task
    }

    /// Asks for an acknowledgement and holds it to its bytes.
    async fn acknowledged(&self, method: &str, params: Value, definition: &str) {
        let reply = self.server.http.ask(method, &params).await;
        assert_eq!(reply.text, r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#);
        assert_eq!(reply.status, 200);
        fits(definition, &reply.json()["result"]);
    }
}

/// RFC 3339 with milliseconds, in UTC as `Z`, and in order.
fn times_are_times(task: &Map<String, Value>) {
    let text = |name: &str| task[name].as_str().expect("a time").to_owned();
    let (created, updated) = (text("createdAt"), text("lastUpdatedAt"));
    for time in [&created, &updated] {
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z");
        assert!(time.starts_with("20"), "{time}");
    }
    // Of one length and form, so they sort as text.
    assert!(created <= updated, "{created} {updated}");
}

async fn both(test: impl AsyncFn(Wrapped)) {
    for envelope in [Envelope::Flat, Envelope::Nested] {
        test(Wrapped::start(envelope).await).await;
    }
}

#[tokio::test]
async fn working_then_completed() {
    both(async |wrapped| {
        let created = wrapped.create("gate", json!({ "say": "on my way" })).await;
        assert_eq!(created["status"], "working");
        // timeout and keep.
        assert_eq!(created["ttlMs"], 10_800_000);
        wrapped.until(&created["taskId"], "working").await;
        let id = created["taskId"].as_str().expect("a handle");
        wrapped.server.until(id, |got| wrapped.flat(got)["statusMessage"] == "on my way").await;
        wrapped.server.gates.open("gate");
        wrapped.server.gates.open("gate");
        let done = wrapped.until(&created["taskId"], "completed").await;
        assert_eq!(
            done["result"],
            json!({
                "resultType": "complete",
                "content": [{ "type": "text", "text": "through gate" }]
            })
        );
        assert_eq!(done["createdAt"], created["createdAt"]);
    })
    .await;
}

/// `sep-2663-tool-error-uses-completed-status`
#[tokio::test]
async fn a_tool_that_reports_an_error_is_completed() {
    both(async |wrapped| {
        let created = wrapped.create("reports_error", json!({})).await;
        let done = wrapped.until(&created["taskId"], "completed").await;
        assert_eq!(done["result"]["isError"], true);
    })
    .await;
}

/// `sep-2663-failed-includes-statusmessage`, `sep-2663-tasks-get-status-failed`
#[tokio::test]
async fn failed_carries_the_error_and_a_message() {
    both(async |wrapped| {
        let created = wrapped.create("fails", json!({})).await;
        let failed = wrapped.until(&created["taskId"], "failed").await;
        assert_eq!(failed["statusMessage"], "The upstream said no.");
        assert_eq!(
            failed["error"].to_string(),
            r#"{"code":-32050,"message":"The upstream said no.","data":{"n":12345678901234567890123,"why":"wire"}}"#
        );
        // A plain call gets the same error.
        let reply = wrapped.server.http.ask("tools/call", &call(undeclared(), "fails", json!({}))).await;
        assert_eq!(reply.json()["error"], failed["error"]);

        let created = wrapped.create("panics", json!({})).await;
        let failed = wrapped.until(&created["taskId"], "failed").await;
        assert_eq!(failed["error"]["code"], -32603);
        assert_eq!(failed["error"]["data"]["reason"], "panic");
        let text = failed["error"].to_string();
        assert!(!text.contains("a tool that panics"), "internals in {text}");
    })
    .await;
}

/// `sep-2663-tasks-get-status-cancelled`, `sep-2663-cancel-ack-empty-result`
#[tokio::test]
async fn cancelled() {
    both(async |wrapped| {
        let created = wrapped.create("gate", json!({})).await;
        let id = created["taskId"].as_str().expect("a handle");
        wrapped.server.gates.started("gate", 2).await;
        wrapped.acknowledged("tasks/cancel", task(declared(), id), "CancelTaskResult").await;
        wrapped.until(&created["taskId"], "cancelled").await;
        wrapped.server.gates.dropped("gate", 1).await;
    })
    .await;
}

/// `sep-2663-tasks-get-status-input-required`, `sep-2663-update-ack-empty-result`
#[tokio::test]
async fn input_required() {
    both(async |wrapped| {
        let created = wrapped.create("asks", json!({})).await;
        let asking = wrapped.until(&created["taskId"], "input_required").await;
        fits("InputRequests", &asking["inputRequests"]);
        assert_eq!(asking["inputRequests"]["confirm"]["method"], "elicitation/create");
        assert_eq!(asking["inputRequests"]["confirm"]["params"]["message"], "Really?");
        let id = created["taskId"].as_str().expect("a handle");
        let answer = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
        wrapped
            .acknowledged("tasks/update", update(declared(), id, answer), "UpdateTaskResult")
            .await;
        let done = wrapped.until(&created["taskId"], "completed").await;
        assert_eq!(
            done["result"]["content"][0]["text"],
            r#"{"action":"accept","content":{"ok":true}}"#
        );
    })
    .await;
}

/// A null lifetime is null on the wire.
#[tokio::test]
async fn kept_for_ever() {
    both(async |wrapped| {
        let created = wrapped.create("for_ever", json!({})).await;
        assert_eq!(created["ttlMs"], Value::Null);
        assert!(created.contains_key("ttlMs"));
        let done = wrapped.until(&created["taskId"], "completed").await;
        assert_eq!(done["ttlMs"], Value::Null);
    })
    .await;
}

/// Only what carries a task is wrapped: neither plain results nor errors change.
#[tokio::test]
async fn what_is_not_a_task_is_the_same_in_both() {
    let flat = Wrapped::start(Envelope::Flat).await;
    let nested = Wrapped::start(Envelope::Nested).await;
    let tricky =
        r#"{"resultType":"complete","content":[],"structuredContent":{"taskId":"x","task":1}}"#;
    for (method, params) in [
        ("tools/call", call(undeclared(), "echo", json!({ "taskId": "mine", "status": "x" }))),
        ("tools/call", call(declared(), "fast", json!({}))),
        ("tools/call", call(undeclared(), "says", json!({ "result": tricky }))),
        ("tools/call", call(undeclared(), "gate_required", json!({}))),
        ("tasks/get", task(declared(), "unknown")),
        ("tools/list", json!({ "_meta": undeclared() })),
        ("server/discover", json!({ "_meta": undeclared() })),
    ] {
        let (one, other) = (
            flat.server.http.ask(method, &params).await,
            nested.server.http.ask(method, &params).await,
        );
        assert_eq!((one.status, &one.text), (other.status, &other.text));
        let over_stdio = nested.server.stdio().ask(method, &params).await;
        assert_eq!(over_stdio, one.json());
    }
    // A completed task whose result looks like a task is nested once.
    let created = nested.create("says", json!({ "result": tricky })).await;
    let done = nested.until(&created["taskId"], "completed").await;
    assert_eq!(done["result"].to_string(), tricky);
}

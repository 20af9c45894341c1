//! The same request gets the same answer over HTTP and over stdio, to the byte.

use serde_json::{Value, json};

use crate::common::*;

/// An answer with handles and times replaced.
fn anonymous(text: &str) -> String {
    let message: Value = serde_json::from_str(text).expect("JSON");
    let mut text = text.to_owned();
    for member in ["taskId", "createdAt", "lastUpdatedAt"] {
        if let Some(value) = message["result"][member].as_str() {
            text = text.replace(value, &format!("<{member}>"));
        }
    }
    text
}

async fn same(server: &Running, method: &str, params: &Value) -> String {
    let id = json!("the same");
    let over_http = server.http.send(Request::with_id(&id, method, params)).await.message();
    let mut stdio = server.stdio();
    stdio.line(&request(&id, method, params)).await;
    let over_stdio = stdio.answer(&id).await;
    assert_eq!(anonymous(&over_http), anonymous(&over_stdio), "{method} {params}");
    over_http
}

#[tokio::test]
async fn both_transports_answer_alike() {
    let server = Fixture::new().start().await;
    for (tool, arguments) in [
        ("echo", json!({ "n": 1.10 })),
        ("gate", json!({ "gate": "g" })),
        ("gate_required", json!({ "gate": "g" })),
        ("for_ever", json!({})),
        ("fast", json!({})),
        ("nothing", json!({})),
        ("typed", json!({ "build": "x" })),
        (UNICODE_TOOL, json!({})),
        ("fails", json!({})),
        ("reports_error", json!({})),
    ] {
        same(&server, "tools/call", &call(declared(), tool, arguments.clone())).await;
        if !tool.starts_with("gate") || tool == "gate_required" {
            same(&server, "tools/call", &call(undeclared(), tool, arguments)).await;
        }
    }
    for (tool, status) in [
        ("gate", "working"),
        ("asks", "input_required"),
        ("asks_twice", "input_required"),
        ("echo", "completed"),
        ("reports_error", "completed"),
        ("fails", "failed"),
        ("panics", "failed"),
    ] {
        let id = server.create(tool, json!({})).await;
        server.until_status(&id, status).await;
        if tool == "asks_twice" {
            server
                .until(&id, |got| got["inputRequests"].as_object().is_some_and(|m| m.len() == 2))
                .await;
        }
        // The very bytes: it is the same task.
        let params = task(declared(), &id);
        let over_http =
            server.http.send(Request::with_id(&json!("x"), "tasks/get", &params)).await.text;
        let mut stdio = server.stdio();
        stdio.line(&request(&json!("x"), "tasks/get", &params)).await;
        assert_eq!(stdio.answer(&json!("x")).await, over_http);

        let wrong = json!({ "confirm": { "action": "perhaps" }, "first": 5 });
        same(&server, "tasks/update", &update(declared(), &id, wrong)).await;
        same(&server, "tasks/update", &update(declared(), &id, json!({ "other": 5 }))).await;
        same(&server, "tasks/get", &task(undeclared(), &id)).await;
        same(&server, "tasks/result", &params).await;
        same(&server, "tasks/cancel", &params).await;
        same(&server, "tasks/cancel", &params).await;
        let ended = server
            .until(&id, |got| got["status"] != "working" && got["status"] != "input_required")
            .await;
        assert_ne!(ended["status"], "working");
        same(&server, "tasks/get", &params).await;
    }
    for (method, params) in [
        ("tasks/get", json!({})),
        ("tasks/get", json!({ "_meta": declared() })),
        ("tasks/get", task(declared(), "unknown")),
        ("tasks/update", task(declared(), "unknown")),
        ("tasks/list", json!({ "_meta": declared() })),
        ("tools/list", json!({ "_meta": declared() })),
        ("server/discover", json!({ "_meta": declared() })),
        ("prompts/list", json!({ "_meta": declared() })),
        ("resources/list", json!({ "_meta": declared() })),
        ("nothing/here", json!({ "_meta": declared() })),
    ] {
        same(&server, method, &params).await;
    }
}

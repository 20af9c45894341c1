//! -32021: what a request has to declare, and what counts as a declaration.

use serde_json::{Value, json};

use crate::common::*;

/// Asserts that an error is -32021 and names the extension
/// (`sep-2663-server-returns-missing-capability-data-shape`).
#[track_caller]
pub(crate) fn missing_capability(json: &Value) {
    assert_eq!(error_code(json), -32021, "{json:#}");
    let wanted = json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } });
    assert_eq!(json["error"]["data"], wanted);
}

/// Capabilities that do not declare the extension.
fn no_declarations() -> Vec<Value> {
    vec![
        json!({}),
        json!({ "extensions": {} }),
        json!({ "extensions": { "io.modelcontextprotocol/other": {} } }),
        // What clients of 2025-11-25 declared (`sep-2663-legacy-capability-treated-as-non-declaring`).
        json!({ "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } } }),
        json!({ "experimental": { TASKS: {} } }),
    ]
}

#[tokio::test]
async fn task_methods_need_the_declaration_each_time() {
    let server = Fixture::new().start().await;
    let id = server.create("gate", json!({})).await;
    let mut stdio = server.stdio();
    for capabilities in no_declarations() {
        for (method, params) in [
            ("tasks/get", task(meta(capabilities.clone()), &id)),
            ("tasks/cancel", task(meta(capabilities.clone()), &id)),
            ("tasks/update", update(meta(capabilities.clone()), &id, json!({}))),
            ("tasks/get", task(meta(capabilities.clone()), "unknown")),
        ] {
            let reply = server.http.ask(method, &params).await;
            assert_eq!(reply.status, 400, "{capabilities}");
            missing_capability(&reply.json());
            missing_capability(&stdio.ask(method, &params).await);
        }
    }
    // The refused cancels did nothing; and a declaration before these requests counted for nothing.
    assert_eq!(server.get(&id).await["status"], "working");
}

#[tokio::test]
async fn tools_that_need_a_task_say_so() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    for capabilities in no_declarations() {
        let params = call(meta(capabilities), "gate_required", json!({}));
        let reply = server.http.ask("tools/call", &params).await;
        assert_eq!(reply.status, 400);
        missing_capability(&reply.json());
        missing_capability(&stdio.ask("tools/call", &params).await);
    }
    assert_eq!((server.gates.count("gate"), server.rows()), (0, 0));
}

/// `sep-2663-server-rejects-undeclared-client`, regardless of prior declarations: on one stdio
/// session and on one keep-alive connection.
#[tokio::test]
async fn a_request_that_does_not_declare_never_gets_a_handle() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    for capabilities in no_declarations() {
        let before = server.rows();
        let reply =
            server.http.ask("tools/call", &call(declared(), "echo", json!({ "n": 1 }))).await;
        assert_eq!(reply.json()["result"]["resultType"], "task");
        let params = call(meta(capabilities), "echo", json!({ "n": 1 }));
        let plain = server.http.ask("tools/call", &params).await.json();
        assert_eq!(plain["result"]["structuredContent"], json!({ "n": 1 }), "{plain:#}");

        let handle = stdio.ask("tools/call", &call(declared(), "echo", json!({}))).await;
        assert_eq!(handle["result"]["resultType"], "task");
        let plain = stdio.ask("tools/call", &params).await;
        assert_eq!(plain["result"]["resultType"], "complete", "{plain:#}");
        assert_eq!(server.rows(), before + 2);
    }
}

/// Fields that the revision requires in `_meta` are missing or of another kind.
#[tokio::test]
async fn a_request_without_its_metadata_is_refused() {
    let server = Fixture::new().start().await;
    let id = server.create("gate", json!({})).await;
    let mut stdio = server.stdio();
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    for broken in [
        json!({}),
        json!({ version: VERSION }),
        json!({ capabilities: { "extensions": { TASKS: {} } } }),
        json!({ version: 5, capabilities: {} }),
        json!({ version: VERSION, capabilities: 5 }),
        json!({ version: VERSION, capabilities: null }),
    ] {
        for (method, params) in [
            ("tasks/get", task(broken.clone(), &id)),
            ("tools/call", call(broken.clone(), "echo", json!({}))),
        ] {
            let reply = server.http.ask(method, &params).await;
            assert_eq!(
                (reply.status, error_code(&reply.json())),
                (400, -32602),
                "{method} {broken}"
            );
            assert_eq!(error_code(&stdio.ask(method, &params).await), -32602, "{method} {broken}");
        }
    }
}

/// The capability is advertised under its new name only
/// (`sep-2663-migrate-from-legacy-capabilities`).
#[tokio::test]
async fn discovery_names_the_extension() {
    let server = Fixture::new().start().await;
    let params = json!({ "_meta": undeclared() });
    let reply = server.http.ask("server/discover", &params).await;
    assert_eq!(reply.status, 200);
    let result = &reply.json()["result"];
    assert!(result["capabilities"]["extensions"][TASKS].is_object(), "{result:#}");
    assert!(result["capabilities"].get("tasks").is_none(), "{result:#}");
    let discovered = server.stdio().ask("server/discover", &params).await;
    assert_eq!(&discovered["result"], result);
}

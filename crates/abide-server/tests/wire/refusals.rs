//! -32602, -32022, -32601: requests that are well-formed and can't be served.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use abide_core::{Clock, Owner, TaskId, Timestamp};
use serde_json::{Value, json};

use crate::common::*;

const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

fn params(method: &str, id: &str) -> Value {
    match method {
        "tasks/update" => update(declared(), id, json!({})),
        _ => task(declared(), id),
    }
}

/// A clock that tests move on.
struct Moved(AtomicI64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Unknown, expired, another's, malformed: one answer, to the byte
/// (`sep-2663-tasks-get-invalid-task-id-32602`, `sep-2663-tasks-update-cancel-invalid-task-id-32602`,
/// `sep-2663-update-error-unknown-task-id`, `sep-2663-cancel-error-unknown-task-id`).
#[tokio::test]
async fn ids_that_are_not_the_callers() {
    let clock = Arc::new(Moved(AtomicI64::new(1_785_283_200_000)));
    let server = Fixture::new()
        .clock(clock.clone())
        .tool("echo", |tool| (tool.timeout_ms, tool.keep_ms) = (Some(1_000), Some(1_000)))
        .start()
        .await;
    let expired = server.create("echo", json!({})).await;
    server.until_status(&expired, "completed").await;
    clock.0.fetch_add(3_600_000, Ordering::Relaxed);

    let others = server.engine.call(abide_engine::Call {
        owner: Owner::new("somebody else").expect("a name"),
        tool: "gate".to_owned(),
        arguments: abide_core::RawJson::parse("{}").expect("JSON"),
        may_be_task: true,
        capabilities: abide_core::RawJson::parse("{}").expect("JSON"),
        input_responses: None,
        request_state: None,
        progress: None,
    });
    let abide_engine::Answer::Task(others) = others.await.expect("created") else {
        panic!("no task");
    };
    let unknown = TaskId::new(Timestamp::from_millis(1), [7; TaskId::RANDOM_LEN]);
    let long = "x".repeat(200_000);
    let ids = [
        unknown.as_str(),
        &expired,
        others.id().as_str(),
        "",
        "abc",
        "a b",
        "nul\0",
        "🚀",
        &unknown.as_str().to_uppercase(),
        "../../etc/passwd",
        &long,
    ];
    let mut stdio = server.stdio();
    let mut answers = std::collections::BTreeSet::new();
    for method in METHODS {
        for id in ids {
            let params = params(method, id);
            // Headers have a limit of their own; only what fits into one can be asked for by HTTP.
            if id.len() < 10_000 {
                let reply = server.http.ask(method, &params).await;
                assert_eq!(reply.status, 200, "{method} {id:?}");
                answers.insert(reply.text);
            }
            let line = stdio.send(method, &params).await;
            let mut answer: Value = serde_json::from_str(&stdio.answer(&line).await).expect("JSON");
            answer["id"] = json!(1);
            answers.insert(answer.to_string());
        }
    }
    assert_eq!(answers.len(), 1, "{answers:#?}");
    let answer: Value = serde_json::from_str(answers.first().expect("one")).expect("JSON");
    assert_eq!(error_code(&answer), -32602);
    assert!(answer["error"].get("data").is_none());
    // Nothing was done to the other's task.
    let owner = Owner::new("somebody else").expect("a name");
    let task = server.engine.get(&owner, *others.id()).await.expect("read").expect("there");
    assert_eq!(task.version(), 1);
}

#[tokio::test]
async fn a_task_id_of_ten_megabytes() {
    let server = Fixture::new().settings(|s| s.max_body_bytes = 16 << 20).start().await;
    let id = "x".repeat(10 << 20);
    let answer = server.stdio().ask("tasks/get", &task(declared(), &id)).await;
    assert_eq!(error_code(&answer), -32602);
    assert!(answer.to_string().len() < 1_000);
    // Over HTTP the body may be that large; the header can't be, so the two never agree.
    let request = Request::new("tasks/get", &task(declared(), &id)).replace("mcp-name", "x");
    let reply = server.http.send(request).await;
    assert_eq!((reply.status, error_code(&reply.json())), (400, -32020));
    assert!(reply.text.len() < 1_000);
}

#[tokio::test]
async fn params_that_no_task_method_has() {
    let server = Fixture::new().start().await;
    let id = server.create("asks", json!({})).await;
    server.until_status(&id, "input_required").await;
    let before = server.get(&id).await;
    let mut stdio = server.stdio();
    let cases = [
        ("tasks/get", json!({ "_meta": declared() })),
        ("tasks/get", json!({ "_meta": declared(), "taskId": 5 })),
        ("tasks/cancel", json!({ "_meta": declared(), "taskId": null })),
        ("tasks/cancel", json!({ "_meta": declared(), "taskId": [id] })),
        ("tasks/update", json!({ "_meta": declared(), "taskId": id })),
        ("tasks/update", json!({ "_meta": declared(), "taskId": id, "inputResponses": [] })),
        ("tasks/update", json!({ "_meta": declared(), "taskId": id, "inputResponses": null })),
        ("tasks/update", json!({ "_meta": declared(), "taskId": id, "inputResponses": "x" })),
    ];
    for (method, params) in cases {
        let reply = server.http.ask(method, &params).await;
        assert_eq!((reply.status, error_code(&reply.json())), (200, -32602), "{params}");
        assert_eq!(error_code(&stdio.ask(method, &params).await), -32602, "{params}");
    }
    assert_eq!(server.get(&id).await, before);
}

#[tokio::test]
async fn versions_that_are_not_served() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    for version in ["2027-01-01", "1.0", "DRAFT"] {
        let mut declared = declared();
        declared["io.modelcontextprotocol/protocolVersion"] = json!(version);
        for (method, params) in [
            ("tasks/get", task(declared.clone(), "x")),
            ("tools/list", json!({ "_meta": declared })),
            ("tools/call", call(declared.clone(), "echo", json!({}))),
            ("server/discover", json!({ "_meta": declared })),
        ] {
            let request = Request::new(method, &params).replace("mcp-protocol-version", version);
            let reply = server.http.send(request).await;
            assert_eq!(reply.status, 400, "{method}");
            for json in [reply.json(), stdio.ask(method, &params).await] {
                assert_eq!(error_code(&json), -32022, "{method}");
                let data = &json["error"]["data"];
                assert_eq!(data["requested"], version);
                let supported = data["supported"].as_array().expect("a list");
                assert!(supported.contains(&json!(VERSION)), "{json:#}");
                assert!(!supported.contains(&json!(version)), "{json:#}");
            }
        }
    }
}

/// An unknown version in the header alone, of requests without metadata.
#[tokio::test]
async fn an_unknown_version_in_the_header() {
    let server = Fixture::new().start().await;
    for (method, params) in [("tools/list", json!({})), ("tasks/get", json!({ "taskId": "x" }))] {
        let request = Request::new(method, &params).replace("mcp-protocol-version", "2099-12-31");
        let reply = server.http.send(request).await;
        assert_eq!((reply.status, error_code(&reply.json())), (400, -32022), "{method}");
        assert_eq!(reply.json()["id"], 1);
    }
}

/// `sep-2663-tasks-result-removed-method-not-found`, and everything else that is not there.
#[tokio::test]
async fn methods_that_do_not_exist() {
    let server = Fixture::new().start().await;
    let id = server.create("gate", json!({})).await;
    let mut stdio = server.stdio();
    // For declaring and undeclared requests alike: the method is not there for anybody.
    for meta in [declared(), undeclared()] {
        for method in [
            "tasks/result",
            "tasks/list",
            "tasks/",
            "tasks/GET",
            "tools/nothing",
            "nothing",
            "",
            "completion/complete",
            "subscriptions/listen",
            "übersetzen",
        ] {
            let params = json!({ "_meta": meta, "taskId": id, "notifications": {} });
            let request = Request::new(method, &params);
            // A header can't carry every name.
            let request = if method.is_ascii() && !method.is_empty() { request } else { continue };
            let reply = server.http.send(request).await;
            assert_eq!((reply.status, error_code(&reply.json())), (404, -32601), "{method:?}");
            let json = stdio.ask(method, &params).await;
            assert_eq!(error_code(&json), -32601, "{method:?}");
        }
    }
}

/// Params that rmcp can't read are bad params, not an unknown method.
#[tokio::test]
async fn malformed_params_of_known_methods() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let cases = [
        ("tools/call", json!({ "_meta": undeclared() })),
        ("tools/call", json!({ "_meta": undeclared(), "name": 5 })),
        ("tools/call", json!({ "_meta": undeclared(), "name": "echo", "arguments": [1] })),
        ("tools/call", json!({ "_meta": undeclared(), "name": "echo", "arguments": "x" })),
        ("prompts/get", json!({ "_meta": undeclared() })),
        ("resources/read", json!({ "_meta": undeclared(), "uri": 1 })),
    ];
    for (method, params) in cases {
        let reply = server.http.ask(method, &params).await;
        assert_eq!((reply.status, error_code(&reply.json())), (200, -32602), "{method} {params}");
        assert_eq!(error_code(&stdio.ask(method, &params).await), -32602, "{method} {params}");
    }
}

#[tokio::test]
async fn unknown_tools() {
    let server = Fixture::new().start().await;
    let long = "x".repeat(3_000);
    for name in ["nothing", "", "nul\0byte", "übersetzen", "a\u{202e}b", &long] {
        for meta in [declared(), undeclared()] {
            let reply = server.http.ask("tools/call", &call(meta, name, json!({}))).await;
            assert_eq!((reply.status, error_code(&reply.json())), (200, -32602), "{name:?}");
            assert!(reply.text.len() < 500);
        }
    }
}

/// Input validation errors are tool execution errors (core specification 2026-07-28, tools, "Error
/// Handling"): the model reads them and can call again.
#[tokio::test]
async fn arguments_that_do_not_fit() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let cases = [
        (json!({}), "\"build\""),
        (json!({ "build": "x" }), "/build"),
        (json!({ "build": 1.5 }), "/build"),
        (json!({ "build": 1, "env": "moon" }), "/env"),
        (json!({ "build": 1, "extra": true }), "extra"),
        (json!({ "build": null }), "/build"),
    ];
    for (arguments, named) in cases {
        for meta in [declared(), undeclared()] {
            let params = call(meta, "typed", arguments.clone());
            let reply = server.http.ask("tools/call", &params).await;
            assert_eq!(reply.status, 200);
            for json in [reply.json(), stdio.ask("tools/call", &params).await] {
                let result = &json["result"];
                assert_eq!(result["isError"], true, "{json:#}");
                assert_eq!(result["resultType"], "complete");
                let text = result["content"][0]["text"].as_str().expect("text");
                assert!(text.contains(named), "{text}");
            }
        }
    }
    assert_eq!(server.rows(), 0);
    // And what fits is called, huge numbers included.
    let huge: Value = serde_json::from_str(r#"{"build":123456789012345678901234567890}"#).unwrap();
    let json = server.http.ask("tools/call", &call(undeclared(), "typed", huge)).await.json();
    assert_eq!(json["result"]["content"][0]["text"], "typed", "{json:#}");
}

/// -32603 says nothing about the inside.
#[tokio::test]
async fn a_database_that_is_gone() {
    let server = Fixture::new().start().await;
    let id = server.create("gate", json!({})).await;
    server.engine.close().await;
    for method in METHODS {
        let reply = server.http.ask(method, &params(method, &id)).await;
        assert_eq!((reply.status, error_code(&reply.json())), (200, -32603), "{}", reply.text);
        assert!(!reply.text.contains("sqlite") && !reply.text.contains(".db"), "{}", reply.text);
    }
}

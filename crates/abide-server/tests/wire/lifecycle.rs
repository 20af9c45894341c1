//! What callers do to tasks: create, answer, cancel; and calls that leave no task.

use serde_json::{Value, json};

use crate::common::*;

const ACK: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#;

/// A finished task is acknowledged again and again, and nothing changes.
#[tokio::test]
async fn cancelling_what_has_ended() {
    let server = Fixture::new().start().await;
    let cancelled = server.create("gate", json!({})).await;
    server.http.ask("tasks/cancel", &task(declared(), &cancelled)).await;
    for (id, status) in [
        (server.create("echo", json!({})).await, "completed"),
        (server.create("fails", json!({})).await, "failed"),
        (cancelled, "cancelled"),
    ] {
        server.until_status(&id, status).await;
        let before = server.http.ask("tasks/get", &task(declared(), &id)).await.text;
        for (method, params) in [
            ("tasks/cancel", task(declared(), &id)),
            ("tasks/cancel", task(declared(), &id)),
            ("tasks/update", update(declared(), &id, json!({ "confirm": { "action": "accept" } }))),
        ] {
            let reply = server.http.ask(method, &params).await;
            assert_eq!(&*reply.text, ACK);
            // To the byte, and so not even `lastUpdatedAt`.
            let after = server.http.ask("tasks/get", &task(declared(), &id)).await.text;
            assert_eq!(before, after);
        }
    }
}

/// Cancelled is said only once the work has stopped; polls do not touch the task.
#[tokio::test]
async fn cancelling_work() {
    let server = Fixture::new().start().await;
    let id = server.create("gate", json!({})).await;
    server.gates.started("gate", 1).await;
    let first = server.http.ask("tasks/get", &task(declared(), &id)).await.text;
    assert_eq!(first, server.http.ask("tasks/get", &task(declared(), &id)).await.text);
    server.http.ask("tasks/cancel", &task(declared(), &id)).await;
    server.until_status(&id, "cancelled").await;
    assert_eq!(server.gates.drops("gate"), 1);
}

/// `sep-2663-update-ignore-unknown-keys`, `sep-2663-no-key-reuse-after-response`
#[tokio::test]
async fn answers_in_parts() {
    let server = Fixture::new().start().await;
    let id = server.create("asks_twice", json!({})).await;
    let asking = server
        .until(&id, |got| got["inputRequests"].as_object().is_some_and(|m| m.len() == 2))
        .await;
    let answer = |name: &str| json!({ "action": "accept", "content": { "name": name } });

    // Nothing, and keys that were never asked for: acknowledged, nothing changes.
    for responses in [
        json!({}),
        json!({ "third": answer("x") }),
        json!({ "": answer("x"), "FIRST": answer("x"), "nul\u{0}": 5 }),
        json!({ "k".repeat(500): null }),
    ] {
        let reply = server.http.ask("tasks/update", &update(declared(), &id, responses)).await;
        assert_eq!(&*reply.text, ACK);
        assert_eq!(server.get(&id).await, asking);
    }

    // One of two, with a stranger: the other stays open.
    let responses = json!({ "second": answer("Б"), "third": 1 });
    let reply = server.http.ask("tasks/update", &update(declared(), &id, responses)).await;
    assert_eq!(&*reply.text, ACK);
    let asking = server.get(&id).await;
    assert_eq!(asking["status"], "input_required");
    let open: Vec<_> = asking["inputRequests"].as_object().expect("open").keys().collect();
    assert_eq!(open, ["first"]);

    // The answered one once more, with something else and something that does not even fit.
    for responses in [json!({ "second": answer("other") }), json!({ "second": 5 })] {
        let reply = server.http.ask("tasks/update", &update(declared(), &id, responses)).await;
        assert_eq!(&*reply.text, ACK);
        assert_eq!(server.get(&id).await, asking);
    }

    let mut stdio = server.stdio();
    let acknowledged =
        stdio.ask("tasks/update", &update(declared(), &id, json!({ "first": answer("А") }))).await;
    assert_eq!(acknowledged["result"], json!({ "resultType": "complete" }));
    let done = server.until_status(&id, "completed").await;
    let text = done["result"]["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("А") && text.contains("Б") && !text.contains("other"), "{text}");
    // The tool asked under a used key and was refused.
    assert!(text.contains("first was used before"), "{text}");
}

/// Answers that do not fit: -32602 with the key and the field, and nothing changes.
#[tokio::test]
async fn answers_that_do_not_fit() {
    let server = Fixture::new().start().await;
    let id = server.create("asks", json!({})).await;
    let before = server.until_status(&id, "input_required").await;
    let mut stdio = server.stdio();
    for (answer, field) in [
        (json!({ "action": "accept", "content": {} }), "ok"),
        (json!({ "action": "accept", "content": { "ok": "yes" } }), "/content/ok"),
        (json!({ "action": "accept", "content": { "ok": null } }), "/content/ok"),
        (json!({ "action": "accept" }), "/content"),
        (json!({ "action": "accept", "content": [] }), "/content"),
        (json!({ "action": "ACCEPT", "content": { "ok": true } }), "/action"),
        (json!({ "content": { "ok": true } }), "/action"),
        (json!({}), "/action"),
        (json!(true), "object"),
        (json!(null), "object"),
    ] {
        // A stranger beside it does not make it better.
        let responses = json!({ "stranger": 1, "confirm": answer });
        let params = update(declared(), &id, responses);
        let reply = server.http.ask("tasks/update", &params).await;
        assert_eq!(reply.status, 200);
        for json in [reply.json(), stdio.ask("tasks/update", &params).await] {
            assert_eq!(error_code(&json), -32602);
            let message = json["error"]["message"].as_str().expect("a message");
            assert!(message.contains("confirm") && message.contains(field), "{field}: {message}");
        }
        assert_eq!(server.get(&id).await, before);
    }
    // Half a surrogate pair in an open answer.
    let body =
        request(&json!(1), "tasks/update", &update(declared(), &id, json!({ "confirm": "HERE" })));
    let body =
        body.replace(r#""HERE""#, r#"{"action":"accept","content":{"ok":true,"x":"\ud800"}}"#);
    let params = update(declared(), &id, json!({}));
    let mut broken = Request::new("tasks/update", &params);
    broken.body = body.into_bytes();
    assert_eq!(error_code(&server.http.send(broken).await.json()), -32602);
    assert_eq!(server.get(&id).await, before);

    // Saying no needs no content.
    let params = update(declared(), &id, json!({ "confirm": { "action": "decline" } }));
    assert_eq!(&*server.http.ask("tasks/update", &params).await.text, ACK);
    let done = server.until_status(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], r#"{"action":"decline"}"#);
}

/// Two clients answer at the same time: one answer counts, both are acknowledged.
#[tokio::test]
async fn answers_that_race() {
    let server = Fixture::new().start().await;
    for round in 0..20 {
        let id = server.create("asks", json!({})).await;
        server.until_status(&id, "input_required").await;
        let answer = |ok: bool| {
            let content = json!({ "confirm": { "action": "accept", "content": { "ok": ok } } });
            let http = server.http.clone();
            let params = update(declared(), &id, content);
            async move { http.ask("tasks/update", &params).await.text }
        };
        let (yes, no) = futures::join!(answer(true), answer(false));
        assert_eq!((&*yes, &*no), (ACK, ACK), "round {round}");
        let done = server.until_status(&id, "completed").await;
        let text = done["result"]["content"][0]["text"].as_str().expect("text");
        assert!(
            text.ends_with(r#""content":{"ok":true}}"#)
                || text.ends_with(r#""content":{"ok":false}}"#)
        );
    }
}

/// Cancelling a task that waits for input ends it, and answers then come too late.
#[tokio::test]
async fn cancelling_what_waits_for_input() {
    let server = Fixture::new().start().await;
    let id = server.create("asks", json!({})).await;
    server.until_status(&id, "input_required").await;
    server.http.ask("tasks/cancel", &task(declared(), &id)).await;
    let before = server.until_status(&id, "cancelled").await;
    let late = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    let reply = server.http.ask("tasks/update", &update(declared(), &id, late)).await;
    assert_eq!(&*reply.text, ACK);
    assert_eq!(server.get(&id).await, before);
}

/// `sep-2663-legacy-task-param-ignored`
#[tokio::test]
async fn the_older_task_param_is_ignored() {
    let server = Fixture::new().start().await;
    for legacy in [json!({ "ttl": 60_000 }), json!({}), json!(null), json!(true), json!([1])] {
        // It opts nobody in,
        let mut params = call(undeclared(), "echo", json!({ "n": 1 }));
        params["task"] = legacy.clone();
        let reply = server.http.ask("tools/call", &params).await.json();
        assert_eq!(reply["result"]["structuredContent"], json!({ "n": 1 }), "{legacy} {reply:#}");
        // and sets no lifetime.
        let mut params = call(declared(), "echo", json!({ "n": 1 }));
        params["task"] = legacy.clone();
        let reply = server.http.ask("tools/call", &params).await.json();
        assert_eq!(reply["result"]["ttlMs"], 10_800_000, "{legacy} {reply:#}");
        let mut params = call(declared(), "fast", json!({}));
        params["task"] = legacy.clone();
        let reply = server.http.ask("tools/call", &params).await.json();
        assert_eq!(reply["result"]["resultType"], "complete", "{legacy} {reply:#}");
    }
    assert_eq!(server.rows(), 5);
}

/// `sep-2663-no-task-result-type-on-others`: work that ends in its window is no task, and leaves
/// none behind; nor do tools that never become one.
#[tokio::test]
async fn calls_that_leave_no_task() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let plain =
        json!({ "resultType": "complete", "content": [{ "type": "text", "text": "fast" }] });
    let params = call(declared(), "fast", json!({}));
    assert_eq!(server.http.ask("tools/call", &params).await.json()["result"], plain);
    assert_eq!(stdio.ask("tools/call", &params).await["result"], plain);

    let never = server.http.start(Request::new(
        "tools/call",
        &call(declared(), "gate_never", json!({ "gate": "never" })),
    ));
    server.gates.started("never", 1).await;
    assert_eq!(server.rows(), 0);
    server.gates.open("never");
    let reply = never.reply().await.json();
    assert_eq!(reply["result"]["content"][0]["text"], "through never");
    assert_eq!(server.rows(), 0);
}

/// `sep-2663-durable-create-strong-consistency`: the handle resolves at once, on every transport,
/// and is on disk.
#[tokio::test]
async fn handles_resolve_at_once() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let mut seen = std::collections::HashSet::new();
    for round in 0..50 {
        let tool = ["gate", "gate_required"][round % 2];
        let params = call(declared(), tool, json!({ "gate": format!("{round}") }));
        let (created, other) = if round % 4 < 2 {
            let created = server.http.ask("tools/call", &params).await.json();
            let id = created["result"]["taskId"].as_str().expect("a handle").to_owned();
            (id.clone(), stdio.ask("tasks/get", &task(declared(), &id)).await)
        } else {
            let created = stdio.ask("tools/call", &params).await;
            let id = created["result"]["taskId"].as_str().expect("a handle").to_owned();
            let got = server.http.ask("tasks/get", &task(declared(), &id)).await.json();
            (id, got)
        };
        assert_eq!(other["result"]["status"], "working", "{other:#}");
        assert_eq!(server.rows(), round as i64 + 1);
        assert!(seen.insert(created), "a handle came twice");
    }
    // Handles fit into headers as they are.
    let plain = |id: &String| id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    assert!(seen.iter().all(plain));
}

/// Past its timeout the work is stopped, and the task has failed.
#[tokio::test]
async fn work_that_takes_too_long() {
    let server = Fixture::new().tool("gate", |tool| tool.timeout_ms = Some(100)).start().await;
    let id = server.create("gate", json!({ "gate": "slow" })).await;
    let failed = server.until_status(&id, "failed").await;
    assert_eq!(failed["error"]["data"]["reason"], "timeout");
    assert!(failed["statusMessage"].as_str().expect("a message").contains("100ms"), "{failed:#}");
    server.gates.dropped("slow", 1).await;
    let plain = call(undeclared(), "gate", json!({ "gate": "slow" }));
    let reply = server.http.ask("tools/call", &plain).await.json();
    assert_eq!(
        (error_code(&reply), &reply["error"]["data"]["reason"]),
        (-32603, &json!("timeout"))
    );
    server.gates.dropped("slow", 2).await;
}

/// Waiting for a person does not count as work.
#[tokio::test]
async fn waiting_for_input_takes_no_time() {
    let server = Fixture::new().tool("asks", |tool| tool.timeout_ms = Some(2_000)).start().await;
    let id = server.create("asks", json!({})).await;
    let asking = server.until_status(&id, "input_required").await;
    // Longer than the whole timeout. That it would have ended otherwise, other tests show.
    tokio::time::sleep(std::time::Duration::from_millis(2_300)).await;
    assert_eq!(server.get(&id).await, asking);
    let answer = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    server.http.ask("tasks/update", &update(declared(), &id, answer)).await;
    let done = server.until_status(&id, "completed").await;
    assert!(done["ttlMs"].as_i64() > asking["ttlMs"].as_i64(), "the promise was extended");
    let _: &Value = &done;
}

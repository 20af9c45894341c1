//! Standard input and output: framing, order, cancelling, and how a session ends.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::*;

/// A grace that no test outlasts: whoever waits for it fails.
async fn patient() -> Running {
    Fixture::new()
        .settings(|settings| settings.shutdown_grace = Duration::from_secs(600))
        .start()
        .await
}

fn parsed(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

/// Input ends while calls are in flight: their answers still go out, then the server ends.
#[tokio::test]
async fn answers_are_drained() {
    let server = patient().await;
    let mut stdio = server.stdio();
    let plain = |gate: &str| call(undeclared(), "gate", json!({ "gate": gate }));
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(stdio.send("tools/call", &plain("slow")).await);
    }
    server.gates.started("slow", 3).await;
    ids.push(stdio.send("tasks/get", &task(declared(), "unknown")).await);
    ids.push(stdio.send("tools/list", &json!({ "_meta": undeclared() })).await);
    stdio.close().await;
    for _ in 0..3 {
        server.gates.open("slow");
    }
    let lines = parsed(&stdio.finish().await);
    let mut answered: Vec<_> = lines.iter().map(|line| line["id"].as_i64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, ids.iter().map(Value::as_i64).collect::<Vec<_>>());
    let through = lines.iter().filter(|line| line.to_string().contains("through slow")).count();
    assert_eq!(through, 3);
}

/// Everything that was asked is known to be answered, whatever the id or the answer looks like, so
/// the end does not wait for the grace to pass.
#[tokio::test]
async fn the_end_waits_for_nothing_that_was_answered() {
    let server = patient().await;
    let deep = format!(
        r#"{{"resultType":"complete","content":[],"structuredContent":{}{}}}"#,
        "[".repeat(90),
        "]".repeat(90)
    );
    let mut stdio = server.stdio();
    let body = |id: &str, params: &Value| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    let fast = call(declared(), "fast", json!({}));
    for id in [r#""\u00e9\/""#, r#""é""#, "-0", r#""\ud83e\udd80""#] {
        stdio.line(&body(id, &fast)).await;
    }
    stdio.line(&body("5", &call(undeclared(), "says", json!({ "result": deep })))).await;
    stdio.line(r#"{"jsonrpc":"2.0","id":6,"method":"no/such"}"#).await;
    let lines = parsed(&stdio.end().await);
    assert_eq!(lines.len(), 6, "{lines:#?}");
    let wanted = ["é/", "é", "🦀"];
    for id in wanted {
        assert!(lines.iter().any(|line| line["id"] == id && line["result"].is_object()), "{id}");
    }
}

/// Work that does not end in time is stopped, and the server ends all the same.
#[tokio::test]
async fn the_grace_is_bounded() {
    let server = Fixture::new()
        .settings(|settings| settings.shutdown_grace = Duration::from_millis(50))
        .start()
        .await;
    let mut stdio = server.stdio();
    stdio.send("tools/call", &call(undeclared(), "gate", json!({ "gate": "stuck" }))).await;
    server.gates.started("stuck", 1).await;
    stdio.end().await;
    server.gates.dropped("stuck", 1).await;
}

/// A client that vanishes: both ends of the pipe are gone.
#[tokio::test]
async fn a_client_that_vanishes() {
    let server = Fixture::new()
        .settings(|settings| settings.shutdown_grace = Duration::from_millis(50))
        .start()
        .await;
    let mut stdio = server.stdio();
    let task = stdio.ask("tools/call", &call(declared(), "gate", json!({ "gate": "task" }))).await;
    stdio.send("tools/call", &call(undeclared(), "gate", json!({ "gate": "plain" }))).await;
    server.gates.started("plain", 1).await;
    drop(stdio);
    server.gates.dropped("plain", 1).await;
    let id = task["result"]["taskId"].as_str().expect("a handle");
    assert_eq!(server.get(id).await["status"], "working");
}

#[tokio::test]
async fn the_server_is_told_to_stop() {
    let server = patient().await;
    let mut stdio = server.stdio();
    stdio.ask("tools/list", &json!({ "_meta": undeclared() })).await;
    let id = stdio.send("tools/call", &call(undeclared(), "gate", json!({ "gate": "last" }))).await;
    server.gates.started("last", 1).await;
    stdio.stop.cancel();
    server.gates.open("last");
    let lines = parsed(&stdio.finish().await);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["id"], id);
}

/// Line breaks of Windows, empty lines, bytes in pieces, text that is not ASCII, a last line
/// without an end.
#[tokio::test]
async fn framing() {
    let server = patient().await;
    let mut stdio = server.stdio();
    let echo = |id: i64| {
        request(
            &json!(id),
            "tools/call",
            &call(undeclared(), "echo", json!({ "привет": "мир 🦀" })),
        )
    };
    stdio.raw(format!("{}\r\n", echo(1)).as_bytes()).await;
    stdio.answer(&json!(1)).await;
    stdio.raw(b"\n\r\n  \t \n\n").await;
    stdio.raw(format!("  {}  \n", echo(2)).as_bytes()).await;
    stdio.answer(&json!(2)).await;
    // Two at once, and one byte at a time.
    stdio.raw(format!("{}\n{}\n", echo(3), echo(4)).as_bytes()).await;
    for id in [3, 4] {
        stdio.answer(&json!(id)).await;
    }
    for byte in format!("{}\r\n", echo(5)).bytes() {
        stdio.raw(&[byte]).await;
        tokio::task::yield_now().await;
    }
    stdio.answer(&json!(5)).await;
    stdio.raw(echo(6).as_bytes()).await;
    let lines = parsed(&stdio.end().await);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["result"]["structuredContent"], json!({ "привет": "мир 🦀" }));
    assert_eq!(server.gates.notes("echo"), vec![r#"{"привет":"мир 🦀"}"#; 6]);
}

/// Slow calls do not hold up polls, lists or other calls.
#[tokio::test]
async fn slow_calls_do_not_block_polls() {
    let server = patient().await;
    let mut stdio = server.stdio();
    let task_id = stdio.ask("tools/call", &call(declared(), "gate", json!({ "gate": "t" }))).await
        ["result"]["taskId"]
        .as_str()
        .expect("a handle")
        .to_owned();
    let mut slow = Vec::new();
    for _ in 0..10 {
        let params = call(undeclared(), "gate", json!({ "gate": "slow" }));
        slow.push(stdio.send("tools/call", &params).await);
    }
    server.gates.started("slow", 10).await;
    for _ in 0..20 {
        let got = stdio.ask("tasks/get", &task(declared(), &task_id)).await;
        assert_eq!(got["result"]["status"], "working");
    }
    stdio.ask("tools/list", &json!({ "_meta": undeclared() })).await;
    stdio.ask("tools/call", &call(undeclared(), "echo", json!({}))).await;
    assert!(stdio.aside().is_empty());
    for id in slow {
        server.gates.open("slow");
        assert!(stdio.answer(&id).await.contains("through slow"));
    }
}

/// `notifications/cancelled` stops a plain call, which then gets no answer; it does not reach
/// tasks (`sep-2663-cancel-not-via-cancelled-notification`).
#[tokio::test]
async fn cancelling_a_request() {
    let server = patient().await;
    let mut stdio = server.stdio();
    let created = stdio.send("tools/call", &call(declared(), "gate", json!({ "gate": "t" }))).await;
    let handle: Value = serde_json::from_str(&stdio.answer(&created).await).expect("JSON");
    let handle = handle["result"]["taskId"].as_str().expect("a handle").to_owned();
    let plain = stdio.send("tools/call", &call(undeclared(), "gate", json!({ "gate": "p" }))).await;
    let window =
        stdio.send("tools/call", &call(declared(), "gate_inline", json!({ "gate": "w" }))).await;
    for gate in ["t", "p", "w"] {
        server.gates.started(gate, 1).await;
    }
    for id in [&created, &json!(handle), &plain, &window, &json!(999), &json!("x")] {
        stdio
            .notify("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }))
            .await;
    }
    // Malformed ones harm nobody.
    stdio.notify("notifications/cancelled", json!({})).await;
    stdio.notify("notifications/cancelled", json!({ "requestId": {} })).await;
    server.gates.dropped("p", 1).await;
    server.gates.dropped("w", 1).await;
    let got = stdio.ask("tasks/get", &task(declared(), &handle)).await;
    assert_eq!(got["result"]["status"], "working");
    // The end does not wait for what was cancelled, and nothing came for it.
    let lines = stdio.end().await;
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(server.gates.drops("t"), 0);
    server.gates.open("t");
    server.until_status(&handle, "completed").await;
}

/// Whatever comes first, the session opens and goes on.
#[tokio::test]
async fn first_messages() {
    let server = patient().await;
    let list = json!({ "_meta": undeclared() });
    for first in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","method":"some/notification"}"#,
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}"#,
    ] {
        let mut stdio = server.stdio();
        stdio.line(first).await;
        let answer = stdio.ask("tools/list", &list).await;
        assert!(answer["result"]["tools"].is_array(), "{first}: {answer:#}");
        stdio.line(first).await;
        let answer = stdio.ask("tools/list", &list).await;
        assert!(answer["result"]["tools"].is_array(), "{first}: {answer:#}");
    }
    for (method, params) in [
        ("ping", json!({})),
        ("no/such", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "echo" })),
        ("initialize", json!({ "nonsense": true })),
        ("server/discover", list.clone()),
        ("tasks/get", json!({})),
    ] {
        let mut stdio = server.stdio();
        let answer = stdio.ask(method, &params).await;
        assert!(answer.get("result").is_some() || answer.get("error").is_some());
        stdio.notify("notifications/whatever", json!({})).await;
        let answer = stdio.ask("tools/list", &list).await;
        assert!(answer["result"]["tools"].is_array(), "{method}: {answer:#}");
    }
    // Nothing but the end.
    assert!(server.stdio().end().await.is_empty());
    // Only tasks, for which no session is needed.
    let mut stdio = server.stdio();
    let id = server.create("gate", json!({})).await;
    let got = stdio.ask("tasks/get", &task(declared(), &id)).await;
    assert_eq!(got["result"]["status"], "working");
    assert!(stdio.end().await.is_empty());
}

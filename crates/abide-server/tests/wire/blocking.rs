//! Calls whose caller waits: signs of life, and what happens when the caller goes away.

use std::time::Duration;

use abide_server::Envelope;
use serde_json::{Value, json};

use crate::common::*;

/// Params of a plain call with a progress token.
fn watched(token: Value, tool: &str, arguments: Value) -> Value {
    let mut meta = undeclared();
    meta["progressToken"] = token;
    call(meta, tool, arguments)
}

/// Takes the number out of a progress notification for `token`.
#[track_caller]
fn number(message: &Value, token: &Value) -> f64 {
    assert_eq!(message["method"], "notifications/progress", "{message:#}");
    assert!(message.get("id").is_none());
    assert_eq!(&message["params"]["progressToken"], token, "{message:#}");
    message["params"]["progress"].as_f64().expect("a number")
}

#[tokio::test]
async fn progress_comes_before_the_result() {
    let server = Fixture::new().start().await;
    for token in [json!("a token"), json!(7)] {
        let params = watched(token.clone(), "gate", json!({ "gate": "steps", "steps": 3 }));
        let mut stream = server.http.stream(Request::new("tools/call", &params)).await;
        let mut last = f64::NEG_INFINITY;
        for step in 1..=3 {
            let message = stream.next().await.expect("progress");
            let progress = number(&message, &token);
            assert!(progress > last, "{progress} after {last}");
            last = progress;
            assert_eq!(message["params"]["message"], format!("step {step}"));
            assert_eq!(message["params"]["total"].as_f64(), Some(3.0));
            server.gates.open(&format!("steps/{step}"));
        }
        server.gates.open("steps");
        let result = stream.next().await.expect("a result");
        assert_eq!(result["result"]["content"][0]["text"], "through steps", "{result:#}");
        assert!(stream.next().await.is_none(), "the stream ends with the result");
    }
    assert_eq!(server.rows(), 0);
}

#[tokio::test]
async fn progress_over_stdio() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let token = json!("t");
    let params = watched(token.clone(), "gate", json!({ "gate": "steps", "steps": 2 }));
    let id = stdio.send("tools/call", &params).await;
    let mut last = f64::NEG_INFINITY;
    for step in 1..=2 {
        let line = stdio.next().await.expect("progress");
        let progress = number(&serde_json::from_str(&line).expect("JSON"), &token);
        assert!(progress > last);
        last = progress;
        server.gates.open(&format!("steps/{step}"));
    }
    server.gates.open("steps");
    assert!(stdio.answer(&id).await.contains("through steps"));
    assert!(stdio.aside().is_empty());
}

/// Without a token there is nothing but the result.
#[tokio::test]
async fn no_progress_without_a_token() {
    let server = Fixture::new().start().await;
    for _ in 1..=2 {
        server.gates.open("steps/1");
        server.gates.open("steps");
    }
    let arguments = json!({ "gate": "steps", "steps": 1 });
    let params = call(undeclared(), "gate", arguments);
    let reply = server.http.ask("tools/call", &params).await;
    assert!(!reply.is_stream(), "{}", reply.text);
    let mut stdio = server.stdio();
    stdio.ask("tools/call", &params).await;
    assert!(stdio.aside().is_empty());
}

/// Silent work gives a sign of life now and then.
#[tokio::test(start_paused = true)]
async fn heartbeats() {
    let awake = Awake::new();
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let token = json!("t");
    let params = watched(token.clone(), "gate", json!({ "gate": "silent" }));
    let id = stdio.send("tools/call", &params).await;
    server.gates.started("silent", 1).await;
    let mut last = f64::NEG_INFINITY;
    for beat in 1..=3 {
        tokio::time::advance(Duration::from_millis(10_001)).await;
        let line = stdio.next().await.expect("a sign of life");
        let message: Value = serde_json::from_str(&line).expect("JSON");
        let progress = number(&message, &token);
        assert!(progress > last, "beat {beat}");
        last = progress;
    }
    server.gates.open("silent");
    assert!(stdio.answer(&id).await.contains("through silent"));
    drop(awake);
}

/// A call that becomes a task sends nothing before its handle, however long its window is.
#[tokio::test(start_paused = true)]
async fn no_sign_of_life_before_a_handle() {
    let awake = Awake::new();
    let server = Fixture::new()
        .envelope(Envelope::Nested)
        .tool("gate_inline", |tool| tool.inline = Duration::from_secs(25))
        .start()
        .await;
    let mut meta = declared();
    meta["progressToken"] = json!("t");
    let params = call(meta, "gate_inline", json!({ "gate": "x" }));
    let mut stdio = server.stdio();
    let started = server.http.start(Request::new("tools/call", &params));
    let id = stdio.send("tools/call", &params).await;
    server.gates.started("x", 2).await;
    for seconds in [10, 10, 6] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }
    let answer: Value = serde_json::from_str(&stdio.answer(&id).await).expect("JSON");
    assert!(answer["result"]["task"]["taskId"].is_string(), "{answer:#}");
    assert!(stdio.aside().is_empty(), "{:?}", stdio.aside());
    let reply = started.reply().await;
    assert!(!reply.is_stream());
    assert!(reply.json()["result"]["task"]["taskId"].is_string(), "{}", reply.text);
    drop(awake);
}

/// The caller of a plain call goes away: its work is stopped, and only that.
#[tokio::test]
async fn a_caller_who_goes_away() {
    let server = Fixture::new().start().await;
    let task = server.create("gate", json!({ "gate": "task" })).await;
    let other = server
        .http
        .start(Request::new("tools/call", &call(undeclared(), "gate", json!({ "gate": "other" }))));
    server.gates.started("task", 1).await;
    server.gates.started("other", 1).await;

    // One JSON answer, a stream of progress, a tool that is never a task, and one that would have
    // become one had its window passed.
    let plain = |tool: &str, gate: &str| {
        Request::new("tools/call", &call(undeclared(), tool, json!({ "gate": gate })))
    };
    for (gate, tool) in [("plain", "gate"), ("never", "gate_never")] {
        let started = server.http.start(plain(tool, gate));
        server.gates.started(gate, 1).await;
        started.break_off().await;
        server.gates.dropped(gate, 1).await;
    }
    let params = watched(json!("t"), "gate", json!({ "gate": "stream", "steps": 1 }));
    let mut stream = server.http.stream(Request::new("tools/call", &params)).await;
    stream.next().await.expect("progress");
    drop(stream);
    server.gates.dropped("stream/1", 1).await;

    let params = call(declared(), "gate_inline", json!({ "gate": "window" }));
    let started = server.http.start(Request::new("tools/call", &params));
    server.gates.started("window", 1).await;
    started.break_off().await;
    server.gates.dropped("window", 1).await;
    assert_eq!(server.rows(), 1);

    // The others go on.
    assert_eq!(server.get(&task).await["status"], "working");
    assert_eq!((server.gates.drops("task"), server.gates.drops("other")), (0, 0));
    server.gates.open("other");
    assert!(other.reply().await.text.contains("through other"));
    server.gates.open("task");
    server.until_status(&task, "completed").await;
}

/// Once the handle is out, nothing depends on the connection.
#[tokio::test]
async fn a_task_does_not_need_its_connection() {
    let server = Fixture::new().start().await;
    let params = call(declared(), "gate", json!({ "gate": "far" }));
    let body = request(&json!(1), "tools/call", &params);
    // A connection of its own, closed as soon as the answer is there.
    let exchange = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: {VERSION}\r\nmcp-method: tools/call\r\nmcp-name: gate\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = raw_exchange(server.http.address, exchange.as_bytes()).await;
    let json: Value =
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    let id = json["result"]["taskId"].as_str().expect("a handle").to_owned();
    // And a stdio session that ends.
    let mut stdio = server.stdio();
    let other = stdio.ask("tools/call", &params).await;
    let other = other["result"]["taskId"].as_str().expect("a handle").to_owned();
    stdio.end().await;
    server.gates.started("far", 2).await;
    for id in [&id, &other] {
        assert_eq!(server.get(id).await["status"], "working");
        server.gates.open("far");
    }
    for id in [&id, &other] {
        server.until_status(id, "completed").await;
    }
    assert_eq!(server.gates.drops("far"), 0);
}

/// One slow call does not hold up others.
#[tokio::test]
async fn slow_calls_are_alone() {
    let server = Fixture::new().start().await;
    let slow: Vec<_> = (0..8)
        .map(|_| {
            let params = call(undeclared(), "gate", json!({ "gate": "slow" }));
            server.http.start(Request::new("tools/call", &params))
        })
        .collect();
    server.gates.started("slow", 8).await;
    let id = server.create("echo", json!({})).await;
    server.until_status(&id, "completed").await;
    for _ in &slow {
        server.gates.open("slow");
    }
    for call in slow {
        assert!(call.reply().await.text.contains("through slow"));
    }
}

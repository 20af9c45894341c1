//! More calls than a tool has slots: who waits, what they are told, who is turned away.

use serde_json::{Value, json};

use crate::common::*;

fn gate(name: &str) -> Value {
    json!({ "gate": name })
}

/// One call that runs and two that wait.
async fn fill(server: &Running) -> [String; 3] {
    let a = server.create("one_at_a_time", gate("a")).await;
    server.gates.started("a", 1).await;
    let b = server.create("one_at_a_time", gate("b")).await;
    let c = server.create("one_at_a_time", gate("c")).await;
    [a, b, c]
}

#[tokio::test]
async fn positions_are_told_and_move() {
    let server = Fixture::new().start().await;
    let [a, b, c] = fill(&server).await;
    for (id, message) in
        [(&a, None), (&b, Some("Queued; next in line.")), (&c, Some("Queued; 1 call is ahead."))]
    {
        let got = server.get(id).await;
        assert_eq!(got["status"], "working");
        fits("GetTaskResult", &got);
        assert_eq!(got.get("statusMessage").and_then(Value::as_str), message);
    }
    server.gates.open("a");
    server.gates.started("b", 1).await;
    server.until(&c, |got| got["statusMessage"] == "Queued; next in line.").await;
    assert!(server.get(&b).await.get("statusMessage").is_none(), "it is not queued any more");
    assert_eq!(server.gates.count("c"), 0);
    for (id, name) in [(&b, "b"), (&c, "c")] {
        server.gates.started(name, 1).await;
        server.gates.open(name);
        server.until_status(id, "completed").await;
    }
    assert_eq!(
        ["a", "b", "c"].map(|name| server.gates.notes("order").iter().position(|n| n == name)),
        [Some(0), Some(1), Some(2)]
    );
}

/// Over the limit: a tool result that says so, on both transports, for declaring callers and for
/// those who would wait.
#[tokio::test]
async fn busy() {
    let server = Fixture::new().start().await;
    fill(&server).await;
    let mut stdio = server.stdio();
    for meta in [declared(), undeclared()] {
        let params = call(meta, "one_at_a_time", gate("d"));
        let over_http = server.http.ask("tools/call", &params).await.json();
        for json in [over_http, stdio.ask("tools/call", &params).await] {
            let result = &json["result"];
            assert_eq!(result["isError"], true, "{json:#}");
            assert_eq!(result["resultType"], "complete");
            let text = result["content"][0]["text"].as_str().expect("text");
            assert!(text.starts_with("Busy") && text.contains("2 calls wait"), "{text}");
        }
    }
    assert_eq!((server.gates.count("d"), server.rows()), (0, 3));
}

/// Callers who wait for a plain result queue as well, and are turned away when too many do.
#[tokio::test]
async fn plain_calls_wait_too() {
    let server = Fixture::new().start().await;
    let plain = |name: &str| {
        server
            .http
            .start(Request::new("tools/call", &call(undeclared(), "one_at_a_time", gate(name))))
    };
    let a = plain("a");
    server.gates.started("a", 1).await;
    let (b, c) = (plain("b"), plain("c"));
    // Which of the two came first is for the network to say; then a third is one too many.
    let busy = server.until_busy(call(undeclared(), "one_at_a_time", gate("d"))).await;
    assert!(busy.contains("2 calls wait"), "{busy}");
    // Tasks share the room with those who wait.
    let params = call(declared(), "one_at_a_time", gate("e"));
    let reply = server.http.ask("tools/call", &params).await.json();
    assert_eq!(reply["result"]["isError"], true, "{reply:#}");
    assert!(reply.to_string().contains("2 calls wait"), "{reply:#}");

    for name in ["a", "b", "c"] {
        server.gates.open(name);
    }
    for call in [a, b, c] {
        assert!(call.reply().await.text.contains("through"));
    }
    assert_eq!((server.gates.count("e"), server.rows()), (0, 0));
    // The room is free again.
    let id = server.create("one_at_a_time", gate("f")).await;
    server.gates.open("f");
    server.until_status(&id, "completed").await;
}

impl Running {
    /// Calls until the answer is that the tool is busy, and gives its text. Calls that got a place
    /// instead are broken off.
    async fn until_busy(&self, params: Value) -> String {
        within("busy", async {
            loop {
                let started = self.http.start(Request::new("tools/call", &params));
                let patience = tokio::time::sleep(std::time::Duration::from_millis(200));
                tokio::select! {
                    reply = started.reply() => {
                        let json = reply.json();
                        assert_eq!(json["result"]["isError"], true, "{json:#}");
                        return json["result"]["content"][0]["text"].as_str().expect("text").to_owned();
                    }
                    () = patience => {}
                }
            }
        })
        .await
    }
}

/// Cancelling a call that waits ends it at once, and those behind it move up.
#[tokio::test]
async fn cancelling_a_queued_call() {
    let server = Fixture::new().start().await;
    let [a, b, c] = fill(&server).await;
    server.http.ask("tasks/cancel", &task(declared(), &b)).await;
    assert_eq!(server.get(&b).await["status"], "cancelled");
    server.until(&c, |got| got["statusMessage"] == "Queued; next in line.").await;
    // There is room for another one.
    let d = server.create("one_at_a_time", gate("d")).await;
    for (id, name) in [(&a, "a"), (&c, "c"), (&d, "d")] {
        server.gates.started(name, 1).await;
        server.gates.open(name);
        server.until_status(id, "completed").await;
    }
    assert_eq!(server.gates.count("b"), 0);
}

/// Queued calls outlive the server and run; what was running is told honestly.
#[tokio::test]
async fn a_restart() {
    let server = Fixture::new().start().await;
    let [a, b, c] = fill(&server).await;
    let finished = server.create("echo", json!({ "n": 1.10 })).await;
    server.until_status(&finished, "completed").await;
    let before = server.http.ask("tasks/get", &task(declared(), &finished)).await.text;
    let folder = server.folder.clone();
    let gates = server.gates.clone();
    server.shut_down().await;
    assert_eq!(gates.drops("a"), 1);

    let server = Fixture::on(&folder).start().await;
    let failed = server.get(&a).await;
    fits("GetTaskResult", &failed);
    assert_eq!(
        (&failed["status"], &failed["error"]["data"]["reason"]),
        (&json!("failed"), &json!("interrupted"))
    );
    assert!(failed["statusMessage"].is_string());
    let after = server.http.ask("tasks/get", &task(declared(), &finished)).await.text;
    assert_eq!(before, after);
    // In their order, one after the other.
    server.gates.started("b", 1).await;
    assert_eq!(server.gates.count("c"), 0);
    for (id, name) in [(&b, "b"), (&c, "c")] {
        server.gates.started(name, 1).await;
        server.gates.open(name);
        server.until_status(id, "completed").await;
    }
}

/// The server goes without a word: no shutdown, no last write.
#[test]
fn a_sudden_end() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let first = runtime();
    let (folder, ids) = first.block_on(async {
        let server = Fixture::new().start().await;
        let [a, b, c] = fill(&server).await;
        let asks = server.create("asks", json!({})).await;
        server.until_status(&asks, "input_required").await;
        let stopping = server.create("gate", json!({})).await;
        (server.folder.clone(), [a, b, c, asks, stopping])
    });
    first.shutdown_background();
    runtime().block_on(async {
        let server = Fixture::on(&folder).start().await;
        let [a, b, c, asks, stopping] = ids;
        for id in [&a, &asks, &stopping] {
            let failed = server.get(id).await;
            fits("GetTaskResult", &failed);
            assert_eq!(failed["status"], "failed");
            assert_eq!(failed["error"]["data"]["reason"], "interrupted");
            assert!(failed.get("inputRequests").is_none());
        }
        for (id, name) in [(&b, "b"), (&c, "c")] {
            server.gates.started(name, 1).await;
            server.gates.open(name);
            server.until_status(id, "completed").await;
        }
    });
}

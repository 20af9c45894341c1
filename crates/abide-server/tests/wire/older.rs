//! Clients of older revisions: a session, blocking calls, never a task.

use serde_json::{Value, json};

use crate::capabilities::missing_capability;
use crate::common::*;

const OLDER: [&str; 2] = ["2025-11-25", "2025-06-18"];

fn initialize(version: &str, capabilities: Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": { "name": "older", "version": "1" }
    })
}

/// What an older client might declare, in hope.
fn hopeful() -> Value {
    json!({
        "extensions": { TASKS: {} },
        "tasks": { "requests": { "tools": { "call": {} } } }
    })
}

/// One older session, over either transport.
enum Session {
    Http { http: Http, version: String, id: String },
    Stdio(Box<Stdio>),
}

impl Session {
    async fn open(server: &Running, version: &str, over_http: bool) -> (Self, Value) {
        let params = initialize(version, hopeful());
        if !over_http {
            let mut stdio = server.stdio();
            let answer = stdio.ask("initialize", &params).await;
            stdio.notify("notifications/initialized", json!({})).await;
            return (Self::Stdio(Box::new(stdio)), answer);
        }
        let body = request(&json!(1), "initialize", &params);
        let reply = server.http.send(Request::bytes(body)).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let id = reply.headers["mcp-session-id"].to_str().expect("text").to_owned();
        let session = Self::Http { http: server.http.clone(), version: version.to_owned(), id };
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let accepted = server.http.send(session.request(initialized.to_string())).await;
        assert_eq!(accepted.status, 202);
        (session, reply.json())
    }

    fn request(&self, body: String) -> Request {
        let Self::Http { version, id, .. } = self else { panic!("stdio") };
        Request::bytes(body).header("mcp-protocol-version", version).header("mcp-session-id", id)
    }

    async fn ask(&mut self, method: &str, params: &Value) -> Value {
        if let Self::Stdio(stdio) = self {
            return stdio.ask(method, params).await;
        }
        let request = self.request(request(&json!(5), method, params));
        let Self::Http { http, .. } = self else { panic!("stdio") };
        http.send(request).await.json()
    }
}

async fn every_session(test: impl AsyncFn(&Running, Session, Value, &str)) {
    let server = Fixture::new().start().await;
    for version in OLDER {
        for over_http in [true, false] {
            let (session, initialized) = Session::open(&server, version, over_http).await;
            test(&server, session, initialized, version).await;
        }
    }
}

#[tokio::test]
async fn initialize_and_list() {
    every_session(async |_, mut session, initialized, version| {
        let result = &initialized["result"];
        assert_eq!(result["protocolVersion"], version, "{initialized:#}");
        assert!(result["capabilities"].get("tasks").is_none(), "{result:#}");
        assert!(result["capabilities"]["tools"].is_object());
        let list = session.ask("tools/list", &json!({})).await;
        let tools = list["result"]["tools"].as_array().expect("tools");
        assert!(tools.iter().any(|tool| tool["name"] == UNICODE_TOOL), "{list:#}");
        assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"));
        assert_eq!(session.ask("ping", &json!({})).await["result"], json!({}));
    })
    .await;
}

#[tokio::test]
async fn calls_block() {
    every_session(async |server, mut session, _, _| {
        let before = server.rows();
        let answer =
            session.ask("tools/call", &json!({ "name": "echo", "arguments": { "n": 1 } })).await;
        assert_eq!(answer["result"]["structuredContent"], json!({ "n": 1 }), "{answer:#}");
        let answer = session.ask("tools/call", &json!({ "name": UNICODE_TOOL })).await;
        assert_eq!(answer["result"]["content"][0]["text"], "übersetzt");
        let answer = session.ask("tools/call", &json!({ "name": "reports_error" })).await;
        assert_eq!(answer["result"]["isError"], true);
        let answer = session.ask("tools/call", &json!({ "name": "fails" })).await;
        assert_eq!(error_code(&answer), -32050);
        let answer = session.ask("tools/call", &json!({ "name": "nothing" })).await;
        assert_eq!(error_code(&answer), -32602);
        let answer = session.ask("tools/call", &json!({ "name": "typed", "arguments": {} })).await;
        assert_eq!(answer["result"]["isError"], true);
        assert_eq!(server.rows(), before);
    })
    .await;
}

/// Whatever such a session declared, and whatever lies in its requests, it never gets a task.
#[tokio::test]
async fn never_a_task() {
    every_session(async |server, mut session, _, _| {
        let before = server.rows();
        let declared_only =
            json!({ "io.modelcontextprotocol/clientCapabilities": { "extensions": { TASKS: {} } } });
        for meta in [json!({}), declared_only, json!({ "extensions": { TASKS: {} } })] {
            let arguments = json!({ "n": 1 });
            let params = json!({ "name": "echo", "arguments": arguments, "_meta": meta, "task": {} });
            let answer = session.ask("tools/call", &params).await;
            assert_eq!(answer["result"]["structuredContent"], arguments, "{meta} {answer:#}");
            let params = json!({ "name": "gate_required", "_meta": meta });
            missing_capability(&session.ask("tools/call", &params).await);
        }
        assert_eq!((server.rows(), server.gates.count("gate")), (before, 0));

        // The task methods of the extension are not for it.
        let id = server.create("asks", json!({})).await;
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let params = json!({ "taskId": id, "inputResponses": {} });
            let mut answer = session.ask(method, &params).await;
            if error_code(&answer) == -32020 {
                // Over HTTP the header that names the method is asked for first.
                let Session::Http { http, .. } = &session else { panic!("{answer:#}") };
                let request = session
                    .request(request(&json!(5), method, &params))
                    .header("mcp-method", method)
                    .header("mcp-name", &id);
                answer = http.send(request).await.json();
            }
            missing_capability(&answer);
        }
        assert_ne!(server.get(&id).await["status"], "cancelled");
    })
    .await;
}

/// The methods that tasks had in 2025-11-25 are gone.
#[tokio::test]
async fn the_older_task_methods() {
    every_session(async |_, mut session, _, _| {
        for method in ["tasks/result", "tasks/list"] {
            let mut answer = session.ask(method, &json!({ "taskId": "x" })).await;
            if let Session::Http { http, .. } = &session {
                let body = request(&json!(5), method, &json!({ "taskId": "x" }));
                answer = http.send(session.request(body).header("mcp-method", method)).await.json();
            }
            assert!([-32601, -32021].contains(&error_code(&answer)), "{answer:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn progress_in_a_session() {
    every_session(async |server, mut session, _, _| {
        server.gates.open("s/1");
        server.gates.open("s");
        let params = json!({
            "name": "gate", "arguments": { "gate": "s", "steps": 1 },
            "_meta": { "progressToken": 3 }
        });
        let Session::Http { http, .. } = &session else {
            let answer = session.ask("tools/call", &params).await;
            assert_eq!(answer["result"]["content"][0]["text"], "through s");
            let Session::Stdio(stdio) = &session else { panic!("HTTP") };
            assert!(stdio.aside().iter().all(|line| line.contains("notifications/progress")));
            return;
        };
        let reply = http.send(session.request(request(&json!(5), "tools/call", &params))).await;
        assert!(reply.is_stream());
        assert_eq!(reply.json()["result"]["content"][0]["text"], "through s");
    })
    .await;
}

/// Sessions end, and unknown ones are told so.
#[tokio::test]
async fn sessions_end() {
    let server = Fixture::new().start().await;
    let (session, _) = Session::open(&server, OLDER[0], true).await;
    let Session::Http { id, version, .. } = &session else { panic!("stdio") };
    let headers = [("mcp-session-id", &**id), ("mcp-protocol-version", &**version)];
    assert!([200, 202, 204].contains(&server.http.method("DELETE", &headers).await.status));
    let list = request(&json!(1), "tools/list", &json!({}));
    within("the session is gone", async {
        while server.http.send(session.request(list.clone())).await.status != 404 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let unknown = Request::bytes(list).header("mcp-session-id", "no-such-session");
    assert_eq!(server.http.send(unknown).await.status, 404);
}

/// A current request on the same server is not touched by older sessions, nor the other way round.
#[tokio::test]
async fn older_and_current_side_by_side() {
    let server = Fixture::new().start().await;
    let (mut older, _) = Session::open(&server, OLDER[0], true).await;
    let id = server.create("echo", json!({})).await;
    let answer = older.ask("tools/call", &json!({ "name": "echo", "arguments": {} })).await;
    assert!(answer["result"]["structuredContent"].is_object());
    server.until_status(&id, "completed").await;
    // With a session id, a current request is still its own.
    let Session::Http { id: session, .. } = &older else { panic!("stdio") };
    let params = call(undeclared(), "echo", json!({}));
    let request = Request::new("tools/call", &params).header("mcp-session-id", session);
    assert_eq!(server.http.send(request).await.json()["result"]["resultType"], "complete");
}

//! Requests that are malformed as a whole, through the real program; each is followed by a good
//! one. The server's own tests have the whole table.

use serde_json::json;

use crate::common::{Declares, Folder, Request, Server, Stdio, plain, request, task, text};

const TOOLS: &str = "[tools.hello]\ndescription = \"d\"\ncommand = [\"echo\", \"hello\"]\n";

/// The body, and the HTTP status and code it is refused with.
fn bodies() -> Vec<(Vec<u8>, u16, i64)> {
    let list = request(1, "tools/list", &json!({ "_meta": Declares::Tasks.meta() }));
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    vec![
        (b"".to_vec(), 400, -32700),
        (b"hello".to_vec(), 400, -32700),
        (b"{\"jsonrpc\":\"2.0\",".to_vec(), 400, -32700),
        (b"\xff\xfe\x00".to_vec(), 400, -32700),
        (deep.clone().into_bytes(), 400, -32600),
        (
            list.replace(r#""params":{"#, &format!(r#""params":{{"x":{deep},"#)).into_bytes(),
            400,
            -32600,
        ),
        (format!("[{list}]").into_bytes(), 400, -32600),
        (b"[]".to_vec(), 400, -32600),
        (format!("{list}{}", " ".repeat(64 * 1024)).into_bytes(), 413, -32600),
        (request(1, "tasks/get", &task(&"t".repeat(10_000_000))).into_bytes(), 413, -32600),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_request_is_refused_and_the_next_one_served() {
    let folder = Folder::new("max_body = \"64KiB\"", TOOLS);
    let server = Server::start(&folder.config()).await;
    for (body, status, code) in bodies() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let reply = server.http.send(Request::bytes(body).named("tools/list", None)).await;
        assert_eq!(reply.status, status, "{shown}: {reply:?}");
        assert_eq!(reply.json()["error"]["code"], code, "{shown}: {reply:?}");
        let answer = server.http.call(Declares::Tasks, "hello", &json!({})).await;
        assert_eq!(text(plain(&answer)), "hello\n", "after {shown}");
    }
    let call = Declares::Tasks.call("hello", &json!({}));
    for missing in ["mcp-method", "mcp-name", "mcp-protocol-version"] {
        let reply = server.http.send(Request::new("tools/call", &call).without(missing)).await;
        assert_eq!(reply.status, 400, "{missing}: {reply:?}");
        assert_eq!(reply.json()["error"]["code"], -32020, "{missing}: {reply:?}");
    }
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_line_is_refused_and_the_next_one_served() {
    let folder = Folder::new("max_body = \"64KiB\"", TOOLS);
    let mut session = Stdio::start(&folder.config());
    for (body, _, code) in bodies() {
        // An empty line is no message, and a line of other bytes than text can't be told apart
        // from a broken pipe by this client.
        let Ok(body) = String::from_utf8(body) else { continue };
        if body.is_empty() {
            continue;
        }
        session.line(&body);
        let refused = session.message().await.expect("an answer");
        assert_eq!(refused["error"]["code"], code, "{refused}");
        let answer = session.call(Declares::Tasks, "hello", &json!({})).await;
        assert_eq!(text(plain(&answer)), "hello\n");
    }
    session.end_input();
    let (ended, rest) = session.ended().await;
    ended.well();
    assert!(rest.is_empty(), "{rest:?}");
}

//! -32700, -32600, 413: bodies and lines that are not one request.

use serde_json::{Value, json};

use crate::common::*;

/// A request whose params are nested `levels` deep in all.
fn deep(levels: usize, method: &str, id: &str) -> String {
    // The message, its params, and their `_meta` are three levels.
    let inner = levels.saturating_sub(2);
    let (open, close) = (r#"{"a":"#.repeat(inner), "}".repeat(inner));
    let meta = declared();
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"taskId":"{id}","name":"echo","_meta":{meta},"arguments":{open}1{close}}}}}"#
    )
}

/// What is refused before anything is looked at: (body, code, id of the answer).
fn refused() -> Vec<(Vec<u8>, i64, Value)> {
    let null = Value::Null;
    let message =
        |id: &str, rest: &str| format!(r#"{{"jsonrpc":"2.0","id":{id}{rest}}}"#).into_bytes();
    let get = r#","method":"tasks/get","params":{}"#;
    let mut cases = vec![
        (b"{".to_vec(), -32700, null.clone()),
        (b"hello".to_vec(), -32700, null.clone()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,}".to_vec(), -32700, null.clone()),
        (b"{} {}".to_vec(), -32700, null.clone()),
        (b"{\"n\":NaN}".to_vec(), -32700, null.clone()),
        (b"{\"n\":01}".to_vec(), -32700, null.clone()),
        (b"'single'".to_vec(), -32700, null.clone()),
        // Not UTF-8: alone, inside a string, a surrogate, an overlong form.
        (b"\xff\xfe".to_vec(), -32700, null.clone()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xff\"}".to_vec(), -32700, null.clone()),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}".to_vec(),
            -32700,
            null.clone(),
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc0\xaf\"}".to_vec(), -32700, null.clone()),
        // A NUL byte as it is, and a control character in a string.
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0\"}".to_vec(), -32700, null.clone()),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\0\"method\":\"a\"}".to_vec(), -32700, null.clone()),
        (b"[]".to_vec(), -32600, null.clone()),
        (b"17".to_vec(), -32600, null.clone()),
        (b"null".to_vec(), -32600, null.clone()),
        (b"\"text\"".to_vec(), -32600, null.clone()),
        (b"{}".to_vec(), -32600, null.clone()),
        (message("null", get), -32600, null.clone()),
        (message("null", r#","method":"x""#), -32600, null.clone()),
        (message("null", r#","method":"notifications/cancelled""#), -32600, null.clone()),
        (
            message("null", r#","method":"tools/call","params":{"name":"echo"}"#),
            -32600,
            null.clone(),
        ),
        (message("null", r#","result":{}"#), -32600, null.clone()),
        (message("1.5", get), -32600, null.clone()),
        (message("true", get), -32600, null.clone()),
        (message("[1]", get), -32600, null.clone()),
        (message("123456789012345678901234567890", get), -32600, null.clone()),
        (message(&format!("\"{}\"", "i".repeat(300)), get), -32600, null.clone()),
        (message("\"\\ud800\"", get), -32600, null.clone()),
        (message("7", ""), -32600, json!(7)),
        (message("7", r#","method":5"#), -32600, json!(7)),
        (message("7", r#","method":null"#), -32600, json!(7)),
        (message("\"x\"", r#","method":"tasks/get","params":[]"#), -32600, json!("x")),
        (message("7", r#","method":"tasks/get","params":"x""#), -32600, json!(7)),
        (message("7", r#","method":"tools/call","params":5"#), -32600, json!(7)),
        // Members that are there twice.
        (message("7", r#","id":8,"method":"x""#), -32600, null.clone()),
        (message("7", r#","method":"tools/list","method":"tools/call""#), -32600, null.clone()),
        (br#"{"jsonrpc":"1.0","id":7,"method":"x"}"#.to_vec(), -32600, json!(7)),
        (br#"{"id":7,"method":"x"}"#.to_vec(), -32600, json!(7)),
        (deep(100, "tasks/get", "x").into_bytes(), -32600, null.clone()),
        (deep(100, "tools/call", "x").into_bytes(), -32600, null.clone()),
        (deep(100_000, "tools/call", "x").into_bytes(), -32600, null.clone()),
        // Half a surrogate pair, where text is.
        (
            message(
                "7",
                r#","method":"tools/call","params":{"name":"echo","arguments":{"s":"\ud83e"}}"#,
            ),
            -32700,
            json!(7),
        ),
        (message("7", r#","method":"tools/call","params":{"name":"\udc00"}"#), -32700, json!(7)),
    ];
    // A batch, whatever is in it.
    let one = request(&json!(1), "tools/list", &json!({ "_meta": declared() }));
    cases.push((format!("[{one}]").into_bytes(), -32600, null.clone()));
    cases.push((format!("[{one},{one}]").into_bytes(), -32600, null));
    cases
}

#[tokio::test]
async fn what_is_not_one_request() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    for (body, code, id) in refused() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        let request = Request::bytes(body.clone())
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", "tools/call");
        let reply = server.http.send(request).await;
        assert_eq!(reply.status, 400, "{shown}");
        assert_eq!(reply.headers["content-type"], "application/json", "{shown}");
        let json = reply.json();
        assert_eq!((error_code(&json), &json["id"]), (code, &id), "{shown}: {}", reply.text);
        assert!(json.get("id").is_some(), "an id is there even if it is null: {}", reply.text);

        // The same line over stdio gets the same bytes.
        stdio.raw(&body).await;
        stdio.raw(b"\n").await;
        assert_eq!(stdio.next().await.as_deref(), Some(&*reply.text), "{shown}");
    }
    assert_eq!(server.gates.notes("echo"), Vec::<String>::new());
    assert!(stdio.end().await.is_empty());
}

/// The envelope is read, its params can't be.
#[tokio::test]
async fn params_that_are_half_json() {
    let server = Fixture::new().start().await;
    let meta = declared();
    for body in [
        // A task id that is no text, and one that is there twice.
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"\ud800","_meta":{meta}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"a","taskId":"a","_meta":{meta}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","name":"echo","_meta":{meta}}}}}"#
        ),
    ] {
        let method = if body.contains("tasks/get") { "tasks/get" } else { "tools/call" };
        let request = Request::bytes(body.clone())
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method)
            .header("mcp-name", "echo");
        let reply = server.http.send(request).await;
        assert_eq!(error_code(&reply.json()), -32602, "{body}: {}", reply.text);
        let mut stdio = server.stdio();
        stdio.line(&body).await;
        let answer: Value = serde_json::from_str(&stdio.answer(&json!(1)).await).expect("JSON");
        assert_eq!(error_code(&answer), -32602, "{body}");
    }
    assert_eq!(server.gates.notes("echo"), Vec::<String>::new());
}

/// Depth within the limit is served.
#[tokio::test]
async fn sixty_levels_are_fine() {
    let server = Fixture::new().start().await;
    let request = Request::bytes(deep(60, "tools/call", "x"))
        .header("mcp-protocol-version", VERSION)
        .header("mcp-method", "tools/call")
        .header("mcp-name", "echo");
    let reply = server.http.send(request).await;
    assert_eq!(reply.json()["result"]["resultType"], "task", "{}", reply.text);
}

#[tokio::test]
async fn bodies_over_the_limit() {
    let server = Fixture::new().settings(|settings| settings.max_body_bytes = 2_000).start().await;
    let sized = |bytes: usize| {
        let empty =
            request(&json!(1), "tools/call", &call(undeclared(), "echo", json!({ "pad": "" })));
        let pad = "p".repeat(bytes - empty.len());
        let params = call(undeclared(), "echo", json!({ "pad": pad }));
        let full = request(&json!(1), "tools/call", &params);
        assert_eq!(full.len(), bytes);
        (Request::new("tools/call", &params), full)
    };
    let (fits, line) = sized(2_000);
    assert_eq!(server.http.send(fits).await.json()["result"]["resultType"], "complete");
    let mut stdio = server.stdio();
    stdio.line(&line).await;
    assert!(stdio.answer(&json!(1)).await.contains("\"complete\""));

    for bytes in [2_001, 100_000] {
        let (over, line) = sized(bytes);
        let reply = server.http.send(over).await;
        assert_eq!((reply.status, error_code(&reply.json())), (413, -32600));
        stdio.line(&line).await;
        assert_eq!(stdio.next().await.as_deref(), Some(&*reply.text));
    }
    // Without a length that could be looked at first.
    let (_, line) = sized(50_000);
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let chunked = format!("{head}{:x}\r\n{line}\r\n0\r\n\r\n", line.len());
    let answer = raw_exchange(server.http.address, chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // The session goes on after a line that was too long.
    assert_eq!(
        stdio.ask("tools/list", &json!({ "_meta": undeclared() })).await["error"],
        Value::Null
    );
}

/// A line longer than rmcp takes by default still gets its answer.
#[tokio::test]
async fn very_long_lines() {
    let server =
        Fixture::new().settings(|settings| settings.max_body_bytes = 20 << 20).start().await;
    let params = call(undeclared(), "echo", json!({ "pad": "p".repeat(17 << 20) }));
    let answer = server.stdio().ask("tools/call", &params).await;
    // More than arguments may have, which the model is told.
    assert_eq!(answer["result"]["isError"], true, "{answer:#}");
    assert!(answer.to_string().contains("1048576"), "{answer:#}");
}

/// Responses to nothing, and responses that are none.
#[tokio::test]
async fn responses_nobody_waits_for() {
    let server = Fixture::new().start().await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":5}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":5}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        let request = Request::bytes(body).header("mcp-protocol-version", VERSION);
        let reply = server.http.send(request).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.text);
        assert_eq!(error_code(&reply.json()), -32600, "{body}");
    }
}

/// Ids come back as what they were.
#[tokio::test]
async fn ids_are_echoed() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    for id in [
        json!(0),
        json!(-5),
        json!(9_007_199_254_740_993_i64),
        json!(i64::MAX),
        json!(""),
        json!("é\u{2028}\""),
    ] {
        for (method, params) in [
            ("tasks/get", task(declared(), "x")),
            ("tools/list", json!({ "_meta": declared() })),
            ("tools/call", call(undeclared(), "echo", json!({}))),
        ] {
            let reply = server.http.send(Request::with_id(&id, method, &params)).await;
            assert_eq!(reply.json()["id"], id, "{method}");
            stdio.line(&request(&id, method, &params)).await;
            stdio.answer(&id).await;
        }
    }
}

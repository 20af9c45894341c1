//! -32020: the request metadata headers, held against the body.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::common::*;

/// Asserts that a request is refused with -32020, and that its id is named.
async fn mismatch(server: &Running, what: &str, request: Request) {
    let reply = server.http.send(request).await;
    assert_eq!(reply.status, 400, "{what}: {}", reply.text);
    let json = reply.json();
    assert_eq!((error_code(&json), &json["id"]), (-32020, &json!(1)), "{what}: {json}");
}

/// One well-formed request of each lane, and the name that it bears.
async fn requests(server: &Running) -> Vec<(&'static str, Value, String)> {
    let id = server.create("gate", json!({})).await;
    vec![
        ("tasks/get", task(declared(), &id), id.clone()),
        ("tasks/update", update(declared(), &id, json!({})), id.clone()),
        ("tools/call", call(undeclared(), "echo", json!({ "n": 1 })), "echo".to_owned()),
        ("tasks/cancel", task(declared(), &id), id),
    ]
}

/// `sep-2663-server-rejects-mismatched-mcp-name-on-tasks-get`, and its like for all headers.
#[tokio::test]
async fn headers_that_are_missing_or_differ() {
    let server = Fixture::new().start().await;
    for (method, params, name) in requests(&server).await {
        let good = || Request::new(method, &params);
        for header in ["mcp-method", "mcp-name", "mcp-protocol-version"] {
            mismatch(&server, &format!("{method} without {header}"), good().without(header)).await;
            // Twice: the same, and others in either order.
            let value = good().headers.iter().find(|(n, _)| n == header).expect("there").1.clone();
            let what = format!("{method} with {header} twice");
            mismatch(&server, &what, good().header(header, &value)).await;
            mismatch(&server, &what, good().header(header, "other")).await;
            let reversed = good().without(header).header(header, "other").header(header, &value);
            mismatch(&server, &what, reversed).await;
        }
        let encoded = |bytes: &[u8]| format!("=?base64?{}?=", BASE64_STANDARD.encode(bytes));
        let upper = name.to_uppercase();
        for wrong in [
            "other",
            "",
            &format!("{name}x"),
            &upper,
            &encoded(b"other"),
            // Broken base64: letters that are none, no padding, not UTF-8.
            "=?base64?!!!?=",
            "=?base64?/w==?=",
            "=?base64?YQ?=",
            // The name inside a form that is not the base64 form.
            &format!("=?base64?{name}?="),
            &format!("=?BASE64?{}?=", BASE64_STANDARD.encode(&name)),
        ] {
            let what = format!("{method} with Mcp-Name {wrong:?}");
            mismatch(&server, &what, good().replace("mcp-name", wrong)).await;
        }
        for wrong in ["tools/list", "TASKS/GET", "", "tasks/result"] {
            let what = format!("{method} with Mcp-Method {wrong:?}");
            mismatch(&server, &what, good().replace("mcp-method", wrong)).await;
        }
        let older = good().replace("mcp-protocol-version", "2025-11-25");
        mismatch(&server, &format!("{method} with an older version in the header"), older).await;
    }
    // Nothing of all this reached the task or the tool.
    assert_eq!((server.gates.drops("gate"), server.gates.notes("echo").len()), (0, 0));
}

/// Bytes that no header may have, which a client library would not send.
#[tokio::test]
async fn headers_that_are_not_ascii() {
    let server = Fixture::new().start().await;
    let (method, params, _) = requests(&server).await.remove(0);
    let body = request(&json!(1), method, &params);
    let raw = |name: &[u8]| {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: {VERSION}\r\nmcp-method: {method}\r\nconnection: close\r\ncontent-length: {}\r\nmcp-name: ",
            body.len()
        );
        [head.as_bytes(), name, b"\r\n\r\n", body.as_bytes()].concat()
    };
    for name in ["ü".as_bytes(), b"\xff\xfe"] {
        let answer = raw_exchange(server.http.address, &raw(name)).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("-32020"), "{answer}");
    }
}

/// `sep-2663-routing-headers-accepted-on-tasks-get`: in each form that says the same.
#[tokio::test]
async fn headers_that_agree() {
    let server = Fixture::new().start().await;
    for (method, params, name) in requests(&server).await {
        let encoded = format!("=?base64?{}?=", BASE64_STANDARD.encode(&name));
        for form in [name.clone(), encoded, format!("  {name}\t")] {
            let request = Request::new(method, &params).replace("mcp-name", &form);
            let reply = server.http.send(request).await;
            assert_eq!(reply.status, 200, "{method} {form:?}: {}", reply.text);
            assert_eq!(reply.json()["result"]["resultType"], "complete", "{method} {form:?}");
        }
    }
}

/// Names that are not ASCII travel as base64.
#[tokio::test]
async fn names_that_are_not_ascii() {
    let server = Fixture::new().start().await;
    let params = call(undeclared(), UNICODE_TOOL, json!({}));
    let reply = server.http.ask("tools/call", &params).await;
    assert_eq!(reply.json()["result"]["content"][0]["text"], "übersetzt", "{}", reply.text);

    // Another spelling of the same letters is another name.
    let decomposed = "u\u{308}bersetzen 🚀";
    let wrapped = format!("=?base64?{}?=", BASE64_STANDARD.encode(decomposed));
    let request = Request::new("tools/call", &params).replace("mcp-name", &wrapped);
    mismatch(&server, "a decomposed name", request).await;

    // A task id that is not ASCII is unknown, not a mismatch, when header and body agree.
    for id in ["ü🚀", " padded ", "=?base64?x?="] {
        let wrapped = format!("=?base64?{}?=", BASE64_STANDARD.encode(id));
        let request =
            Request::new("tasks/get", &task(declared(), id)).replace("mcp-name", &wrapped);
        let reply = server.http.send(request).await;
        assert_eq!((reply.status, error_code(&reply.json())), (200, -32602), "{id:?}");
    }
}

/// The setting for clients that forget the headers: what is missing is filled in, what is there
/// must still agree.
#[tokio::test]
async fn lenient_headers() {
    let server = Fixture::new().settings(|settings| settings.lenient_headers = true).start().await;
    let all = ["mcp-method", "mcp-name", "mcp-protocol-version"];
    for (method, params, _) in requests(&server).await {
        let mut bare = Request::new(method, &params);
        for header in all {
            let reply = server.http.send(Request::new(method, &params).without(header)).await;
            assert_eq!(reply.json()["result"]["resultType"], "complete", "{method} {}", reply.text);
            bare = bare.without(header);
        }
        let reply = server.http.send(bare).await;
        assert_eq!(reply.json()["result"]["resultType"], "complete", "{method}: {}", reply.text);
        for header in all {
            let wrong = Request::new(method, &params).replace(header, "2025-11-25");
            mismatch(&server, &format!("{method} with a wrong {header}"), wrong).await;
        }
        let twice = Request::new(method, &params).header("mcp-name", "other");
        mismatch(&server, &format!("{method} with two names"), twice).await;
    }
    // Names that need base64 are filled in as well.
    let params = call(undeclared(), UNICODE_TOOL, json!({}));
    let reply = server.http.send(Request::new("tools/call", &params).without("mcp-name")).await;
    assert_eq!(reply.json()["result"]["content"][0]["text"], "übersetzt", "{}", reply.text);
    // Leniency is about headers, not about what the body must declare.
    let request = Request::new("tasks/get", &task(undeclared(), "x")).without("mcp-name");
    let reply = server.http.send(request).await;
    assert_eq!((reply.status, error_code(&reply.json())), (400, -32021));
}

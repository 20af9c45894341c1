//! Before any message is read: methods, media types, Host and Origin.

use serde_json::json;

use crate::common::*;

fn list() -> Request {
    Request::new("tools/list", &json!({ "_meta": undeclared() }))
}

#[tokio::test]
async fn media_types() {
    let server = Fixture::new().start().await;
    for (content_type, status) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("text/plain", 415),
        ("application/jsonp", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ] {
        let reply = server.http.send(list().replace("content-type", content_type)).await;
        assert_eq!(reply.status, status, "{content_type:?}");
    }
    assert_eq!(server.http.send(list().without("content-type")).await.status, 415);
    for (accept, status) in [
        ("application/json, text/event-stream", 200),
        ("text/event-stream;q=0.9, application/json;q=0.1", 200),
        ("Text/Event-Stream,APPLICATION/JSON", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("*/*", 406),
        ("application/json, text/event-stream;q=0", 406),
    ] {
        // Both lanes ask for the same.
        for request in [list(), Request::new("tasks/get", &task(declared(), "x"))] {
            let reply = server.http.send(request.replace("accept", accept)).await;
            assert_eq!(reply.status, status, "{accept:?}");
        }
    }
    // In two headers.
    let two = list().replace("accept", "application/json").header("accept", "text/event-stream");
    assert_eq!(server.http.send(two).await.status, 200);
}

#[tokio::test]
async fn http_methods() {
    let server = Fixture::new().start().await;
    let current = ("mcp-protocol-version", VERSION);
    let stream = ("accept", "text/event-stream");
    for (method, headers, status) in [
        ("GET", vec![stream, current], 405),
        ("DELETE", vec![current], 405),
        // Of older clients, these belong to a session.
        ("GET", vec![stream], 400),
        ("DELETE", vec![], 400),
        ("GET", vec![stream, ("mcp-session-id", "unknown")], 404),
        ("PUT", vec![current], 405),
        ("PATCH", vec![], 405),
    ] {
        let reply = server.http.method(method, &headers).await;
        assert_eq!(reply.status, status, "{method} {headers:?}: {}", reply.text);
    }
    let elsewhere = raw_exchange(
        server.http.address,
        b"POST /other HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(elsewhere.starts_with("HTTP/1.1 404 "), "{elsewhere}");
}

#[tokio::test]
async fn hosts_and_origins() {
    let server = Fixture::new().start().await;
    for (host, origin, status) in [
        ("127.0.0.1", None, 200),
        ("localhost:1", Some("http://localhost:3000"), 200),
        ("[::1]:8720", Some("http://127.0.0.1"), 200),
        ("evil.example.com", None, 403),
        ("127.0.0.1.evil.example.com", None, 403),
        ("localhost.evil.example.com:80", None, 403),
        ("localhost", Some("http://evil.example.com"), 403),
        ("localhost", Some("https://localhost"), 403),
        ("localhost", Some("null"), 403),
        ("localhost", Some("http://localhost.evil.example.com"), 403),
        ("localhost", Some(""), 403),
    ] {
        // Both lanes, and the streams of older clients.
        let get = Request::new("tasks/get", &task(declared(), "x"));
        for request in [list(), get] {
            let mut request = request.header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let reply = server.http.send(request).await;
            assert_eq!(reply.status, status, "{host} {origin:?}: {}", reply.text);
        }
        if status == 403 {
            let mut headers = vec![("host", host), ("accept", "text/event-stream")];
            headers.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(server.http.method("GET", &headers).await.status, 403, "{host} {origin:?}");
            assert_eq!(server.http.method("DELETE", &headers).await.status, 403);
        }
    }
    // Two origins, the first of which is let in.
    let two =
        list().header("origin", "http://localhost").header("origin", "http://evil.example.com");
    assert_eq!(server.http.send(two).await.status, 403);
    // None at all, which HTTP/1.0 allows.
    let without =
        raw_exchange(server.http.address, b"POST /mcp HTTP/1.0\r\ncontent-length: 0\r\n\r\n").await;
    assert!(
        without.starts_with("HTTP/1.0 400 ") || without.starts_with("HTTP/1.1 400 "),
        "{without}"
    );
}

/// Notifications get 202 and no body.
#[tokio::test]
async fn notifications() {
    let server = Fixture::new().start().await;
    for method in ["notifications/cancelled", "notifications/whatever", "tasks/cancel"] {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": 5 } });
        let request = Request::bytes(body.to_string())
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method);
        let reply = server.http.send(request).await;
        assert_eq!((reply.status, &*reply.text), (202, ""), "{method}");
    }
}

/// Monitors name the server by any host, and need neither identity nor media types.
#[tokio::test]
async fn health_is_for_everybody() {
    let server = Fixture::new().start().await;
    for (method, status) in [("GET", 200), ("HEAD", 200), ("POST", 405), ("DELETE", 405)] {
        let request = format!(
            "{method} /health HTTP/1.1\r\nhost: 10.0.0.7:8720\r\nconnection: close\r\n\r\n"
        );
        let answer = raw_exchange(server.http.address, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        if method == "GET" {
            assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\n{\"status\":\"ok\"}"), "{answer}");
        }
    }
}

//! What goes in and comes out survives, to the byte, on every way.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::common::*;

/// Values as text, in the form in which they are sent.
fn values() -> Vec<String> {
    let deep = format!("{}1{}", r#"{"a":["#.repeat(50), "]}".repeat(50));
    [
        // Integers of 64 bits and more.
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "9007199254740993",
        "123456789012345678901234567890123456789012345678901234567890",
        // Floats as they are written.
        "1.10",
        "100.0",
        "-0.0",
        "-0",
        "0.1000000000000000055511151231257827",
        "1e-7",
        "1e-400",
        "100000000000000000000.5",
        // Order, empty and odd keys.
        r#"{"z":1,"a":2,"10":3,"9":4,"A":5}"#,
        r#"{"":{"":[]}}"#,
        r#"{"__proto__":1,"constructor":2,"a.b":3,"a/b":4}"#,
        "[]",
        "{}",
        "null",
        "true",
        "\"\"",
        // Unusual Unicode: line separators, astral, combining, joined, noncharacters, a byte order
        // mark, right to left, what looks like an escape.
        "\"\u{2028}\u{2029}\u{85}\u{a0}\"",
        "\"🦀👩\u{200d}👩\u{200d}👧\"",
        "\"e\u{301} é\"",
        "\"\u{ffff}\u{fdd0}\u{10ffff}\u{feff}\"",
        "\"\u{202e}שלום\"",
        "\"\u{7f}\u{9f}\"",
        r#""\u0000\u0001\u001f\b\f\n\r\t\"\\/""#,
        r#""\\u0041 data: x""#,
        r#"["Привет, мир","data: no event","\n\nevent: x"]"#,
        &deep,
    ]
    .map(str::to_owned)
    .into()
}

/// A result with this structured content.
fn result(value: &str) -> String {
    format!(
        r#"{{"resultType":"complete","content":[{{"type":"text","text":"t"}}],"structuredContent":{value}}}"#
    )
}

fn member(json: &str, name: &str) -> String {
    let members: std::collections::HashMap<String, &RawValue> =
        serde_json::from_str(json).expect("an object");
    members.get(name).unwrap_or_else(|| panic!("no {name} in {json}")).get().to_owned()
}

/// The result of one tool, as text, by every way: plain and as a task, over HTTP and stdio.
async fn every_way(server: &Running, tool: &str, arguments: Value) -> Vec<(&'static str, String)> {
    let plain = call(undeclared(), tool, arguments.clone());
    let mut stdio = server.stdio();
    let over_http = server.http.ask("tools/call", &plain).await.message();
    let id = stdio.send("tools/call", &plain).await;
    let over_stdio = stdio.answer(&id).await;
    let mut streamed = plain.clone();
    streamed["_meta"]["progressToken"] = json!("t");
    let streamed = server.http.ask("tools/call", &streamed).await.message();

    let handle = server.create(tool, arguments).await;
    server.until_status(&handle, "completed").await;
    let task_over_http = server.http.ask("tasks/get", &task(declared(), &handle)).await.text;
    let id = stdio.send("tasks/get", &task(declared(), &handle)).await;
    let task_over_stdio = stdio.answer(&id).await;
    vec![
        ("plain over HTTP", member(&over_http, "result")),
        ("plain over stdio", member(&over_stdio, "result")),
        ("plain in a stream", member(&streamed, "result")),
        ("task over HTTP", member(&member(&task_over_http, "result"), "result")),
        ("task over stdio", member(&member(&task_over_stdio, "result"), "result")),
    ]
}

/// What a tool returns comes out the same on every way; and so the result of `tasks/get` is byte
/// for byte what a plain call gives.
#[tokio::test]
async fn results_survive() {
    let server = Fixture::new().start().await;
    for value in values() {
        let wanted = result(&value);
        for (way, got) in every_way(&server, "says", json!({ "result": wanted })).await {
            assert_eq!(got, wanted, "{way}");
        }
    }
}

/// However a tool writes its result, all ways give the same bytes.
#[tokio::test]
async fn results_have_one_form() {
    let server = Fixture::new().start().await;
    for (written, sent) in [
        // Whitespace, escapes that are not needed, members in another order or missing.
        ("{ \"content\" : [ ] }", r#"{"resultType":"complete","content":[]}"#),
        (
            "{\n  \"structuredContent\": {\n    \"b\": [ 1.10 ],\r\n    \"a\": \"\\u00e9\\/\\ud83e\\udd80\"\n  }\n}",
            r#"{"resultType":"complete","content":[],"structuredContent":{"b":[1.10],"a":"é/🦀"}}"#,
        ),
        (
            r#"{"isError":false,"_meta":{"k":1},"content":[{"type":"text","text":"a  b"}]}"#,
            r#"{"resultType":"complete","content":[{"type":"text","text":"a  b"}],"isError":false,"_meta":{"k":1}}"#,
        ),
        (
            r#"{"content":[{"type":"text","text":"x"}],"structuredContent":null}"#,
            r#"{"resultType":"complete","content":[{"type":"text","text":"x"}],"structuredContent":null}"#,
        ),
    ] {
        for (way, got) in every_way(&server, "says", json!({ "result": written })).await {
            assert_eq!(got, sent, "{way}");
        }
    }
}

/// The one known difference: rmcp's types write exponents in the form of its JSON parser, and
/// plain calls go through them. The number is the same one. Results of tasks are never parsed on
/// their way out and keep what the tool wrote.
#[tokio::test]
async fn exponents_are_rewritten_in_plain_results() {
    let server = Fixture::new().start().await;
    for (written, plain) in [
        ("1E5", "1e+5"),
        ("1e5", "1e+5"),
        ("1e400", "1e+400"),
        ("-1.50E-3", "-1.50e-3"),
        ("1E+5", "1e+5"),
    ] {
        for (way, got) in every_way(&server, "says", json!({ "result": result(written) })).await {
            let wanted = if way.starts_with("task") { written } else { plain };
            assert_eq!(got, result(wanted), "{way}");
        }
    }
}

/// What is no result is our error, plainly and as a task.
#[tokio::test]
async fn results_that_are_none() {
    let server = Fixture::new().start().await;
    let too_deep = format!(r#"{{"structuredContent":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for nonsense in [
        "17",
        "{}",
        r#"{"content":"text"}"#,
        r#"{"content":[],"isError":"no"}"#,
        r#"{"content":[],"structuredContent":"\ud800"}"#,
        &too_deep,
    ] {
        let arguments = json!({ "result": nonsense });
        let plain =
            server.http.ask("tools/call", &call(undeclared(), "says", arguments.clone())).await;
        assert_eq!(plain.status, 200);
        assert_eq!(error_code(&plain.json()), -32603, "{nonsense}");
        let id = server.create("says", arguments).await;
        let failed = server.until_status(&id, "failed").await;
        assert_eq!(failed["error"], plain.json()["error"], "{nonsense}");
    }
}

/// Arguments reach the tool as they were sent, on both lanes' way in.
#[tokio::test]
async fn arguments_survive() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let mut sent = Vec::new();
    for value in values() {
        // 64 levels are the most that a request may have.
        if value.len() > 300 {
            continue;
        }
        for meta in [undeclared(), declared()] {
            let arguments = format!(r#"{{"value":{value}}}"#);
            let params = call(meta, "echo", json!({}));
            let with = |id: i64| {
                request(&json!(id), "tools/call", &params)
                    .replace(r#""arguments":{}"#, &format!(r#""arguments":{arguments}"#))
            };
            let mut over_http = Request::new("tools/call", &params);
            over_http.body = with(1).into_bytes();
            assert_eq!(server.http.send(over_http).await.status, 200);
            stdio.line(&with(sent.len() as i64)).await;
            stdio.answer(&json!(sent.len())).await;
            sent.extend([arguments.clone(), arguments]);
            // Tasks begin after their handle is out.
            within("the tool sees them", async {
                while server.gates.notes("echo").len() < sent.len() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let seen = server.gates.notes("echo");
            assert_eq!(seen[sent.len() - 2..], sent[sent.len() - 2..]);
        }
    }
}

/// Questions and answers too.
#[tokio::test]
async fn answers_survive() {
    let server = Fixture::new().start().await;
    for value in values() {
        if value.len() > 300 {
            continue;
        }
        let id = server.create("asks", json!({})).await;
        server.until_status(&id, "input_required").await;
        let answer = format!(r#"{{"action":"accept","content":{{"ok":true}},"extra":{value}}}"#);
        let params = update(declared(), &id, json!({ "confirm": "HERE" }));
        let mut request = Request::new("tasks/update", &params);
        let body = String::from_utf8(request.body).expect("UTF-8");
        request.body = body.replace(r#""HERE""#, &answer).into_bytes();
        server.http.send(request).await;
        let done = server.until_status(&id, "completed").await;
        assert_eq!(done["result"]["content"][0]["text"], answer);
    }
}

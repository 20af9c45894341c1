//! Arguments and tool names that are wrong or strange: answered, and nothing is run that should
//! not be.

use serde_json::json;

use crate::common::{Declares, Folder, Request, Server, handle, plain, request, text};

const TOOLS: &str = r#"
[tools.show]
description = "Prints its arguments, each in brackets"
command = ["sh", "-c", 'echo ran >> ran; printf "[%s]" "$@"', "--", "{text}", "{count}", "{amount}"]
inline = "0s"
[tools.show.input]
text = { type = "string" }
count = { type = "integer", minimum = 0, required = false }
amount = { type = "number", required = false }

[tools.option]
description = "Its argument could be read as an option"
command = ["printf", "[%s]", "{text}"]
[tools.option.input]
text = { type = "string" }

[tools."überschrift ✓"]
description = "A name that needs base64 in a header"
command = ["echo", "ja"]
"#;

/// What comes of a call.
enum Answer {
    /// It runs and prints this.
    Prints(&'static str),
    /// A result with `isError` that says this; nothing runs.
    ToolError(&'static [&'static str]),
    /// A JSON-RPC error with this code.
    Error(i64),
}
use Answer::{Error, Prints, ToolError};

const NOT_RUN: &str = "nothing was run";

/// Tool, arguments as they are sent, and what comes of them.
const CASES: &[(&str, &str, Answer)] = &[
    ("show", r#"{"text":"a","count":1}"#, Prints("[a][1]")),
    ("show", "{}", ToolError(&[NOT_RUN, "\"text\""])),
    ("show", r#"{"text":"a","more":1}"#, ToolError(&[NOT_RUN, "'more'"])),
    ("show", r#"{"text":1}"#, ToolError(&[NOT_RUN, "/text"])),
    ("show", r#"{"text":null}"#, ToolError(&[NOT_RUN, "/text"])),
    ("show", r#"{"text":"a","count":-1}"#, ToolError(&[NOT_RUN, "/count"])),
    ("show", r#"{"text":"a","count":1.5}"#, ToolError(&[NOT_RUN, "/count"])),
    ("show", r#"{"text":"a","count":"1"}"#, ToolError(&[NOT_RUN, "/count"])),
    ("show", r#"{"text":"a","count":18446744073709551616}"#, Prints("[a][18446744073709551616]")),
    (
        "show",
        r#"{"text":"a","count":123456789012345678901234567890123456789012345678901234567890}"#,
        Prints("[a][123456789012345678901234567890123456789012345678901234567890]"),
    ),
    ("show", r#"{"text":"a","amount":0.10}"#, Prints("[a][0.10]")),
    (
        "show",
        r#"{"text":"a","amount":3.14159265358979323846264338327950288}"#,
        Prints("[a][3.14159265358979323846264338327950288]"),
    ),
    ("show", r#"{"text":"\ud800"}"#, Error(-32700)),
    ("show", r#"{"text":"\udc00\ud800"}"#, Error(-32700)),
    ("show", r#"{"text":"\ud83d\ude80"}"#, Prints("[🚀]")),
    ("show", r#"{"text":"a\u0000b"}"#, ToolError(&["`text` has a NUL character"])),
    ("show", r#"{"\u0000":"a"}"#, ToolError(&[NOT_RUN])),
    ("show", r#"{"text":""}"#, Prints("[]")),
    (
        "show",
        r#"{"text":"--help; $(touch ran) `x` \" ' \\ \n*"}"#,
        Prints("[--help; $(touch ran) `x` \" ' \\ \n*]"),
    ),
    ("option", r#"{"text":"--version"}"#, ToolError(&["`text`", "start with `-`"])),
    ("option", r#"{"text":"plain"}"#, Prints("[plain]")),
    ("show", "[]", Error(-32602)),
    ("show", "17", Error(-32602)),
    ("überschrift ✓", "{}", Prints("ja\n")),
    ("no such tool", "{}", Error(-32602)),
    ("überschrift", "{}", Error(-32602)),
];

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_held_against_the_schema_and_survive_unchanged() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    let mut runs = 0;
    for (tool, arguments, expected) in CASES {
        for declares in [Declares::Nothing, Declares::Tasks] {
            // As text, since JSON values can't hold some of these.
            let params = declares.call(tool, &json!("ARGUMENTS"));
            let body = request(1, "tools/call", &params).replace("\"ARGUMENTS\"", arguments);
            let sent = Request::new("tools/call", &params).with_body(body);
            let reply = server.http.send(sent).await;
            let mut answer = reply.json();
            let what = format!("{tool} {arguments} {declares:?}: {reply:?}");
            if answer["result"]["resultType"] == "task" {
                let task = server.http.end_of(&handle(&answer)).await;
                assert_eq!(task["status"], "completed", "{what}: {task}");
                answer = json!({ "result": task["result"] });
            }
            match expected {
                Prints(printed) => {
                    let result = plain(&answer);
                    assert!(result.get("isError").is_none(), "{what}");
                    assert_eq!(text(result), *printed, "{what}");
                    runs += usize::from(*tool == "show");
                }
                ToolError(parts) => {
                    let result = plain(&answer);
                    assert_eq!(result["isError"], true, "{what}");
                    for part in *parts {
                        assert!(text(result).contains(part), "no {part:?} in {what}");
                    }
                }
                Error(code) => {
                    assert_eq!(answer["error"]["code"], *code, "{what}");
                    let status = if *code == -32700 { 400 } else { reply.status };
                    assert_eq!(reply.status, status, "{what}");
                }
            }
            assert_eq!(folder.read("ran").lines().count(), runs, "{what}");
        }
    }
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_can_be_too_long() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    for (length, part) in [
        (131_071, None),
        (131_072, Some("`text` is too long")),
        (1024 * 1024 - 11, Some("`text` is too long")),
        (1024 * 1024, Some("more than the 1048576 allowed")),
    ] {
        let arguments = json!({ "text": "x".repeat(length) });
        let answer = server.http.call(Declares::Nothing, "show", &arguments).await;
        let result = plain(&answer);
        match part {
            None => assert_eq!(text(result).len(), length + 2),
            Some(part) => {
                assert_eq!(result["isError"], true);
                assert!(text(result).contains(part), "{}", text(result));
            }
        }
    }
    assert_eq!(folder.read("ran"), "ran\n");
    server.stop().await.well();
}

/// `Mcp-Name` has to be there, and in ASCII.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_name_beyond_ascii_needs_its_header_in_base64() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    let params = Declares::Tasks.call("überschrift ✓", &json!({}));
    let body = request(1, "tools/call", &params);
    // "=?base64?…?=" of the name, of another name, and of bytes that are no text.
    for (name, well) in [
        (Some("=?base64?w7xiZXJzY2hyaWZ0IOKckw==?=".as_bytes()), true),
        (Some("=?base64?w7xiZXJzY2hyaWZ0?=".as_bytes()), false),
        (Some("=?base64?/w==?=".as_bytes()), false),
        (Some("überschrift ✓".as_bytes()), false),
        (Some(b"show"), false),
        (None, false),
    ] {
        let mut sent = Request::bytes(body.clone()).named("tools/call", None);
        if let Some(name) = name {
            sent = sent.header("mcp-name", name);
        }
        let reply = server.http.send(sent).await;
        if well {
            assert_eq!(text(plain(&reply.json())), "ja\n");
        } else {
            assert_eq!(reply.status, 400, "{name:?}: {reply:?}");
            assert_eq!(reply.json()["error"]["code"], -32020, "{name:?}: {reply:?}");
        }
    }
    server.stop().await.well();
}

//! Tools that answer plainly, with every kind of content.

use std::time::Duration;

use abide_core::{Backend, Outcome, Progress, RawJson, RpcError};
use abide_engine::TaskSupport::{Auto, Never};
use abide_engine::{TaskContext, handler};
use serde_json::{Value, json};

use crate::{Fixture, no_arguments};

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A WAV file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

pub(crate) fn tools() -> Vec<Fixture> {
    let header = json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } }
    });
    let greet = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let png = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let wav = json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" });
    let plain = |name, content: Value| Fixture::new(name, no_arguments(), Never, says(content));
    vec![
        Fixture::new("a_header_echo", header, Never, says(json!([text("ok")]))),
        Fixture::new(
            "greet",
            greet,
            Never,
            handler(|work, _| async move {
                let arguments: Value = work.arguments.to().unwrap_or_default();
                let name = arguments["name"].as_str().unwrap_or("nobody").to_owned();
                completed(json!([text(&format!("Hello, {name}!"))]))
            }),
        ),
        plain("test_simple_text", json!([text("This is a simple text response for testing.")])),
        plain("test_image_content", json!([png])),
        plain("test_audio_content", json!([wav])),
        plain(
            "test_embedded_resource",
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )]),
        ),
        plain(
            "test_multiple_content_types",
            json!([
                text("Multiple content types test:"),
                png,
                resource(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#
                )
            ]),
        ),
        plain("test_streaming_elicitation", json!([text("Nothing to ask.")])),
        plain("test_logging_tool", json!([text("Nothing to log.")])),
        Fixture::new(
            "test_error_handling",
            no_arguments(),
            Never,
            handler(|_, _| async {
                let result = json!({
                    "resultType": "complete",
                    "content": [text("This tool intentionally returns an error for testing")],
                    "isError": true
                });
                outcome(&result)
            }),
        ),
        Fixture::new("test_tool_with_progress", no_arguments(), Never, handler(with_progress)),
        Fixture::new("json_schema_2020_12_tool", rich_schema(), Auto, says(json!([text("ok")]))),
    ]
}

/// A tool that always says the same.
fn says(content: Value) -> impl Backend {
    handler(move |_, _| {
        let content = content.clone();
        async move { completed(content) }
    })
}

async fn with_progress(_: abide_core::Work, context: TaskContext) -> Outcome {
    for done in [0.0, 50.0, 100.0] {
        context.progress(Progress { done: Some(done), total: Some(100.0), message: None });
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    completed(json!([text("done")]))
}

/// A result with this content.
pub(crate) fn completed(content: Value) -> Outcome {
    outcome(&json!({ "resultType": "complete", "content": content }))
}

pub(crate) fn outcome(result: &Value) -> Outcome {
    match RawJson::from_value(result) {
        Ok(result) => Outcome::Completed(result),
        Err(error) => Outcome::Failed(RpcError::internal("malformed", error.to_string())),
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn resource(uri: &str, mime: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } })
}

/// Every keyword that the suite wants to see come back as it was written.
fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    })
}

//! Tools whose calls become tasks.

use std::time::Duration;

use abide_core::{AskError, InputKey, Outcome, RawJson, RpcError, Work};
use abide_engine::TaskSupport::{Auto, Required};
use abide_engine::{TaskContext, handler};
use serde_json::{Value, json};

use crate::content::{completed, outcome, text};
use crate::{Fixture, no_arguments};

pub(crate) fn tools() -> Vec<Fixture> {
    let slow = json!({
        "type": "object",
        "properties": { "seconds": { "type": "number" }, "label": { "type": "string" } }
    });
    let delete = json!({ "type": "object", "properties": { "filename": { "type": "string" } } });
    vec![
        Fixture::new("slow_compute", slow, Auto, handler(slow_compute)),
        Fixture::new("failing_job", no_arguments(), Required, handler(failing_job)),
        Fixture::new("protocol_error_job", no_arguments(), Required, handler(protocol_error_job)),
        Fixture::new("confirm_delete", delete, Required, handler(confirm_delete)),
        Fixture::new("multi_input", no_arguments(), Required, handler(multi_input)),
    ]
}

async fn slow_compute(work: Work, _: TaskContext) -> Outcome {
    let arguments: Value = work.arguments.to().unwrap_or_default();
    let seconds = arguments["seconds"].as_f64().unwrap_or(0.0).clamp(0.0, 3600.0);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    completed(json!([text("computed")]))
}

async fn failing_job(_: Work, _: TaskContext) -> Outcome {
    tokio::time::sleep(Duration::from_secs(1)).await;
    outcome(&json!({
        "resultType": "complete",
        "content": [text("The job ran and failed.")],
        "isError": true
    }))
}

async fn protocol_error_job(_: Work, _: TaskContext) -> Outcome {
    Outcome::Failed(RpcError::internal("fixture", "The job ended in a protocol error."))
}

async fn confirm_delete(_: Work, context: TaskContext) -> Outcome {
    let question = elicitation("Really delete it?", json!({ "confirm": { "type": "boolean" } }));
    match ask(&context, "confirm", question).await {
        Ok(answer) => completed(json!([text(&format!("answered: {answer}"))])),
        Err(error) => refused(&error),
    }
}

async fn multi_input(_: Work, context: TaskContext) -> Outcome {
    let question = |what: &str| elicitation(what, json!({ "name": { "type": "string" } }));
    let (first, second) = futures::join!(
        ask(&context, "first", question("First name?")),
        ask(&context, "second", question("Second name?")),
    );
    match (first, second) {
        (Ok(first), Ok(second)) => completed(json!([text(&format!("{first} {second}"))])),
        (Err(error), _) | (_, Err(error)) => refused(&error),
    }
}

async fn ask(context: &TaskContext, key: &str, request: Value) -> Result<Value, AskError> {
    let refused = |error: &dyn std::fmt::Display| AskError::Refused(error.to_string());
    let key = InputKey::new(key).map_err(|error| refused(&error))?;
    let request = RawJson::from_value(&request).map_err(|error| refused(&error))?;
    context.ask(key, request).await?.to().map_err(|error| refused(&error))
}

fn refused(error: &AskError) -> Outcome {
    Outcome::Failed(RpcError::internal("ask", error.to_string()))
}

/// A form to fill in.
pub(crate) fn elicitation(message: &str, properties: Value) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": { "type": "object", "properties": properties }
        }
    })
}

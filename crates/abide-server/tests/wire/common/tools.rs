//! Tools that tests steer.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    AskError, Backend, BoxFuture, InputKey, Outcome, Prepare, Prepared, Progress, RawJson,
    RpcError, Work, WorkContext,
};
use abide_engine::TaskSupport::{Auto, Never, Required};
use abide_engine::{TaskContext, TaskSupport, handler};
use serde_json::{Value, json};

use super::Gates;

/// A tool with a name that no header carries as it is.
pub(crate) const UNICODE_TOOL: &str = "übersetzen 🚀";

/// One tool and its settings.
pub(crate) struct ToolSpec {
    pub(crate) name: &'static str,
    pub(crate) schema: Value,
    pub(crate) task: TaskSupport,
    pub(crate) inline: Duration,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) keep_ms: Option<u64>,
    pub(crate) concurrency: u32,
    pub(crate) queue: u32,
    pub(crate) backend: Arc<dyn Backend>,
}

impl ToolSpec {
    fn new(name: &'static str, task: TaskSupport, backend: impl Backend) -> Self {
        Self {
            name,
            schema: json!({ "type": "object" }),
            task,
            inline: Duration::ZERO,
            timeout_ms: Some(3_600_000),
            keep_ms: Some(7_200_000),
            concurrency: 16,
            queue: 16,
            backend: Arc::new(backend),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// All tools. Calls of those with `gate` wait at the gate that their arguments name.
pub(crate) fn tools(gates: &Gates) -> Vec<ToolSpec> {
    let gate = || {
        let gates = gates.clone();
        handler(move |work: Work, context| wait_at_gate(gates.clone(), work, context))
    };
    let noted = gates.clone();
    vec![
        // Gives back its arguments, and notes them as they came.
        ToolSpec::new(
            "echo",
            Auto,
            handler(move |work: Work, _| {
                noted.note("echo", work.arguments.as_str().to_owned());
                async move { structured(work.arguments.as_str()) }
            }),
        ),
        // Ends within its inline window.
        ToolSpec::new("fast", Auto, handler(|_, _| async { text("fast") }))
            .with(|tool| tool.inline = Duration::from_secs(600)),
        ToolSpec::new("gate", Auto, gate()),
        ToolSpec::new("gate_required", Required, gate()),
        ToolSpec::new("gate_never", Never, gate()),
        ToolSpec::new("gate_inline", Auto, gate())
            .with(|tool| tool.inline = Duration::from_secs(600)),
        ToolSpec::new("one_at_a_time", Auto, gate()).with(|tool| {
            tool.concurrency = 1;
            tool.queue = 2;
        }),
        ToolSpec::new("for_ever", Auto, handler(|_, _| async { text("kept") })).with(|tool| {
            tool.keep_ms = None;
            tool.timeout_ms = None;
        }),
        ToolSpec::new(UNICODE_TOOL, Auto, handler(|_, _| async { text("übersetzt") }))
            .with(|tool| tool.inline = Duration::from_secs(600)),
        // Answers with the result that its argument `result` spells out as text.
        ToolSpec::new("says", Auto, handler(|work, _| async move { says(&work) })),
        ToolSpec::new("reports_error", Auto, handler(|_, _| async { reports_error() })),
        ToolSpec::new("fails", Auto, handler(|_, _| async { fails() })),
        ToolSpec::new("panics", Auto, handler(|_, _| async { panic!("a tool that panics") })),
        ToolSpec::new("asks_first", Auto, AsksFirst),
        ToolSpec::new("asks", Required, handler(asks)),
        ToolSpec::new("asks_twice", Required, handler(asks_twice)),
        ToolSpec::new("typed", Auto, handler(|_, _| async { text("typed") })).with(|tool| {
            tool.schema = json!({
                "type": "object",
                "properties": {
                    "build": { "type": "integer" },
                    "env": { "type": "string", "enum": ["staging", "prod"] }
                },
                "required": ["build"],
                "additionalProperties": false
            });
        }),
    ]
}

fn completed(result: &Value) -> Outcome {
    Outcome::Completed(RawJson::from_value(result).expect("JSON"))
}

fn text(text: &str) -> Outcome {
    completed(&json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] }))
}

fn structured(raw: &str) -> Outcome {
    let result = format!(
        r#"{{"resultType":"complete","content":[{{"type":"text","text":"as structured content"}}],"structuredContent":{raw}}}"#
    );
    Outcome::Completed(RawJson::parse(&result).expect("JSON"))
}

fn argument(work: &Work, name: &str) -> Value {
    let arguments: Value = work.arguments.to().expect("JSON");
    arguments[name].clone()
}

/// Says as many steps as its argument `steps`, waits, and says `through`.
async fn wait_at_gate(gates: Gates, work: Work, context: TaskContext) -> Outcome {
    let name = argument(&work, "gate").as_str().unwrap_or("gate").to_owned();
    let steps = argument(&work, "steps").as_u64().unwrap_or(0);
    for step in 1..=steps {
        context.progress(Progress {
            message: Some(format!("step {step}")),
            done: Some(step as f64),
            total: Some(steps as f64),
        });
        gates.enter(&format!("{name}/{step}")).await;
    }
    if let Some(message) = argument(&work, "say").as_str() {
        context.say(message);
    }
    gates.note("order", name.clone());
    gates.enter(&name).await;
    text(&format!("through {name}"))
}

fn says(work: &Work) -> Outcome {
    let result = argument(work, "result");
    Outcome::Completed(RawJson::parse(result.as_str().unwrap_or_default()).expect("JSON"))
}

fn reports_error() -> Outcome {
    completed(&json!({
        "resultType": "complete",
        "content": [{ "type": "text", "text": "The build failed." }],
        "isError": true
    }))
}

fn fails() -> Outcome {
    let data = RawJson::parse(r#"{"n":12345678901234567890123,"why":"wire"}"#).expect("JSON");
    Outcome::Failed(RpcError {
        code: -32050,
        message: "The upstream said no.".to_owned(),
        data: Some(data),
    })
}

/// Asks to confirm, under the key `confirm`.
async fn asks(_: Work, context: TaskContext) -> Outcome {
    let schema = json!({
        "type": "object",
        "properties": { "ok": { "type": "boolean" } },
        "required": ["ok"]
    });
    match ask(&context, "confirm", "Really?", schema).await {
        Ok(answer) => text(answer.as_str()),
        Err(error) => Outcome::Failed(RpcError::internal("ask", error.to_string())),
    }
}

/// Asks two questions at once, and then one that repeats a key.
async fn asks_twice(_: Work, context: TaskContext) -> Outcome {
    let schema = || {
        json!({
            "type": "object",
            "properties": { "name": { "type": "string" } },
            "required": ["name"]
        })
    };
    let (first, second) = futures::join!(
        ask(&context, "first", "First name?", schema()),
        ask(&context, "second", "Second name?", schema()),
    );
    let again = ask(&context, "first", "First name again?", schema()).await;
    match (first, second, again) {
        (Ok(first), Ok(second), Err(again)) => {
            text(&format!("{} {} {again}", first.as_str(), second.as_str()))
        }
        other => Outcome::Failed(RpcError::internal("ask", format!("{other:?}"))),
    }
}

async fn ask(
    context: &TaskContext,
    key: &str,
    message: &str,
    schema: Value,
) -> Result<RawJson, AskError> {
    let request = json!({
        "method": "elicitation/create",
        "params": { "mode": "form", "message": message, "requestedSchema": schema }
    });
    context
        .ask(InputKey::new(key).expect("a key"), RawJson::from_value(&request).expect("JSON"))
        .await
}

/// Asks by the protocol's own rounds before any work begins, and then says what it was told.
struct AsksFirst;

impl Backend for AsksFirst {
    fn prepare(&self, call: Prepare) -> BoxFuture<'_, Result<Prepared, RpcError>> {
        Box::pin(async move {
            let Some(responses) = call.input_responses else {
                let requests = json!({ "who": {
                    "method": "elicitation/create",
                    "params": {
                        "mode": "form",
                        "message": "Who?",
                        "requestedSchema": {
                            "type": "object", "properties": { "name": { "type": "string" } }
                        }
                    }
                } });
                return Ok(Prepared::NeedsInput {
                    requests: RawJson::from_value(&requests).expect("JSON"),
                    state: Some("round 1".to_owned()),
                });
            };
            match call.request_state.as_deref() {
                Some("round 1") => Ok(Prepared::Ready(responses)),
                other => Err(RpcError::new(RpcError::INVALID_PARAMS, format!("state {other:?}"))),
            }
        })
    }

    fn run(&self, work: Work, _: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move { structured(work.arguments.as_str()) })
    }
}

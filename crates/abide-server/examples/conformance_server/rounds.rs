//! Tools that ask before they begin, by the protocol's multi-round-trip results.

use std::sync::Arc;

use abide_core::{
    Backend, BoxFuture, Outcome, Prepare, Prepared, RawJson, RpcError, Work, WorkContext,
};
use abide_engine::TaskSupport::{Never, Required};
use rmcp::model::RequestStateCodec;
use serde_json::{Value, json};

use crate::content::{completed, text};
use crate::tasks::elicitation;
use crate::{Fixture, no_arguments};

/// What a tool asks for, given the responses and the state that came so far; nothing once it has
/// all it needs.
type Script = fn(&Round) -> Result<Option<Questions>, RpcError>;

/// What is known when a call comes in.
struct Round {
    responses: Value,
    capabilities: Value,
    /// What the state said, after its seal was checked.
    step: Option<String>,
}

struct Questions {
    requests: Value,
    /// The next state, to be sealed.
    step: Option<&'static str>,
}

struct Scripted {
    script: Script,
    codec: Arc<RequestStateCodec>,
}

pub(crate) fn tools() -> Result<Vec<Fixture>, Box<dyn std::error::Error>> {
    let codec = Arc::new(RequestStateCodec::try_new(*b"a key for tests, known to everyone")?);
    let scripts: [(&str, Script); 8] = [
        ("test_input_required_result_elicitation", user_name),
        ("test_input_required_result_sampling", sampling),
        ("test_input_required_result_list_roots", roots),
        ("test_input_required_result_request_state", confirm),
        ("test_input_required_result_tampered_state", confirm),
        ("test_input_required_result_multiple_inputs", multiple),
        ("test_input_required_result_multi_round", multi_round),
        ("test_input_required_result_capabilities", by_capability),
    ];
    let scripted = |script| Scripted { script, codec: codec.clone() };
    let mut tools: Vec<_> = scripts
        .into_iter()
        .map(|(name, script)| Fixture::new(name, no_arguments(), Never, scripted(script)))
        .collect();
    tools.push(Fixture::new("test_tool_with_task", no_arguments(), Required, scripted(user_name)));
    tools.push(Fixture::new(
        "test_missing_capability",
        no_arguments(),
        Never,
        scripted(needs_sampling),
    ));
    Ok(tools)
}

impl Backend for Scripted {
    fn prepare(&self, call: Prepare) -> BoxFuture<'_, Result<Prepared, RpcError>> {
        Box::pin(async move {
            let malformed = |what: &dyn std::fmt::Display| {
                RpcError::new(RpcError::INVALID_PARAMS, what.to_string())
            };
            let step = match &call.request_state {
                Some(sealed) => {
                    let opened = self.codec.open(sealed).map_err(|error| malformed(&error))?;
                    Some(String::from_utf8_lossy(&opened).into_owned())
                }
                None => None,
            };
            let responses: Value = match &call.input_responses {
                Some(responses) => responses.to().map_err(|error| malformed(&error))?,
                None => json!({}),
            };
            let capabilities = call.capabilities.to().map_err(|error| malformed(&error))?;
            let round = Round { responses, capabilities, step };
            Ok(match (self.script)(&round)? {
                Some(questions) => Prepared::NeedsInput {
                    requests: RawJson::from_value(&questions.requests)
                        .map_err(|error| malformed(&error))?,
                    state: questions.step.map(|step| self.codec.seal(step.as_bytes())),
                },
                // The answers are what the work is done with.
                None => Prepared::Ready(
                    RawJson::from_value(&round.responses).map_err(|error| malformed(&error))?,
                ),
            })
        })
    }

    fn run(&self, work: Work, _: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let answers: Value = work.arguments.to().unwrap_or_default();
            let name = answers["user_name"]["content"]["name"].as_str();
            completed(json!([text(&format!("Hello, {}!", name.unwrap_or("whoever you are")))]))
        })
    }
}

fn ask(requests: Value, step: Option<&'static str>) -> Option<Questions> {
    Some(Questions { requests, step })
}

fn name_question() -> Value {
    elicitation("What is your name?", json!({ "name": { "type": "string" } }))
}

fn sampling_question() -> Value {
    json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{
                "role": "user",
                "content": { "type": "text", "text": "What is the capital of France?" }
            }],
            "maxTokens": 100
        }
    })
}

fn user_name(round: &Round) -> Result<Option<Questions>, RpcError> {
    let answered = round.responses["user_name"]["content"]["name"].is_string();
    Ok(if answered { None } else { ask(json!({ "user_name": name_question() }), None) })
}

fn sampling(round: &Round) -> Result<Option<Questions>, RpcError> {
    let answered = round.responses["capital_question"].is_object();
    Ok(if answered { None } else { ask(json!({ "capital_question": sampling_question() }), None) })
}

fn roots(round: &Round) -> Result<Option<Questions>, RpcError> {
    let answered = round.responses["client_roots"]["roots"].is_array();
    let question = json!({ "client_roots": { "method": "roots/list", "params": {} } });
    Ok(if answered { None } else { ask(question, None) })
}

fn confirm(round: &Round) -> Result<Option<Questions>, RpcError> {
    let answered = round.step.is_some() && round.responses["confirm"].is_object();
    let question = elicitation("Go on?", json!({ "ok": { "type": "boolean" } }));
    Ok(if answered { None } else { ask(json!({ "confirm": question }), Some("confirm")) })
}

fn multiple(round: &Round) -> Result<Option<Questions>, RpcError> {
    let keys = ["user_name", "greeting", "client_roots"];
    if keys.iter().all(|key| round.responses[key].is_object()) {
        return Ok(None);
    }
    let requests = json!({
        "user_name": name_question(),
        "greeting": sampling_question(),
        "client_roots": { "method": "roots/list", "params": {} }
    });
    Ok(ask(requests, Some("all")))
}

fn multi_round(round: &Round) -> Result<Option<Questions>, RpcError> {
    let color = elicitation("Which color?", json!({ "color": { "type": "string" } }));
    Ok(match round.step.as_deref() {
        Some("two") if round.responses["step2"].is_object() => None,
        Some("one") if round.responses["step1"].is_object() => {
            ask(json!({ "step2": color }), Some("two"))
        }
        _ => ask(json!({ "step1": name_question() }), Some("one")),
    })
}

/// Asks only in ways that this client can answer.
fn by_capability(round: &Round) -> Result<Option<Questions>, RpcError> {
    let all = [
        ("elicitation", "user_name", name_question()),
        ("sampling", "capital_question", sampling_question()),
    ];
    let mut requests = serde_json::Map::new();
    for (capability, key, question) in all {
        if !round.capabilities[capability].is_null() && round.responses[key].is_null() {
            requests.insert(key.to_owned(), question);
        }
    }
    Ok(if requests.is_empty() { None } else { ask(Value::Object(requests), None) })
}

fn needs_sampling(round: &Round) -> Result<Option<Questions>, RpcError> {
    if !round.capabilities["sampling"].is_null() {
        return Ok(None);
    }
    let data = json!({ "requiredCapabilities": { "sampling": {} } });
    Err(RpcError {
        data: RawJson::from_value(&data).ok(),
        ..RpcError::new(-32021, "This tool needs the sampling capability.")
    })
}

//! Checks a response to an input request before it is acknowledged.

use std::collections::BTreeMap;

use abide_core::{InputKey, RawJson, State, Task, limits};
use serde_json::Value;

use crate::schema::Schema;

/// A response does not fit its request. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the response to {key:?} does not fit: {problem}")]
pub struct InvalidInput {
    /// The key of the request.
    pub key: String,
    /// What is wrong, and where.
    pub problem: String,
}

/// Checks those of `responses` whose keys are open, and returns them with the number of the
/// others, which are ignored.
pub(crate) fn check(
    task: &Task,
    responses: Vec<(InputKey, RawJson)>,
) -> Result<(Vec<(InputKey, RawJson)>, usize), InvalidInput> {
    let empty = BTreeMap::new();
    let open = match task.state() {
        State::InputRequired { outstanding, .. } => outstanding.as_map(),
        _ => &empty,
    };
    let all = responses.len();
    let mut checked = Vec::new();
    for (key, response) in responses {
        if let Some(request) = open.get(&key) {
            check_one(request, &response)
                .map_err(|problem| InvalidInput { key: key.to_string(), problem })?;
            checked.push((key, response));
        }
    }
    let ignored = all - checked.len();
    Ok((checked, ignored))
}

fn check_one(request: &RawJson, response: &RawJson) -> Result<(), String> {
    if response.len() > limits::MAX_INPUT_BYTES {
        let (size, max) = (response.len(), limits::MAX_INPUT_BYTES);
        return Err(format!("it has {size} bytes, more than the {max} that are allowed"));
    }
    let request: Value = request.to().map_err(|error| error.to_string())?;
    let response: Value = response.to().map_err(|error| error.to_string())?;
    let Some(fields) = response.as_object() else {
        return Err("it must be an object".to_owned());
    };
    match request["method"].as_str() {
        Some("elicitation/create") => check_elicitation(&request["params"], fields),
        Some("sampling/createMessage") => {
            for field in ["role", "content", "model"] {
                if !fields.contains_key(field) {
                    return Err(format!("/{field} is missing"));
                }
            }
            Ok(())
        }
        Some("roots/list") => match fields.get("roots") {
            Some(Value::Array(_)) => Ok(()),
            _ => Err("/roots must be an array".to_owned()),
        },
        _ => Ok(()),
    }
}

/// Only `accept` is held to the schema; `decline` and `cancel` need no content.
fn check_elicitation(
    params: &Value,
    response: &serde_json::Map<String, Value>,
) -> Result<(), String> {
    match response.get("action").and_then(Value::as_str) {
        Some("decline" | "cancel") => return Ok(()),
        Some("accept") => {}
        _ => return Err("/action must be \"accept\", \"decline\" or \"cancel\"".to_owned()),
    }
    let Some(schema) = params.get("requestedSchema") else { return Ok(()) };
    let Some(content @ Value::Object(_)) = response.get("content") else {
        return Err("/content must be an object when the action is \"accept\"".to_owned());
    };
    let schema = Schema::compile(schema).map_err(|error| error.to_string())?;
    let problems = schema.problems(content);
    if problems.is_empty() {
        return Ok(());
    }
    let problems: Vec<_> = problems
        .iter()
        .map(|problem| {
            let separator = if problem.starts_with('/') { "" } else { ": " };
            format!("/content{separator}{problem}")
        })
        .collect();
    Err(problems.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIRM: &str = r#"{"method":"elicitation/create","params":{"message":"Sure?",
        "requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}}"#;

    #[test]
    fn only_an_explicit_value_proceeds() {
        let cases = [
            (r#"{"action":"accept","content":{"ok":true}}"#, None),
            (r#"{"action":"accept","content":{"ok":false}}"#, None),
            (r#"{"action":"decline"}"#, None),
            (r#"{"action":"cancel"}"#, None),
            (r#"{"action":"accept","content":{}}"#, Some("\"ok\"")),
            (r#"{"action":"accept","content":{"ok":"yes"}}"#, Some("/content/ok")),
            (r#"{"action":"accept"}"#, Some("/content")),
            (r#"{"action":"perhaps"}"#, Some("/action")),
            ("true", Some("object")),
        ];
        for (response, problem) in cases {
            let got =
                check_one(&RawJson::parse(CONFIRM).unwrap(), &RawJson::parse(response).unwrap());
            match problem {
                None => assert_eq!(got, Ok(()), "{response}"),
                Some(part) => {
                    let error = got.unwrap_err();
                    assert!(error.contains(part), "{response}: {error}");
                }
            }
        }
    }

    #[test]
    fn sampling_and_roots_have_their_shapes() {
        let sampling = RawJson::parse(r#"{"method":"sampling/createMessage"}"#).unwrap();
        let roots = RawJson::parse(r#"{"method":"roots/list"}"#).unwrap();
        let raw = |text| RawJson::parse(text).unwrap();
        assert!(
            check_one(&sampling, &raw(r#"{"role":"assistant","content":{},"model":"m"}"#)).is_ok()
        );
        assert!(check_one(&sampling, &raw(r#"{"role":"assistant"}"#)).is_err());
        assert!(check_one(&roots, &raw(r#"{"roots":[]}"#)).is_ok());
        assert!(check_one(&roots, &raw(r#"{"roots":{}}"#)).is_err());
    }
}

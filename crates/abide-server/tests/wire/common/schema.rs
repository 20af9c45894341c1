//! The extension's JSON Schema, and the two envelopes.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../schema/tasks.schema.json")).expect("the schema")
});
static COMPILED: LazyLock<Mutex<HashMap<String, &'static Validator>>> =
    LazyLock::new(Mutex::default);

/// Asserts that a value is what the extension's schema calls `definition`.
#[track_caller]
pub(crate) fn fits(definition: &str, value: &Value) {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = compiled.entry(definition.to_owned()).or_insert_with(|| {
        assert!(SCHEMA["$defs"].get(definition).is_some(), "no {definition} in the schema");
        let schema = json!({
            "$schema": SCHEMA["$schema"],
            "$ref": format!("#/$defs/{definition}"),
            "$defs": SCHEMA["$defs"]
        });
        Box::leak(Box::new(jsonschema::draft202012::new(&schema).expect("compiles")))
    });
    let problems: Vec<_> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(problems.is_empty(), "not a {definition}: {problems:#?}\n{value:#}");
}

/// The task of a result in the flat envelope.
pub(crate) fn task_of(result: &Value) -> Map<String, Value> {
    let mut members = result.as_object().expect("an object").clone();
    for outside in ["resultType", "_meta"] {
        members.remove(outside);
    }
    members
}

/// A nested result as a flat one. What is not nested fails.
#[track_caller]
pub(crate) fn unnest(result: &Value) -> Value {
    let mut flat = result.as_object().expect("an object").clone();
    let Some(Value::Object(task)) = flat.remove("task") else {
        panic!("not a nested task: {result:#}");
    };
    assert!(flat.keys().all(|key| key == "resultType" || key == "_meta"), "{result:#}");
    flat.extend(task);
    Value::Object(flat)
}

//! Whether a JSON Schema in the config is one, judged by the engine that will use it.

use abide_engine::Schema;
use serde_json::Value as Json;

/// Checks that `schema` is a valid JSON Schema whose references all resolve within itself.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn check(schema: &Json) -> Result<(), String> {
    compile(schema).map(|_| ())
}

/// Checks that `value` fits `schema`.
///
/// # Errors
/// Why it doesn't, in words.
pub(super) fn fits(schema: &Json, value: &Json) -> Result<(), String> {
    let problems = compile(schema)?.problems(value);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn compile(schema: &Json) -> Result<Schema, String> {
    Schema::compile(schema).map_err(|error| error.to_string())
}

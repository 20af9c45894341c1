//! JSON Schema 2020-12, compiled once. References are resolved inside the schema only, never over
//! the network or from files.

use std::sync::Arc;

use serde_json::Value;

/// How many problems of one value are reported.
const MAX_PROBLEMS: usize = 8;
/// Bytes of one problem's text; validation errors repeat the offending value.
const MAX_PROBLEM_BYTES: usize = 512;

/// The schema itself is not usable.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a usable JSON Schema (2020-12) at {path:?}: {problem}")]
pub struct SchemaError {
    /// JSON pointer into the schema.
    pub path: String,
    /// What is wrong there.
    pub problem: String,
}

/// A compiled schema.
#[derive(Clone)]
pub struct Schema(Arc<jsonschema::Validator>);

impl Schema {
    /// Compiles `schema`.
    ///
    /// # Errors
    /// [`SchemaError`] when it is no valid schema, or refers to something outside itself.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .build(schema)
            .map(|validator| Self(Arc::new(validator)))
            .map_err(|error| SchemaError {
                path: error.instance_path().to_string(),
                problem: bounded(error.to_string()),
            })
    }

    /// What is wrong with `value`, each with the JSON pointer to it; empty if it fits.
    #[must_use]
    pub fn problems(&self, value: &Value) -> Vec<String> {
        self.0
            .iter_errors(value)
            .take(MAX_PROBLEMS)
            .map(|error| {
                let at = error.instance_path().to_string();
                let problem = bounded(error.to_string());
                if at.is_empty() { problem } else { format!("{at}: {problem}") }
            })
            .collect()
    }
}

fn bounded(mut text: String) -> String {
    if text.len() > MAX_PROBLEM_BYTES {
        text.truncate(text.floor_char_boundary(MAX_PROBLEM_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &str, value: &str) -> Vec<String> {
        let schema = Schema::compile(&serde_json::from_str(schema).unwrap()).unwrap();
        schema.problems(&serde_json::from_str(value).unwrap())
    }

    #[test]
    fn names_the_place_of_a_problem() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["m"]}"#;
        let problems = check(schema, r#"{"n":"x"}"#);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems.iter().any(|p| p.starts_with("/n: ")), "{problems:?}");
        assert!(problems.iter().any(|p| p.contains("\"m\"")), "{problems:?}");
    }

    #[test]
    fn huge_integers_are_integers() {
        let schema = r#"{"type":"integer"}"#;
        assert!(check(schema, "123456789012345678901234567890").is_empty());
        assert!(!check(schema, "1.5").is_empty());
    }

    #[test]
    fn problems_are_bounded() {
        let value = format!("\"{}\"", "x".repeat(1_000_000));
        assert!(check(r#"{"type":"integer"}"#, &value)[0].len() < 600);
    }

    #[test]
    fn nothing_is_fetched() {
        for reference in ["https://example.com/schema.json", "file:///etc/passwd"] {
            let schema = serde_json::json!({ "$ref": reference });
            assert!(Schema::compile(&schema).is_err(), "{reference}");
        }
    }
}

//! Standard output as exactly one JSON value, checked against the tool's output schema.

use abide_core::RawJson;
use jsonschema::{Retrieve, Uri, Validator};
use serde_json::Value;

use super::output::Captured;
use super::spec::SpecError;

/// Bytes of the output that a complaint about it shows.
const EXCERPT_BYTES: usize = 1024;
/// Misfits that a complaint lists.
const LISTED_MISFITS: usize = 3;
/// Bytes of what a complaint says about one misfit.
const MISFIT_BYTES: usize = 512;

/// A compiled output schema.
#[derive(Debug)]
pub(super) struct Schema(Validator);

impl Schema {
    /// Compiles a schema. It has to be whole in itself.
    pub(super) fn compile(schema: &Value) -> Result<Self, SpecError> {
        jsonschema::options()
            .with_retriever(NothingOutside)
            .build(schema)
            .map(Self)
            .map_err(|error| SpecError::OutputSchema { problem: error.to_string() })
    }
}

/// Refuses references to other documents, whatever the library was built to fetch.
struct NothingOutside;

impl Retrieve for NothingOutside {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`{uri}` is outside the schema; copy it into `$defs`").into())
    }
}

/// Reads the one JSON value, or says why there is none.
pub(super) fn read(stdout: &Captured, schema: Option<&Schema>) -> Result<RawJson, String> {
    let Some(bytes) = stdout.whole() else {
        return Err(format!(
            "The command's output has {} bytes, more than were kept, so it is not whole JSON. The \
             tool's operator can raise the limit on its output, or make room on the server's disk \
             if that was full.",
            stdout.total
        ));
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        format!("The command's output is not JSON: it is not UTF-8 at byte {at}.")
    })?;
    // RFC 8259 allows to skip a byte order mark, and tools from Windows write one.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_ascii().is_empty() {
        return Err("The command printed nothing on standard output. It has to print exactly \
                    one JSON value."
            .to_owned());
    }
    let not_json = |problem: String| {
        format!(
            "The command's output is not exactly one JSON value: {problem}. It begins with:\n{}",
            excerpt(text, EXCERPT_BYTES)
        )
    };
    let value: Value = serde_json::from_str(text).map_err(|error| {
        not_json(match not_a_number(text, &error) {
            Some(word) => format!("JSON has no {word} ({error}); null can stand for it"),
            None => error.to_string(),
        })
    })?;
    if let Some(Schema(validator)) = schema {
        let misfits: Vec<String> = validator
            .iter_errors(&value)
            .take(LISTED_MISFITS)
            .map(|error| {
                let place = match error.instance_path().to_string() {
                    root if root.is_empty() => "at the root".to_owned(),
                    path => format!("at {path}"),
                };
                excerpt(&format!("{place}: {}", error.masked()), MISFIT_BYTES)
            })
            .collect();
        if !misfits.is_empty() {
            return Err(format!(
                "The command's output does not fit the tool's output schema.\n{}\nIt begins \
                 with:\n{}",
                misfits.join("\n"),
                excerpt(text, EXCERPT_BYTES)
            ));
        }
    }
    RawJson::parse(text).map_err(|error| not_json(error.to_string()))
}

/// The word at the place of the error, if it is one that only looks like a number.
fn not_a_number(text: &str, error: &serde_json::Error) -> Option<&'static str> {
    let line = text.lines().nth(error.line().checked_sub(1)?)?;
    let at = line.floor_char_boundary(error.column().saturating_sub(1));
    let is_word = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '+');
    let start = line[..at].rfind(|c| !is_word(c)).map_or(0, |before| before + 1);
    let word = line.get(start..)?.trim_start_matches(['-', '+']);
    ["NaN", "Infinity"].into_iter().find(|name| word.starts_with(name))
}

/// The beginning of a text, cut at a character.
fn excerpt(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(max)])
}

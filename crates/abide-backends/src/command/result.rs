//! The `CallToolResult` of a command, never larger than a result may be.

use abide_core::RawJson;
use abide_core::limits::MAX_RESULT_BYTES;
use serde::Serialize;

use super::output::Text;

/// Bytes of a result that texts from the command can't have: keys, brackets, our own sentences.
const FRAME_BYTES: usize = 64 * 1024;
/// Bytes of standard error, as JSON, beside a complaint about JSON output.
const STDERR_BESIDE_COMPLAINT: usize = 4 * 1024;
/// What a command that printed nothing is said to have printed.
const NO_OUTPUT: &str = "(no output)";

/// Core specification 2026-07-28, `CallToolResult`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CallToolResult<'a> {
    result_type: &'static str,
    content: Vec<TextContent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
}

#[derive(Debug, Serialize)]
struct TextContent {
    r#type: &'static str,
    text: String,
}

/// What a command printed.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) stdout: Text,
    pub(super) stderr: Text,
    /// Bytes of both that could not be kept although there was room for them in the limits.
    pub(super) lost: u64,
}

/// A command that ended with exit code 0.
pub(super) fn success(streams: Streams) -> RawJson {
    let Streams { stdout, stderr, lost } = streams;
    let mut text = if stdout.is_empty() { stderr } else { stdout };
    text.shrink(MAX_RESULT_BYTES - FRAME_BYTES);
    let text = if text.is_empty() { NO_OUTPUT.to_owned() } else { text.into_string() };
    write([text].into_iter().chain(said_lost(lost)).collect(), None, false)
}

/// That some of the output is missing.
fn said_lost(bytes: u64) -> Option<String> {
    (bytes > 0).then(|| {
        format!(
            "[{bytes} bytes of the output are missing: the server's disk was full or broken while \
             the command ran]"
        )
    })
}

/// A command that ended otherwise; `end` says how.
pub(super) fn failure(streams: Streams, end: &str) -> RawJson {
    let Streams { mut stdout, mut stderr, lost } = streams;
    fit(&mut stdout, &mut stderr, MAX_RESULT_BYTES - FRAME_BYTES);
    let mut texts: Vec<String> = [stdout, stderr]
        .into_iter()
        .filter(|text| !text.is_empty())
        .map(Text::into_string)
        .collect();
    texts.extend(said_lost(lost));
    texts.push(end.to_owned());
    write(texts, None, true)
}

/// A command that printed JSON, or should have.
pub(super) fn json(value: Result<RawJson, String>, mut stderr: Text) -> RawJson {
    match value {
        Ok(value) => {
            // As the plain lane will write it, so that a task's result is byte for byte the plain
            // one: without spaces, and with exponents as `1e+5`; every digit is kept.
            let structured = value.to::<serde_json::Value>().and_then(|v| RawJson::from_value(&v));
            let structured = structured.unwrap_or_else(|_| value.clone());
            // The same once more as text, as the specification asks ("Structured Content"), and
            // as the command printed it.
            let room = (MAX_RESULT_BYTES - FRAME_BYTES).saturating_sub(structured.len());
            let text = Text::whole(value.as_str());
            let text = if text.json_len() <= room {
                text.into_string()
            } else {
                "The structured content is too large to be repeated as text.".to_owned()
            };
            write(vec![text], Some(&structured), false)
        }
        Err(complaint) => {
            let mut texts = vec![complaint];
            if !stderr.is_empty() {
                stderr.shrink(STDERR_BESIDE_COMPLAINT);
                texts.push(stderr.into_string());
            }
            write(texts, None, true)
        }
    }
}

/// An error in our own words.
pub(super) fn error(text: &str) -> RawJson {
    write(vec![text.to_owned()], None, true)
}

/// Makes two texts fit into `max` bytes of JSON together; what one does not need, the other gets.
fn fit(a: &mut Text, b: &mut Text, max: usize) {
    let (a_len, b_len) = (a.json_len(), b.json_len());
    let half = max / 2;
    a.shrink(max - b_len.min(half));
    b.shrink(max - a_len.min(max - b_len.min(half)));
}

fn write(texts: Vec<String>, structured_content: Option<&RawJson>, is_error: bool) -> RawJson {
    let content = texts.into_iter().map(|text| TextContent { r#type: "text", text }).collect();
    RawJson::from_value(&CallToolResult {
        result_type: "complete",
        content,
        structured_content,
        is_error,
    })
    .expect("texts and well-formed JSON can be written as JSON")
}

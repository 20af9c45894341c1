//! What a tool returns, brought into the one form that is sent and stored.

use std::collections::BTreeMap;

use abide_core::{JsonError, Outcome, RawJson, RpcError, limits};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of a `CallToolResult`, in the order in which they are sent.
const MEMBERS: [&str; 5] = ["resultType", "content", "structuredContent", "isError", "_meta"];

/// The one of them that is a list of content blocks.
const MEMBER_OF_BLOCKS: &str = "content";

/// Why a result is none.
#[derive(Debug, thiserror::Error)]
enum Malformed {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("{0}")]
    Shape(&'static str),
}

/// Checks a tool's result and writes it as a plain call and a task alike will send it, so that
/// `tasks/get` gives the bytes that a plain call would have given. A result that is no
/// `CallToolResult` is our error, in both.
pub(crate) fn checked(outcome: Outcome) -> Outcome {
    let result = match outcome {
        Outcome::Completed(result) => result,
        Outcome::Failed(error) => return Outcome::Failed(bounded(error)),
        other => return other,
    };
    match canonical(&result, None) {
        Ok(result) => Outcome::Completed(result),
        Err(error) => {
            tracing::error!(%error, "a tool returned something that is not a CallToolResult");
            Outcome::Failed(RpcError::internal(
                "malformed_result",
                "The tool returned a malformed result.",
            ))
        }
    }
}

/// An error that a tool ends with, within its limits.
fn bounded(error: RpcError) -> RpcError {
    let data = error.data.filter(|data| {
        let fits = data.len() <= limits::MAX_ERROR_DATA_BYTES;
        if !fits {
            tracing::warn!(bytes = data.len(), "the data of a tool's error is too large; left out");
        }
        fits
    });
    let message = limits::bounded(&error.message, limits::MAX_ERROR_MESSAGE_BYTES);
    RpcError { message, data, ..error }
}

/// What is said instead of a result that a store refused for its size.
pub(crate) fn too_large(size: usize, max: usize) -> RpcError {
    let message = format!("The result has {size} bytes, more than the {max} allowed.");
    RpcError::internal("result_too_large", message)
}

/// A checked result with one more content block behind its own.
pub(crate) fn with_block(result: RawJson, block: &RawJson) -> RawJson {
    canonical(&result, Some(block)).unwrap_or(result)
}

/// The result with its known members first and in order, `resultType` and `content` added where
/// they are missing, without whitespace, and every string escaped only where it must be. Numbers
/// stay as they are written.
fn canonical(result: &RawJson, block: Option<&RawJson>) -> Result<RawJson, Malformed> {
    check(&result.to()?)?;
    let mut members: BTreeMap<String, &RawValue> = result.to()?;
    let mut out = String::with_capacity(result.len() + 32);
    out.push('{');
    for name in MEMBERS {
        let value = members.remove(name).map(RawValue::get);
        let value = match name {
            "resultType" => Some("\"complete\""),
            "content" => Some(value.unwrap_or("[]")),
            _ => value,
        };
        if let Some(value) = value {
            push_member(&mut out, name, value)?;
        }
        if let (MEMBER_OF_BLOCKS, Some(block)) = (name, block) {
            out.truncate(out.len() - 1);
            let comma = if out.ends_with('[') { "" } else { "," };
            out.extend([comma, block.as_str(), "]"]);
        }
    }
    for (name, value) in members {
        push_member(&mut out, &name, value.get())?;
    }
    out.push('}');
    Ok(RawJson::parse(&out)?)
}

fn check(result: &Value) -> Result<(), Malformed> {
    let Value::Object(members) = result else { return Err(Malformed::Shape("not an object")) };
    if !matches!(members.get("resultType").map(Value::as_str), None | Some(Some("complete"))) {
        return Err(Malformed::Shape("its resultType is not \"complete\""));
    }
    if !matches!(members.get("isError"), None | Some(Value::Bool(_))) {
        return Err(Malformed::Shape("its isError is not a boolean"));
    }
    match members.get("content") {
        Some(Value::Array(blocks)) if blocks.iter().all(|block| block["type"].is_string()) => {
            Ok(())
        }
        Some(_) => Err(Malformed::Shape("its content is not an array of content blocks")),
        None if members.contains_key("structuredContent") => Ok(()),
        None => Err(Malformed::Shape("it has neither content nor structuredContent")),
    }
}

fn push_member(out: &mut String, name: &str, value: &str) -> Result<(), Malformed> {
    if out.len() > 1 {
        out.push(',');
    }
    out.push_str(&Value::from(name).to_string());
    out.push(':');
    push_compact(out, value)
}

/// Copies JSON that is known to be well-formed.
fn push_compact(out: &mut String, json: &str) -> Result<(), Malformed> {
    let mut rest = json;
    while let Some(first) = rest.bytes().next() {
        let (token, after) = match first {
            b'"' => rest.split_at(string_end(rest)),
            _ => rest.split_at(rest.find('"').unwrap_or(rest.len())),
        };
        if first == b'"' {
            let text: String = serde_json::from_str(token).map_err(JsonError::from)?;
            out.push_str(&Value::from(text).to_string());
        } else {
            out.extend(token.chars().filter(|c| !c.is_ascii_whitespace()));
        }
        rest = after;
    }
    Ok(())
}

/// Where the string that the text begins with ends.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: &str, wanted: Option<&str>) {
        let got = canonical(&RawJson::parse(result).unwrap(), None).ok();
        assert_eq!(got.as_ref().map(RawJson::as_str), wanted, "{result}");
    }

    #[test]
    fn results_come_in_one_form() {
        let plain = r#"{"resultType":"complete","content":[]}"#;
        check(plain, Some(plain));
        check(r#"{ "content" : [ ] }"#, Some(plain));
        check(
            r#"{"structuredContent": {"b": [1, 1E5], "a": "\u00e9\/\u2028\"\\ \ud83e\udd80"}}"#,
            Some(
                "{\"resultType\":\"complete\",\"content\":[],\
                 \"structuredContent\":{\"b\":[1,1E5],\"a\":\"é/\u{2028}\\\"\\\\ 🦀\"}}",
            ),
        );
        check(
            r#"{"x":1,"_meta":{},"isError":true,"content":[{"type":"text","text":"a  b"}]}"#,
            Some(
                r#"{"resultType":"complete","content":[{"type":"text","text":"a  b"}],"isError":true,"_meta":{},"x":1}"#,
            ),
        );
    }

    #[test]
    fn errors_are_bounded() {
        let data = |bytes: usize| RawJson::parse(&format!("\"{}\"", "x".repeat(bytes))).unwrap();
        let failed = |error| match checked(Outcome::Failed(error)) {
            Outcome::Failed(error) => error,
            other => panic!("{other:?}"),
        };
        let small = RpcError { code: -1, message: "ü".to_owned(), data: Some(data(10)) };
        assert_eq!(failed(small.clone()), small);
        let message = "ü".repeat(limits::MAX_ERROR_MESSAGE_BYTES);
        let large = RpcError { message, data: Some(data(limits::MAX_ERROR_DATA_BYTES)), ..small };
        let cut = failed(large);
        assert!(cut.message.len() <= limits::MAX_ERROR_MESSAGE_BYTES && cut.message.ends_with('…'));
        assert_eq!(cut.data, None);
    }

    #[test]
    fn a_block_comes_behind_the_others() {
        let block = RawJson::parse(r#"{"type":"x"}"#).unwrap();
        for (before, after) in [
            (r#"{"content":[]}"#, r#"{"resultType":"complete","content":[{"type":"x"}]}"#),
            (
                r#"{"isError":true,"content":[{"type":"text","text":"]"}]}"#,
                r#"{"resultType":"complete","content":[{"type":"text","text":"]"},{"type":"x"}],"isError":true}"#,
            ),
        ] {
            let result = with_block(RawJson::parse(before).unwrap(), &block);
            assert_eq!(result.as_str(), after);
        }
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let deep = format!(r#"{{"structuredContent":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for result in [
            "17",
            "{}",
            r#"{"content":"text"}"#,
            r#"{"content":["text"]}"#,
            r#"{"content":[{"text":"untyped"}]}"#,
            r#"{"content":[],"isError":"no"}"#,
            r#"{"content":[],"resultType":"task"}"#,
            r#"{"content":[],"structuredContent":"\ud800"}"#,
            &deep,
        ] {
            check(result, None);
        }
    }
}

//! The JSON-RPC envelope: whether these bytes are one request at all, read without parsing more
//! than the outermost object.

use rmcp::model::ClientJsonRpcMessage;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::limits;
use crate::mcp::reply::Fault;

/// What a message is, as far as the lanes need to know.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    /// The id as it was written; none for notifications.
    pub(crate) id: Option<&'a str>,
    /// The method; none for responses.
    pub(crate) method: Option<String>,
    /// The params as they were written.
    pub(crate) params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads a member that is there, so that an id of `null` is not taken for the lack of one, which
/// would make a notification of the request.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads the envelope.
///
/// # Errors
/// -32700 for what is not JSON, -32600 for JSON that is not one JSON-RPC message. The fault comes
/// with the id to answer to, where one could be read.
pub(crate) fn read(bytes: &[u8]) -> Result<Message<'_>, (Fault, Option<String>)> {
    let anonymous = |fault| (fault, None);
    let text = std::str::from_utf8(bytes)
        .map_err(|_| anonymous(Fault::parse("The request is not UTF-8.")))?;
    if depth(bytes) > limits::MAX_JSON_DEPTH {
        return Err(anonymous(Fault::invalid_request(format!(
            "The request is nested more than {} levels deep.",
            limits::MAX_JSON_DEPTH
        ))));
    }
    let fields: Fields<'_> =
        serde_json::from_str(text).map_err(|error| anonymous(whole(text, &error)))?;

    let id = match fields.id.map(RawValue::get) {
        None => None,
        Some(id) if is_id(id) => Some(id),
        Some(_) => {
            return Err(anonymous(Fault::invalid_request(format!(
                "The id must be a string or an integer of at most {} bytes.",
                limits::MAX_ID_BYTES
            ))));
        }
    };
    let refuse = |message: &str| Err((Fault::invalid_request(message), id.map(str::to_owned)));
    if fields.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return refuse("The member \"jsonrpc\" must be \"2.0\".");
    }
    let method = match fields.method {
        Some(method) => match serde_json::from_str::<String>(method.get()) {
            Ok(method) => Some(method),
            Err(_) => return refuse("The member \"method\" must be a string."),
        },
        None if fields.result.is_some() || fields.error.is_some() => None,
        None => return refuse("The member \"method\" is missing."),
    };
    if let Some(params) = fields.params
        && !params.get().starts_with('{')
    {
        return refuse("The member \"params\" must be an object.");
    }
    Ok(Message { id, method, params: fields.params })
}

/// Reads a message as rmcp will. rmcp answers what it can't read with plain text or not at all;
/// that is for us to say.
///
/// # Errors
/// -32700 for text that no JSON parser takes, such as half a surrogate pair; -32600 for a message
/// of a shape that the protocol does not have.
pub(crate) fn typed(bytes: &[u8]) -> Result<ClientJsonRpcMessage, Fault> {
    use serde_json::error::Category;
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Syntax | Category::Eof | Category::Io => {
            Fault::parse(format!("The request is not valid JSON: {error}"))
        }
        Category::Data => Fault::invalid_request("Not a message of this protocol."),
    })
}

/// The id that an outgoing answer is for; none if this is no answer.
pub(crate) fn answered_id(message: &str) -> Option<&str> {
    let fields: Fields<'_> = serde_json::from_str(message).ok()?;
    fields.id.filter(|_| fields.method.is_none()).map(RawValue::get)
}

/// Why the text is not one object: not JSON at all, or JSON of another shape.
fn whole(text: &str, error: &serde_json::Error) -> Fault {
    match serde_json::from_str::<&RawValue>(text) {
        Err(error) => Fault::parse(format!("The request is not JSON: {error}")),
        Ok(value) if value.get().starts_with('[') => {
            Fault::invalid_request("Batches are not part of this protocol; send one request.")
        }
        Ok(value) if value.get().starts_with('{') => {
            Fault::invalid_request(format!("Not a JSON-RPC request: {error}"))
        }
        Ok(_) => Fault::invalid_request("A request must be a JSON object."),
    }
}

/// Whether this is a string or an integer, of bounded size.
fn is_id(raw: &str) -> bool {
    if raw.len() > limits::MAX_ID_BYTES {
        return false;
    }
    if raw.starts_with('"') {
        return serde_json::from_str::<String>(raw).is_ok();
    }
    raw.parse::<i64>().is_ok()
}

/// How deep the brackets nest. Looks at brackets and strings only: what else is wrong is for the
/// parser to say.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the code that a text is refused with, and whether its id is echoed.
    fn check(text: &[u8], code: i32, id: Option<&str>) {
        let (fault, got) = read(text).expect_err(&String::from_utf8_lossy(text));
        assert_eq!(fault.code, code, "{}: {}", String::from_utf8_lossy(text), fault.message);
        assert_eq!(got.as_deref(), id, "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn what_is_not_one_request_is_refused() {
        check(b"", -32700, None);
        check(b"{", -32700, None);
        check(b"hello", -32700, None);
        check(b"\xff\xfe", -32700, None);
        check(b"{\"a\":NaN}", -32700, None);
        check(b"{} {}", -32700, None);
        check(b"[]", -32600, None);
        check(br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600, None);
        check(b"17", -32600, None);
        check(b"{}", -32600, None);
        check(br#"{"jsonrpc":"1.0","id":7,"method":"x"}"#, -32600, Some("7"));
        check(br#"{"jsonrpc":"2.0","id":7}"#, -32600, Some("7"));
        check(br#"{"jsonrpc":"2.0","id":7,"method":5}"#, -32600, Some("7"));
        check(br#"{"jsonrpc":"2.0","id":"a","method":"x","params":[1]}"#, -32600, Some("\"a\""));
        check(br#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, -32600, None);
        check(br#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, -32600, None);
        check(br#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, -32600, None);
        check(br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#, -32600, None);
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}1{}}}"#,
            "{\"a\":".repeat(100),
            "}".repeat(100)
        );
        check(deep.as_bytes(), -32600, None);
    }

    #[test]
    fn ids_are_kept_as_written() {
        for id in ["1", "-5", "0", "\"x\"", "\"\\u00e9\"", "9007199254740993"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            assert_eq!(read(text.as_bytes()).unwrap().id, Some(id));
        }
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{}\"["}}"#, "[".repeat(1000));
        assert!(read(text.as_bytes()).is_ok());
    }

    #[test]
    fn responses_and_notifications_are_told_apart() {
        let response = read(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap();
        assert!(response.method.is_none());
        let notification = read(br#"{"jsonrpc":"2.0","method":"notifications/x"}"#).unwrap();
        assert!(notification.id.is_none());
    }
}

//! The request metadata headers of Streamable HTTP, held against the body.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::ProtocolVersion;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::envelope::Message;
use crate::mcp::reply::{Fault, shown};

pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

const BASE64_PREFIX: &str = "=?base64?";
const BASE64_SUFFIX: &str = "?=";

/// The one value of a header; none if it is absent.
///
/// # Errors
/// -32020 when it is there twice or is not visible ASCII.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Fault> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    // Two equal ones as well: what stands before us may have read either.
    if values.next().is_some() {
        return Err(Fault::header_mismatch(format!("The header {name} is there more than once.")));
    }
    value
        .to_str()
        .map(|text| Some(text.trim_matches([' ', '\t'])))
        .map_err(|_| Fault::header_mismatch(format!("The header {name} is not visible ASCII.")))
}

/// Undoes the `=?base64?…?=` form; none if what it wraps is not base64 of UTF-8.
fn decode(value: &str) -> Option<Cow<'_, str>> {
    let wrapped =
        value.strip_prefix(BASE64_PREFIX).and_then(|rest| rest.strip_suffix(BASE64_SUFFIX));
    match wrapped {
        None => Some(Cow::Borrowed(value)),
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok().map(Cow::Owned),
    }
}

/// Puts text into a header, wrapped as base64 where it would not survive as it is.
fn encode(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && text.trim() == text
        && !(text.starts_with(BASE64_PREFIX) && text.ends_with(BASE64_SUFFIX));
    if plain {
        HeaderValue::from_str(text).ok()
    } else {
        let wrapped = BASE64_STANDARD.encode(text);
        HeaderValue::from_str(&format!("{BASE64_PREFIX}{wrapped}{BASE64_SUFFIX}")).ok()
    }
}

/// Holds the headers of a `tasks/*` request against its body.
///
/// `name` is the body's `taskId` where the method has one (`sep-2663-server-rejects-mismatched-
/// mcp-name-on-tasks-get`).
///
/// # Errors
/// -32020 that says which header is missing or differs.
pub(crate) fn check(headers: &HeaderMap, method: &str, name: Option<&str>) -> Result<(), Fault> {
    match single(headers, &METHOD)? {
        None => return Err(Fault::header_mismatch("The header Mcp-Method is missing.")),
        Some(value) if value != method => {
            return Err(Fault::header_mismatch(format!(
                "The header Mcp-Method is {:?}, the body's method {:?}.",
                shown(value),
                shown(method)
            )));
        }
        Some(_) => {}
    }
    let Some(name) = name else { return Ok(()) };
    match single(headers, &NAME)? {
        None => Err(Fault::header_mismatch(format!(
            "The header Mcp-Name is missing; for {method} it is the task id."
        ))),
        Some(value) => match decode(value) {
            None => Err(Fault::header_mismatch("The header Mcp-Name is not valid base64.")),
            Some(decoded) if decoded != name => Err(Fault::header_mismatch(
                "The header Mcp-Name differs from the task id in the body.",
            )),
            Some(_) => Ok(()),
        },
    }
}

/// Holds every request to one value a header, and to a version that is known at all.
///
/// # Errors
/// -32020 for a header that is there twice, -32022 for an unknown version.
pub(crate) fn check_singles(headers: &HeaderMap) -> Result<(), Fault> {
    for name in [METHOD, NAME] {
        single(headers, &name)?;
    }
    match single(headers, &VERSION)? {
        Some(version) if !ProtocolVersion::KNOWN_VERSIONS.iter().any(|v| v.as_str() == version) => {
            Err(Fault::unsupported_version(version))
        }
        _ => Ok(()),
    }
}

/// The version that the header names.
///
/// # Errors
/// -32020 when it is missing.
pub(crate) fn version(headers: &HeaderMap) -> Result<&str, Fault> {
    single(headers, &VERSION)?
        .ok_or_else(|| Fault::header_mismatch("The header MCP-Protocol-Version is missing."))
}

/// Adds the headers that the client forgot, from the body. What is there is left as it is.
pub(crate) fn fill_in(headers: &mut HeaderMap, message: &Message<'_>) {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default)]
        name: Option<&'a RawValue>,
        #[serde(borrow, default)]
        uri: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "taskId")]
        task_id: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Option<&'a RawValue>,
    }

    let Some(method) = message.method.as_deref() else { return };
    let Some(Ok(params)) = message.params.map(|raw| serde_json::from_str::<Params<'_>>(raw.get()))
    else {
        return;
    };
    // Only requests of the revision that has these headers; older clients have none to forget.
    let Some(version) = params.meta.and_then(|meta| meta.version).and_then(text) else { return };
    let name = match method {
        "tools/call" | "prompts/get" => params.name,
        "resources/read" => params.uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.task_id,
        _ => None,
    };
    let wanted =
        [(VERSION, Some(version)), (METHOD, Some(method.to_owned())), (NAME, name.and_then(text))];
    for (header, value) in wanted {
        if !headers.contains_key(&header)
            && let Some(value) = value.as_deref().and_then(encode)
        {
            headers.insert(header, value);
        }
    }
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_header() {
        for name in ["plain", "with space", " padded ", "übersetzen 🚀", "=?base64?x?=", ""] {
            let value = encode(name).unwrap();
            assert_eq!(decode(value.to_str().unwrap()).as_deref(), Some(name), "{name:?}");
        }
        assert_eq!(decode("=?base64?!!!?="), None);
        assert_eq!(decode("=?base64?/w==?="), None, "not UTF-8");
    }
}

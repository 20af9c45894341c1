//! The rules for `x-mcp-header` in a tool's input schema (MCP 2026-07-28, Streamable HTTP,
//! "Custom Headers from Tool Parameters"). Clients drop a tool that breaks one.

use serde_json::{Map, Value as Json};

/// The keyword.
pub(super) const KEYWORD: &str = "x-mcp-header";

/// Keywords whose value is data or names, not schemas.
const DATA: &[&str] = &["default", "const", "enum", "examples", "dependentRequired", "required"];
/// Keywords whose value is an object of schemas by name, besides `properties`.
const MAPS: &[&str] =
    &["$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"];

/// Checks every annotation in `schema`.
///
/// # Errors
/// The first rule that is broken, in words.
pub(super) fn check(schema: &Json) -> Result<(), String> {
    let Json::Object(root) = schema else { return Ok(()) };
    if root.contains_key(KEYWORD) {
        return Err(format!("`{KEYWORD}` belongs to a property, not to the whole input"));
    }
    walk(root, true, "", &mut Vec::new())
}

/// Checks one annotation on a property of the given `type`.
///
/// # Errors
/// The rule that is broken, in words.
pub(super) fn check_one(header: &str, kind: Option<&str>) -> Result<(), String> {
    let tchar = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if header.is_empty() || !header.chars().all(tchar) {
        return Err("a header name has only letters, digits and !#$%&'*+-.^_`|~".to_owned());
    }
    if !matches!(kind, Some("string" | "integer" | "boolean")) {
        return Err("only strings, integers and booleans can be sent as a header".to_owned());
    }
    Ok(())
}

/// `on_chain` says whether `schema` is reached from the root through `properties` alone.
fn walk(
    schema: &Map<String, Json>,
    on_chain: bool,
    path: &str,
    seen: &mut Vec<String>,
) -> Result<(), String> {
    if let Some(header) = schema.get(KEYWORD) {
        let fail = |reason: String| Err(format!("`{KEYWORD}` of `{path}`: {reason}"));
        if !on_chain {
            return fail("it can be reached only through `properties`".to_owned());
        }
        let Json::String(header) = header else {
            return fail("it must be text".to_owned());
        };
        if let Err(reason) = check_one(header, schema.get("type").and_then(Json::as_str)) {
            return fail(reason);
        }
        let folded = header.to_ascii_lowercase();
        if seen.contains(&folded) {
            return fail(format!("{header:?} is used twice"));
        }
        seen.push(folded);
    }
    for (keyword, value) in schema {
        let inner = if path.is_empty() { keyword.clone() } else { format!("{path}.{keyword}") };
        match value {
            _ if DATA.contains(&keyword.as_str()) => {}
            Json::Object(members) if keyword == "properties" => {
                for (name, member) in members {
                    if let Json::Object(member) = member {
                        let inner =
                            if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                        walk(member, on_chain, &inner, seen)?;
                    }
                }
            }
            Json::Object(members) if MAPS.contains(&keyword.as_str()) => {
                for member in members.values().filter_map(Json::as_object) {
                    walk(member, false, &inner, seen)?;
                }
            }
            Json::Object(member) => walk(member, false, &inner, seen)?,
            Json::Array(list) => {
                for member in list.iter().filter_map(Json::as_object) {
                    walk(member, false, &inner, seen)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules() {
        let string = |header: &str| json!({"type": "string", "x-mcp-header": header});
        let object = |properties: Json| json!({"type": "object", "properties": properties});
        for (schema, broken) in [
            (object(json!({"a": string("Region")})), None),
            (object(json!({"a": object(json!({"b": string("Tenant")}))})), None),
            (object(json!({"x-mcp-header": {"type": "string"}})), None),
            (object(json!({"a": {"const": {"x-mcp-header": 1}}})), None),
            (object(json!({"a": string("")})), Some("only letters")),
            (object(json!({"a": string("Re gion")})), Some("only letters")),
            (object(json!({"a": string("a\r\nb")})), Some("only letters")),
            (object(json!({"a": string("x"), "b": string("X")})), Some("used twice")),
            (object(json!({"a": {"type": "number", "x-mcp-header": "A"}})), Some("only strings")),
            (object(json!({"a": {"x-mcp-header": "A"}})), Some("only strings")),
            (object(json!({"a": {"type": "string", "x-mcp-header": 1}})), Some("must be text")),
            (
                object(json!({"a": {"type": "array", "items": string("A")}})),
                Some("through `properties`"),
            ),
            (
                json!({"type": "object", "oneOf": [object(json!({"a": string("A")}))]}),
                Some("through"),
            ),
            (json!({"type": "object", "$defs": {"d": string("A")}}), Some("through")),
            (json!({"type": "object", "x-mcp-header": "A"}), Some("whole input")),
        ] {
            match (check(&schema), broken) {
                (Ok(()), None) => {}
                (Err(reason), Some(part)) if reason.contains(part) => {}
                (result, expected) => panic!("{schema}: {result:?}, expected {expected:?}"),
            }
        }
    }
}

//! `[tools.NAME.input]`, the short form of a tool's input, as a JSON Schema.

use serde_json::{Map, Value as Json};

use super::keys::{KEYWORD_TYPES, PROPERTY_OWN};
use super::problem::Collector;
use super::reader::Fields;
use super::{headers, schema_check};

/// The schema of the arguments, in the order of the file; none when something didn't fit, which
/// has been reported.
pub(super) fn schema(
    properties: &[(String, Fields)],
    problems: &mut Collector<'_>,
) -> Option<Json> {
    let mut members = Map::new();
    let mut required = Vec::new();
    let mut clean = true;
    for (name, fields) in properties {
        let Some(property) = property(fields, problems) else {
            clean = false;
            continue;
        };
        let optional = property.get("default").is_some();
        if fields.get::<bool>("required").unwrap_or(!optional) {
            required.push(Json::String(name.clone()));
        }
        // Twice the same header is the only thing about headers that one argument can't tell.
        if let Some(header) = fields.get::<String>("header") {
            let other =
                properties.iter().take_while(|(other, _)| other != name).find(|(_, other)| {
                    other
                        .get::<String>("header")
                        .is_some_and(|other| other.eq_ignore_ascii_case(&header))
                });
            if let Some((other, _)) = other {
                clean = false;
                let message =
                    format!("`header` in {} is {header:?}, as that of `{other}` is", fields.path);
                problems.error(fields.at("header"), message);
            }
        }
        members.insert(name.clone(), property);
    }
    if !clean {
        return None;
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Json::Object(members));
    if !required.is_empty() {
        schema.insert("required".to_owned(), Json::Array(required));
    }
    schema.insert("additionalProperties".to_owned(), Json::Bool(false));
    Some(Json::Object(schema))
}

/// The schema of one argument.
fn property(fields: &Fields, problems: &mut Collector<'_>) -> Option<Json> {
    let kind: String = fields.get("type")?;
    let mut schema = Map::new();
    let mut clean = true;
    let mut wrong = |key: &str, what: String| {
        clean = false;
        problems.error(fields.at(key), format!("`{key}` in {} {what}", fields.path));
    };
    for (name, value) in fields.written_json() {
        if PROPERTY_OWN.contains(&name) {
            continue;
        }
        let types = KEYWORD_TYPES.iter().find(|(keyword, _)| *keyword == name);
        if let Some((_, types)) = types.filter(|(_, types)| !types.contains(&kind.as_str())) {
            wrong(
                name,
                format!("says nothing about type {kind:?}, only about {}", types.join(" and ")),
            );
            continue;
        }
        schema.insert(name.to_owned(), value);
    }
    if let Some(header) = fields.get::<String>("header") {
        match headers::check_one(&header, Some(&kind)) {
            Ok(()) => {
                schema.insert(headers::KEYWORD.to_owned(), Json::String(header));
            }
            Err(reason) => wrong("header", format!("is {header:?}: {reason}")),
        }
    }
    let default = schema.get("default").cloned();
    if default.is_some() && fields.get::<bool>("required") == Some(true) {
        wrong("required", "is true, but there is a `default`, which makes it optional".to_owned());
    }
    let schema = Json::Object(schema);
    if let Err(reason) = schema_check::check(&schema) {
        clean = false;
        problems.error(fields.at, format!("{}: {reason}", fields.path));
    } else if let Some(default) = default
        && let Err(reason) = schema_check::fits(&schema, &default)
    {
        clean = false;
        let message = format!("`default` in {} does not fit: {reason}", fields.path);
        problems.error(fields.at("default"), message);
    }
    clean.then_some(schema)
}

//! The JSON Schema of the config file, for editors.

use serde_json::{Map, Value as Json, json};
use toml::de::DeValue;

use super::key::{Key, Kind, Presence, Table};
use super::keys::ROOT;
use super::value::to_json;

/// The schema as a JSON value.
#[must_use]
pub fn schema() -> Json {
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".to_owned(), "The config file of abide".into());
    if let Json::Object(root) = table(&ROOT) {
        schema.extend(root);
    }
    Json::Object(schema)
}

fn table(table: &Table) -> Json {
    let properties: Map<String, Json> =
        table.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> = table
        .keys
        .iter()
        .filter(|key| key.presence == Presence::Required)
        .map(|key| key.name)
        .collect();
    let pairs: Vec<Json> = table
        .exclusive
        .iter()
        .flat_map(|group| {
            group.iter().enumerate().flat_map(|(index, first)| {
                group[index + 1..]
                    .iter()
                    .map(move |second| json!({"not": {"required": [first, second]}}))
            })
        })
        .collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Json::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    if !pairs.is_empty() {
        schema.insert("allOf".to_owned(), pairs.into());
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    Json::Object(schema)
}

fn property(key: &Key) -> Json {
    let text = || json!({"type": "string", "minLength": 1});
    let mut schema = match &key.kind {
        Kind::Text | Kind::Address | Kind::Store | Kind::Duration { .. } => text(),
        Kind::OneOf(words) => json!({"type": "string", "enum": words}),
        Kind::Size { min, max } => {
            json!({"type": ["integer", "string"], "minimum": min, "maximum": max})
        }
        Kind::Count { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Number => json!({"type": "number"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Texts { min } => {
            json!({"type": "array", "items": {"type": "string"}, "minItems": min})
        }
        Kind::TextMap => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        Kind::Json => json!({}),
        Kind::JsonList => json!({"type": "array", "minItems": 1}),
        Kind::JsonObject => json!({"type": "object"}),
        Kind::Table(inner) => table(inner),
        Kind::Tables(inner) => json!({"type": "object", "additionalProperties": table(inner)}),
    };
    if let Json::Object(schema) = &mut schema {
        schema.insert("description".to_owned(), key.doc.into());
        if let Some(default) = example(match key.presence {
            Presence::Default(default) => default,
            Presence::Required | Presence::Optional => "",
        }) {
            schema.insert("default".to_owned(), default);
        }
        if let Some(example) = example(key.example) {
            schema.insert("examples".to_owned(), json!([example]));
        }
    }
    schema
}

/// A TOML value of the key list as JSON; none where there is none.
fn example(toml: &str) -> Option<Json> {
    to_json(DeValue::parse(toml).ok()?.get_ref()).ok()
}

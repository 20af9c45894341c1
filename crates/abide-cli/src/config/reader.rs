//! Walks a TOML document along the key tables and collects everything that is wrong on the way.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{Key, Kind, Presence, Table};
use super::problem::{Collector, nearest};
use super::value::{self, Misfit, Scalar, StoreLocation};

/// A table as it was read: the keys that fit, and those that stand in for what wasn't written.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    table: &'static Table,
    /// Its name in messages, such as `[tools.deploy]`.
    pub(super) path: String,
    /// Where it begins, as a byte offset.
    pub(super) at: usize,
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
struct Field {
    key: &'static Key,
    at: usize,
    written: bool,
    content: Content,
}

/// What was read for a key.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Anything but a table with keys of its own.
    Scalar(Scalar),
    /// Of [`Kind::Table`].
    Table(Fields),
    /// Of [`Kind::Tables`], in the order of the file.
    Tables(Vec<(String, Fields)>),
}

/// Reads the whole document as `table`.
pub(super) fn read(
    table: &'static Table,
    document: &DeTable<'_>,
    problems: &mut Collector<'_>,
) -> Fields {
    read_table(table, document, String::new(), 0, problems)
}

fn read_table(
    table: &'static Table,
    document: &DeTable<'_>,
    path: String,
    at: usize,
    problems: &mut Collector<'_>,
) -> Fields {
    let mut fields = Fields { table, path: heading(&path), at, fields: Vec::new() };
    let mut seen: Vec<(&'static str, usize)> = Vec::new();
    for (name, value) in document {
        let name_at = name.span().start;
        let Some(key) = table.key(name.get_ref()) else {
            problems.error(name_at, unknown(table, name.get_ref(), &fields.path, &path));
            continue;
        };
        seen.push((key.name, name_at));
        if let Some(content) = read_value(key, name_at, value, &path, &fields.path, problems) {
            fields.fields.push(Field { key, at: name_at, written: true, content });
        }
    }
    for group in table.exclusive {
        let given: Vec<_> = seen.iter().filter(|(name, _)| group.contains(name)).collect();
        if let [(first, _), (second, at), ..] = given[..] {
            problems.error(
                *at,
                format!("`{second}` and `{first}` in {} exclude each other", fields.path),
            );
        }
    }
    for key in table.keys {
        if seen.iter().any(|(name, _)| *name == key.name) {
            continue;
        }
        match key.presence {
            Presence::Required => problems.error(at, missing(key, &fields.path)),
            Presence::Optional => {}
            Presence::Default(text) => {
                let value = DeValue::parse(text).expect("defaults are TOML values");
                if let Some(content) = read_value(key, at, &value, &path, &fields.path, problems) {
                    fields.fields.push(Field { key, at, written: false, content });
                }
            }
        }
    }
    fields
}

fn read_value(
    key: &'static Key,
    at: usize,
    value: &Spanned<DeValue<'_>>,
    parent: &str,
    parent_heading: &str,
    problems: &mut Collector<'_>,
) -> Option<Content> {
    let path = join(parent, key.name);
    let misfit = match (&key.kind, value.get_ref()) {
        (Kind::Table(table), DeValue::Table(inner)) => {
            return Some(Content::Table(read_table(table, inner, path, at, problems)));
        }
        (Kind::Tables(table), DeValue::Table(inner)) => {
            let mut tables = Vec::with_capacity(inner.len());
            for (name, item) in inner {
                let (name, name_at) = (name.get_ref().to_string(), name.span().start);
                let path = join(&path, &name);
                match item.get_ref() {
                    DeValue::Table(item) => {
                        tables.push((name, read_table(table, item, path, name_at, problems)));
                    }
                    other => problems.error(
                        name_at,
                        format!(
                            "{} is {}; it must be a table",
                            heading(&path),
                            value::article(other)
                        ),
                    ),
                }
            }
            return Some(Content::Tables(tables));
        }
        (kind, other) => match value::read(kind, other) {
            Ok(scalar) => return Some(Content::Scalar(scalar)),
            Err(misfit) => misfit,
        },
    };
    let said = match misfit {
        Misfit::Is(what) => format!("{what}; it must be {}", key.kind.expected()),
        Misfit::Whole(what) => what,
    };
    problems.error(value.span().start, format!("`{}` in {parent_heading} {said}", key.name));
    None
}

/// A path as a heading for messages; the file itself has none.
fn heading(path: &str) -> String {
    if path.is_empty() { "the file".to_owned() } else { format!("[{path}]") }
}

/// Adds a key to a dotted path, in quotes where TOML wants them.
fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let mut joined = path.to_owned();
    if !path.is_empty() {
        joined.push('.');
    }
    // Writing to a string can't fail.
    let _ = if bare { write!(joined, "{name}") } else { write!(joined, "{name:?}") };
    joined
}

fn unknown(table: &'static Table, name: &str, heading_of: &str, path: &str) -> String {
    let mut message = format!("unknown key `{name}` in {heading_of}; ");
    let inner = table.keys.iter().find_map(|key| match key.kind {
        Kind::Table(inner) if inner.key(name).is_some() => Some(key.name),
        _ => None,
    });
    if let Some(inner) = inner {
        message.push_str(&format!("it belongs in {}", heading(&join(path, inner))));
    } else if let Some(near) = nearest(name, table.keys.iter().map(|key| key.name)) {
        message.push_str(&format!("did you mean `{near}`?"));
    } else {
        let known: Vec<_> = table.keys.iter().map(|key| key.name).collect();
        message.push_str(&format!("it may have {}", known.join(", ")));
    }
    message
}

fn missing(key: &Key, heading_of: &str) -> String {
    match key.kind {
        Kind::Tables(_) => format!("{heading_of} has no `{0}`: add a table [{0}.NAME]", key.name),
        _ => format!("{heading_of} has no `{}`; it must be {}", key.name, key.kind.expected()),
    }
}

impl Fields {
    /// The value of a key, if it fit or has a default.
    pub(super) fn get<T: FromField>(&self, name: &str) -> Option<T> {
        self.field(name).and_then(|field| T::from_field(&field.content))
    }

    /// Where a key is written, or else where its table begins.
    #[must_use]
    pub(super) fn at(&self, name: &str) -> usize {
        self.field(name).map_or(self.at, |field| field.at)
    }

    /// The JSON values of the keys that are written, in the order of the file.
    pub(super) fn written_json(&self) -> impl Iterator<Item = (&'static str, Json)> {
        self.fields.iter().filter(|field| field.written).filter_map(|field| {
            let json = match &field.content {
                Content::Scalar(Scalar::Text(text)) => Json::String(text.clone()),
                Content::Scalar(Scalar::Count(count)) => Json::from(*count),
                Content::Scalar(Scalar::Flag(flag)) => Json::Bool(*flag),
                Content::Scalar(Scalar::Json(json)) => json.clone(),
                _ => return None,
            };
            Some((field.key.name, json))
        })
    }

    fn field(&self, name: &str) -> Option<&Field> {
        debug_assert!(self.table.key(name).is_some(), "{name} is no key of {}", self.table.heading);
        self.fields.iter().find(|field| field.key.name == name)
    }
}

/// What can be taken out of [`Fields`].
pub(super) trait FromField: Sized {
    /// The value, if `content` is of this kind.
    fn from_field(content: &Content) -> Option<Self>;
}

/// Says in which variant a type is found.
macro_rules! from_field {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {
        $(impl FromField for $type {
            fn from_field(content: &Content) -> Option<Self> {
                match content {
                    $pattern => Some($value.clone()),
                    _ => None,
                }
            }
        })*
    };
}

from_field! {
    String: Content::Scalar(Scalar::Text(text)) => text;
    SocketAddr: Content::Scalar(Scalar::Address(address)) => address;
    StoreLocation: Content::Scalar(Scalar::Store(store)) => store;
    Option<Duration>: Content::Scalar(Scalar::Duration(duration)) => duration;
    Duration: Content::Scalar(Scalar::Duration(Some(duration))) => duration;
    u64: Content::Scalar(Scalar::Count(count)) => count;
    bool: Content::Scalar(Scalar::Flag(flag)) => flag;
    Vec<String>: Content::Scalar(Scalar::Texts(texts)) => texts;
    Vec<(String, String)>: Content::Scalar(Scalar::TextMap(texts)) => texts;
    Json: Content::Scalar(Scalar::Json(json)) => json;
    Fields: Content::Table(fields) => fields;
    Vec<(String, Fields)>: Content::Tables(tables) => tables;
}

//! One config value: from TOML to what its key takes.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value as Json;
use toml::de::DeValue;

use super::key::Kind;
use super::limits;

/// A value that fits its key, except for tables, which the reader takes apart.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    /// Of [`Kind::Text`] and [`Kind::OneOf`].
    Text(String),
    /// Of [`Kind::Address`].
    Address(SocketAddr),
    /// Of [`Kind::Store`].
    Store(StoreLocation),
    /// Of [`Kind::Duration`]; none for without bound.
    Duration(Option<Duration>),
    /// Of [`Kind::Size`] and [`Kind::Count`].
    Count(u64),
    /// Of [`Kind::Flag`].
    Flag(bool),
    /// Of [`Kind::Texts`].
    Texts(Vec<String>),
    /// Of [`Kind::TextMap`], in the order of the file.
    TextMap(Vec<(String, String)>),
    /// Of the kinds that JSON has too.
    Json(Json),
}

/// Where tasks are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A SQLite file.
    Sqlite(PathBuf),
}

impl StoreLocation {
    /// The same with an absolute path; a relative one starts at `folder`.
    #[must_use]
    pub fn within(self, folder: &Path) -> Self {
        match self {
            Self::Sqlite(path) => Self::Sqlite(join(folder, path)),
        }
    }
}

/// `path` from `folder`, without the `.` that says where we are anyway. What `..` means depends on
/// links, so it stays.
pub(super) fn join(folder: &Path, path: impl AsRef<Path>) -> PathBuf {
    folder.join(path).components().collect()
}

/// The form that [`parse_store`] reads.
impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

/// Why a value doesn't fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Misfit {
    /// What it is instead, in words that follow the key's name; what it must be is said by
    /// [`Kind::expected`].
    Is(String),
    /// All there is to say, in words that follow the key's name.
    Whole(String),
}

/// Reads a value of `kind`.
///
/// # Errors
/// [`Misfit`] when the value is of another type or out of range.
pub(super) fn read(kind: &Kind, value: &DeValue<'_>) -> Result<Scalar, Misfit> {
    let misfit = || Misfit::Is(describe(value));
    let text = || value.as_str().ok_or_else(misfit);
    Ok(match kind {
        Kind::Text => match text()? {
            "" => return Err(Misfit::Whole("is empty".to_owned())),
            text => Scalar::Text(text.to_owned()),
        },
        Kind::OneOf(words) => {
            let text = text()?;
            if !words.contains(&text) {
                return Err(misfit());
            }
            Scalar::Text(text.to_owned())
        }
        Kind::Address => Scalar::Address(parse_address(text()?).map_err(Misfit::Whole)?),
        Kind::Store => Scalar::Store(parse_store(text()?).map_err(Misfit::Whole)?),
        Kind::Duration { zero, unbounded } => {
            let text = text()?;
            if unbounded.is_some_and(|word| word == text) {
                return Ok(Scalar::Duration(None));
            }
            let duration = parse_duration(text).map_err(|reason| match reason {
                None => misfit(),
                Some(reason) => Misfit::Whole(format!("is {text:?}, {reason}")),
            })?;
            if duration.is_zero() && !zero {
                return Err(Misfit::Whole("is zero; it must be longer".to_owned()));
            }
            Scalar::Duration(Some(duration))
        }
        Kind::Size { min, max } => {
            let bytes = match value.as_str() {
                Some(text) => parse_size(text),
                None => integer(value),
            };
            let bytes = bytes.ok_or_else(misfit)?;
            if bytes < *min || bytes > *max {
                return Err(Misfit::Whole(format!(
                    "is {}; it must be from {} to {}",
                    human_size(bytes),
                    human_size(*min),
                    human_size(*max)
                )));
            }
            Scalar::Count(bytes)
        }
        Kind::Count { min, max } => match integer(value) {
            Some(count) if count >= *min && count <= *max => Scalar::Count(count),
            _ => return Err(misfit()),
        },
        Kind::Flag => Scalar::Flag(value.as_bool().ok_or_else(misfit)?),
        Kind::Texts { min } => {
            let list = value.as_array().ok_or_else(misfit)?;
            if list.len() < *min {
                return Err(Misfit::Is("is an empty list".to_owned()));
            }
            let mut texts = Vec::with_capacity(list.len());
            for (index, item) in list.iter().enumerate() {
                let Some(text) = item.get_ref().as_str() else {
                    let what = describe(item.get_ref());
                    return Err(Misfit::Whole(format!(
                        "must be a list of texts in quotes; its element {} {what}",
                        index + 1
                    )));
                };
                texts.push(text.to_owned());
            }
            Scalar::Texts(texts)
        }
        Kind::TextMap => {
            let table = value.as_table().ok_or_else(misfit)?;
            let mut texts = Vec::with_capacity(table.len());
            for (name, item) in table {
                let name = name.get_ref();
                let Some(text) = item.get_ref().as_str() else {
                    return Err(Misfit::Whole(format!(
                        "must be a table of texts in quotes; `{name}` is {}",
                        article(item.get_ref())
                    )));
                };
                texts.push((name.clone().into_owned(), text.to_owned()));
            }
            Scalar::TextMap(texts)
        }
        Kind::Number => match to_json(value).map_err(Misfit::Whole)? {
            number @ Json::Number(_) => Scalar::Json(number),
            _ => return Err(misfit()),
        },
        Kind::Json => Scalar::Json(to_json(value).map_err(Misfit::Whole)?),
        Kind::JsonList => match to_json(value).map_err(Misfit::Whole)? {
            Json::Array(list) if !list.is_empty() => Scalar::Json(Json::Array(list)),
            _ => return Err(misfit()),
        },
        Kind::JsonObject => match to_json(value).map_err(Misfit::Whole)? {
            object @ Json::Object(_) => Scalar::Json(object),
            _ => return Err(misfit()),
        },
        Kind::Table(_) | Kind::Tables(_) => return Err(misfit()),
    })
}

/// What a value is, for a message: short scalars as they are, everything else by type.
fn describe(value: &DeValue<'_>) -> String {
    const MAX_SHOWN_CHARS: usize = 40;
    match value {
        DeValue::String(text) if text.chars().count() <= MAX_SHOWN_CHARS => format!("is {text:?}"),
        DeValue::Integer(number) if number.as_str().len() <= MAX_SHOWN_CHARS => {
            format!("is {number}")
        }
        DeValue::Float(number) if number.as_str().len() <= MAX_SHOWN_CHARS => {
            format!("is {}", number.as_str())
        }
        DeValue::Boolean(flag) => format!("is {flag}"),
        DeValue::Array(list) if list.is_empty() => "is an empty list".to_owned(),
        other => format!("is {}", article(other)),
    }
}

/// The type of a value with its article.
pub(super) fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A whole number that is not negative.
fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Reads the address that a server listens on.
///
/// # Errors
/// What is wrong, in words that follow the name of the key or flag.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let hint = match text.rsplit_once(':') {
            Some(("localhost", port)) => format!("127.0.0.1:{port}"),
            Some(("" | "*", port)) => format!("0.0.0.0:{port}"),
            _ => "127.0.0.1:8720".to_owned(),
        };
        format!("is {text:?}; it must be an IP address and a port, such as \"{hint}\"")
    })
}

/// Reads where tasks are stored. A relative path is left relative.
///
/// # Errors
/// What is wrong, in words that follow the name of the key or flag.
pub fn parse_store(text: &str) -> Result<StoreLocation, String> {
    if text.starts_with("postgres:") || text.starts_with("postgresql:") {
        // The address may hold a password, so it is not repeated.
        return Err("names a PostgreSQL database, which is not supported yet; use \
                    \"sqlite:\" and the path of a file"
            .to_owned());
    }
    let Some(path) = text.strip_prefix("sqlite:") else {
        return Err(format!(
            "is {text:?}; it must be \"sqlite:\" and the path of a file, such as \
             \"sqlite:abide.db\""
        ));
    };
    let path = path.strip_prefix("//").unwrap_or(path);
    match path {
        "" => {
            Err("names no file; write \"sqlite:\" and a path, such as \"sqlite:abide.db\""
                .to_owned())
        }
        ":memory:" => {
            Err("is in memory, where no task outlives the process; write \"sqlite:\" and \
                           the path of a file"
                .to_owned())
        }
        path if path.contains('\0') => Err("has a NUL character in its path".to_owned()),
        path => Ok(StoreLocation::Sqlite(PathBuf::from(path))),
    }
}

/// Reads a duration for a flag, such as `90s` or `2h30m`.
///
/// # Errors
/// What is wrong with it, to follow the flag's name.
pub fn parse_flag_duration(text: &str) -> Result<Duration, String> {
    let expected = "must be a duration, such as 500ms, 90s or 2h30m";
    parse_duration(text).map_err(|reason| match reason {
        Some(reason) => format!("{expected}, {reason}"),
        None => expected.to_owned(),
    })
}

/// Reads a duration of whole milliseconds. The error is a reason, if there is more to say than
/// that this is no duration.
fn parse_duration(text: &str) -> Result<Duration, Option<String>> {
    let span: jiff::Span = text.parse().map_err(|_| None)?;
    let signed = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .map_err(|_| Some("but months and years have no fixed length; use days".to_owned()))?;
    let duration = Duration::try_from(signed)
        .map_err(|_| Some("which is negative; it must be a duration".to_owned()))?;
    if duration > limits::MAX_DURATION {
        return Err(Some("which is longer than a hundred years".to_owned()));
    }
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(Some("but durations are whole milliseconds".to_owned()));
    }
    Ok(duration)
}

/// Reads `4MiB`, `64 KiB`, `1GiB` or a plain number of bytes.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Bytes as people write them.
#[must_use]
pub fn human_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}MiB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}KiB", b >> 10),
        b => format!("{b} bytes"),
    }
}

/// The JSON form of a TOML value. Numbers keep the digits they were written with.
///
/// # Errors
/// What has no JSON form, in words that follow the key's name.
pub(super) fn to_json(value: &DeValue<'_>) -> Result<Json, String> {
    let number =
        |text: &str| serde_json::from_str(text.strip_prefix('+').unwrap_or(text)).map(Json::Number);
    Ok(match value {
        DeValue::String(text) => Json::String(text.clone().into_owned()),
        DeValue::Boolean(flag) => Json::Bool(*flag),
        DeValue::Integer(integer) => {
            let digits: Cow<'_, str> = match integer.radix() {
                10 => integer.as_str().into(),
                radix => match i128::from_str_radix(integer.as_str(), radix) {
                    Ok(number) => number.to_string().into(),
                    Err(_) => return Err(format!("has {integer} in it, which is too large")),
                },
            };
            number(&digits)
                .map_err(|_| format!("has {integer} in it, which is not a JSON number"))?
        }
        DeValue::Float(float) => number(float.as_str())
            .map_err(|_| format!("has {} in it, which is not a JSON number", float.as_str()))?,
        DeValue::Datetime(time) => {
            return Err(format!("has {time} in it, but JSON has no dates; put it in quotes"));
        }
        DeValue::Array(list) => {
            Json::Array(list.iter().map(|item| to_json(item.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Json::Object(
            table
                .iter()
                .map(|(key, item)| {
                    Ok((key.get_ref().clone().into_owned(), to_json(item.get_ref())?))
                })
                .collect::<Result<_, String>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ok = |text: &str| parse_duration(text).unwrap().as_millis();
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("2s", 2_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("2 minutes", 120_000),
        ] {
            assert_eq!(ok(text), millis, "{text}");
        }
        for text in ["", "2", "2x", "-2s", "1y", "1mo", "2s ago", "1us", "200y", "9999999d", "∞"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("17", Some(17)),
            ("17B", Some(17)),
            ("64KiB", Some(65_536)),
            ("4 MiB", Some(4_194_304)),
            ("1GiB", Some(1_073_741_824)),
            ("4MB", None),
            ("", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }

    #[test]
    fn stores() {
        let sqlite = |path: &str| Ok(StoreLocation::Sqlite(PathBuf::from(path)));
        assert_eq!(parse_store("sqlite:abide.db"), sqlite("abide.db"));
        assert_eq!(parse_store("sqlite:/var/a b.db"), sqlite("/var/a b.db"));
        assert_eq!(parse_store("sqlite:///var/x.db"), sqlite("/var/x.db"));
        for text in ["", "abide.db", "sqlite:", "sqlite::memory:", "mysql://x", "sqlite:a\0b"] {
            assert!(parse_store(text).is_err(), "{text}");
        }
        let refusal = parse_store("postgres://me:secret@db/x").unwrap_err();
        assert!(refusal.contains("not supported yet") && !refusal.contains("secret"));
    }

    #[test]
    fn numbers_keep_their_digits_on_the_way_to_json() {
        let json = |toml: &str| {
            to_json(DeValue::parse(toml).unwrap().get_ref()).map(|json| json.to_string())
        };
        assert_eq!(
            json("{ z = 1.10, a = [12_345_678_901_234_567_890_123, +1, 0x10], u = \"é🦀\" }")
                .unwrap(),
            r#"{"z":1.10,"a":[12345678901234567890123,1,16],"u":"é🦀"}"#
        );
        for toml in ["nan", "inf", "-inf", "2020-01-01", "[1, { a = nan }]"] {
            assert!(json(toml).is_err(), "{toml}");
        }
    }
}

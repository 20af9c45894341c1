//! JSON that passes through: kept as the bytes that came in, checked once.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

/// The text is not JSON.
#[derive(Debug, thiserror::Error)]
#[error("not JSON: {0}")]
pub struct JsonError(#[from] serde_json::Error);

/// One JSON value as text, known to be well-formed and on one line.
///
/// Results, arguments and input travel through abide in this form, so that integers, floats, key
/// order and unusual Unicode survive. Line breaks between tokens are the one thing that changes:
/// they would break server-sent events and line-framed transports.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Arc<str>);

impl RawJson {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`JsonError`] when it is not exactly one JSON value.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let raw: &RawValue = serde_json::from_str(text)?;
        let text = raw.get();
        // Inside a JSON string a line break is always escaped, so these are between tokens.
        if text.bytes().any(|byte| byte == b'\n' || byte == b'\r') {
            Ok(Self(text.replace(['\n', '\r'], " ").into()))
        } else {
            Ok(Self(text.into()))
        }
    }

    /// Writes `value` as JSON.
    ///
    /// # Errors
    /// [`JsonError`] when it can't be JSON, such as a map whose keys are not strings.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        Self::parse(&serde_json::to_string(value)?)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Bytes of the JSON text.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Always false: no JSON value is empty text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the JSON into a value.
    ///
    /// # Errors
    /// [`JsonError`] when the value has another shape than `T`.
    pub fn to<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, JsonError> {
        Ok(serde_json::from_str(&self.0)?)
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

impl Serialize for RawJson {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for RawJson {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// Reads a member that is there, so that `null` is a value and not the lack of one.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RawJson>, D::Error> {
    serde::Deserialize::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_numbers_and_order_as_written() {
        let text = r#"{"z":1.10,"a":12345678901234567890123,"e":1E5,"u":"\u00e9🦀"}"#;
        assert_eq!(RawJson::parse(text).unwrap().as_str(), text);
    }

    #[test]
    fn is_one_line() {
        let raw = RawJson::parse("{\r\n  \"a\": \"x\\ny\"\n}").unwrap();
        assert!(!raw.as_str().contains('\n'));
        assert_eq!(raw.to::<serde_json::Value>().unwrap()["a"], "x\ny");
    }

    #[test]
    fn refuses_what_is_not_one_value() {
        for text in ["", "{", "1 2", "NaN", "{'a':1}"] {
            assert!(RawJson::parse(text).is_err(), "{text}");
        }
    }
}

//! What the suite wrote down: one folder a scenario, one list of checks in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Checks by scenario.
pub(super) type Results = BTreeMap<String, Vec<Check>>;

/// One check of a scenario.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Check {
    pub(super) id: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) status: Status,
    #[serde(rename = "errorMessage", default)]
    pub(super) error: Option<String>,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Status {
    Success,
    Failure,
    Warning,
    Info,
    Skipped,
}

impl Status {
    pub(super) const ALL: [Self; 5] =
        [Self::Success, Self::Failure, Self::Warning, Self::Info, Self::Skipped];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failure => "FAILURE",
            Self::Warning => "WARNING",
            Self::Info => "INFO",
            Self::Skipped => "SKIPPED",
        }
    }

    /// Whether it has to be excused.
    pub(super) const fn is_bad(self) -> bool {
        matches!(self, Self::Failure | Self::Warning)
    }
}

/// Reads every `checks.json` under `folder`; none if the folder does not exist.
pub(super) fn read(folder: &Path) -> Result<Results> {
    let mut results = Results::new();
    if !folder.exists() {
        return Ok(results);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let file = entry.path().join("checks.json");
        let Some(scenario) = scenario(&name).filter(|_| file.exists()) else { continue };
        let text = fs::read_to_string(&file)?;
        let checks: Vec<Check> = serde_json::from_str(&text)
            .with_context(|| format!("can't read {}", file.display()))?;
        results.entry(scenario.to_owned()).or_default().extend(checks);
    }
    Ok(results)
}

/// The scenario of a folder called `server-<scenario>-<time>`.
fn scenario(folder: &str) -> Option<&str> {
    const TIME: &str = "-2026-01-01T00-00-00-000Z";
    let name = folder.strip_prefix("server-")?;
    let time = name.get(name.len().checked_sub(TIME.len())?..)?;
    let alike = time.bytes().zip(TIME.bytes()).all(|(a, b)| match b {
        b'0'..=b'9' => a.is_ascii_digit(),
        _ => a == b,
    });
    name.strip_suffix(time).filter(|name| alike && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_tells_its_scenario() {
        for (folder, expected) in [
            ("server-caching-2026-12-01T04-30-59-400Z", Some("caching")),
            ("server-json-schema-2020-12-2026-12-01T04-31-00-155Z", Some("json-schema-2020-12")),
            ("server-server-stateless-2026-12-01T04-31-00-155Z", Some("server-stateless")),
            ("server-caching", None),
            ("tasks.log", None),
        ] {
            assert_eq!(scenario(folder), expected, "{folder}");
        }
    }

    #[test]
    fn checks_are_read() {
        let json = r#"[{"id":"a","name":"A","description":"d","status":"SUCCESS","timestamp":"t",
            "specReferences":[]},{"id":"b","status":"FAILURE","errorMessage":"e","details":{"x":1}}]"#;
        let checks: Vec<Check> = serde_json::from_str(json).unwrap();
        assert_eq!(checks[0].status, Status::Success);
        assert_eq!(checks[1].error.as_deref(), Some("e"));
        assert!(serde_json::from_str::<Vec<Check>>(r#"[{"id":"a","status":"MAYBE"}]"#).is_err());
    }
}

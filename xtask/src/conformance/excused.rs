//! The checked-in list of what abide is not held to, each with its reason.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// What is not held against us.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Excused {
    #[serde(rename = "excused", default)]
    pub(super) entries: Vec<Entry>,
}

/// One scenario, or one check of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// `scenario` or `scenario:check`.
    what: String,
    reason: String,
}

impl Entry {
    /// As it stands in the file.
    pub(super) fn name(&self) -> &str {
        &self.what
    }

    /// The scenario, and the check if it is only one.
    pub(super) fn parts(&self) -> (&str, Option<&str>) {
        match self.what.split_once(':') {
            Some((scenario, check)) => (scenario, Some(check)),
            None => (&self.what, None),
        }
    }

    /// Whether it covers this check.
    pub(super) fn covers(&self, scenario: &str, check: &str) -> bool {
        let (of, only) = self.parts();
        of == scenario && only.is_none_or(|only| only == check)
    }
}

impl Excused {
    /// Reads the list.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        Self::read(&text).with_context(|| format!("in {}", path.display()))
    }

    pub(super) fn read(text: &str) -> Result<Self> {
        let excused: Self = toml::from_str(text)?;
        for (index, entry) in excused.entries.iter().enumerate() {
            if entry.reason.trim().is_empty() {
                bail!("`{}` has no reason", entry.what);
            }
            let (scenario, _) = entry.parts();
            if let Some(other) =
                excused.entries[..index].iter().find(|e| e.what == entry.what || e.what == scenario)
            {
                bail!("`{}` is covered by `{}` already", entry.what, other.what);
            }
        }
        Ok(excused)
    }

    /// The entry that covers this check.
    pub(super) fn covers(&self, scenario: &str, check: &str) -> bool {
        self.entries.iter().any(|entry| entry.covers(scenario, check))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_covers_a_scenario_or_one_check() {
        let excused = Excused::read(
            "[[excused]]\nwhat = \"a\"\nreason = \"r\"\n\
             [[excused]]\nwhat = \"b:x\"\nreason = \"r\"\n",
        )
        .unwrap();
        for (scenario, check, expected) in [
            ("a", "x", true),
            ("a", "y", true),
            ("b", "x", true),
            ("b", "y", false),
            ("c", "x", false),
        ] {
            assert_eq!(excused.covers(scenario, check), expected, "{scenario}:{check}");
        }
    }

    #[test]
    fn entries_need_reasons_and_stand_once() {
        for text in [
            "[[excused]]\nwhat = \"a\"\n",
            "[[excused]]\nwhat = \"a\"\nreason = \" \"\n",
            "[[excused]]\nwhat = \"a\"\nreason = \"r\"\nsince = 1\n",
            "[[excused]]\nwhat = \"a\"\nreason = \"r\"\n[[excused]]\nwhat = \"a\"\nreason = \"r\"\n",
            "[[excused]]\nwhat = \"a\"\nreason = \"r\"\n[[excused]]\nwhat = \"a:x\"\nreason = \"r\"\n",
        ] {
            assert!(Excused::read(text).is_err(), "{text}");
        }
    }
}

//! The example configs, checked by the program that reads them.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, root, show};

/// Runs `abide config check` on every example.
///
/// # Errors
/// An example is refused, or there is none.
pub(crate) fn check() -> Result<Vec<String>> {
    let folder = root().join("examples");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .context("can't read examples/")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".toml"))
        .map(|name| format!("examples/{name}"))
        .collect();
    names.sort();
    if names.is_empty() {
        bail!("there is no *.toml in examples/");
    }
    for name in &names {
        show(&mut cargo(&["run", "-q", "-p", "abide-cli", "--", "config", "check", name]))?;
    }
    Ok(vec![format!("{} examples checked", names.len())])
}

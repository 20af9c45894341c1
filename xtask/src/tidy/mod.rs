//! The house rules that no compiler checks.

mod edges;
mod links;
mod manifests;
mod purity;
mod source;
mod words;

use std::fmt;
use std::fs;

use anyhow::{Result, bail};

use crate::run::{command, output, root};

/// A text file of the repository: tracked, or new and not ignored.
#[derive(Debug)]
pub(crate) struct File {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    fn is(&self, ending: &str) -> bool {
        self.path.ends_with(ending)
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// A rule that is broken somewhere.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    hint: &'static str,
}

impl Finding {
    fn new(file: &File, line: usize, what: impl Into<String>, hint: &'static str) -> Self {
        Self { path: file.path.clone(), line, what: what.into(), hint }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, hint } = self;
        write!(f, "{path}:{line}: {what}; hint: {hint}")
    }
}

/// Bytes of the largest file that is looked into.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

fn files() -> Result<Vec<File>> {
    let listed = output(&mut command(
        "git",
        &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
    ))?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let full = root().join(path);
        let small = fs::metadata(&full).is_ok_and(|meta| meta.len() <= MAX_FILE_BYTES);
        // What is not UTF-8 text has no lines to check; what is gone is deleted but not yet so
        // in the index.
        if small && let Ok(text) = fs::read_to_string(&full) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// Checks every rule and prints what is broken.
///
/// # Errors
/// A rule is broken.
pub(crate) fn run() -> Result<Vec<String>> {
    let files = files()?;
    let crates = edges::crates()?;
    let mut findings = Vec::new();
    findings.extend(edges::check(&crates, &files));
    findings.extend(purity::check(&crates, &purity::tree()?, &files));
    for file in &files {
        findings.extend(source::check(file));
        findings.extend(words::check(file));
        findings.extend(manifests::check(file));
    }
    findings.extend(links::check(&files));
    findings.sort();
    for (path, lines) in source::long(&files) {
        println!("{path}: {lines} lines, close to the {} that are allowed", source::MAX_LINES);
    }
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("house rules broken in {} places", findings.len());
    }
    Ok(vec![format!("{} files", files.len())])
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
fn said(findings: impl IntoIterator<Item = Finding>) -> Vec<String> {
    findings.into_iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_what_to_do() {
        let finding = Finding::new(&file("a.rs", ""), 3, "is odd", "make it even");
        assert_eq!(finding.to_string(), "a.rs:3: is odd; hint: make it even");
    }
}

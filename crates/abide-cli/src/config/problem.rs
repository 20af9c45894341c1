//! What is wrong with a config file, and where.

use std::fmt;
use std::path::Path;

use super::limits;

/// The text of a config file, and the name it goes by in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'t> {
    /// The file as the user wrote it.
    pub(super) file: &'t Path,
    /// What is in it.
    pub(super) text: &'t str,
}

impl Source<'_> {
    /// Line and column of a byte offset, both from 1; columns count characters.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}

/// One thing that is wrong, or looks wrong, with a config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file as the user wrote it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// `file:line:column: message`, which terminals and editors make a link of.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// Everything that is wrong with a config file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

/// Collects problems while a file is read, so that all of them can be reported at once.
#[derive(Debug)]
pub(super) struct Collector<'t> {
    source: Source<'t>,
    errors: Vec<(usize, String)>,
    warnings: Vec<(usize, String)>,
}

impl<'t> Collector<'t> {
    /// Nothing is wrong yet.
    #[must_use]
    pub(super) fn new(source: Source<'t>) -> Self {
        Self { source, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Notes what makes the file unusable. `at` is a byte offset.
    pub(super) fn error(&mut self, at: usize, message: impl Into<String>) {
        self.errors.push((at, message.into()));
    }

    /// Notes what is allowed, but probably not meant. `at` is a byte offset.
    pub(super) fn warn(&mut self, at: usize, message: impl Into<String>) {
        self.warnings.push((at, message.into()));
    }

    /// Whether the file is usable so far.
    #[must_use]
    pub(super) fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    /// The warnings, or all the errors.
    ///
    /// # Errors
    /// [`Problems`] when anything makes the file unusable; beyond [`limits::MAX_PROBLEMS`] they
    /// are only counted.
    pub(super) fn finish(self) -> Result<Vec<Problem>, Problems> {
        let Self { source, errors, warnings } = self;
        if errors.is_empty() {
            Ok(located(source, warnings))
        } else {
            Err(Problems(located(source, errors)))
        }
    }
}

fn located(source: Source<'_>, mut found: Vec<(usize, String)>) -> Vec<Problem> {
    found.sort_by_key(|(at, _)| *at);
    let more = found.len().saturating_sub(limits::MAX_PROBLEMS);
    found.truncate(limits::MAX_PROBLEMS);
    if let (true, Some((_, message))) = (more > 0, found.last_mut()) {
        message.push_str(&format!(" (and {more} more problems after this one)"));
    }
    let file = source.file.display().to_string();
    found
        .into_iter()
        .map(|(at, message)| {
            let (line, column) = source.position(at);
            Problem { file: file.clone(), line, column, message }
        })
        .collect()
}

/// The candidate that `written` was probably meant to be.
#[must_use]
pub(super) fn nearest<'c>(
    written: &str,
    candidates: impl Iterator<Item = &'c str>,
) -> Option<&'c str> {
    let plain = |name: &str| name.replace('-', "_").to_ascii_lowercase();
    let flat = |name: &str| plain(name).replace('_', "");
    let written_plain = plain(written);
    candidates
        .filter_map(|candidate| {
            let distance = if flat(candidate) == flat(written) {
                0
            } else if written.len() >= 3 && candidate.starts_with(&written_plain) {
                1
            } else {
                strsim::damerau_levenshtein(&written_plain, &plain(candidate))
            };
            let allowed = (candidate.chars().count() / 3).max(1);
            (distance <= allowed).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let source = Source { file: Path::new("x.toml"), text: "a\nüb = 1\n" };
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(2), (2, 1));
        assert_eq!(source.position(4), (2, 2));
        assert_eq!(source.position(9999), (3, 1));
    }

    #[test]
    fn the_nearest_is_found_or_nothing() {
        let keys = ["timeout", "title", "output_schema", "description", "keep", "env"];
        for (written, expected) in [
            ("tiemout", Some("timeout")),
            ("Timeout", Some("timeout")),
            ("output-schema", Some("output_schema")),
            ("outputSchema", Some("output_schema")),
            ("desc", Some("description")),
            ("kepe", Some("keep")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(written, keys.into_iter()), expected, "{written}");
        }
    }
}

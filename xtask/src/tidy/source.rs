//! Rules for source files: a first comment, a bounded length, nothing unfinished.

use super::{File, Finding};

/// Lines that a source file may have.
pub(super) const MAX_LINES: usize = 600;
/// Lines from which on a source file is listed.
const MANY_LINES: usize = 450;

/// Macros that stand for code that is not there. In parts, so that this list is not found itself.
const MACROS: &[&str] = &[concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("db", "g!")];
/// Words that say that something is not finished.
const WORDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is(".rs") {
        if !file.text.starts_with("//!") {
            let hint = "begin the file with a `//!` comment that says what lives here";
            findings.push(Finding::new(file, 1, "has no first comment", hint));
        }
        let lines = file.text.lines().count();
        if lines > MAX_LINES {
            let what = format!("has {lines} lines, more than {MAX_LINES}");
            let hint = "split it by subject";
            findings.push(Finding::new(file, MAX_LINES + 1, what, hint));
        }
    }
    if [".rs", ".sh", ".toml", ".sql", ".yml", ".yaml", ".ci/run"].iter().any(|e| file.is(e)) {
        for (number, line) in file.lines() {
            for word in MACROS.iter().chain(WORDS) {
                if has_word(line, word) {
                    let hint = "finish it, or open an issue and take the mark out";
                    findings.push(Finding::new(file, number, format!("has `{word}`"), hint));
                }
            }
            if file.is(".rs") && line.trim() == "#[ignore]" {
                let hint = "say why: `#[ignore = \"…\"]`";
                findings.push(Finding::new(file, number, "ignores a test without a reason", hint));
            }
        }
    }
    findings
}

/// Source files that are close to the limit, longest first.
pub(super) fn long(files: &[File]) -> Vec<(&str, usize)> {
    let mut long: Vec<_> = files
        .iter()
        .filter(|file| file.is(".rs"))
        .map(|file| (file.path.as_str(), file.text.lines().count()))
        .filter(|(_, lines)| (MANY_LINES + 1..=MAX_LINES).contains(lines))
        .collect();
    long.sort_by_key(|(path, lines)| (std::cmp::Reverse(*lines), *path));
    long
}

/// Whether `word` stands in the line by itself and not as a part of another.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part)
            && (word.ends_with('!') || !line[at + word.len()..].starts_with(part))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{file, said};
    use super::*;

    #[test]
    fn source_files_begin_with_a_comment() {
        assert_eq!(said(check(&file("a.rs", "//! A.\n"))), [""; 0]);
        assert_eq!(said(check(&file("a.rs", "use a;\n"))), ["a.rs:1: has no first comment"]);
        assert_eq!(said(check(&file("a.md", "use a;\n"))), [""; 0]);
    }

    #[test]
    fn long_files_are_listed_then_refused() {
        let of = |lines: usize| file("a.rs", &"//!\n".repeat(lines));
        assert_eq!(long(&[of(450), of(451), of(600), of(601)]), [("a.rs", 600), ("a.rs", 451)]);
        assert_eq!(said(check(&of(600))), [""; 0]);
        assert_eq!(said(check(&of(601))), ["a.rs:601: has 601 lines, more than 600"]);
    }

    #[test]
    fn unfinished_code_is_found() {
        for word in MACROS.iter().chain(WORDS) {
            let text = format!("//! A.\nlet a = 1; {word}\nlet b_{word}y = 2;\n");
            assert_eq!(said(check(&file("a.rs", &text))), [format!("a.rs:2: has `{word}`")]);
        }
        assert_eq!(
            said(check(&file("a.rs", "//! A.\n#[ignore]\n#[ignore = \"slow\"]\n"))),
            ["a.rs:2: ignores a test without a reason"]
        );
    }
}

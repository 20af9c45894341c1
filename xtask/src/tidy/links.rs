//! Relative links in Markdown lead to files and headings that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, Finding};
use crate::run::root;

/// Checks the links of all Markdown files.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    check_with(files, |path| root().join(path).exists())
}

fn check_with(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let markdown = || files.iter().filter(|file| file.is(".md"));
    let headings: BTreeMap<&str, BTreeSet<String>> =
        markdown().map(|file| (file.path.as_str(), headings(file))).collect();
    let mut findings = Vec::new();
    for file in markdown() {
        for (line, target) in links(file) {
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let resolved =
                if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
            let hint = "correct the link, or bring back what it leads to";
            let Some(resolved) = resolved.filter(|path| exists(path)) else {
                let what = format!("links to {target}, which does not exist");
                findings.push(Finding::new(file, line, what, hint));
                continue;
            };
            let known = headings.get(resolved.as_str());
            if !heading.is_empty() && known.is_some_and(|known| !known.contains(heading)) {
                let what = format!("links to {target}, but {resolved} has no such heading");
                findings.push(Finding::new(file, line, what, hint));
            }
        }
    }
    findings
}

/// A path from the root for one that is written in `from`; none if it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Lines outside of fenced code.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    file.lines().filter(move |(_, line)| {
        let line = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                false
            }
            (Some(open), Some(mark)) if open == mark => {
                fence = None;
                false
            }
            (open, _) => open.is_none(),
        }
    })
}

/// The text without what stands between backticks.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let closed = parts.len() % 2 == 1;
    let outside =
        |(index, _): &(usize, &&str)| index % 2 == 0 || (!closed && index + 1 == parts.len());
    parts.iter().enumerate().filter(outside).map(|(_, part)| *part).collect()
}

/// Relative targets of links and images, with their lines.
fn links(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(file) {
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            if let Some(target) = line[at + 2..].split([')', ' ']).next() {
                found.push((number, target.to_owned()));
            }
        }
        // `[name]: target`
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "))
            && let Some(target) = target.split_whitespace().next()
        {
            found.push((number, target.to_owned()));
        }
    }
    found.retain(|(_, target)| {
        let scheme = target.split_once(':').is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
        });
        !target.is_empty() && !scheme
    });
    found
}

/// The anchors that GitHub gives to the headings.
fn headings(file: &File) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(file) {
        let level = line.chars().take_while(|c| *c == '#').count();
        let Some(title) = line[level..].strip_prefix(' ').filter(|_| level > 0) else { continue };
        // Of a link only its text counts.
        let title: String = title
            .split("](")
            .enumerate()
            .map(|(i, part)| if i == 0 { part } else { part.split_once(')').map_or("", |p| p.1) })
            .collect();
        let anchor: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|a| !anchors.contains(a));
        anchors.extend(free);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::super::{file, said};
    use super::*;

    #[test]
    fn links_lead_somewhere() {
        let text = "# One `two` & [three](x.md)\n[a](../src/a.rs) [b](b.md#deep-end) [c](#one-two--three)\n\
                    ```\n[not](a-link.md)\n```\n`[nor](this.md)` [w](https://example.com/x.md)\n\
                    [d](gone.md) ![e](b.md#shallow)\n[f]: ../../out.md\n[g](#nowhere \"title\")\n";
        let files = [
            file("docs/a.md", text),
            file("docs/b.md", "## Deep end\n## Deep end\n"),
            file("docs/x.md", "[b](b.md#deep-end-1)\n"),
            file("src/a.rs", ""),
        ];
        let exists = |path: &str| files.iter().any(|file| file.path == path);
        assert_eq!(
            said(check_with(&files, exists)),
            [
                "docs/a.md:7: links to gone.md, which does not exist",
                "docs/a.md:7: links to b.md#shallow, but docs/b.md has no such heading",
                "docs/a.md:8: links to ../../out.md, which does not exist",
                "docs/a.md:9: links to #nowhere, but docs/a.md has no such heading",
            ]
        );
    }
}

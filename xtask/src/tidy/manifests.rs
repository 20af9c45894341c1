//! Rules for `Cargo.toml`: each dependency named once and with its reason, from the registry, and
//! the workspace's lints for every crate.

use super::{File, Finding};

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    if file.path == "Cargo.toml" {
        check_root(file)
    } else if file.is("/Cargo.toml") {
        check_member(file)
    } else {
        Vec::new()
    }
}

/// Lines with the section they stand in.
fn sections(file: &File) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    file.lines().map(move |(number, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
        }
        (number, section, line)
    })
}

/// The name that a line of a dependency section begins with.
fn dependency(line: &str) -> Option<&str> {
    let end = line.find([' ', '=', '.'])?;
    let name = &line[..end];
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (!name.is_empty() && name.chars().all(is_name) && line.contains('=')).then_some(name)
}

fn from_git(line: &str) -> bool {
    line.split(['{', ',']).any(|part| part.trim_start().starts_with("git = "))
}

fn check_root(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut reason = false;
    for (number, section, line) in sections(file) {
        if section != "[workspace.dependencies]" {
            reason = false;
            continue;
        }
        match dependency(line) {
            _ if line.starts_with('#') => reason = true,
            None if line.is_empty() => reason = false,
            None => {}
            Some(name) => {
                if from_git(line) {
                    findings.push(git_finding(file, number, name));
                }
                if !reason && !line.contains("path = ") {
                    let hint = "say above it, or above its group, why it earns its place";
                    let what = format!("{name} has no reason");
                    findings.push(Finding::new(file, number, what, hint));
                }
            }
        }
    }
    findings
}

fn git_finding(file: &File, line: usize, name: &str) -> Finding {
    Finding::new(file, line, format!("{name} comes from git"), "use a published version")
}

fn check_member(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut linted = false;
    for (number, section, line) in sections(file) {
        linted |= section == "[lints]" && line == "workspace = true";
        if !section.ends_with("dependencies]") || line.starts_with(['#', '[']) {
            continue;
        }
        let Some(name) = dependency(line) else { continue };
        if from_git(line) {
            findings.push(git_finding(file, number, name));
        } else if !line.contains("workspace = true") {
            let hint = "name it in [workspace.dependencies] and write `workspace = true` here";
            let what = format!("{name} has a version of its own");
            findings.push(Finding::new(file, number, what, hint));
        }
    }
    if !linted {
        let hint = "add `[lints]` with `workspace = true`";
        findings.push(Finding::new(file, 1, "does not use the workspace's lints", hint));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{file, said};
    use super::*;

    #[test]
    fn dependencies_have_reasons() {
        let text = "[workspace.dependencies]\nabide-core = { path = \"c\" }\nfoo = \"1\"\n\
                    # For bars.\nbar = \"1\"\nbaz = { version = \"1\" }\n\nqux = \"1\"\n\
                    # Far away.\nfar = { git = \"x\" }\n[profile.dev]\ndebug = 1\n";
        assert_eq!(
            said(check(&file("Cargo.toml", text))),
            [
                "Cargo.toml:3: foo has no reason",
                "Cargo.toml:8: qux has no reason",
                "Cargo.toml:10: far comes from git",
            ]
        );
    }

    #[test]
    fn members_use_the_workspace() {
        let good = "[package]\nname = \"a\"\n[dependencies]\nfoo.workspace = true\n# Why.\n\
                    bar = { workspace = true, features = [\"x\"] }\n[lints]\nworkspace = true\n";
        assert_eq!(said(check(&file("crates/a/Cargo.toml", good))), [""; 0]);
        let bad = "[dependencies]\nfoo = \"1\"\n[dev-dependencies]\nbar = { git = \"y\" }\n";
        assert_eq!(
            said(check(&file("crates/a/Cargo.toml", bad))),
            [
                "crates/a/Cargo.toml:2: foo has a version of its own",
                "crates/a/Cargo.toml:4: bar comes from git",
                "crates/a/Cargo.toml:1: does not use the workspace's lints",
            ]
        );
    }
}

//! `abide-core` is pure: no runtime, protocol library, database, HTTP, clock or random numbers
//! reach it, not even through another crate.

use anyhow::Result;

use super::edges::{Crate, finding};
use super::{File, Finding};
use crate::run::{cargo, output};

const CORE: &str = "abide-core";

/// All that core itself may name.
const DIRECT: &[&str] = &["jiff", "serde", "serde_json", "thiserror"];

/// Crates, and families of crates, that do what core must not.
#[rustfmt::skip]
const IMPURE: &[&str] = &[
    "async-std", "axum", "chrono", "futures-executor", "getrandom", "http", "hyper", "iana-time-zone",
    "libsqlite3-sys", "log", "mio", "openssl", "postgres", "rand", "rand_core", "reqwest", "rmcp",
    "rusqlite", "rustix", "rustls", "smol", "socket2", "sqlx", "time", "tokio", "tower", "tracing",
    "uuid",
];

/// What core is built with, as a tree: each line the depth and a package.
pub(super) fn tree() -> Result<String> {
    let args = ["tree", "--package", CORE, "--edges", "normal,build", "--prefix", "depth"];
    output(cargo(&args).args(["--format", " {p}"]))
}

/// Checks what core names and the tree below it.
pub(super) fn check(crates: &[Crate], tree: &str, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let core = crates.iter().filter(|member| member.name == CORE);
    for (dependency, only_tests) in core.flat_map(|core| &core.dependencies) {
        if !only_tests && !DIRECT.contains(&dependency.as_str()) {
            let what = format!("{CORE} may not use {dependency} (only {})", DIRECT.join(", "));
            let hint = "keep core pure: take it as an argument, or put a trait at its edge";
            findings.push(finding(files, CORE, dependency, what, hint));
        }
    }
    let mut way: Vec<&str> = Vec::new();
    for line in tree.lines() {
        let mut words = line.split(' ');
        let (Some(Ok(depth)), Some(package)) = (words.next().map(str::parse), words.next()) else {
            continue;
        };
        way.truncate(depth);
        way.push(package);
        let impure = IMPURE.iter().any(|bad| {
            package.strip_prefix(bad).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        if impure {
            let what = format!("{CORE} is built with an impure crate: {}", way.join(" → "));
            let hint = "leave the dependency out, or turn off the feature that brings it in";
            findings.push(finding(files, CORE, way.get(1).unwrap_or(&package), what, hint));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{file, said};
    use super::*;

    fn core(dependencies: &[(&str, bool)]) -> [Crate; 1] {
        let dependencies = dependencies.iter().map(|(n, dev)| ((*n).to_owned(), *dev)).collect();
        [Crate { name: CORE.to_owned(), dependencies }]
    }

    #[test]
    fn core_names_only_what_is_listed() {
        let crates = core(&[("serde", false), ("regex", false), ("proptest", true)]);
        assert_eq!(
            said(check(&crates, "", &[])),
            ["crates/abide-core/Cargo.toml:1: abide-core may not use regex (only jiff, serde, \
              serde_json, thiserror)"]
        );
    }

    #[test]
    fn what_reaches_core_through_others_is_found() {
        let tree = "0 abide-core v0.1.0 (path)\n1 serde v1.0.0\n2 serde_core v1.0.0\n1 jiff v1.0.0\n\
                    2 time-helper v1.0.0\n3 tokio v1.0.0\n2 timeless v1.0.0\n1 thiserror v2.0.0\n";
        let files = [file("crates/abide-core/Cargo.toml", "[dependencies]\njiff = \"1\"\n")];
        let start = "crates/abide-core/Cargo.toml:2: abide-core is built with an impure crate";
        assert_eq!(
            said(check(&core(&[]), tree, &files)),
            [
                format!("{start}: abide-core → jiff → time-helper"),
                format!("{start}: abide-core → jiff → time-helper → tokio"),
            ]
        );
    }
}

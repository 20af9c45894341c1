//! Which crate of the house may use which.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{File, Finding};
use crate::run::{cargo, output};

/// A crate and what it may use.
struct Room {
    name: &'static str,
    uses: &'static [&'static str],
    /// What its tests and examples may use besides.
    tests_use: &'static [&'static str],
}

/// The house as ARCHITECTURE.md draws it.
const ROOMS: &[Room] = &[
    Room { name: "abide-core", uses: &[], tests_use: &[] },
    // Its own `suite` feature is on for its tests.
    Room {
        name: "abide-store",
        uses: &["abide-core", "abide-torture"],
        tests_use: &["abide-store"],
    },
    Room {
        name: "abide-engine",
        uses: &["abide-core", "abide-torture"],
        tests_use: &["abide-store"],
    },
    Room {
        name: "abide-backends",
        uses: &["abide-core", "abide-client", "abide-torture"],
        tests_use: &[],
    },
    Room {
        name: "abide-server",
        uses: &["abide-core", "abide-engine"],
        tests_use: &["abide-store"],
    },
    Room { name: "abide-client", uses: &[], tests_use: &[] },
    Room {
        name: "abide-cli",
        uses: &[
            "abide-core",
            "abide-store",
            "abide-engine",
            "abide-backends",
            "abide-server",
            "abide-client",
        ],
        tests_use: &[],
    },
    Room { name: "abide-torture", uses: &[], tests_use: &[] },
    Room { name: "xtask", uses: &[], tests_use: &[] },
];

/// A crate of the workspace.
pub(super) struct Crate {
    pub(super) name: String,
    /// Name, and whether only tests and examples use it.
    pub(super) dependencies: Vec<(String, bool)>,
}

/// The crates of the workspace and what their manifests name.
pub(super) fn crates() -> Result<Vec<Crate>> {
    let json = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    read(&json).context("`cargo metadata` printed what can't be read")
}

fn read(json: &str) -> Result<Vec<Crate>> {
    let metadata: Value = serde_json::from_str(json)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let crates: Vec<Crate> = list(&metadata["packages"])
        .iter()
        .map(|package| Crate {
            name: text(&package["name"]),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(|dependency| (text(&dependency["name"]), dependency["kind"] == "dev"))
                .collect(),
        })
        .collect();
    anyhow::ensure!(!crates.is_empty(), "it names no crates");
    Ok(crates)
}

/// Where `dependency` stands in the manifest of `name`.
pub(super) fn finding(
    files: &[File],
    name: &str,
    dependency: &str,
    what: String,
    hint: &'static str,
) -> Finding {
    let path = if name == "xtask" {
        "xtask/Cargo.toml".to_owned()
    } else {
        format!("crates/{name}/Cargo.toml")
    };
    let is_it = |line: &str| {
        line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    let line = files
        .iter()
        .find(|file| file.path == path)
        .and_then(|file| file.lines().find(|(_, line)| is_it(line)))
        .map_or(1, |(line, _)| line);
    Finding { path, line, what, hint }
}

/// Every edge between crates of the house is one that the house has.
pub(super) fn check(crates: &[Crate], files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Crate { name, dependencies } in crates {
        let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
            let hint = "give it a row in xtask/src/tidy/edges.rs and a place in ARCHITECTURE.md";
            findings.push(finding(
                files,
                name,
                "name",
                format!("{name} is not in the house"),
                hint,
            ));
            continue;
        };
        for (dependency, only_tests) in dependencies {
            let dependency = dependency.as_str();
            let ours = crates.iter().any(|other| other.name == dependency);
            let allowed = room.uses.contains(&dependency)
                || (*only_tests && room.tests_use.contains(&dependency));
            if ours && !allowed {
                let may = if room.uses.is_empty() {
                    "no crate of the house".to_owned()
                } else {
                    format!("only {}", room.uses.join(", "))
                };
                let what = format!("{name} may not use {dependency} (it may use {may})");
                let hint =
                    "move the code to the room it belongs to, or put a trait into abide-core";
                findings.push(finding(files, name, dependency, what, hint));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{file, said};
    use super::*;

    fn house(crates: &[(&str, &[(&str, bool)])]) -> Vec<Crate> {
        let one = |(name, dependencies): &(&str, &[(&str, bool)])| Crate {
            name: (*name).to_owned(),
            dependencies: dependencies.iter().map(|(n, dev)| ((*n).to_owned(), *dev)).collect(),
        };
        crates.iter().map(one).collect()
    }

    #[test]
    fn only_edges_of_the_house_pass() {
        let good = house(&[
            ("abide-core", &[("serde", false)]),
            ("abide-store", &[("abide-core", false), ("abide-store", true)]),
            ("abide-engine", &[("abide-core", false), ("abide-store", true)]),
        ]);
        assert_eq!(said(check(&good, &[])), [""; 0]);

        let bad = house(&[
            ("abide-core", &[("abide-store", true)]),
            ("abide-store", &[]),
            ("abide-engine", &[("abide-store", false)]),
            ("abide-utils", &[]),
        ]);
        let manifest = "[package]\nname = \"abide-engine\"\n\nabide-store.workspace = true\n";
        let files = [file("crates/abide-engine/Cargo.toml", manifest)];
        assert_eq!(
            said(check(&bad, &files)),
            [
                "crates/abide-core/Cargo.toml:1: abide-core may not use abide-store (it may use no \
                 crate of the house)",
                "crates/abide-engine/Cargo.toml:4: abide-engine may not use abide-store (it may \
                 use only abide-core, abide-torture)",
                "crates/abide-utils/Cargo.toml:1: abide-utils is not in the house",
            ]
        );
    }

    #[test]
    fn rooms_are_named_once_and_use_rooms() {
        for room in ROOMS {
            assert_eq!(ROOMS.iter().filter(|other| other.name == room.name).count(), 1);
            for used in room.uses.iter().chain(room.tests_use) {
                assert!(ROOMS.iter().any(|other| other.name == *used), "{used}");
            }
        }
    }

    #[test]
    fn metadata_is_read() {
        let crates = read(
            r#"{"packages":[{"name":"a","dependencies":[{"name":"b","kind":null},
                {"name":"c","kind":"dev"}]}]}"#,
        )
        .unwrap();
        assert_eq!(crates.len(), 1);
        assert_eq!(crates[0].name, "a");
        assert_eq!(crates[0].dependencies, [("b".to_owned(), false), ("c".to_owned(), true)]);
        assert!(read("{}").is_err());
    }
}

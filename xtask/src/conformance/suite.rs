//! The suite itself: installed by its lock file into `target`, with the Node that it needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{command, output, root, show};
use crate::tools::NPM;

/// The protocol revision whose server scenarios are required.
const REVISION: &str = "2026-07-28";
/// Major version of Node that the suite asks for.
const NODE_MAJOR: u32 = 22;
/// What is checked in and copied, so that no `node_modules` lands among the sources.
const PACKAGE_FILES: &[&str] = &["package.json", "package-lock.json", ".npmrc"];

/// The installed suite.
pub(super) struct Suite {
    folder: PathBuf,
    node: PathBuf,
}

impl Suite {
    /// Installs the suite unless exactly this one is installed already.
    pub(super) fn install() -> Result<Self> {
        let folder = root().join("target/conformance");
        let from = root().join("xtask/conformance");
        fs::create_dir_all(&folder)?;
        // Written last, so that an installation that was cut short is not taken for a whole one.
        let stamp = folder.join("installed.json");
        let lock = fs::read_to_string(from.join("package-lock.json"))
            .context("can't read xtask/conformance/package-lock.json")?;
        if fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == lock) {
            return Self::at(folder);
        }
        NPM.require()?;
        for name in PACKAGE_FILES {
            fs::copy(from.join(name), folder.join(name))
                .with_context(|| format!("can't copy xtask/conformance/{name}"))?;
        }
        // npm is run by an older Node than the suite will be: its warning says nothing new.
        let args = ["ci", "--loglevel=error", "--no-fund", "--no-audit"];
        show(command("npm", &args).current_dir(&folder))
            .context("npm can't install the suite; hint: it needs its registry, once")?;
        let suite = Self::at(folder)?;
        fs::write(stamp, lock)?;
        Ok(suite)
    }

    fn at(folder: PathBuf) -> Result<Self> {
        // The pinned Node of this platform, which npm links when the lock file has one for it.
        let pinned = folder.join("node_modules/.bin/node");
        let node = if pinned.exists() { pinned } else { PathBuf::from("node") };
        let version = output(Command::new(&node).arg("--version")).with_context(|| {
            format!("there is no Node; hint: install Node {NODE_MAJOR} or newer")
        })?;
        if major(&version).is_none_or(|major| major < NODE_MAJOR) {
            bail!(
                "Node {} is too old for the suite; hint: install Node {NODE_MAJOR} or newer",
                version.trim()
            );
        }
        Ok(Self { folder, node })
    }

    /// Where the suite is installed.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn command(&self, args: &[&str]) -> Command {
        let script =
            self.folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        let mut command = command(&self.node, &[]);
        command.arg(script).args(args);
        command
    }

    /// Every server scenario of the revision, scored or not.
    pub(super) fn scenarios(&self) -> Result<Vec<String>> {
        let list = output(&mut self.command(&["list", "--requirements", REVISION]))?;
        let names = server_scenarios(&list);
        if names.is_empty() {
            bail!("the suite lists no server scenarios; it printed:\n{list}");
        }
        Ok(names)
    }

    /// Runs one scenario.
    pub(super) fn run_one(&self, url: &str, scenario: &str, out: &Path) -> Result<()> {
        let mut command = self.command(&["server", "--url", url, "--scenario", scenario, "-o"]);
        command.arg(out);
        // An extension's scenario with a version is skipped, and any other without one speaks an
        // older revision.
        if !super::TASKS.contains(&scenario) {
            command.args(["--spec-version", REVISION]);
        }
        self.run(&mut command, scenario, out)
    }

    /// Runs all scenarios of the revision.
    pub(super) fn run_required(&self, url: &str, out: &Path) -> Result<()> {
        let mut command = self.command(&["server", "--url", url, "--requirements", REVISION, "-o"]);
        command.arg(out);
        self.run(&mut command, &format!("all of {REVISION}"), out)
    }

    /// The exit code is not looked at: it knows failures of scored scenarios only.
    fn run(&self, command: &mut Command, what: &str, out: &Path) -> Result<()> {
        println!("running {what}");
        fs::create_dir_all(out)?;
        let done = command.output().context("can't start the suite")?;
        let log = out.join(format!("{}.log", what.replace([' ', '/'], "-")));
        let text = [done.stdout.as_slice(), b"\n", done.stderr.as_slice()].concat();
        fs::write(log, text).context("can't keep the suite's output")
    }
}

fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// The server scenarios in the suite's list: a section of required ones, then those that are run
/// but never scored, each marked with its side.
fn server_scenarios(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_section = false;
    for line in list.lines() {
        if !line.starts_with([' ', '\t']) {
            in_section = line.starts_with("Server scenarios");
        }
        let Some(name) = line.trim().strip_prefix("- ") else { continue };
        match name.split_once(' ') {
            None if in_section => names.push(name.to_owned()),
            Some((name, "[server]")) => names.push(name.to_owned()),
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_scenarios_is_read() {
        let list = "Required for 2026-07-28 (3 scenarios):\n\nServer scenarios (test a server):\n  \
                    - tools-list\n  - caching\n\nClient scenarios (test a client):\n  - tools_call\n\
                    \nRun and reported, but never scored:\n  extension (2):\n    \
                    - auth/dpop [client]\n    - tasks-lifecycle [server]\n";
        assert_eq!(server_scenarios(list), ["tools-list", "caching", "tasks-lifecycle"]);
    }

    #[test]
    fn versions_of_node() {
        assert_eq!(major("v22.23.3\n"), Some(22));
        assert_eq!(major("22"), None);
    }
}

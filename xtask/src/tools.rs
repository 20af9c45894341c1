//! The programs that the chores need: found, installed where that is nobody's surprise, or named.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::run;

/// A program that a chore needs.
pub(crate) struct Tool {
    name: &'static str,
    /// A command that succeeds if the program is there.
    probe: &'static [&'static str],
    /// A command that installs it.
    install: &'static [&'static str],
}

pub(crate) const GIT: Tool = Tool {
    name: "git",
    probe: &["git", "--version"],
    install: &["apt-get", "install", "-y", "--no-install-recommends", "git"],
};
pub(crate) const RUSTFMT: Tool = Tool {
    name: "rustfmt",
    probe: &["cargo", "fmt", "--version"],
    install: &["rustup", "component", "add", "rustfmt"],
};
pub(crate) const CLIPPY: Tool = Tool {
    name: "clippy",
    probe: &["cargo", "clippy", "--version"],
    install: &["rustup", "component", "add", "clippy"],
};
/// For the bundled SQLite.
pub(crate) const CC: Tool = Tool {
    name: "a C compiler",
    probe: &["cc", "--version"],
    install: &["apt-get", "install", "-y", "--no-install-recommends", "gcc", "libc6-dev"],
};
/// For the commands that the demo prints.
pub(crate) const CURL: Tool = Tool {
    name: "curl",
    probe: &["curl", "--version"],
    install: &["apt-get", "install", "-y", "--no-install-recommends", "curl"],
};
/// It brings the Node that runs it; the suite gets a newer one of its own.
pub(crate) const NPM: Tool = Tool {
    name: "npm",
    probe: &["npm", "--version"],
    install: &["apt-get", "install", "-y", "--no-install-recommends", "npm"],
};

impl Tool {
    /// Whether the program is there.
    pub(crate) fn found(&self) -> bool {
        succeeds(self.probe)
    }

    /// Makes sure that the program is there. Under `CI=true` and for root it is installed.
    ///
    /// # Errors
    /// The program is missing and was not installed; says how to do it.
    pub(crate) fn require(&self) -> Result<()> {
        if self.found() {
            return Ok(());
        }
        let by_hand = self.install.join(" ");
        if may_install() {
            eprintln!("{} is missing; installing it", self.name);
            if self.install[0] == "apt-get" {
                run::show(&mut run::command("apt-get", &["update", "-q"]))?;
            }
            run::show(&mut run::command(self.install[0], &self.install[1..]))?;
            if self.found() {
                return Ok(());
            }
            bail!("{} is still missing after `{by_hand}`", self.name);
        }
        bail!(
            "{} is missing; hint: install it (on Debian and Ubuntu, as root: `{by_hand}`), or set \
             CI=true to have it installed",
            self.name
        );
    }
}

/// Whether `cargo nextest` is there.
pub(crate) fn has_nextest() -> bool {
    succeeds(&["cargo", "nextest", "--version"])
}

fn succeeds(words: &[&str]) -> bool {
    Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn may_install() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
        || run::output(&mut run::command("id", &["-u"])).is_ok_and(|uid| uid.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_exist_is_not_found() {
        let tool = Tool { name: "x", probe: &["no-such-program-here", "-v"], install: &["false"] };
        assert!(!tool.found());
        assert!(succeeds(&["cargo", "--version"]));
        assert!(!succeeds(&["cargo", "--no-such-flag"]));
    }
}

//! `abide config`: what may be in a config file, and whether one is right.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::config::{self, Config, lookup, reference, schema};
use crate::failure::Failure;
use crate::terminal;

/// Check a config file, or print what may be in one
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say everything that is wrong with a config file
    ///
    /// Exits with 2 when the file can't be used. What is allowed but looks wrong, such as a
    /// program that is not on PATH, is a warning.
    Check {
        /// The config file
        file: PathBuf,
    },
    /// Print the JSON Schema of the config file
    Schema,
    /// Print the reference of all keys as Markdown
    Reference,
}

/// Runs `abide config`.
///
/// # Errors
/// [`Failure`] with exit code 2 when the file of `check` can't be used.
pub fn run(command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { file } => check(file),
        ConfigCommand::Schema => Ok(terminal::data(format_args!("{:#}", schema::schema()))?),
        ConfigCommand::Reference => Ok(terminal::data(reference::reference().trim_end())?),
    }
}

fn check(file: &Path) -> Result<(), Failure> {
    let config = load(file)?;
    let names: Vec<&str> = config.tools.iter().map(|tool| tool.name.as_str()).collect();
    let noun = if names.len() == 1 { "tool" } else { "tools" };
    terminal::data(format_args!("ok: {} {noun} ({})", names.len(), names.join(", ")))?;
    Ok(())
}

/// Reads a config file and says what looks wrong with it.
///
/// # Errors
/// [`Failure`] with exit code 2 when it can't be used.
pub(super) fn load(file: &Path) -> Result<Config, Failure> {
    let loaded = config::load(file)?;
    for problem in &loaded.warnings {
        terminal::warn(problem);
    }
    for warning in lookup::warnings(&loaded.config) {
        terminal::warn(warning);
    }
    Ok(loaded.config)
}

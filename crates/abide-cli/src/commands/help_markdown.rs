//! `abide help-markdown`: the reference page of the command line.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;
use crate::failure::Failure;
use crate::terminal;

/// The program.
const ROOT: &str = "abide";
/// Characters of a line in the page.
const WIDTH: usize = 90;

/// Prints the page.
///
/// # Errors
/// [`Failure`] when standard output can't be written to.
pub fn run() -> Result<(), Failure> {
    Ok(terminal::data(page().trim_end())?)
}

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "<!-- Written by `abide help-markdown`; don't edit. -->\n\n\
         # The command line\n\n\
         Data goes to standard output, talk and logs go to standard error. A line that begins with \
         `hint:` says what to do next. Variables in `[env: …]` are used where the flag is not \
         given. The log flags go with every command.\n\n\
         | Exit code | |\n|---|---|\n\
         | 0 | All went well. |\n\
         | 1 | Something failed while the command did its work. |\n\
         | 2 | The command line or the config file is wrong; nothing was done. |\n",
    );
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    section(&mut command, ROOT, &mut page);
    page
}

fn section(command: &mut Command, name: &str, page: &mut String) {
    // Writing to a string can't fail.
    let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", help(command, name == ROOT));
    for inner in command.get_subcommands_mut() {
        if !inner.is_hide_set() && inner.get_name() != "help" {
            let name = format!("{name} {}", inner.get_name());
            section(inner, &name, page);
        }
    }
}

/// The help text; of the log flags, which every command has, only the first section tells.
fn help(command: &mut Command, is_root: bool) -> String {
    let help = command.render_long_help().to_string();
    let help = match help.split_once("\nLogs:\n") {
        Some((before, _)) if !is_root => before,
        _ => &help,
    };
    help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

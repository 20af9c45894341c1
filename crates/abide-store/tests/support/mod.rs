//! Tests that run a part of themselves in a process of its own: the test binary again, with the
//! name of one test and a folder.

use std::env;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "ABIDE_STORE_TEST_FOLDER";

/// The folder that the parent has handed over, if this process is a child.
pub(crate) fn child_folder() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
}

/// A command that runs `test` as a child, through the program and arguments in `wrapper`.
#[expect(clippy::disallowed_methods, reason = "the child is this test itself")]
pub(crate) fn child(wrapper: &[&str], exe: &Path, test: &str, folder: &Path) -> Command {
    let mut command = match wrapper {
        [] => Command::new(exe),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(exe);
            command
        }
    };
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    command
}

/// Says something to the parent, past the test harness.
pub(crate) fn say(line: &str) {
    // The line break before it ends whatever the harness has begun to write.
    stdout().lock().write_all(format!("\n{line}\n").as_bytes()).expect("the parent listens");
}

//! Tests that need a process of their own: the program is run again for this one test.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// What says to the child that it is the child.
const ALONE: &str = "TEST_ALONE";

/// Whether this is the child. If not, it has run, through the launchers that are tried one after
/// the other, and has succeeded; or no launcher could start it, which is said loudly.
#[expect(clippy::disallowed_methods, reason = "the child is this test itself")]
#[expect(clippy::print_stderr, reason = "what was not tested must be seen")]
pub(crate) fn is_alone(test: &str, launchers: &[&[&str]]) -> bool {
    if std::env::var_os(ALONE).is_some() {
        eprintln!("{ALONE}");
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    for launcher in launchers {
        let mut line: Vec<&OsStr> = launcher.iter().map(OsStr::new).collect();
        line.extend([exe.as_os_str(), "--exact".as_ref(), test.as_ref(), "--nocapture".as_ref()]);
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).env(ALONE, "1").stdin(Stdio::null());
        let Ok(output) = command.output() else { continue };
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains(ALONE) {
            eprint!("{}", said.replace(&format!("{ALONE}\n"), ""));
            let out = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{out}\n{said}");
            return false;
        }
    }
    eprintln!("\n*** {test} DID NOT RUN: {launchers:?} can't be run here ***");
    false
}

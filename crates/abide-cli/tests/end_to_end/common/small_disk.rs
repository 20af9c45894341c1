//! Disks of a size that tests can fill, in mount namespaces of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::say;

/// The folder that a test hands to itself when it runs again as a child.
const FOLDER: &str = "TEST_SMALL_DISK_FOLDER";
/// What the child says once it has its disk.
const MOUNTED: &str = "the small disk is mounted";

/// Runs `scenario` with a small disk at the path it gets. `test` is the calling test's full name:
/// the test binary is run again, with mounts of its own, for this one test. Where mounting is not
/// permitted it says so, loudly; the store's own tests fill a file that can't grow, which needs no
/// permission.
pub(crate) async fn on_a_small_disk<F: Future<Output = ()>>(
    test: &str,
    size: &str,
    scenario: impl FnOnce(PathBuf) -> F,
) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let disk = PathBuf::from(folder).join("disk");
        let options = format!("size={size}");
        if mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], &disk) {
            say(MOUNTED);
            scenario(disk).await;
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("disk")).expect("a folder");
    for flags in [&["--mount"][..], &["--user", "--map-root-user", "--mount"][..]] {
        let Ok(output) = again(flags, test, folder.path()).output() else { continue };
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains(MOUNTED) {
            let out = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{out}\n{said}");
            return;
        }
    }
    say(&format!("\n*** {test} DID NOT RUN: mounting a tmpfs is not permitted here ***"));
}

#[expect(clippy::disallowed_methods, reason = "the child is this test itself")]
fn again(flags: &[&str], test: &str, folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(flags)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdin(Stdio::null());
    command
}

/// Mounts something; false if it is not permitted.
#[expect(clippy::disallowed_methods, reason = "mounting takes a program")]
pub(crate) fn mount(arguments: &[&str], at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(arguments).arg(at);
    command.status().is_ok_and(|status| status.success())
}

//! Config files in folders of their own, and where the repository is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

/// A folder with a config file; the database lies beside it.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: Option<tempfile::TempDir>,
}

impl Folder {
    /// `server` and `tools` are TOML; the port is any free one.
    pub(crate) fn new(server: &str, tools: &str) -> Self {
        let folder = Self { folder: Some(tempfile::tempdir().expect("a folder")) };
        folder.write(
            "abide.toml",
            &format!("[server]\nlisten = \"127.0.0.1:0\"\n{server}\n{tools}\n"),
        );
        folder
    }

    /// The config file.
    pub(crate) fn config(&self) -> PathBuf {
        self.path("abide.toml")
    }

    /// The database.
    pub(crate) fn database(&self) -> PathBuf {
        self.path("abide.db")
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.as_ref().expect("here until it is kept").path().join(name)
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    /// Writes a shell script into the folder; it can be run as `./name`.
    pub(crate) fn script(&self, name: &str, lines: &str) {
        self.write(name, &format!("#!/bin/sh\n{lines}\n"));
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.path(name), mode).expect("made executable");
    }

    /// Writes `./gate.sh`: it leaves its process id and that of a child in the file `pids`, and
    /// waits for the file `gate`. Left alone, both end after a minute or two.
    pub(crate) fn gate(&self) {
        self.script(
            "gate.sh",
            "sleep 100 &\necho $! >> pids\necho $$ >> pids\nlooks=0\n\
             until [ -e gate ] || [ $looks = 5000 ]; do sleep 0.02; looks=$((looks + 1)); done\n\
             echo through",
        );
    }

    /// What is in a file of the folder by now; empty if it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Leaves the folder where it is, for people to look at.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.folder.take().expect("kept once").keep()
    }
}

/// What a test leaves running, because it failed or because that was its point, is stopped.
impl Drop for Folder {
    fn drop(&mut self) {
        let Some(folder) = &self.folder else { return };
        let runs =
            fs::read_dir(folder.path().join("abide.db.runs")).into_iter().flatten().flatten();
        for run in runs {
            let lock = fs::read_to_string(run.path().join("lock")).unwrap_or_default();
            let ended = run.path().join("outcome.json").exists();
            let runner =
                lock.lines().find_map(|line| line.strip_prefix("runner ")?.split(' ').next());
            if let (false, Some(Ok(pid))) = (ended, runner.map(str::parse)) {
                super::signal_process(pid, Signal::TERM);
            }
        }
    }
}

/// The root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// A file in `examples/`.
pub(crate) fn example(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

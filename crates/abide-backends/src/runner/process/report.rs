//! Writes the outcome, whatever it takes.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::Duration;

use crate::runner::folder::{DRAFT, Folder, OUTCOME};
use crate::runner::outcome::RunOutcome;

/// Bytes that are set aside for the outcome at the start; it has about 400.
const RESERVED_BYTES: usize = 4096;
/// The first wait between two attempts to write it.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Later waits double up to this.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// A file with room for the outcome.
pub(super) struct Draft(File);

impl Draft {
    /// Takes the room, so that a disk that is full at the end can't hold up the outcome.
    pub(super) fn reserve(folder: &Folder) -> io::Result<Self> {
        let mut file = folder.create(DRAFT)?;
        file.write_all(&[b' '; RESERVED_BYTES])?;
        Ok(Self(file))
    }
}

/// Writes the outcome; returns when it is on disk, or when the folder is gone, so that nobody
/// can ever ask for it.
pub(super) fn write(folder: &Folder, draft: Draft, outcome: &RunOutcome) {
    let mut draft = Some(draft);
    let mut wait = FIRST_WAIT;
    while try_write(folder, draft.take(), outcome).is_err() && !folder.is_removed() {
        thread::sleep(wait);
        wait = (wait * 2).min(LAST_WAIT);
    }
}

fn try_write(folder: &Folder, draft: Option<Draft>, outcome: &RunOutcome) -> io::Result<()> {
    let mut json = serde_json::to_vec(outcome)?;
    json.push(b'\n');
    let Draft(file) = draft.map_or_else(|| Draft::reserve(folder), Ok)?;
    file.write_all_at(&json, 0)?;
    file.set_len(json.len() as u64)?;
    file.sync_all()?;
    folder.rename(DRAFT, OUTCOME)?;
    folder.sync()
}

//! Putting a damaged database aside, so that a new one can take its place and nothing is lost.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use abide_core::Timestamp;

use super::error::OpenError;
use super::lock::{Lock, resolve};

/// What belongs to SQLite beside a database.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// Renames the database at `path`, with its write-ahead log, to a name that says when, and returns
/// the new one. Both stay as they are.
///
/// # Errors
/// An [`OpenError`]: another process has it, or it can't be renamed.
pub fn set_aside(path: &Path, now: Timestamp) -> Result<PathBuf, OpenError> {
    let path = resolve(path)?;
    let _lock = Lock::take(&path)?;
    // Colons are no good in names that people type.
    let when = now.to_string().replace(':', "");
    let aside = (1..)
        .map(|number| {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            with_suffix(&path, &format!(".damaged-{when}{number}"))
        })
        .find(|aside| !aside.exists())
        .unwrap_or_else(|| with_suffix(&path, ".damaged"));
    // The log first: a database without its log is missing something, and one that is renamed
    // while its log is not would let the new database find the old log.
    for companion in COMPANIONS {
        let from = with_suffix(&path, companion);
        match fs::rename(&from, with_suffix(&aside, companion)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(|source| OpenError::from_io(&from, source))?,
        }
    }
    fs::rename(&path, &aside).map_err(|source| OpenError::from_io(&path, source))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| OpenError::from_io(folder, source))?;
    Ok(aside)
}

/// The path with something behind its name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

//! Copying a database while it is in use.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::check::{Findings, beside, look_over};
use super::error::OpenError;
use super::lock::resolve;
use super::open::{configure, connect};

/// A finished backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The new file, as an absolute path.
    pub file: PathBuf,
    /// What a check of it found, which is nothing wrong.
    pub findings: Findings,
}

/// Why there is no backup. No file of its name was made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database can't be read, or the copy can't be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is something already.
    #[error("{} is there already; name a new file, since a backup is never written over another", .file.display())]
    Exists {
        /// What was named.
        file: PathBuf,
    },
    /// The copy was checked and is not whole, since the database is not.
    #[error("{} is damaged, and so would be its backup: {problem}", .database.display())]
    Damaged {
        /// The database.
        database: PathBuf,
        /// The first thing that is wrong.
        problem: String,
    },
}

/// Copies the database at `from`, as it is at one moment, into the new file `to`, which holds all of
/// it: there is no write-ahead log to keep with it. The server that uses the database goes on
/// meanwhile. The copy gets its name only when it has been checked and is on disk.
///
/// # Errors
/// A [`BackupError`].
pub fn backup(from: &Path, to: &Path) -> Result<Copied, BackupError> {
    let from = resolve(from)?;
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists { file: to.to_owned() });
    }
    let to = resolve(to)?;
    let folder = to.parent().unwrap_or(Path::new("/"));
    let io = |source| OpenError::from_io(&to, source);
    let copy = tempfile::Builder::new()
        .prefix(".abide-backup-")
        .suffix(".db")
        .tempfile_in(folder)
        .map_err(|source| OpenError::from_io(folder, source))?;

    let copied = beside(&from, |source| copy_pages(source, &from, copy.path()));
    let findings = copied.map_err(|error| match error {
        // By the names that were given.
        OpenError::DiskFull { path } if path == copy.path() => {
            OpenError::DiskFull { path: to.clone() }
        }
        other => other,
    })?;
    if let Some(problem) = findings.problems.first() {
        return Err(BackupError::Damaged { database: from, problem: problem.clone() });
    }
    copy.as_file().sync_all().map_err(io)?;
    copy.persist_noclobber(&to).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Exists { file: to.clone() },
        _ => OpenError::from_io(&to, error.error).into(),
    })?;
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    Ok(Copied { file: to, findings })
}

/// Copies, and checks the copy.
fn copy_pages(source: &Connection, from: &Path, to: &Path) -> Result<Findings, OpenError> {
    super::schema::identify(source, from)?;
    // Of the copy, which is synced as a whole.
    let mut copy = connect(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    configure(&copy, "PRAGMA synchronous = OFF;", to)?;
    let step = {
        let backup =
            Backup::new(source, &mut copy).map_err(|error| OpenError::from_sqlite(to, error))?;
        // All at once is one snapshot; writers go on beside a reader.
        backup.step(-1).map_err(|error| match OpenError::from_sqlite(to, error) {
            OpenError::Corrupt { problem, .. } => {
                OpenError::Corrupt { path: from.to_owned(), problem }
            }
            other => other,
        })?
    };
    if !matches!(step, StepResult::Done) {
        return Err(OpenError::Busy { path: from.to_owned() });
    }
    // Every page into the one file, and no log beside it.
    configure(&copy, "PRAGMA journal_mode = DELETE;", to)?;
    let findings = look_over(&copy, to)?;
    copy.close().map_err(|(_, error)| OpenError::from_sqlite(to, error))?;
    Ok(findings)
}

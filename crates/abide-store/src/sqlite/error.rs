//! What can go wrong when a database is opened, and SQLite's errors in the store's words.

use std::io;
use std::path::{Path, PathBuf};

use abide_core::{CorruptRecord, StoreError};
use rusqlite::ErrorCode;

/// Why a database could not be opened. Nothing that was there has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The SQLite library is one whose write-ahead log can lose commits.
    #[error(
        "SQLite {found} can lose committed data when its write-ahead log is reset; abide needs \
         {} or newer",
        super::open::SQLITE_NEEDED
    )]
    SqliteTooOld {
        /// The library's version.
        found: &'static str,
    },
    /// The folder of the database is not there.
    #[error("the folder {} does not exist; create it, or name another place for the database",
        .folder.display())]
    FolderMissing {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder or a device where the database should be.
    #[error("{} is not a file; name a file for the database", .path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A symbolic link to nothing.
    #[error("{} is a symbolic link to a file that does not exist; mend or remove the link",
        .path.display())]
    DanglingLink {
        /// The link.
        path: PathBuf,
    },
    /// The operating system does not let this user in.
    #[error("no permission to use {}; the user that runs abide must be able to read and write \
        the database and to create files in its folder", .path.display())]
    Denied {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The database can be read, and not written.
    #[error("{} is read-only; abide must be able to write the database and its folder",
        .path.display())]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// Another abide, or another store in this process, has the database.
    #[error("{} is in use by another abide{}; one database serves one process: stop the other \
        one, or name another file", .path.display(), pid_text(*.pid))]
    Locked {
        /// The database.
        path: PathBuf,
        /// The process that has it, if it could be found out.
        pid: Option<u32>,
    },
    /// Another program has the database locked inside SQLite.
    #[error("{} is locked by another program that is writing to it; close that program and try \
        again", .path.display())]
    Busy {
        /// The database.
        path: PathBuf,
    },
    /// Some other file, or a database whose beginning is gone.
    #[error("{} is not a SQLite database; it was left as it is: name another file, or restore a \
        backup if it was abide's", .path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// Another application's database.
    #[error("{} is a database of another application; it was left as it is: name another file",
        .path.display())]
    OtherApplication {
        /// The file.
        path: PathBuf,
    },
    /// A newer abide has migrated the database.
    #[error("{} was written by a newer abide (schema {found}, this one knows up to {known}); \
        run that version or a later one", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema version.
        found: i32,
        /// The newest schema version that this program knows.
        known: i32,
    },
    /// The tables are not those of the schema version that the database names.
    #[error("the tables of {} are not abide's ({problem}); it was left as it is: restore a backup",
        .path.display())]
    OtherTables {
        /// The database.
        path: PathBuf,
        /// What SQLite misses.
        problem: String,
    },
    /// A write-ahead log without its database, which SQLite would delete.
    #[error("{} is missing or empty, but its write-ahead log {}-wal is not; the log was left as it \
        is: restore a backup and move the log away, or put the database back if it was moved",
        .path.display(), .path.display())]
    LogAlone {
        /// The database.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error("{} is damaged ({problem}); it was left as it is: restore a backup, or get out \
        what can be read, as docs/operations.md says", .path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// No space left.
    #[error("the disk that holds {} is full; free some space and try again", .path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// The file system can't hold a write-ahead log.
    #[error("{} lies on a file system that has no shared memory for a write-ahead log; name a \
        file on a local disk", .path.display())]
    NoWriteAheadLog {
        /// The database.
        path: PathBuf,
    },
    /// The operating system gave no thread.
    #[error("no thread could be started for the database")]
    Thread(#[source] io::Error),
    /// Anything else that the operating system says.
    #[error("{} could not be opened", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Anything else that SQLite says.
    #[error("SQLite could not open {}", .path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

impl OpenError {
    /// Sorts an error of the operating system about `path`.
    pub(super) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied { path, source },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            io::ErrorKind::IsADirectory => Self::NotAFile { path },
            _ => Self::Io { path, source },
        }
    }

    /// Sorts an error of SQLite about the database at `path`.
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        if is_disk_full(&source) {
            return Self::DiskFull { path };
        }
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, problem: source.to_string() },
            Some(ErrorCode::ReadOnly) => Self::ReadOnly { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            _ => Self::Sqlite { path, source },
        }
    }
}

/// Why one change or read did not happen.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The answer is an error of the contract.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQLite did not do it.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

impl From<CorruptRecord> for Failure {
    fn from(corrupt: CorruptRecord) -> Self {
        Self::Store(corrupt.into())
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => error,
            Failure::Sqlite(error) => Self::unavailable(problem(&error)),
        }
    }
}

/// Also when it is the log's shared memory, a file like the others, that finds no room.
fn is_disk_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| {
        error.code == ErrorCode::DiskFull
            || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
    })
}

/// What callers are told when the file is damaged.
pub(super) const DAMAGED: &str = "the database is damaged; restore a backup";

/// Whether SQLite says that the file itself is damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// What callers are told about an error of SQLite; the error itself is for the log.
pub(super) fn problem(error: &rusqlite::Error) -> &'static str {
    if is_disk_full(error) {
        return "the disk is full";
    }
    if is_damage(error) {
        return DAMAGED;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => "the database is read-only",
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            "reading or writing the database failed"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program holds the database"
        }
        Some(ErrorCode::OutOfMemory) => "memory ran out",
        Some(ErrorCode::ConstraintViolation) => "there is a task with this id already",
        Some(ErrorCode::TooBig) => "the task is larger than the database can hold",
        _ => "the database did not take it",
    }
}

/// Whether the transaction around the statement that failed can't be trusted any more; SQLite
/// rolls some of these back by itself (sqlite.org, "Response To Errors Within A Transaction").
pub(super) fn breaks_transaction(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseBusy
                | ErrorCode::OperationInterrupted
        )
    )
}

/// The answer to calls that come when the store is closed or closing.
pub(super) fn closed() -> StoreError {
    StoreError::unavailable("the store is closed")
}

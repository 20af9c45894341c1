//! Looking into a database, and copying it, beside the process that has it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use abide_core::Status;
use rusqlite::{Connection, OpenFlags};

use super::aside::with_suffix;
use super::error::OpenError;
use super::lock::resolve;
use super::open::BUSY_TIMEOUT;
use super::{rows, schema};

/// Problems that are listed.
const LISTED: usize = 20;

/// What a look at every page and every row has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The schema's version.
    pub schema: i32,
    /// Tasks by status, as the protocol names it.
    pub tasks: BTreeMap<&'static str, u64>,
    /// What is damaged, at most a few dozen lines; empty if nothing is.
    pub problems: Vec<String>,
}

/// A copy that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The size of the copy.
    pub bytes: u64,
    /// The tasks in it.
    pub tasks: u64,
}

/// Reads every page and every row. Another process may use the database meanwhile.
///
/// # Errors
/// An [`OpenError`]: this is no database of abide's, or it is too damaged to be read at all.
pub fn check(path: &Path) -> Result<Report, OpenError> {
    let path = resolve(path)?;
    let (connection, schema) = connect(&path)?;
    let sqlite = |error| OpenError::from_sqlite(&path, error);
    let mut problems = Vec::new();
    let integrity = connection
        .prepare(&format!("PRAGMA integrity_check({LISTED})"))
        .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect());
    match integrity {
        Ok(lines) => problems.extend(Vec::<String>::into_iter(lines).filter(|line| line != "ok")),
        Err(error) => problems.push(error.to_string()),
    }
    let mut tasks = BTreeMap::new();
    if schema == schema::LATEST {
        let read = rows::every(&connection, |task| match task {
            Ok(task) => *tasks.entry(Status::as_str(task.status())).or_default() += 1,
            Err(corrupt) if problems.len() < LISTED => problems.push(corrupt.to_string()),
            Err(_) => {}
        });
        match read {
            Err(error) if problems.is_empty() => return Err(sqlite(error)),
            // It is said already what is wrong.
            _ => {}
        }
    }
    Ok(Report { schema, tasks, problems })
}

/// Copies the database, as it is at one moment, into a new file `to`, which appears when it is
/// whole and on disk. Another process may use the database meanwhile.
///
/// # Errors
/// An [`OpenError`] about either file.
pub fn backup(path: &Path, to: &Path) -> Result<Copied, OpenError> {
    let path = resolve(path)?;
    let (connection, _) = connect(&path)?;
    let begun = with_suffix(to, ".part");
    let io = |source| OpenError::from_io(to, source);
    match fs::remove_file(&begun) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.map_err(io)?,
    }
    // It writes only the new file, but is not allowed to do that by a connection that only reads.
    let copied = connection
        .execute_batch("PRAGMA query_only = OFF;")
        .and_then(|()| connection.execute("VACUUM INTO ?1", [begun.to_string_lossy()]))
        .map_err(|error| OpenError::from_sqlite(&path, error))
        .and_then(|_| File::open(&begun).and_then(|file| file.sync_all()).map_err(io))
        .and_then(|()| check(&begun))
        .and_then(|report| match report.problems.first() {
            None => Ok(report.tasks.values().sum()),
            Some(problem) => {
                Err(OpenError::Corrupt { path: path.clone(), problem: problem.clone() })
            }
        });
    // The check has opened the copy as a database.
    for companion in ["-wal", "-shm"] {
        let _ = fs::remove_file(with_suffix(&begun, companion));
    }
    let tasks = match copied {
        Ok(tasks) => tasks,
        Err(error) => {
            let _ = fs::remove_file(&begun);
            return Err(error);
        }
    };
    // Never over a file that is there.
    fs::hard_link(&begun, to).map_err(io)?;
    fs::remove_file(&begun).map_err(io)?;
    let folder = to.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    Ok(Copied { bytes: fs::metadata(to).map_err(io)?.len(), tasks })
}

/// A connection that changes nothing.
fn connect(path: &Path) -> Result<(Connection, i32), OpenError> {
    let sqlite = |error| OpenError::from_sqlite(path, error);
    // To read a write-ahead log that nobody has open, SQLite has to make its shared memory.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
    connection
        .execute_batch("PRAGMA trusted_schema = OFF; PRAGMA query_only = ON;")
        .map_err(sqlite)?;
    let schema = schema::identify(&connection, path)?;
    Ok((connection, schema))
}

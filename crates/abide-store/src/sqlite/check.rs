//! Looking a database over, page by page and row by row, beside whoever uses it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use abide_core::{State, Task};
use rusqlite::{Connection, OpenFlags};

use super::error::OpenError;
use super::lock::resolve;
use super::open::connect;
use super::{rows, schema};

/// Problems that are told one by one; more are only counted.
const MAX_TOLD: usize = 20;

/// What a look at a database has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The schema version; tasks of an older one than [`schema::LATEST`] can't be read before a
    /// server has migrated them.
    pub schema: i32,
    /// Bytes of the database, without its write-ahead log.
    pub bytes: u64,
    /// Tasks by their state, as far as they could be read.
    pub tasks: BTreeMap<&'static str, u64>,
    /// What is wrong, the first of it.
    pub problems: Vec<String>,
    /// How much is wrong.
    pub problem_count: u64,
}

impl Findings {
    /// How many tasks could be read.
    #[must_use]
    pub fn task_count(&self) -> u64 {
        self.tasks.values().sum()
    }

    fn problem(&mut self, problem: String) {
        self.problem_count += 1;
        if self.problems.len() < MAX_TOLD {
            self.problems.push(problem);
        }
    }
}

/// Checks the database at `path` without changing it: every page and index
/// (`PRAGMA integrity_check`), and that every row is a task whose parts fit together. It may be in
/// use; what is checked is its state at one moment, with the write-ahead log.
///
/// # Errors
/// An [`OpenError`] when it can't be looked at: no such file, no permission, not abide's, newer.
/// Damage is not an error but a finding, unless the file can't be told for abide's any more.
pub fn check(path: &Path) -> Result<Findings, OpenError> {
    let path = resolve(path)?;
    beside(&path, |connection| {
        connection.execute_batch("BEGIN").map_err(|error| OpenError::from_sqlite(&path, error))?;
        look_over(connection, &path)
    })
}

/// Has `read` read the database at `path`, beside whoever uses it, without leaving anything there.
///
/// A reader of a database that nobody uses would leave an empty log behind. So where there is no
/// log the file is read as one that does not change, and once more if it turns out that somebody
/// has opened it meanwhile.
pub(super) fn beside<T>(
    path: &Path,
    mut read: impl FnMut(&Connection) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    // SQLite would say that it can't open it, and not why.
    std::fs::File::open(path).map_err(|source| OpenError::from_io(path, source))?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let in_use = || Path::new(&log).exists();
    if !in_use() {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let result =
            connect(Path::new(&unchanging(path)), flags).and_then(|connection| read(&connection));
        if !in_use() {
            return result;
        }
    }
    read(&connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?)
}

/// The address of a file that does not change while it is read.
fn unchanging(path: &Path) -> String {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => address.push(char::from(*byte)),
            // Writing to a string can't fail.
            byte => drop(write!(address, "%{byte:02x}")),
        }
    }
    address + "?immutable=1"
}

/// Checks what `connection` sees of the database at `path`.
pub(super) fn look_over(connection: &Connection, path: &Path) -> Result<Findings, OpenError> {
    let schema = schema::identify(connection, path)?;
    let bytes = std::fs::metadata(path).map_err(|source| OpenError::from_io(path, source))?.len();
    let mut findings =
        Findings { schema, bytes, tasks: BTreeMap::new(), problems: Vec::new(), problem_count: 0 };
    if let Err(error) = integrity(connection, &mut findings) {
        damage(path, &mut findings, "the check of its pages", error)?;
    }
    if schema == schema::LATEST {
        if let Err(error) = rows::prepare_all(connection) {
            findings.problem(format!("its tables are not those of schema {schema}: {error}"));
        } else if let Err(error) = tasks(connection, &mut findings) {
            damage(path, &mut findings, "reading its tasks", error)?;
        }
    }
    Ok(findings)
}

fn integrity(connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let said: String = row.get(0)?;
        for line in said.lines().filter(|line| *line != "ok") {
            match plain(line) {
                line if line.is_empty() => {}
                line => findings.problem(line),
            }
        }
    }
    Ok(())
}

fn tasks(connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
    rows::for_each(connection, |row| match row {
        Ok(task) => *findings.tasks.entry(state(&task)).or_default() += 1,
        Err(corrupt) => findings.problem(corrupt.to_string()),
    })
}

/// The state as it stands in the row; finer than the protocol's status.
fn state(task: &Task) -> &'static str {
    match task.state() {
        State::Queued => "queued",
        State::Working { .. } => "working",
        State::InputRequired { .. } => "input_required",
        State::Stopping { .. } => "stopping",
        State::Completed { .. } => "completed",
        State::Failed { .. } => "failed",
        State::Cancelled => "cancelled",
    }
}

/// An error that says that pages are damaged is a finding, others are errors.
fn damage(
    path: &Path,
    findings: &mut Findings,
    what: &str,
    error: rusqlite::Error,
) -> Result<(), OpenError> {
    match OpenError::from_sqlite(path, error) {
        OpenError::Corrupt { problem, .. } => {
            findings.problem(format!("{what} stopped: {problem}"));
            Ok(())
        }
        other => Err(other),
    }
}

/// What a check says, without the heading that names SQLite's own name of the database.
pub(super) fn plain(said: &str) -> String {
    let lines = said.lines().map(str::trim).filter(|line| !line.starts_with("*** in database"));
    lines.collect::<Vec<_>>().join("; ")
}

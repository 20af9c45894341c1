//! Opening a database: everything that is checked before the first task is touched.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::error::OpenError;
use super::lock::{Lock, private, resolve};
use super::set_aside::SetAside;
use super::{Options, check, rows, schema, set_aside};

/// The oldest SQLite without the write-ahead log's reset race, in which a commit could be lost
/// when a checkpoint ran in another thread (sqlite.org/wal.html, "The WAL-Reset Bug").
pub(super) const SQLITE_NEEDED: &str = "3.51.3";
const SQLITE_NEEDED_NUMBER: i32 = 3_051_003;

/// How long a connection waits for a lock inside SQLite. Between abide's own connections locks
/// last for milliseconds; this is for other programs that look into the file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes to which the write-ahead log is cut back after it has grown beyond them.
const LOG_BYTES_KEPT: i64 = 64 * 1024 * 1024;

/// Databases up to this size are checked whole when they are opened, which takes as long as reading
/// them: a tenth of a second for a hundred thousand tasks in memory, some seconds from a slow disk.
/// Of larger ones only what an engine reads at its start is looked at.
const CHECKED_WHOLE_BYTES: i64 = 256 * 1024 * 1024;

/// A database that is ready, and everything that works on it.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) lock: Lock,
    pub(super) writer: Connection,
    pub(super) checkpointer: Connection,
    pub(super) readers: Vec<Connection>,
}

/// Opens the database at `path`; if `damaged` says how, one that is damaged is set aside.
pub(super) fn open(
    path: &Path,
    options: Options,
    damaged: Option<SetAside<'_>>,
) -> Result<Opened, OpenError> {
    if !is_safe(rusqlite::version_number()) {
        return Err(OpenError::SqliteTooOld { found: rusqlite::version() });
    }
    #[cfg(feature = "torture")]
    super::power_cut::install();
    let path = resolve(path)?;
    let lock = Lock::take(&path)?;
    check_log(&path)?;
    touch(&path)?;

    let connections = match (connect_all(&path, options), damaged) {
        (Err(problem), Some(how)) if set_aside::may_be(&problem, &path, how.companions) => {
            set_aside::set_aside(&path, &problem, how, create)?;
            connect_all(&path, options)?
        }
        (connections, _) => connections?,
    };
    set_aside::remind(&path);
    let (writer, checkpointer, readers) = connections;
    Ok(Opened { path, lock, writer, checkpointer, readers })
}

fn connect_all(
    path: &Path,
    options: Options,
) -> Result<(Connection, Connection, Vec<Connection>), OpenError> {
    let sqlite = |error| OpenError::from_sqlite(path, error);
    let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // What turns out to be damaged, or not ours, keeps its log as it is; no log was left by a clean
    // stop, and none is to stay behind.
    keep_log(&writer, has_log(path)).map_err(sqlite)?;
    let version = schema::identify(&writer, path)?;
    // SQLite falls back to reading when it may not write.
    if writer.is_readonly(MAIN_DB).map_err(sqlite)? {
        return Err(OpenError::ReadOnly { path: path.to_owned() });
    }
    check_pages(&writer, path, CHECKED_WHOLE_BYTES)?;
    prepare_writer(&mut writer, version, path)?;

    let checkpointer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The read makes the connection open the log; before that its checkpoints do nothing.
    configure(
        &checkpointer,
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; \
         PRAGMA wal_autocheckpoint = 0; PRAGMA user_version;",
        path,
    )?;
    let readers = (0..options.readers.max(1))
        .map(|_| {
            let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            configure(&reader, "PRAGMA cache_size = -4000;", path)?;
            Ok(reader)
        })
        .collect::<Result<Vec<_>, OpenError>>()?;
    keep_log(&writer, false).map_err(sqlite)?;
    Ok((writer, checkpointer, readers))
}

/// Whether the last connection that closes leaves the log instead of emptying it.
fn keep_log(connection: &Connection, keep: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

/// Makes an empty database of an empty file.
fn create(path: &Path) -> Result<(), OpenError> {
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    prepare_writer(&mut connection, 0, path)?;
    connection.close().map_err(|(_, error)| OpenError::from_sqlite(path, error))
}

/// Looks for damaged pages: in the whole file if it has at most `whole` bytes.
fn check_pages(connection: &Connection, path: &Path, whole: i64) -> Result<(), OpenError> {
    let check = || {
        let bytes: i64 = connection.query_row(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
            [],
            |row| row.get(0),
        )?;
        if bytes > whole {
            return rows::read_unfinished(connection).map(|()| None);
        }
        let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((said != "ok").then_some(said))
    };
    match check().map_err(|error| OpenError::from_sqlite(path, error))? {
        None => Ok(()),
        Some(said) => {
            Err(OpenError::Corrupt { path: path.to_owned(), problem: check::plain(&said) })
        }
    }
}

/// SQLite deletes the log of an empty database; one that is not empty belongs to a database that
/// was lost.
fn check_log(path: &Path) -> Result<(), OpenError> {
    if is_empty(path) && has_log(path) {
        return Err(OpenError::LogAlone { path: path.to_owned() });
    }
    Ok(())
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    !is_empty(Path::new(&log))
}

/// So is a file that is not there.
fn is_empty(path: &Path) -> bool {
    fs::metadata(path).map_or(0, |metadata| metadata.len()) == 0
}

fn is_safe(sqlite_version_number: i32) -> bool {
    sqlite_version_number >= SQLITE_NEEDED_NUMBER
}

/// Creates the file if there is none, and finds out whether it can be read and written, in the
/// operating system's own words, which SQLite would swallow.
fn touch(path: &Path) -> Result<(), OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let opened = match private(options.clone().create_new(true)).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        created => created,
    };
    opened.map(drop).map_err(|source| OpenError::from_io(path, source))
}

pub(super) fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, OpenError> {
    // Each connection stays in one thread, so SQLite needs no mutex of its own.
    let connect = || {
        let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(32);
        // Nothing that lies in the schema of a tampered file gets to run functions; temporary
        // structures need no second place that can be full.
        connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;")?;
        Ok(connection)
    };
    connect().map_err(|error| OpenError::from_sqlite(path, error))
}

/// Switches the write-ahead log on, migrates, and proves that every statement fits the schema.
fn prepare_writer(writer: &mut Connection, version: i32, path: &Path) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::from_sqlite(path, error);
    let mode: String = writer
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(sqlite)?;
    if mode != "wal" {
        return Err(OpenError::NoWriteAheadLog { path: path.to_owned() });
    }
    // FULL: the log is synced at every commit. `fullfsync` makes that true on macOS as well.
    let synchronous = if cfg!(feature = "broken-fsync") { "OFF" } else { "FULL" };
    let settings = format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; \
         PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {LOG_BYTES_KEPT}; \
         PRAGMA cache_size = -16000;"
    );
    configure(writer, &settings, path)?;
    schema::migrate(writer, version).map_err(sqlite)?;
    // The lock proves that no other process has the database, so every worker in it is gone.
    rows::retire_all(writer).map_err(sqlite)?;
    rows::prepare_all(writer).map_err(|error| match OpenError::from_sqlite(path, error) {
        OpenError::Sqlite { path, source } => {
            OpenError::OtherTables { path, problem: source.to_string() }
        }
        other => other,
    })
}

pub(super) fn configure(
    connection: &Connection,
    pragmas: &str,
    path: &Path,
) -> Result<(), OpenError> {
    connection.execute_batch(pragmas).map_err(|error| OpenError::from_sqlite(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_with_the_reset_race_is_refused() {
        for old in [0, 3_008_000, 3_050_004, 3_051_002] {
            assert!(!is_safe(old), "{old}");
        }
        for new in [3_051_003, 3_052_000, 4_000_000] {
            assert!(is_safe(new), "{new}");
        }
        let number = SQLITE_NEEDED
            .split('.')
            .fold(0, |number, part| number * 1000 + part.parse::<i32>().unwrap());
        assert_eq!(number, SQLITE_NEEDED_NUMBER);
    }

    #[test]
    fn every_commit_is_synced_and_no_checkpoint_is_in_its_way() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(&folder.path().join("a.db"), Options::default(), None).unwrap();
        let pragma = |connection: &Connection, name: &str| -> i64 {
            connection.pragma_query_value(None, name, |row| row.get(0)).unwrap()
        };
        assert_eq!(pragma(&opened.writer, "synchronous"), 2);
        assert_eq!(pragma(&opened.writer, "fullfsync"), 1);
        assert_eq!(pragma(&opened.writer, "wal_autocheckpoint"), 0);
        assert_eq!(pragma(&opened.checkpointer, "wal_autocheckpoint"), 0);
        let (pages, _) = opened
            .checkpointer
            .wal_checkpoint_v2(Some(MAIN_DB), rusqlite::wal::CheckpointMode::PASSIVE)
            .unwrap();
        assert!(pages >= 0, "the checkpointer has not opened the log");
        assert!(opened.readers.iter().all(|reader| reader.is_readonly(MAIN_DB).unwrap()));
    }

    /// A database that is too large to be read whole.
    #[test]
    fn what_recovery_reads_is_looked_at_in_any_case() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        drop(open(&path, Options::default(), None).unwrap());
        let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        let insert = |id: &str, state: &str| {
            let sql = "INSERT INTO tasks VALUES (?1, 'o', 't', ?2, 1, 1, 1, NULL, NULL, NULL, NULL, 1, \
                       1, 1, NULL, NULL, NULL, NULL, ?3, NULL, NULL, 'fail', NULL)";
            connection.execute(sql, (id, state, "x".repeat(20_000))).unwrap();
        };
        insert("1", "completed");
        insert("2", "queued");
        connection.close().unwrap();
        let whole = fs::read(&path).unwrap();
        let damaged = (0..whole.len() / 4096)
            .filter(|page| {
                let mut bytes = whole.clone();
                bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
                fs::write(&path, bytes).unwrap();
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
                let refused = |whole| {
                    connect(&path, flags).and_then(|opened| check_pages(&opened, &path, whole))
                };
                assert!(refused(i64::MAX).is_err(), "page {page}");
                refused(0).is_err()
            })
            .count();
        // The header, the table's leaf, the indexes of what has not ended. Overflow pages of text
        // hold anything, but not each a pointer to the next.
        assert!((5..whole.len() / 4096 - 3).contains(&damaged), "{damaged} pages were found");
    }
}

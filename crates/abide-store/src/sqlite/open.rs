//! Opening a database: everything that is checked before the first task is touched.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::aside::with_suffix;
use super::error::OpenError;
use super::lock::{Lock, private, resolve};
use super::{Options, rows, schema};

/// The oldest SQLite without the write-ahead log's reset race, in which a commit could be lost
/// when a checkpoint ran in another thread (sqlite.org/wal.html, "The WAL-Reset Bug").
pub(super) const SQLITE_NEEDED: &str = "3.51.3";
const SQLITE_NEEDED_NUMBER: i32 = 3_051_003;

/// How long a connection waits for a lock inside SQLite. Between abide's own connections locks
/// last for milliseconds; this is for other programs that look into the file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a database that is read as a whole after an unclean end. That takes about a second.
const CHECKED_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes to which the write-ahead log is cut back after it has grown beyond them.
const LOG_BYTES_KEPT: i64 = 64 * 1024 * 1024;

/// A database that is ready, and everything that works on it.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) lock: Lock,
    pub(super) writer: Connection,
    pub(super) checkpointer: Connection,
    pub(super) readers: Vec<Connection>,
}

pub(super) fn open(path: &Path, options: Options) -> Result<Opened, OpenError> {
    if !is_safe(rusqlite::version_number()) {
        return Err(OpenError::SqliteTooOld { found: rusqlite::version() });
    }
    #[cfg(feature = "torture")]
    super::power_cut::install();
    let path = resolve(path)?;
    let lock = Lock::take(&path)?;
    touch(&path)?;

    // There is no log after a clean end.
    let unclean = fs::metadata(with_suffix(&path, "-wal")).is_ok_and(|log| log.len() > 0);
    let mut writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let version = schema::identify(&writer, &path)?;
    if unclean {
        look_for_damage(&writer, &path)?;
    }
    // SQLite falls back to reading when it may not write.
    if writer.is_readonly(MAIN_DB).map_err(|error| OpenError::from_sqlite(&path, error))? {
        return Err(OpenError::ReadOnly { path });
    }
    prepare_writer(&mut writer, version, &path)?;

    let checkpointer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The read makes the connection open the log; before that its checkpoints do nothing.
    configure(
        &checkpointer,
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; \
         PRAGMA wal_autocheckpoint = 0; PRAGMA user_version;",
        &path,
    )?;
    let readers = (0..options.readers.max(1))
        .map(|_| {
            let reader = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            configure(&reader, "PRAGMA cache_size = -4000;", &path)?;
            Ok(reader)
        })
        .collect::<Result<Vec<_>, OpenError>>()?;
    Ok(Opened { path, lock, writer, checkpointer, readers })
}

/// Reads the whole file, if that is quickly done: a crash of the machine is when it gets damaged.
fn look_for_damage(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    if fs::metadata(path).is_ok_and(|file| file.len() > CHECKED_BYTES) {
        return Ok(());
    }
    let found: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| OpenError::from_sqlite(path, error))?;
    if found == "ok" {
        return Ok(());
    }
    Err(OpenError::Corrupt { path: path.to_owned(), problem: found })
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

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, OpenError> {
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
            OpenError::Corrupt { path, problem: format!("its tables are not abide's: {source}") }
        }
        other => other,
    })
}

fn configure(connection: &Connection, pragmas: &str, path: &Path) -> Result<(), OpenError> {
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
        let opened = open(&folder.path().join("a.db"), Options::default()).unwrap();
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
}

//! Damaged databases: what is set aside and what never is, and damage that shows while in use.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use abide_core::{Health, Store, StoreError, Timestamp};
use abide_store::sqlite::{OpenError, Options, SetAside, SqliteStore, check, set_aside_beside};
use abide_store::suite::specimens::{owner, working};
use rusqlite::Connection;
use tempfile::TempDir;

/// 2026-12-01T09:30:00.042Z.
const NOW: Timestamp = Timestamp::from_millis(1_796_117_400_042);
const ASIDE: &str = "abide.db.damaged-2026-12-01T093000Z";

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    let damaged = SetAside { now: NOW, companions: &[".runs"] };
    SqliteStore::open_or_set_aside(path, Options::default(), damaged)
}

/// A closed database with two tasks, and the folder of runs beside it.
async fn made() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("abide.db");
    let store = open(&path).unwrap();
    for number in [1, 2] {
        store.create(working(number, 0), None).await.unwrap();
    }
    store.close().await;
    fs::create_dir(path.with_extension("db.runs")).unwrap();
    fs::write(path.with_extension("db.runs").join("log"), "a run").unwrap();
    (folder, path)
}

/// Every file in a folder, but for the lock and the log's shared memory.
fn files(folder: &TempDir) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let names = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = if path.is_dir() { b"a folder".to_vec() } else { fs::read(&path).unwrap() };
        (name, bytes)
    };
    entries
        .map(names)
        .filter(|(name, _)| !name.ends_with(".lock") && !name.ends_with("-shm"))
        .collect()
}

/// The page, from 1, at which a table or an index begins.
fn root_page(connection: &Connection, name: &str) -> usize {
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = connection.query_row(sql, [name], |row| row.get(0)).unwrap();
    page as usize
}

fn overwrite(path: &Path, at: usize, with: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + with.len()].copy_from_slice(with);
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_database_is_set_aside_whole() {
    let (_source, whole) = made().await;
    let pages = fs::metadata(&whole).unwrap().len() as usize / 4096;
    let bytes = fs::read(&whole).unwrap();
    for page in 0..pages {
        let (folder, path) = made().await;
        fs::write(&path, &bytes).unwrap();
        // Of the first page, what is behind its header.
        let (from, to) = (if page == 0 { 100 } else { page * 4096 }, (page + 1) * 4096);
        overwrite(&path, from, &vec![0xa5; to - from]);
        let damaged = fs::read(&path).unwrap();

        let store = open(&path).unwrap();
        assert!(store.get(*working(1, 0).id(), owner("alice")).await.unwrap().is_none());
        store.create(working(3, 0), None).await.unwrap();
        store.close().await;
        let left = files(&folder);
        assert_eq!(left.keys().collect::<Vec<_>>(), ["abide.db", ASIDE, &format!("{ASIDE}.runs")]);
        assert!(left[ASIDE] == damaged, "page {page}");
        assert_eq!(fs::read(folder.path().join(format!("{ASIDE}.runs/log"))).unwrap(), b"a run");
        assert_eq!(set_aside_beside(&path).unwrap(), [path.with_file_name(ASIDE)]);

        // The new one is a database like any other.
        let store = open(&path).unwrap();
        assert!(store.get(*working(3, 0).id(), owner("alice")).await.unwrap().is_some());
        store.close().await;
        assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_name_that_is_taken_is_not_overwritten() {
    let (folder, path) = made().await;
    let bytes = fs::read(&path).unwrap();
    fs::write(path.with_file_name(format!("{ASIDE}-wal")), "somebody's").unwrap();
    for _ in 0..2 {
        fs::write(&path, &bytes[..bytes.len() - 4096]).unwrap();
        open(&path).unwrap().close().await;
    }
    let left = files(&folder);
    assert_eq!(left[&format!("{ASIDE}-wal")], b"somebody's");
    for number in [2, 3] {
        assert!(left[&format!("{ASIDE}-{number}")] == bytes[..bytes.len() - 4096]);
    }
    assert_eq!(set_aside_beside(&path).unwrap().len(), 2);
}

/// A header that makes no database any more, but still says whose it was.
#[tokio::test]
async fn a_torn_header_of_ours_is_known() {
    let (folder, path) = made().await;
    overwrite(&path, 0, &[0; 16]);
    open(&path).unwrap().close().await;
    assert_eq!(files(&folder)[ASIDE][..16], [0; 16]);
}

/// Nothing in the file says whose it was, but abide has worked beside it.
#[tokio::test]
async fn a_file_without_a_header_is_known_by_its_runs() {
    let (folder, path) = made().await;
    overwrite(&path, 0, &[0; 4096]);
    open(&path).unwrap().close().await;
    assert_eq!(files(&folder)[ASIDE][..4096], [0; 4096]);
    assert!(files(&folder).contains_key(&format!("{ASIDE}.runs")));
}

/// After a crash the newest tasks are in the log only.
#[tokio::test]
async fn the_log_goes_with_its_database() {
    let (_source, running) = made().await;
    let store = open(&running).unwrap();
    store.create(working(3, 0), None).await.unwrap();
    let (folder, path) = made().await;
    for part in ["", "-wal"] {
        fs::copy(format!("{}{part}", running.display()), format!("{}{part}", path.display()))
            .unwrap();
    }
    store.close().await;
    let log = fs::read(path.with_extension("db-wal")).unwrap();
    assert!(!log.is_empty());
    // Not a page that the log has as well.
    let connection = Connection::open(&running).unwrap();
    let root = root_page(&connection, "tasks_queued");
    overwrite(&path, (root - 1) * 4096, &[0xa5; 4096]);
    let damaged = fs::read(&path).unwrap();
    open(&path).unwrap().close().await;
    let left = files(&folder);
    assert!(left[ASIDE] == damaged);
    assert!(left[&format!("{ASIDE}-wal")] == log);
    assert!(!left.contains_key("abide.db-wal"));

    // The two are still read together: all three tasks can be got out.
    let aside = Connection::open(path.with_file_name(ASIDE)).unwrap();
    let tasks: i64 =
        aside.query_row("SELECT count(*) FROM tasks NOT INDEXED", [], |row| row.get(0)).unwrap();
    assert_eq!(tasks, 3);
    let found = check(&path.with_file_name(ASIDE)).unwrap();
    assert!(found.problem_count > 0);
}

#[tokio::test]
async fn what_is_not_ours_to_move_stays() {
    let spoil = |path: &Path| {
        let end = fs::metadata(path).unwrap().len() as usize;
        overwrite(path, end - 4096, &[0xa5; 4096]);
    };
    let sql = |path: &Path, sql: &str| {
        Connection::open(path).unwrap().execute_batch(sql).unwrap();
    };
    type Case<'a> = (&'a str, &'a dyn Fn(&Path));
    let cases: [Case<'_>; 6] = [
        ("notes", &|path| {
            fs::remove_dir_all(path.with_extension("db.runs")).unwrap();
            fs::write(path, "my notes ".repeat(1000)).unwrap();
        }),
        ("another application", &|path| sql(path, "PRAGMA application_id = 1")),
        ("another application, damaged", &|path| {
            sql(path, "PRAGMA application_id = 1");
            spoil(path);
        }),
        ("newer", &|path| sql(path, "PRAGMA user_version = 9999")),
        ("newer, damaged", &|path| {
            sql(path, "PRAGMA user_version = 9999");
            spoil(path);
        }),
        ("an index is gone", &|path| sql(path, "DROP INDEX tasks_queued")),
    ];
    for (what, spoil) in cases {
        let (folder, path) = made().await;
        spoil(&path);
        let before = files(&folder);
        let error = open(&path).expect_err(what);
        assert!(
            error.to_string().contains("it was left as it is") || what.starts_with("newer"),
            "{error}"
        );
        assert!(files(&folder) == before, "{what}: {:?}", files(&folder).keys());
    }
    // In use by somebody else.
    let (folder, path) = made().await;
    let other = open(&path).unwrap();
    spoil(&path);
    let before = files(&folder);
    assert!(matches!(open(&path), Err(OpenError::Locked { .. })));
    assert!(files(&folder) == before);
    other.close().await;
}

/// While it is in use nothing is set aside: what can't be read is an error, what can is answered,
/// and health says that somebody has to look.
#[tokio::test]
async fn damage_that_shows_while_in_use() {
    let (folder, path) = made().await;
    let store = open(&path).unwrap();
    assert_eq!(store.health(), Health::Ok);
    let root = root_page(&Connection::open(&path).unwrap(), "tasks");
    {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xa5; 4096], (root as u64 - 1) * 4096).unwrap();
    }
    let damaged = fs::read(&path).unwrap();
    let answer = store.get(*working(1, 0).id(), owner("alice")).await;
    let Err(StoreError::Unavailable { problem }) = answer else { panic!("{answer:?}") };
    assert_eq!(problem, "the database is damaged; restore a backup");
    let damaged_health = Health::Failing { problem };
    assert_eq!(store.health(), damaged_health);
    // What needs no damaged page works, which makes the file no better.
    assert!(store.get(*working(9, 0).id(), owner("alice")).await.unwrap().is_none());
    let worker = abide_core::WorkerId::new("w").unwrap();
    store.heartbeat(worker, NOW).await.unwrap();
    assert_eq!(store.health(), damaged_health);
    assert!(!files(&folder).contains_key(ASIDE));
    assert!(fs::read(&path).unwrap() == damaged);
    store.close().await;
}

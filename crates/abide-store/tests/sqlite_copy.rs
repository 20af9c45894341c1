//! Checking and copying a database, beside whoever uses it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_core::Store;
use abide_store::sqlite::{
    BackupError, OpenError, Options, SCHEMA_VERSION, SqliteStore, backup, check,
};
use abide_store::suite::specimens::{owner, queued, working};
use rusqlite::Connection;
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("abide.db");
    (folder, path)
}

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, Options::default()).unwrap())
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_check_counts_what_is_there() {
    let (folder, path) = place();
    let store = open(&path);
    for number in 0..5 {
        store.create(working(number, 0), None).await.unwrap();
    }
    store.create(queued(9, 0), None).await.unwrap();
    let before = fs::read(&path).unwrap();
    for _ in 0..2 {
        let found = check(&path).unwrap();
        assert_eq!(found.schema, SCHEMA_VERSION);
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!(found.tasks.iter().collect::<Vec<_>>(), [(&"queued", &1), (&"working", &5)]);
        assert_eq!(found.task_count(), 6);
    }
    assert!(fs::read(&path).unwrap() == before);
    store.close().await;
    // Also when nobody uses it, by any name, and without leaving anything.
    let odd = folder.path().join("a b?c#d%20é.db");
    fs::rename(&path, &odd).unwrap();
    assert_eq!(check(&odd).unwrap().task_count(), 6);
    assert_eq!(names(&folder), ["a b?c#d%20é.db", "abide.db.lock"]);
}

#[tokio::test]
async fn a_check_names_what_is_wrong() {
    let (_folder, path) = place();
    let store = open(&path);
    for number in 0..40 {
        store.create(queued(number, 0), None).await.unwrap();
    }
    store.close().await;
    let sql = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();

    // A row that is no task, rows whose parts do not fit together.
    let whole = fs::read(&path).unwrap();
    sql(&format!("UPDATE tasks SET arguments = '{{' WHERE id = '{}'", queued(7, 0).id()));
    let found = check(&path).unwrap();
    assert_eq!((found.task_count(), found.problem_count), (39, 1));
    let id = queued(7, 0).id().to_string();
    assert!(found.problems[0].contains(&id), "{:?}", found.problems);
    sql("UPDATE tasks SET worker = 'w'");
    let found = check(&path).unwrap();
    assert_eq!((found.task_count(), found.problem_count), (0, 40));
    assert!(found.problems.len() < 40, "the list is bounded");
    fs::write(&path, &whole).unwrap();

    // A row that an index does not have, which a quick check does not see.
    let redefine = |from: &str, to: &str| {
        sql(&format!(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, '{from}', \
             '{to}') WHERE name = 'tasks_unfinished'"
        ));
    };
    redefine("(''queued'',", "(''unknown'',");
    sql("UPDATE tasks SET state = 'working' WHERE rowid = 3; \
         UPDATE tasks SET state = 'queued' WHERE rowid = 3");
    redefine("(''unknown'',", "(''queued'',");
    let found = check(&path).unwrap();
    assert_eq!(found.task_count(), 40);
    assert!(found.problems.iter().any(|said| said.contains("tasks_unfinished")), "{found:?}");
    fs::write(&path, &whole).unwrap();

    // Each page in turn: no damage goes unseen.
    for page in 1..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        let found = check(&path).unwrap();
        assert!(found.problem_count > 0, "page {page}");
    }
}

#[test]
fn what_can_not_be_checked_is_said() {
    let (folder, path) = place();
    fs::write(folder.path().join("notes"), "my notes ".repeat(1000)).unwrap();
    let other = folder.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(check(&path), Err(OpenError::Io { .. })), "{:?}", check(&path));
    let notes = check(&folder.path().join("notes"));
    assert!(matches!(notes, Err(OpenError::NotADatabase { .. })), "{notes:?}");
    assert!(matches!(check(&other), Err(OpenError::OtherApplication { .. })));
    assert_eq!(names(&folder), ["notes", "other.db"]);
}

/// What was acknowledged before the backup began is in it, also while others write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_database_in_use() {
    let (folder, path) = place();
    let store = open(&path);
    let acknowledged = Arc::new(AtomicU64::new(0));
    let writing = {
        let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            for number in 0.. {
                if store.create(working(number, 0), None).await.is_err() {
                    return;
                }
                acknowledged.store(number + 1, Ordering::SeqCst);
            }
        })
    };
    for copy in ["one.db", "two.db"] {
        let target = acknowledged.load(Ordering::SeqCst) + 200;
        while acknowledged.load(Ordering::SeqCst) < target {
            tokio::task::yield_now().await;
        }
        let before = acknowledged.load(Ordering::SeqCst);
        let to = folder.path().join(copy);
        let (from, target) = (path.clone(), to.clone());
        let copied =
            tokio::task::spawn_blocking(move || backup(&from, &target)).await.unwrap().unwrap();
        assert_eq!(copied.file, to.canonicalize().unwrap());
        assert_eq!(copied.findings.bytes, fs::metadata(&to).unwrap().len());
        assert!(copied.findings.task_count() >= before);

        let kept = fs::read(&to).unwrap();
        let again = backup(&path, &to);
        assert!(matches!(again, Err(BackupError::Exists { .. })), "{again:?}");
        assert!(fs::read(&to).unwrap() == kept);
        let restored = open(&to);
        for number in 0..before {
            let read = restored.get(*working(number, 0).id(), owner("alice")).await.unwrap();
            assert_eq!(read.as_deref(), Some(&working(number, 0)));
        }
        restored.close().await;
    }
    store.close().await;
    writing.await.unwrap();
    let left = ["abide.db", "abide.db.lock", "one.db", "one.db.lock", "two.db", "two.db.lock"];
    assert_eq!(names(&folder), left);
}

#[tokio::test]
async fn a_backup_that_would_be_none_leaves_nothing() {
    let (folder, path) = place();
    let store = open(&path);
    for number in 0..20 {
        store.create(working(number, 0), None).await.unwrap();
    }
    store.close().await;
    let to = folder.path().join("copy.db");
    let missing = backup(&folder.path().join("none.db"), &to);
    assert!(matches!(missing, Err(BackupError::Open(OpenError::Io { .. }))), "{missing:?}");
    let nowhere = backup(&path, &folder.path().join("none/copy.db"));
    assert!(matches!(nowhere, Err(BackupError::Open(OpenError::FolderMissing { .. }))));

    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() - 4096;
    bytes[end..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let damaged = backup(&path, &to);
    let Err(BackupError::Damaged { database, .. }) = &damaged else { panic!("{damaged:?}") };
    assert_eq!(database, &path);
    assert_eq!(names(&folder), ["abide.db", "abide.db.lock"]);
}

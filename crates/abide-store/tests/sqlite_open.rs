//! What is said when a database can't be opened, and that nothing of it is touched.

use std::fs;
use std::path::{Path, PathBuf};

use abide_core::Store;
use abide_store::sqlite::{OpenError, Options, SqliteStore};
use abide_store::suite::specimens::{owner, working};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, Options::default())
}

/// A folder, and the path of a database in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("abide.db");
    (folder, path)
}

/// A closed database with one task.
async fn made() -> (TempDir, PathBuf) {
    let (folder, path) = place();
    let store = open(&path).unwrap();
    store.create(working(1, 0), None).await.unwrap();
    store.close().await;
    (folder, path)
}

/// The error names the path and says what to do, and the file is as it was.
#[track_caller]
fn check(path: &Path, is: impl Fn(&OpenError) -> bool, words: &[&str]) {
    let before = path.is_file().then(|| fs::read(path).unwrap());
    let error = open(path).expect_err("it can't be opened");
    assert!(is(&error), "{error:?}");
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
    assert_eq!(path.is_file().then(|| fs::read(path).unwrap()), before, "the file has changed");
}

#[test]
fn a_missing_folder() {
    let (folder, _) = place();
    let path = folder.path().join("missing/abide.db");
    let missing = folder.path().join("missing");
    check(
        &path,
        |error| matches!(error, OpenError::FolderMissing { .. }),
        &[missing.to_str().unwrap(), "create it"],
    );
    assert!(!missing.exists());
}

#[test]
fn a_file_where_the_folder_should_be() {
    let (folder, path) = place();
    fs::write(&path, "text").unwrap();
    let path = path.join("abide.db");
    check(
        &path,
        |error| matches!(error, OpenError::FolderMissing { .. }),
        &[folder.path().to_str().unwrap()],
    );
}

#[test]
fn a_folder_where_the_file_should_be() {
    let (folder, path) = place();
    check(
        folder.path(),
        |error| matches!(error, OpenError::NotAFile { .. }),
        &[path.parent().unwrap().to_str().unwrap(), "name a file"],
    );
}

#[test]
#[cfg(unix)]
fn a_link_to_nothing() {
    let (_folder, path) = place();
    std::os::unix::fs::symlink("gone.db", &path).unwrap();
    check(
        &path,
        |error| matches!(error, OpenError::DanglingLink { .. }),
        &[path.to_str().unwrap(), "link"],
    );
}

#[test]
fn another_file() {
    for content in [
        "These are my notes, and they are long enough to be more than the header of a database, \
         which has a hundred bytes.",
        "short",
        "SQLite format 3\0 but only the beginning of it",
    ] {
        let (_folder, path) = place();
        fs::write(&path, content).unwrap();
        check(
            &path,
            |error| matches!(error, OpenError::NotADatabase { .. }),
            &[path.to_str().unwrap(), "not a SQLite database", "name another file"],
        );
    }
}

#[test]
fn another_applications_database() {
    for sql in [
        "CREATE TABLE tasks (id TEXT PRIMARY KEY, todo TEXT); INSERT INTO tasks VALUES ('1', 'x');",
        "PRAGMA application_id = 252006675; PRAGMA user_version = 1;",
        "PRAGMA user_version = 1;",
    ] {
        let (_folder, path) = place();
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        check(
            &path,
            |error| matches!(error, OpenError::OtherApplication { .. }),
            &[path.to_str().unwrap(), "another application", "name another file"],
        );
    }
}

#[tokio::test]
async fn a_newer_schema() {
    let (_folder, path) = made().await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 9_999).unwrap();
    check(
        &path,
        |error| matches!(error, OpenError::Newer { found: 9_999, .. }),
        &[path.to_str().unwrap(), "9999", "newer abide"],
    );
}

#[tokio::test]
async fn a_table_that_is_not_what_the_version_says() {
    let (_folder, path) = made().await;
    Connection::open(&path).unwrap().execute_batch("DROP INDEX tasks_queued").unwrap();
    check(
        &path,
        |error| matches!(error, OpenError::OtherTables { .. }),
        &[path.to_str().unwrap(), "tasks_queued", "restore a backup"],
    );
}

#[tokio::test]
async fn a_truncated_database() {
    let (_folder, path) = made().await;
    let bytes = fs::read(&path).unwrap();
    for length in [200, 4096, bytes.len() - 4096] {
        fs::write(&path, &bytes[..length]).unwrap();
        check(
            &path,
            |error| matches!(error, OpenError::Corrupt { .. } | OpenError::NotADatabase { .. }),
            &[path.to_str().unwrap(), "left as it"],
        );
    }
}

/// Garbage anywhere is found at the opening, and nothing is deleted.
#[tokio::test]
async fn garbage_in_a_page() {
    let (_folder, path) = made().await;
    let bytes = fs::read(&path).unwrap();
    for page in 0..bytes.len() / 4096 {
        let mut damaged = bytes.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        check(
            &path,
            |error| matches!(error, OpenError::Corrupt { .. } | OpenError::NotADatabase { .. }),
            &[path.to_str().unwrap(), "left as it"],
        );
    }
}

/// SQLite would delete the log of an empty database.
#[tokio::test]
async fn a_log_without_its_database() {
    let (_folder, path) = made().await;
    let store = open(&path).unwrap();
    store.create(working(2, 0), None).await.unwrap();
    let (_other, lonely) = place();
    let log = |path: &Path| path.with_extension("db-wal");
    fs::copy(log(&path), log(&lonely)).unwrap();
    store.close().await;
    let before = fs::read(log(&lonely)).unwrap();
    for content in [None, Some("")] {
        if let Some(content) = content {
            fs::write(&lonely, content).unwrap();
        }
        let is = |error: &OpenError| matches!(error, OpenError::LogAlone { .. });
        check(&lonely, is, &[log(&lonely).to_str().unwrap(), "restore a backup"]);
        assert_eq!(fs::read(log(&lonely)).unwrap(), before);
    }
    fs::remove_file(log(&lonely)).unwrap();
    open(&lonely).unwrap().close().await;
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let (_folder, path) = place();
    fs::write(&path, "").unwrap();
    let store = open(&path).unwrap();
    store.create(working(1, 0), None).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_second_open_names_the_holder() {
    let (folder, path) = made().await;
    let store = open(&path).unwrap();
    let pid = std::process::id().to_string();
    let check_locked = |path: &Path| {
        check(
            path,
            |error| matches!(error, OpenError::Locked { .. }),
            &["abide.db", &pid, "in use by another abide"],
        );
    };
    check_locked(&path);
    fs::create_dir(folder.path().join("sub")).unwrap();
    check_locked(&folder.path().join("./sub/../abide.db"));
    let depth = std::env::current_dir().unwrap().components().count();
    let relative: PathBuf = std::iter::repeat_n("..", depth).collect();
    check_locked(&relative.join(path.strip_prefix("/").unwrap()));
    #[cfg(unix)]
    {
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        check_locked(&link);
    }
    // The refused ones have not disturbed the holder.
    store.create(working(2, 0), None).await.unwrap();
    store.close().await;
    let store = open(&path).unwrap();
    assert!(store.get(*working(2, 0).id(), owner("alice")).await.unwrap().is_some());
    store.close().await;
}

#[tokio::test]
async fn a_store_that_is_dropped_lets_go() {
    let (_folder, path) = made().await;
    let store = open(&path).unwrap();
    let task = working(2, 0);
    store.create(task.clone(), None).await.unwrap();
    drop(store);
    let reopened = async {
        loop {
            match open(&path) {
                Ok(store) => return store,
                Err(OpenError::Locked { .. }) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let bound = std::time::Duration::from_secs(60);
    let store = tokio::time::timeout(bound, reopened).await.unwrap();
    assert!(store.get(*task.id(), owner("alice")).await.unwrap().is_some());
    store.close().await;
}

#[tokio::test]
async fn a_program_that_writes_holds_the_opening_up_with_a_word() {
    let (_folder, path) = place();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    check(
        &path,
        |error| matches!(error, OpenError::Busy { .. }),
        &[path.to_str().unwrap(), "another program"],
    );
    other.execute_batch("ROLLBACK").unwrap();
    open(&path).unwrap().close().await;
}

#[tokio::test]
#[cfg(unix)]
async fn new_files_are_private() {
    use std::os::unix::fs::PermissionsExt;

    let (folder, path) = place();
    let store = open(&path).unwrap();
    store.create(working(1, 0), None).await.unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["abide.db", "abide.db-shm", "abide.db-wal", "abide.db.lock"]);
    store.close().await;
    // Everything is in the one file, so that a copy of it is a backup.
    assert!(!path.with_extension("db-wal").exists());
    assert_eq!(store.path(), path);
}

//! Other programs at the same file, a log that does not grow without end, and no work when there
//! is none to do.

#[cfg(target_os = "linux")]
mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abide_core::{Authority, Command, Health, Store, StoreError};
use abide_store::sqlite::{Options, SqliteStore};
use abide_store::suite::specimens::{at, owner, queued, tool, worker, working};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(options: Options) -> (TempDir, PathBuf, Arc<SqliteStore>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("abide.db");
    let store = Arc::new(SqliteStore::open(&path, options).unwrap());
    (folder, path, store)
}

/// Creates tasks in eight flows, so that the writer never pauses.
async fn create_many(store: &Arc<SqliteStore>, from: u64, count: u64) {
    let flows: Vec<_> = (0..8)
        .map(|flow| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for number in (from + flow..from + count).step_by(8) {
                    store.create(working(number, 0), None).await.unwrap();
                }
            })
        })
        .collect();
    for flow in flows {
        flow.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_begins_anew_under_constant_load() {
    let options = Options { checkpoint_pages: 16, ..Options::default() };
    let (_folder, path, store) = open(options);
    create_many(&store, 0, 4_000).await;
    let log = fs::metadata(path.with_extension("db-wal")).unwrap().len();
    // Without restarts the log of 4,000 creates has above 10,000 pages.
    assert!(log < 2_000 * 4_120, "the log has {log} bytes");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_program_that_reads_for_long_holds_nothing_up() {
    let options = Options { checkpoint_pages: 16, ..Options::default() };
    let (_folder, path, store) = open(options);
    create_many(&store, 0, 100).await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN").unwrap();
    let count =
        || -> i64 { other.query_row("SELECT count(*) FROM tasks", [], |row| row.get(0)).unwrap() };
    assert_eq!(count(), 100);
    create_many(&store, 1_000, 1_000).await;
    assert_eq!(count(), 100, "the other program's snapshot");
    assert_eq!(store.health(), Health::Ok);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(count(), 1_100);
    store.close().await;
}

#[tokio::test]
async fn a_program_that_writes_for_long_is_named() {
    let (_folder, path, store) = open(Options::default());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let answer = store.create(queued(1, 0), None).await;
    let Err(StoreError::Unavailable { problem }) = answer else { panic!("{answer:?}") };
    assert!(problem.contains("another program"), "{problem}");
    assert!(matches!(store.health(), Health::Failing { .. }));
    assert!(store.get(*queued(1, 0).id(), owner("alice")).await.unwrap().is_none());
    other.execute_batch("ROLLBACK").unwrap();
    store.create(queued(1, 0), None).await.unwrap();
    assert_eq!(store.health(), Health::Ok);
    store.close().await;
}

/// Voluntary context switches of the store's threads: each is a wake-up.
#[cfg(target_os = "linux")]
fn wake_ups() -> u64 {
    let mut sum = 0;
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let folder = thread.unwrap().path();
        // Threads of other tests come and go.
        let Ok(name) = fs::read_to_string(folder.join("comm")) else { continue };
        let Ok(status) = fs::read_to_string(folder.join("status")) else { continue };
        if name.starts_with("abide-") {
            let line = status.lines().find(|line| line.starts_with("voluntary")).unwrap();
            sum += line.rsplit('\t').next().unwrap().parse::<u64>().unwrap();
        }
    }
    sum
}

/// In a process of its own, since other tests' stores are at work in this one.
#[test]
#[cfg(target_os = "linux")]
fn an_idle_store_does_not_wake_up() {
    if support::child_folder().is_none() {
        let folder = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let output = support::child(&[], &exe, "an_idle_store_does_not_wake_up", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("done"), "{said}\n{errors}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (_folder, _path, store) = open(Options::default());
        create_many(&store, 0, 50).await;
        store.get(*working(1, 0).id(), owner("alice")).await.unwrap();
        // The threads may still be going to sleep; after that a second without a wake-up must
        // come. Slowness makes it no harder to reach; polling makes it impossible.
        let quiet = async {
            loop {
                let before = wake_ups();
                assert!(before > 0, "the threads have other names");
                tokio::time::sleep(Duration::from_secs(1)).await;
                if wake_ups() == before {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), quiet).await.expect("a quiet second");
        store.close().await;
    });
    support::say("done");
}

/// A row that is not a task is named and left alone, and takes no other with it.
#[tokio::test]
async fn a_row_that_is_not_a_task_is_named() {
    let (_folder, path, store) = open(Options::default());
    let (bad, good) = (queued(1, 0), queued(2, 1));
    for task in [&bad, &good] {
        store.create(task.clone(), None).await.unwrap();
    }
    let other = Connection::open(&path).unwrap();
    let tampered = "UPDATE tasks SET arguments = '{' WHERE id = ?1";
    other.execute(tampered, [bad.id().as_str()]).unwrap();

    let cancel = store.apply(*bad.id(), Authority::Engine, Command::Cancel, at(1));
    let errors = [store.get(*bad.id(), owner("alice")).await.err(), cancel.await.err()];
    for error in errors {
        let Some(StoreError::Corrupt(corrupt)) = error else { panic!("{error:?}") };
        assert_eq!(corrupt.id, bad.id().to_string());
    }
    let read = store.get(*good.id(), owner("alice")).await.unwrap();
    assert_eq!(read.as_deref(), Some(&good));
    // It holds up nobody else.
    let unfinished = store.unfinished(None, 10).await.unwrap();
    assert_eq!(unfinished.iter().map(|task| *task.id()).collect::<Vec<_>>(), [*good.id()]);
    let claimed = store.claim_next(tool("deploy"), worker("w"), at(1)).await.unwrap();
    assert_eq!(claimed.map(|applied| *applied.task.id()), Some(*good.id()));
    assert!(store.claim_next(tool("deploy"), worker("w"), at(1)).await.unwrap().is_none());
    assert_eq!(store.health(), Health::Ok);
    store.close().await;
    let left: String = other
        .query_row("SELECT arguments FROM tasks WHERE id = ?1", [bad.id().as_str()], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(left, "{");
}

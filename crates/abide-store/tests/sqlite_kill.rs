//! kill -9 at any moment: what was acknowledged is there, and nothing is there by halves.
#![cfg(unix)]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_core::{Authority, Command, NewTask, Store, Task};
use abide_store::sqlite::{OpenError, Options, SqliteStore};
use abide_store::suite::specimens::{
    FIRST, at, completed, id, json, new_task, owner, queued, started,
};
use rusqlite::Connection;
use tokio::task::JoinSet;

use support::{child, child_folder, say};

const DATABASE: &str = "abide.db";
const ROUNDS: u64 = 36;
/// Numbers of tasks that a round may use.
const PER_ROUND: u64 = 1_000_000;

/// The task with this number as it is created; its size depends on the number.
fn task(number: u64) -> Task {
    let size = usize::try_from(number * 7919 % 9_001).unwrap();
    let arguments = json(&format!("{{\"number\":{number},\"pad\":\"{}\"}}", "a".repeat(size)));
    started(NewTask { arguments, ..new_task(number, 0) }, 0)
}

fn result(number: u64) -> String {
    let size = usize::try_from(number * 104_729 % 20_011).unwrap();
    format!("{{\"number\":{number},\"pad\":\"{}\"}}", "r".repeat(size))
}

/// Small thresholds, so that kills also hit checkpoints and the log's restarts.
fn options() -> Options {
    Options { checkpoint_pages: 32, ..Options::default() }
}

/// Creates and completes tasks without end, and says so only once the store has.
async fn work(folder: &Path, from: u64) {
    say("opening");
    let store = Arc::new(SqliteStore::open(&folder.join(DATABASE), options()).unwrap());
    let next = Arc::new(AtomicU64::new(from));
    let mut lives = JoinSet::new();
    for _ in 0..8 {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        lives.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                store.create(task(number), None).await.unwrap();
                say(&format!("created {number}"));
                let result = json(&result(number));
                let complete = Command::Complete { fence: FIRST, result };
                store.apply(*task(number).id(), Authority::Engine, complete, at(1)).await.unwrap();
                say(&format!("completed {number}"));
            }
        });
    }
    // They end by panics only, and with the first of them the child ends too.
    lives.join_next().await.unwrap().unwrap()
}

/// What the child is known to have acknowledged of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Acknowledged {
    Created,
    Completed,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_acknowledged_survives_a_kill() {
    if let Some(folder) = child_folder() {
        let from = std::env::var("ABIDE_STORE_TEST_FROM").unwrap().parse().unwrap();
        return work(&folder, from).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE);
    let mut ledger = BTreeMap::new();
    // A simple generator is random enough, and the same at every run.
    let mut random = 0x5eed_u64;
    for round in 0..ROUNDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Every sixth kill comes while the database is being opened.
        let acks = if round % 6 == 5 { 0 } else { 1 + (random >> 33) % 150 };
        run_and_kill(folder.path(), round * PER_ROUND, acks, &mut ledger);
        let recent = ledger.range(round * PER_ROUND..);
        check(&path, recent).await;
    }
    assert!(ledger.len() > 100, "only {} tasks were acknowledged", ledger.len());
    check(&path, ledger.range(..)).await;
}

/// Runs a child, kills it once it has said `acks` acknowledgements, and takes down all it said.
fn run_and_kill(folder: &Path, from: u64, acks: u64, ledger: &mut BTreeMap<u64, Acknowledged>) {
    let exe = std::env::current_exe().unwrap();
    let mut child = child(&[], &exe, "what_was_acknowledged_survives_a_kill", folder)
        .env("ABIDE_STORE_TEST_FROM", from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut opening = false;
    let mut heard = 0;
    let mut killed = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let (acknowledged, number) = match line.split_once(' ') {
            Some(("created", number)) => (Acknowledged::Created, number),
            Some(("completed", number)) => (Acknowledged::Completed, number),
            _ => {
                opening |= line == "opening";
                if opening && acks == 0 && !killed {
                    child.kill().unwrap();
                    killed = true;
                }
                continue;
            }
        };
        // Lines that were in the pipe when the child died count like all others.
        ledger.insert(number.parse().unwrap(), acknowledged);
        heard += 1;
        if heard >= acks && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    assert!(opening && killed, "the child ended by itself: {}", child.wait().unwrap());
    child.wait().unwrap();
}

async fn check(path: &Path, ledger: impl Iterator<Item = (&u64, &Acknowledged)>) {
    let store = SqliteStore::open(path, options()).unwrap();
    for (&number, acknowledged) in ledger {
        let read = store.get(id(number, 0), owner("alice")).await.unwrap();
        let read = read.unwrap_or_else(|| panic!("task {number} was {acknowledged:?} and is gone"));
        let created = task(number);
        let done = completed(&created, &result(number), 1);
        // A change that was not acknowledged may have happened, as long as it is whole.
        let right = *read == done || (*acknowledged == Acknowledged::Created && *read == created);
        assert!(right, "task {number} was {acknowledged:?} and is {read:?}");
    }
    // What nobody was told of is whole as well.
    let mut after = None;
    loop {
        let page = store.unfinished(after, 100).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(after.as_ref() < Some(last.id()), "pages go on");
        after = Some(*last.id());
    }
    store.close().await;
    let connection = Connection::open(path).unwrap();
    let verdict: String =
        connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

/// The lock keeps other processes out by name, and goes with the process that holds it.
#[tokio::test]
async fn the_lock_goes_with_its_process() {
    if let Some(folder) = child_folder() {
        let store = SqliteStore::open(&folder.join(DATABASE), options()).unwrap();
        store.create(queued(1, 0), None).await.unwrap();
        say("holding");
        return std::future::pending().await;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE);
    let exe = std::env::current_exe().unwrap();
    let mut holder = child(&[], &exe, "the_lock_goes_with_its_process", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"), "the child could not open it");

    let error = SqliteStore::open(&path, options()).expect_err("it is locked");
    assert!(matches!(error, OpenError::Locked { pid: Some(pid), .. } if pid == holder.id()));
    assert!(error.to_string().contains(&format!("process {}", holder.id())), "{error}");

    holder.kill().unwrap();
    holder.wait().unwrap();
    let store = SqliteStore::open(&path, options()).unwrap();
    assert!(store.get(*queued(1, 0).id(), owner("alice")).await.unwrap().is_some());
    store.close().await;
}

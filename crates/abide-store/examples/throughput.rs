//! How many creates and reads a second the SQLite store does here, alone and with many callers.
//!
//! `cargo run --release -p abide-store --example throughput --features suite [FOLDER]`. The folder
//! must lie on a real disk: on one in memory a sync costs nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide_core::{NewTask, Store};
use abide_store::sqlite::{Options, SqliteStore};
use abide_store::suite::specimens::{json, new_task, owner, started};

const SECONDS: u64 = 5;

#[derive(Clone, Copy)]
enum Call {
    Create,
    Get,
}

#[tokio::main]
async fn main() {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let path = folder.join(format!("throughput-{}.db", std::process::id()));
    let store = Arc::new(SqliteStore::open(&path, Options::default()).expect("a new database"));
    let created = Arc::new(AtomicU64::new(0));
    for (name, call) in [("create", Call::Create), ("get", Call::Get)] {
        for callers in [1, 8, 64, 512] {
            measure(&store, &created, name, call, callers).await;
        }
    }
    store.close().await;
    for file in [path.clone(), path.with_extension("db.lock")] {
        let _ = std::fs::remove_file(file);
    }
}

#[expect(clippy::disallowed_methods, reason = "this measures the machine's own time")]
#[expect(clippy::print_stdout, reason = "its output is the measurement")]
async fn measure(
    store: &Arc<SqliteStore>,
    created: &Arc<AtomicU64>,
    name: &str,
    call: Call,
    callers: u64,
) {
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let flows: Vec<_> = (0..callers)
        .map(|flow| {
            let (store, created) = (Arc::clone(store), Arc::clone(created));
            tokio::spawn(async move {
                let mut times = Vec::new();
                let mut random = flow;
                while Instant::now() < end {
                    let begun = Instant::now();
                    match call {
                        Call::Create => {
                            create(&store, created.fetch_add(1, Ordering::Relaxed)).await
                        }
                        Call::Get => {
                            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            let number = (random >> 20) % created.load(Ordering::Relaxed);
                            let id = *task(number).id();
                            let read = store.get(id, owner("alice")).await.expect("read");
                            assert!(read.is_some());
                        }
                    }
                    times.push(begun.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for flow in flows {
        times.extend(flow.await.expect("no panic"));
    }
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 1000];
    println!(
        "{name:6} {callers:4} callers: {:7}/s  p50 {:?}  p99 {:?}  p99.9 {:?}  max {:?}",
        times.len() as u64 / SECONDS,
        at(500),
        at(990),
        at(999),
        times[times.len() - 1],
    );
}

fn task(number: u64) -> abide_core::Task {
    let arguments = json(&format!("\"{}\"", "x".repeat(1_000)));
    let millis = i64::try_from(number / 16).expect("it does not run that long");
    started(NewTask { arguments, ..new_task(number, millis) }, millis)
}

async fn create(store: &SqliteStore, number: u64) {
    store.create(task(number), None).await.expect("created");
}

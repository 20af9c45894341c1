//! The database does not take writes for a while.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{Health, Status};
use abide_engine::{CallError, SystemClock};

use crate::harness::*;

/// Another program holds the file's lock while tasks end: nothing claims what is not on disk, and
/// everything is written once the lock is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_wait_for_the_database() {
    let counters = Counters::new();
    let house = House::start(Arc::new(SystemClock), vec![gate(&counters)]).await;
    let finishing = house.create("gate").await;
    let cancelled = house.create("gate").await;
    counters.reach("started", 2).await;
    house.engine.cancel(&abide_core::Owner::local(), cancelled).await.expect("acknowledged");
    house.until_status(cancelled, Status::Cancelled).await;

    let other = rusqlite::Connection::open(house.database()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    counters.raise("open");
    counters.raise("open");
    // A call that would need the disk is refused instead of answered with a handle.
    let engine = house.engine.clone();
    let refused = tokio::spawn(async move { engine.call(call("gate", true)).await });
    // The store gives up after a while and says so; the engine goes on trying.
    let waits = |health| match health {
        Health::Ok => false,
        Health::Failing { problem } => problem.contains("waits in memory to be written"),
    };
    while !waits(house.engine.health()) {
        assert_eq!(house.get(finishing).await.expect("there").status(), Status::Working);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(house.get(finishing).await.expect("there").status(), Status::Working);
    let refused = refused.await.expect("no panic");
    assert!(matches!(refused, Err(CallError::Store(_))), "{refused:?}");
    assert_eq!(counters.get("started"), 2, "its work never began");

    other.execute_batch("ROLLBACK").expect("let go");
    house.until_status(finishing, Status::Completed).await;
    while house.engine.health() != Health::Ok {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

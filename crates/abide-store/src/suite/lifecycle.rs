//! From opening to closing.

use std::sync::Arc;

use abide_core::{Authority, Command, Health, StoreError};

use super::Database;
use super::specimens::{at, id, owner, queued, tool, worker, working};

/// With nothing to list, to claim or to sweep.
pub(super) async fn a_new_store_is_healthy_and_empty(database: Box<dyn Database>) {
    let store = database.open().await;
    assert_eq!(store.health(), Health::Ok);
    assert!(store.unfinished(None, 10).await.expect("a page").is_empty());
    assert!(store.queued(tool("deploy"), 10).await.expect("listed").is_empty());
    let claimed = store.claim_next(tool("deploy"), worker("w"), at(0)).await.expect("claimed");
    assert!(claimed.is_none());
    let swept = store.sweep(at(i64::MAX / 4), at(i64::MAX / 4), 10).await.expect("swept");
    assert_eq!(swept, abide_core::Sweep::default());
    store.close().await;
}

/// Each of them, with an error that says nothing about the task.
pub(super) async fn a_closed_store_turns_calls_away(database: Box<dyn Database>) {
    let store = database.open().await;
    store.create(working(1, 0), None).await.expect("created");
    store.close().await;
    let cancel = store.apply(id(1, 0), Authority::Engine, Command::Cancel, at(1));
    let errors = [
        store.create(working(2, 0), None).await.err(),
        cancel.await.err(),
        store.get(id(1, 0), owner("alice")).await.err(),
        store.claim_next(tool("deploy"), worker("w"), at(1)).await.err(),
        store.queued(tool("deploy"), 1).await.err(),
        store.unfinished(None, 1).await.err(),
        store.sweep(at(1), at(1), 1).await.err(),
    ];
    for error in errors {
        assert!(matches!(error, Some(StoreError::Unavailable { .. })), "{error:?}");
    }
    let store = database.open().await;
    assert!(store.get(id(2, 0), owner("alice")).await.expect("read").is_none());
    store.close().await;
}

/// A call that comes while the store closes is either turned away or on disk.
pub(super) async fn closing_finishes_what_was_accepted(database: Box<dyn Database>) {
    const TASKS: u64 = 300;
    let store = database.open().await;
    let calls: Vec<_> = (0..TASKS)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.create(queued(number, 0), None).await.is_ok() })
        })
        .collect();
    store.create(queued(TASKS, 0), None).await.expect("created");
    store.close().await;
    let mut created = Vec::new();
    for call in calls {
        created.push(call.await.expect("no panic"));
    }
    let store = database.open().await;
    for (number, created) in (0..).zip(created) {
        let read = store.get(id(number, 0), owner("alice")).await.expect("read");
        assert_eq!(read.is_some(), created, "task {number}");
    }
    store.close().await;
}

/// Also at the same moment.
pub(super) async fn closing_twice_is_fine(database: Box<dyn Database>) {
    let store = database.open().await;
    let second = Arc::clone(&store);
    let closing = tokio::spawn(async move { second.close().await });
    store.close().await;
    closing.await.expect("no panic");
    store.close().await;
    let store = database.open().await;
    assert_eq!(store.health(), Health::Ok);
    store.close().await;
}

//! Workers that live and workers that are gone: heartbeats, orphans, take-over.

use abide_core::{
    Authority, Command, Fence, OnRestart, Refusal, RpcError, State, Store, StoreError, Task,
};

use super::Database;
use super::specimens::{at, every_state, json, owner, queued, restartable, worker, working};

async fn orphans(store: &dyn Store, millis: i64) -> Vec<String> {
    let orphans = store.orphans(at(millis), 1000).await.expect("orphans");
    orphans.iter().map(|task| task.id().to_string()).collect()
}

/// A claim holds as long as its worker's heartbeat says, to the millisecond, and no longer.
pub(super) async fn a_claim_holds_while_its_worker_lives(database: Box<dyn Database>) {
    let store = database.open().await;
    let task = working(1, 0);
    let holder = task.state().worker().expect("claimed").clone();
    store.create(task.clone(), None).await.expect("created");
    store.create(queued(2, 0), None).await.expect("created");
    assert_eq!(orphans(&*store, 0).await, [task.id().to_string()], "nobody has said it lives");

    store.heartbeat(holder.clone(), at(1_000)).await.expect("heartbeat");
    store.heartbeat(worker("another"), at(9_000)).await.expect("heartbeat");
    assert_eq!(orphans(&*store, 999).await, [""; 0]);
    assert_eq!(orphans(&*store, 1_000).await, [task.id().to_string()]);
    // A late heartbeat never shortens what was said.
    store.heartbeat(holder.clone(), at(5_000)).await.expect("heartbeat");
    store.heartbeat(holder.clone(), at(2_000)).await.expect("heartbeat");
    assert_eq!(orphans(&*store, 4_999).await, [""; 0]);
    store.retire(holder).await.expect("retired");
    assert_eq!(orphans(&*store, 0).await, [task.id().to_string()]);
    store.close().await;
}

/// Claimed tasks only, in every claimed state, by id and within the limit.
pub(super) async fn orphans_are_claimed_tasks(database: Box<dyn Database>) {
    let store = database.open().await;
    let tasks = every_state();
    for task in &tasks {
        store.create(task.clone(), None).await.expect("created");
    }
    let mut expected: Vec<_> = tasks
        .iter()
        .filter(|task| task.state().worker().is_some())
        .map(|task| task.id().to_string())
        .collect();
    expected.sort();
    assert_eq!(orphans(&*store, 0).await, expected);
    let some = store.orphans(at(0), 2).await.expect("orphans");
    assert_eq!(some.iter().map(|task| task.id().to_string()).collect::<Vec<_>>(), expected[..2]);
    store.close().await;
}

/// Of many who want to take a task over, one does; whoever held it before writes no more.
pub(super) async fn a_task_is_taken_over_once(database: Box<dyn Database>) {
    let store = database.open().await;
    let task = working(1, 0);
    store.create(task.clone(), None).await.expect("created");
    let from = task.fence();
    let attempts = (0..8).map(|n| {
        let worker = worker(&format!("successor-{n}"));
        store.apply(*task.id(), Authority::Engine, Command::TakeOver { from, worker }, at(10))
    });
    let mut won = 0;
    for attempt in futures::future::join_all(attempts).await {
        match attempt {
            Ok(_) => won += 1,
            Err(StoreError::Refused(Refusal::StaleFence { .. })) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
    let late = Command::Complete { fence: from, result: json("{}") };
    let refused = store.apply(*task.id(), Authority::Engine, late, at(20)).await;
    assert!(matches!(refused, Err(StoreError::Refused(Refusal::StaleFence { .. }))));
    let now = store.get(*task.id(), owner("alice")).await.expect("read").expect("there");
    assert_eq!(now.fence(), Fence(from.0 + 1));
    assert!(matches!(now.state(), State::Working { .. }));
    store.close().await;
}

/// Work that may be repeated is queued again, as often as it may begin, also over restarts.
pub(super) async fn work_is_requeued_as_often_as_it_may(database: Box<dyn Database>) {
    let error = || RpcError::internal("interrupted", "gone");
    let mut store = database.open().await;
    let task: Task = restartable(1, OnRestart::Rerun { max_attempts: 2 });
    store.create(task.clone(), None).await.expect("created");
    for (attempt, queued) in [(1, true), (2, false)] {
        let fence = Fence(attempt);
        let requeue = Command::Requeue { fence, error: error() };
        let applied = store.apply(*task.id(), Authority::Engine, requeue, at(10)).await;
        let after = applied.expect("applied").task;
        assert_eq!(after.state() == &State::Queued, queued, "{after:?}");
        store.close().await;
        store = database.open().await;
        let claimed = store.claim_next(task.tool().clone(), worker("w"), at(20)).await;
        assert_eq!(claimed.expect("claimed").is_some(), queued);
    }
    store.close().await;
}

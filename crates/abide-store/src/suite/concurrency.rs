//! Many at once: nothing is lost, nothing happens by halves.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use abide_core::{Authority, Command, InputKey, State, Task};

use super::Database;
use super::specimens::{FIRST, after, at, completed, json, key, owner, queued, working};

/// Two hundred changes of one task at the same moment: each is a version of its own.
pub(super) async fn no_change_is_lost(database: Box<dyn Database>) {
    const CHANGES: u64 = 200;
    let store = database.open().await;
    let task = working(1, 0);
    store.create(task.clone(), None).await.expect("created");
    let name = |number: u64| -> InputKey { key(&format!("question-{number}")) };
    let calls: Vec<_> = (0..CHANGES)
        .map(|number| {
            let (store, id, key) = (Arc::clone(&store), *task.id(), name(number));
            tokio::spawn(async move {
                let ask = Command::Ask { fence: FIRST, key, request: json("{}") };
                store
                    .apply(id, Authority::Engine, ask, at(1))
                    .await
                    .expect("applied")
                    .task
                    .version()
            })
        })
        .collect();
    let mut versions = Vec::new();
    for call in calls {
        versions.push(call.await.expect("no panic"));
    }
    versions.sort_unstable();
    assert_eq!(versions, (2..CHANGES + 2).collect::<Vec<_>>());
    store.close().await;
    let store = database.open().await;
    let read = store.get(*task.id(), owner("alice")).await.expect("read").expect("is there");
    let State::InputRequired { outstanding, .. } = read.state() else { panic!("{read:?}") };
    assert!((0..CHANGES).all(|number| outstanding.as_map().contains_key(&name(number))));
    store.close().await;
}

/// Hundreds of lives side by side, each read back at once and after a restart.
pub(super) async fn creates_and_changes_mix(database: Box<dyn Database>) {
    const TASKS: u64 = 400;
    let store = database.open().await;
    let result = |number: u64| format!("{{\"number\":{number},\"pad\":\"{}\"}}", "p".repeat(500));
    let lives: Vec<_> = (0..TASKS)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let task = working(number, 0);
                let (id, engine) = (*task.id(), Authority::Engine);
                store.create(task, None).await.expect("created");
                let say = Command::Say { fence: FIRST, message: format!("at {number}") };
                store.apply(id, engine.clone(), say, at(1)).await.expect("said");
                let read = store.get(id, owner("alice")).await.expect("read").expect("is there");
                assert_eq!(read.status_message(), Some(&*format!("at {number}")));
                let complete = Command::Complete { fence: FIRST, result: json(&result(number)) };
                store.apply(id, engine, complete, at(2)).await.expect("completed");
            })
        })
        .collect();
    for life in lives {
        life.await.expect("no panic");
    }
    store.close().await;
    let store = database.open().await;
    for number in 0..TASKS {
        let task = working(number, 0);
        let say = Command::Say { fence: FIRST, message: format!("at {number}") };
        let expected = completed(&after(&task, say, 1), &result(number), 2);
        let read = store.get(*task.id(), owner("alice")).await.expect("read");
        assert_eq!(read.as_deref(), Some(&expected));
    }
    store.close().await;
}

/// A call that is dropped after its first step, or before it, leaves a whole task or none, and
/// whoever comes later is served.
pub(super) async fn a_dropped_call_happens_wholly_or_not_at_all(database: Box<dyn Database>) {
    const TASKS: u64 = 50;
    let store = database.open().await;
    for number in 0..TASKS {
        let task = working(number, 0);
        store.create(task.clone(), None).await.expect("created");
        let complete = Command::Complete { fence: FIRST, result: json("[1]") };
        let mut apply = store.apply(*task.id(), Authority::Engine, complete, at(1));
        let mut create = store.create(queued(1_000 + number, 0), None);
        if number % 5 != 0 {
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(
                apply.as_mut().poll(&mut context),
                Poll::Pending | Poll::Ready(Ok(_))
            ));
            assert!(matches!(
                create.as_mut().poll(&mut context),
                Poll::Pending | Poll::Ready(Ok(_))
            ));
        }
    }
    // Whatever was accepted is done when this is.
    store.create(working(5_000, 0), None).await.expect("created");
    store.close().await;
    let store = database.open().await;
    for number in 0..TASKS {
        let task = working(number, 0);
        let done = completed(&task, "[1]", 1);
        let read = store.get(*task.id(), owner("alice")).await.expect("read").expect("is there");
        assert!(*read == task || *read == done, "{read:?}");
        let new = queued(1_000 + number, 0);
        let read = store.get(*new.id(), owner("alice")).await.expect("read");
        assert!(read.as_deref().is_none_or(|task: &Task| *task == new), "{read:?}");
        if number % 5 == 0 {
            assert!(read.is_none(), "a call that was never begun has happened");
        }
    }
    store.close().await;
}

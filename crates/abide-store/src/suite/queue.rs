//! The queue of a tool: bounded, in order, and each task taken once.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_core::{Command, Effect, Fence, NewTask, Start, State, StoreError, Task};

use super::Database;
use super::specimens::{after, at, new_task, owner, queued, tool, worker, working};

/// Not one more than the limit, however many come at the same moment.
pub(super) async fn the_limit_holds_when_many_come_at_once(database: Box<dyn Database>) {
    const LIMIT: u32 = 16;
    let store = database.open().await;
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.create(queued(number, 0), Some(LIMIT)).await })
        })
        .collect();
    let mut created = 0;
    for call in calls {
        match call.await.expect("no panic") {
            Ok(_) => created += 1,
            Err(StoreError::QueueFull { queued }) => assert_eq!(queued, LIMIT),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(created, LIMIT);
    assert_eq!(store.queued(tool("deploy"), 1000).await.expect("listed").len(), 16);

    // A place that is free again can be taken, once.
    store.claim_next(tool("deploy"), worker("w"), at(1)).await.expect("claimed").expect("one");
    store.create(queued(1_000, 0), Some(LIMIT)).await.expect("there is room for one");
    let answer = store.create(queued(1_001, 0), Some(LIMIT)).await;
    assert!(matches!(answer, Err(StoreError::QueueFull { .. })), "{answer:?}");
    assert!(store.get(*queued(1_001, 0).id(), owner("alice")).await.expect("read").is_none());
    store.close().await;
}

/// Other tools' tasks, tasks at work and ended ones take no place, and need none.
pub(super) async fn the_limit_counts_one_tools_queued_tasks_only(database: Box<dyn Database>) {
    let store = database.open().await;
    let other = NewTask { tool: tool("deploy2"), ..new_task(1, 0) };
    let other = Task::create(other, Start::Queued { ahead: 0 }, at(0));
    let cancelled = after(&queued(3, 0), Command::Cancel, 1);
    for task in [other, working(2, 0), cancelled, queued(4, 0)] {
        store.create(task, Some(1)).await.expect("there is room");
    }
    let answer = store.create(queued(5, 0), Some(1)).await;
    assert!(matches!(answer, Err(StoreError::QueueFull { queued: 1 })), "{answer:?}");
    store.create(working(6, 0), Some(1)).await.expect("it is not queued");
    store.create(working(7, 0), Some(0)).await.expect("it is not queued");
    store.create(queued(8, 0), None).await.expect("there is no limit");
    let answer = store.create(queued(9, 0), Some(0)).await;
    assert!(matches!(answer, Err(StoreError::QueueFull { queued: 2 })), "{answer:?}");
    store.close().await;
}

/// By the time of creation, not by the order of writing; also after a restart.
pub(super) async fn the_oldest_is_claimed_first(database: Box<dyn Database>) {
    let mut store = database.open().await;
    for millis in [3, 1, 4, 0, 5, 2] {
        store.create(queued(99 - millis, millis as i64), None).await.expect("created");
    }
    for millis in 0..6 {
        if millis == 3 {
            store.close().await;
            store = database.open().await;
        }
        let claimed = store
            .claim_next(tool("deploy"), worker("w"), at(10 + millis))
            .await
            .expect("claimed")
            .expect("there is one");
        assert_eq!(claimed.task.created_at(), at(millis));
        assert_eq!(claimed.task.fence(), Fence(1));
        assert!(claimed.changed && claimed.effects.contains(&Effect::Start));
        assert!(matches!(claimed.task.state(), State::Working { .. }));
    }
    let nothing = store.claim_next(tool("deploy"), worker("w"), at(20)).await.expect("claimed");
    assert!(nothing.is_none());
    store.close().await;
}

/// However many workers reach for it.
pub(super) async fn each_task_is_claimed_once(database: Box<dyn Database>) {
    const TASKS: u64 = 100;
    let store = database.open().await;
    for number in 0..TASKS {
        store.create(queued(number, 0), None).await.expect("created");
    }
    let workers: Vec<_> = (0..16)
        .map(|number| {
            let (store, worker) = (Arc::clone(&store), worker(&format!("w{number}")));
            tokio::spawn(async move {
                let mut claimed = Vec::new();
                while let Some(applied) =
                    store.claim_next(tool("deploy"), worker.clone(), at(1)).await.expect("claimed")
                {
                    assert_eq!(applied.task.state().worker(), Some(&worker));
                    claimed.push(*applied.task.id());
                    assert!(claimed.len() as u64 <= TASKS, "tasks are claimed again");
                }
                claimed
            })
        })
        .collect();
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.expect("no panic"));
    }
    assert_eq!(all.len() as u64, TASKS);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len() as u64, TASKS);
    assert!(store.queued(tool("deploy"), 10).await.expect("listed").is_empty());
    store.close().await;
}

/// Of that tool, within the limit.
pub(super) async fn queued_lists_oldest_first(database: Box<dyn Database>) {
    let store = database.open().await;
    for millis in [3, 1, 4, 0, 5, 2] {
        store.create(queued(99 - millis, millis as i64), None).await.expect("created");
    }
    store.create(working(200, 0), None).await.expect("created");
    let other = NewTask { tool: tool("deplo"), ..new_task(201, 0) };
    let other = Task::create(other, Start::Queued { ahead: 0 }, at(0));
    store.create(other.clone(), None).await.expect("created");
    let expected: Vec<_> = (0..6).map(|millis| *queued(99 - millis, millis as i64).id()).collect();
    for limit in [0, 1, 4, 100] {
        let listed = store.queued(tool("deploy"), limit).await.expect("listed");
        assert_eq!(listed, expected[..expected.len().min(limit as usize)]);
    }
    assert_eq!(store.queued(tool("deplo"), 9).await.expect("listed"), [*other.id()]);
    assert!(store.queued(tool("unknown"), 9).await.expect("listed").is_empty());
    store.close().await;
}

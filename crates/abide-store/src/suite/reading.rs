//! What is read is what was written, byte for byte, and only by its owner.

use std::collections::BTreeSet;

use abide_core::limits::{MAX_ARGUMENTS_BYTES, MAX_RESULT_BYTES};
use abide_core::{NewTask, State, Task};

use super::Database;
use super::specimens::{
    ODD_JSON, completed, every_state, id, json, new_task, owner, queued, started, working,
};

/// Every state, before and after a restart.
pub(super) async fn every_state_comes_back_as_it_was(database: Box<dyn Database>) {
    let store = database.open().await;
    for task in every_state() {
        let created = store.create(task.clone(), None).await.expect("created");
        assert_eq!(*created, task);
    }
    for restart in [false, true] {
        let store = if restart {
            store.close().await;
            database.open().await
        } else {
            store.clone()
        };
        for task in every_state() {
            let read = store.get(*task.id(), task.owner().clone()).await.expect("read");
            assert_eq!(read.as_deref(), Some(&task), "after a restart: {restart}");
        }
        if restart {
            store.close().await;
        }
    }
}

/// Text of the arguments and of the result, with everything that re-writing JSON would change.
pub(super) async fn bytes_come_back_as_they_were(database: Box<dyn Database>) {
    let new = NewTask { arguments: json(ODD_JSON), ..new_task(1, 0) };
    let task = completed(&started(new, 0), ODD_JSON, 1);
    let store = database.open().await;
    store.create(task.clone(), None).await.expect("created");
    store.close().await;
    let store = database.open().await;
    let read = store.get(*task.id(), owner("alice")).await.expect("read").expect("is there");
    assert_eq!(read.arguments().as_str(), ODD_JSON);
    let State::Completed { result } = read.state() else { panic!("it was completed") };
    assert_eq!(result.as_str(), ODD_JSON);
    store.close().await;
}

/// As large as the limits allow, next to small ones.
pub(super) async fn large_payloads_come_back_whole(database: Box<dyn Database>) {
    let filled = |bytes: usize, filler: &str| {
        let text = filler.repeat((bytes - 2) / filler.len());
        json(&format!("\"{text}\""))
    };
    let store = database.open().await;
    let mut tasks = Vec::new();
    for (number, filler) in ["x", "é", "🦀"].iter().enumerate() {
        let number = number as u64;
        let arguments = filled(MAX_ARGUMENTS_BYTES, filler);
        let large = started(NewTask { arguments, ..new_task(number, 0) }, 0);
        let result = filled(MAX_RESULT_BYTES, filler);
        tasks.push(completed(&large, result.as_str(), 1));
        tasks.push(working(100 + number, 0));
    }
    for task in &tasks {
        store.create(task.clone(), None).await.expect("created");
    }
    store.close().await;
    let store = database.open().await;
    for task in &tasks {
        let read = store.get(*task.id(), owner("alice")).await.expect("read");
        assert!(read.as_deref() == Some(task), "{} came back changed", task.id());
    }
    store.close().await;
}

/// Which is no error.
pub(super) async fn an_unknown_task_is_none(database: Box<dyn Database>) {
    let store = database.open().await;
    assert!(store.get(id(1, 0), owner("alice")).await.expect("read").is_none());
    store.close().await;
}

/// The very answer of an unknown one, in every state.
pub(super) async fn another_owners_task_is_none(database: Box<dyn Database>) {
    let store = database.open().await;
    for task in every_state() {
        store.create(task.clone(), None).await.expect("created");
        for other in ["mallory", "Alice", "alice ", "local", "%"] {
            let read = store.get(*task.id(), owner(other)).await.expect("read");
            assert!(read.is_none(), "{other} reads {:?}", task.owner());
        }
    }
    store.close().await;
}

/// Without waiting, for whoever got the answer to the write.
pub(super) async fn a_write_is_seen_by_the_next_read(database: Box<dyn Database>) {
    let store = database.open().await;
    for number in 0..200 {
        let task = queued(number, 0);
        store.create(task.clone(), None).await.expect("created");
        let read = store.get(*task.id(), owner("alice")).await.expect("read");
        assert_eq!(read.as_deref(), Some(&task), "create {number}");
    }
    store.close().await;
}

/// Each once, in the order of ids, whatever the size of the pages; ended ones never.
pub(super) async fn unfinished_tasks_come_in_pages(database: Box<dyn Database>) {
    let store = database.open().await;
    let mut expected = BTreeSet::new();
    for number in 0..25u64 {
        let millis = i64::try_from(number % 7).expect("small");
        let task = if number % 3 == 0 { queued(number, millis) } else { working(number, millis) };
        let task = if number % 5 == 0 && number % 3 != 0 {
            completed(&task, "1", millis)
        } else {
            expected.insert(*task.id());
            task
        };
        store.create(task, None).await.expect("created");
    }
    for limit in [1, 2, 7, 1000] {
        let mut seen: Vec<_> = Vec::new();
        loop {
            let page = store.unfinished(seen.last().copied(), limit).await.expect("a page");
            assert!(page.len() <= limit as usize);
            if page.is_empty() {
                break;
            }
            assert!(page.iter().all(|task| !task.status().is_terminal()));
            seen.extend(page.iter().map(|task| *Task::id(task)));
            assert!(seen.len() <= expected.len(), "tasks come again");
        }
        assert_eq!(seen, expected.iter().copied().collect::<Vec<_>>(), "pages of {limit}");
    }
    assert!(store.unfinished(None, 0).await.expect("no page").is_empty());
    store.close().await;
}

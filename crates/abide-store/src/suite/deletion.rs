//! The sweep: what is deleted, what is not, and who is warned.

use abide_core::{Authority, Command, NewTask, OnRestart, Policy, Store, Sweep, Task};

use super::Database;
use super::specimens::{at, completed, every_state, new_task, owner, queued, started, working};

/// A task that ends `millis` after its creation and is kept for `keep` milliseconds from then on.
fn ended(number: u64, millis: i64, keep: u64) -> Task {
    let policy = Policy {
        timeout_ms: Some(0),
        keep_ms: Some(keep),
        poll_interval_ms: 1,
        on_restart: OnRestart::Fail,
    };
    completed(&started(NewTask { policy, ..new_task(number, 0) }, 0), "1", millis)
}

async fn there(store: &dyn Store, task: &Task) -> bool {
    store.get(*task.id(), task.owner().clone()).await.expect("read").is_some()
}

/// Exactly those whose promise has run out: not a millisecond early, none that is at work, none
/// that is kept for ever.
pub(super) async fn only_ended_and_expired_tasks_are_deleted(database: Box<dyn Database>) {
    let mut store = database.open().await;
    let tasks = every_state();
    for task in &tasks {
        store.create(task.clone(), None).await.expect("created");
    }
    let mut ends: Vec<_> = tasks.iter().filter_map(Task::expires_at).collect();
    ends.sort_unstable();
    ends.dedup();
    for end in ends {
        let early = abide_core::Timestamp::from_millis(end.as_millis() - 1);
        for now in [early, end] {
            store.sweep(now, now, 1000).await.expect("swept");
            for task in &tasks {
                assert_eq!(there(&*store, task).await, !task.is_expired(now), "{task:?}");
            }
        }
    }
    let far = at(i64::MAX / 4);
    store.sweep(far, far, 1000).await.expect("swept");
    store.close().await;
    store = database.open().await;
    for task in &tasks {
        let kept = !task.status().is_terminal() || task.expires_at().is_none();
        assert_eq!(there(&*store, task).await, kept, "{task:?}");
    }
    store.close().await;
}

/// A pass takes what it may and says that there is more; the longest-expired go first.
pub(super) async fn deletion_is_bounded(database: Box<dyn Database>) {
    let store = database.open().await;
    let tasks: Vec<_> =
        (0..25).map(|number| ended(number, 1 + (number as i64 * 7) % 25, 100)).collect();
    for task in &tasks {
        store.create(task.clone(), None).await.expect("created");
    }
    let now = at(10_000);
    let none = store.sweep(now, now, 0).await.expect("swept");
    assert_eq!(none, Sweep::default());
    for (deleted, more) in [(10, true), (10, true), (5, false), (0, false)] {
        let swept = store.sweep(now, now, 10).await.expect("swept");
        assert_eq!((swept.deleted.len(), swept.more), (deleted, more));
        assert!(swept.extend.is_empty());
        let left = {
            let mut left = Vec::new();
            for task in &tasks {
                if there(&*store, task).await {
                    left.push(task.expires_at());
                }
            }
            left
        };
        let latest_deleted = tasks
            .iter()
            .map(Task::expires_at)
            .filter(|end| !left.contains(end))
            .max()
            .expect("some were deleted");
        assert!(left.iter().all(|end| *end > latest_deleted));
    }
    store.close().await;
}

/// By the horizon, in every state that is not an end, within the limit; and no more once it is
/// extended.
pub(super) async fn promises_that_run_out_are_named(database: Box<dyn Database>) {
    let store = database.open().await;
    let tasks = every_state();
    for task in &tasks {
        store.create(task.clone(), None).await.expect("created");
    }
    let mut due: Vec<_> = tasks
        .iter()
        .filter(|task| !task.status().is_terminal() && task.expires_at().is_some())
        .collect();
    due.sort_by_key(|task| task.expires_at());
    let last = due.last().and_then(|task| task.expires_at()).expect("some have promises");
    let before = due.first().and_then(|task| task.expires_at()).expect("some have promises");
    let early = abide_core::Timestamp::from_millis(before.as_millis() - 1);
    assert!(store.sweep(at(0), early, 1000).await.expect("swept").extend.is_empty());

    let swept = store.sweep(at(0), last, 1000).await.expect("swept");
    assert_eq!((swept.deleted.len(), swept.more), (0, false));
    let mut named = swept.extend.clone();
    let mut expected: Vec<_> = due.iter().map(|task| *task.id()).collect();
    named.sort_unstable();
    expected.sort_unstable();
    assert_eq!(named, expected);

    let part = store.sweep(at(0), last, 2).await.expect("swept");
    assert_eq!(part.extend, swept.extend[..2]);
    assert!(part.more);

    for id in swept.extend {
        store.apply(id, Authority::Engine, Command::Extend, last).await.expect("extended");
    }
    let again = store.sweep(at(0), last, 1000).await.expect("swept");
    assert!(again.extend.is_empty(), "{again:?}");
    store.close().await;
}

/// What is gone is gone, and nothing of it comes back with a restart.
pub(super) async fn nothing_is_swept_twice(database: Box<dyn Database>) {
    let store = database.open().await;
    let (gone, kept) = (ended(1, 1, 100), ended(2, 1, 1_000_000));
    for task in [&gone, &kept, &queued(3, 0), &working(4, 0)] {
        store.create(task.clone(), None).await.expect("created");
    }
    assert_eq!(
        store.sweep(at(5_000), at(5_000), 10).await.expect("swept").deleted,
        [(*gone.id(), gone.tool().clone())]
    );
    assert!(store.sweep(at(5_000), at(5_000), 10).await.expect("swept").deleted.is_empty());
    store.close().await;
    let store = database.open().await;
    assert!(store.get(*gone.id(), owner("alice")).await.expect("read").is_none());
    assert!(there(&*store, &kept).await);
    let asked = vec![*kept.id(), *gone.id(), *queued(3, 0).id()];
    assert_eq!(store.existing(asked).await.expect("read"), [*kept.id(), *queued(3, 0).id()]);
    assert_eq!(store.unfinished(None, 10).await.expect("a page").len(), 2);
    store.close().await;
}

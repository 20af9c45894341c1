//! A task changes by commands that it accepts, on disk before it is said, and in no other way.

use abide_core::limits::MAX_RESULT_BYTES;
use abide_core::{
    Authority, Command, Effect, Fence, Refusal, RpcError, State, Status, Store, StoreError, Task,
    TaskId,
};

use super::Database;
use super::specimens::{
    FIRST, after, at, every_state, id, json, key, owner, queued, worker, working,
};

/// Commands of every kind, with the fencing number of a first claim.
fn commands() -> Vec<Command> {
    let error = RpcError::new(-32_000, "broken");
    vec![
        Command::Answer { responses: vec![(key("approve"), json("{}"))] },
        Command::Cancel,
        Command::Claim { worker: worker("late") },
        Command::Say { fence: FIRST, message: "late".into() },
        Command::Ask { fence: FIRST, key: key("late"), request: json("{}") },
        Command::Withdraw { fence: FIRST, key: key("approve") },
        Command::Complete { fence: FIRST, result: json("\"late\"") },
        Command::Fail { fence: FIRST, error: error.clone() },
        Command::Stopped { fence: FIRST },
        Command::TimeUp { fence: FIRST },
        Command::Requeue { fence: FIRST, error },
        Command::Position { ahead: 3 },
        Command::Extend,
    ]
}

async fn read(store: &dyn Store, task: &Task) -> Task {
    let read = store.get(*task.id(), task.owner().clone()).await.expect("read");
    Task::clone(&read.expect("the task is there"))
}

/// The answer, the next read and the read after a restart agree, and follow core.
pub(super) async fn a_change_is_on_disk_when_it_is_answered(database: Box<dyn Database>) {
    for (number, command) in commands().into_iter().enumerate() {
        let number = number as u64;
        let store = database.open().await;
        let task = if matches!(command, Command::Claim { .. } | Command::Position { .. }) {
            queued(number, 0)
        } else {
            working(number, 0)
        };
        store.create(task.clone(), None).await.expect("created");
        // What core says is what the store must do; a refusal is another case.
        let Ok(transition) = task.apply(command.clone(), at(60_000)) else {
            store.close().await;
            continue;
        };
        let applied =
            store.apply(*task.id(), Authority::Engine, command, at(60_000)).await.expect("applied");
        let (expected, effects, changed) = match transition {
            abide_core::Transition::Changed { task, effects } => (*task, effects, true),
            abide_core::Transition::Unchanged { effects } => (task, effects, false),
        };
        assert_eq!(*applied.task, expected);
        assert_eq!(applied.effects, effects);
        assert_eq!(applied.changed, changed);
        assert_eq!(read(&*store, &expected).await, expected);
        store.close().await;
        let store = database.open().await;
        assert_eq!(read(&*store, &expected).await, expected);
        store.close().await;
    }
}

/// All of it, whatever the reason.
pub(super) async fn a_refusal_leaves_the_task_as_it_was(database: Box<dyn Database>) {
    let store = database.open().await;
    for task in every_state() {
        store.create(task.clone(), None).await.expect("created");
        for command in commands() {
            let Err(refusal) = task.apply(command.clone(), at(10_000)) else { continue };
            let answer = store.apply(*task.id(), Authority::Engine, command, at(10_000)).await;
            assert!(
                matches!(&answer, Err(StoreError::Refused(why)) if *why == refusal),
                "{answer:?} is not {refusal:?}"
            );
            assert_eq!(read(&*store, &task).await, task);
        }
    }
    let task = working(100, 0);
    store.create(task.clone(), None).await.expect("created");
    let result = json(&format!("\"{}\"", "x".repeat(MAX_RESULT_BYTES)));
    let too_large = Command::Complete { fence: FIRST, result };
    let answer = store.apply(*task.id(), Authority::Engine, too_large, at(1)).await;
    assert!(matches!(answer, Err(StoreError::Refused(Refusal::TooLarge { .. }))), "{answer:?}");
    assert_eq!(read(&*store, &task).await, task);
    store.close().await;
}

/// Older claims and claims that never were.
pub(super) async fn a_stale_fence_is_refused(database: Box<dyn Database>) {
    let store = database.open().await;
    let task = working(1, 0);
    store.create(task.clone(), None).await.expect("created");
    for fence in [0, 2, u64::MAX] {
        for command in [
            Command::Say { fence: Fence(fence), message: "stale".into() },
            Command::Ask { fence: Fence(fence), key: key("k"), request: json("{}") },
            Command::Complete { fence: Fence(fence), result: json("1") },
            Command::Requeue { fence: Fence(fence), error: RpcError::new(-1, "stale") },
        ] {
            let answer = store.apply(*task.id(), Authority::Engine, command, at(1)).await;
            let Err(StoreError::Refused(Refusal::StaleFence { held, current })) = answer else {
                panic!("{answer:?}");
            };
            assert_eq!((held, current), (Fence(fence), FIRST));
        }
    }
    assert_eq!(read(&*store, &task).await, task);
    store.close().await;
}

/// Whoever asks, whatever they ask, before and after a restart.
pub(super) async fn a_terminal_task_never_changes(database: Box<dyn Database>) {
    let ended: Vec<_> =
        every_state().into_iter().filter(|task| task.status().is_terminal()).collect();
    let mut store = database.open().await;
    for task in &ended {
        store.create(task.clone(), None).await.expect("created");
    }
    for _restart in 0..2 {
        for task in &ended {
            for authority in [Authority::Engine, Authority::Caller(task.owner().clone())] {
                for command in commands() {
                    let answer =
                        store.apply(*task.id(), authority.clone(), command, at(99_000)).await;
                    if let Ok(applied) = answer {
                        assert!(!applied.changed);
                        assert_eq!(*applied.task, *task);
                    }
                }
            }
            assert_eq!(read(&*store, task).await, *task);
        }
        store.close().await;
        store = database.open().await;
    }
    store.close().await;
}

/// And hears what they would hear of an unknown task.
pub(super) async fn another_owner_changes_nothing(database: Box<dyn Database>) {
    let store = database.open().await;
    for task in every_state() {
        store.create(task.clone(), None).await.expect("created");
        for command in commands() {
            let mallory = Authority::Caller(owner("mallory"));
            let answer = store.apply(*task.id(), mallory, command, at(10_000)).await;
            assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
        }
        assert_eq!(read(&*store, &task).await, task);
    }
    store.close().await;
}

/// For callers and for the engine.
pub(super) async fn an_unknown_task_is_not_found(database: Box<dyn Database>) {
    let store = database.open().await;
    for authority in [Authority::Engine, Authority::Caller(owner("alice"))] {
        let answer = store.apply(id(1, 0), authority, Command::Cancel, at(0)).await;
        assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    }
    store.close().await;
}

/// A second task with an id that is taken is an error, and the first one stays.
pub(super) async fn a_taken_id_is_refused(database: Box<dyn Database>) {
    let store = database.open().await;
    let task = working(1, 0);
    store.create(task.clone(), None).await.expect("created");
    let second = after(&task, Command::Cancel, 1);
    let answer = store.create(second, None).await;
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    assert_eq!(read(&*store, &task).await, task);
    // Whatever else was under way is not held up by it.
    store.create(working(2, 0), None).await.expect("created");
    store.close().await;
}

/// Queued, claimed, asked, answered, completed, with a restart between any two.
pub(super) async fn a_whole_life_survives_restarts(database: Box<dyn Database>) {
    let mut expected = queued(1, 0);
    let mut store = database.open().await;
    store.create(expected.clone(), None).await.expect("created");
    let steps: Vec<(Authority, Command)> = vec![
        (Authority::Engine, Command::Position { ahead: 1 }),
        (Authority::Engine, Command::Claim { worker: worker("w") }),
        (Authority::Engine, Command::Say { fence: FIRST, message: "half".into() }),
        (
            Authority::Engine,
            Command::Ask { fence: FIRST, key: key("go"), request: json(r#"{"method":"m"}"#) },
        ),
        (
            Authority::Caller(owner("alice")),
            Command::Answer { responses: vec![(key("go"), json(r#"{"action":"accept"}"#))] },
        ),
        (Authority::Engine, Command::Complete { fence: FIRST, result: json("[1.0]") }),
    ];
    for (millis, (authority, command)) in (1..).zip(steps) {
        store.close().await;
        store = database.open().await;
        let id: TaskId = *expected.id();
        expected = after(&expected, command.clone(), millis);
        let applied = store.apply(id, authority, command, at(millis)).await.expect("applied");
        assert_eq!(*applied.task, expected);
        let ended = applied.effects.contains(&Effect::Ended(Status::Completed));
        assert_eq!(ended, matches!(expected.state(), State::Completed { .. }));
    }
    store.close().await;
    store = database.open().await;
    assert_eq!(read(&*store, &expected).await, expected);
    store.close().await;
}

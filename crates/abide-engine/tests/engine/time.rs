//! Deadlines, retention and promises under a clock that jumps.

use std::time::Duration;

use abide_core::{InputKey, Outcome, RawJson, RpcError, State, Status};

use crate::harness::*;

/// Lets everything that waits for time notice that it is later: whoever sleeps looks at the clock
/// again within half a minute.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(61)).await;
}

#[tokio::test(start_paused = true)]
async fn work_is_stopped_when_the_clock_says_so() {
    let (clock, counters) = (Manual::new(), Counters::new());
    let house = House::start(clock.clone(), vec![gate(&counters)]).await;
    let id = house.create("gate").await;
    counters.reach("started", 1).await;
    // However much time this process has spent: the wall clock decides.
    tokio::time::sleep(Duration::from_secs(36_000)).await;
    settle().await;
    assert_eq!(house.get(id).await.expect("there").status(), Status::Working);
    clock.jump(HOUR - 1);
    settle().await;
    assert_eq!(house.get(id).await.expect("there").status(), Status::Working);
    clock.jump(1);
    let task = house.until_status(id, Status::Failed).await;
    assert!(task.status_message().expect("a message").contains("1h"), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_back() {
    let (clock, counters) = (Manual::new(), Counters::new());
    let house = House::start(clock.clone(), vec![gate(&counters)]).await;
    let id = house.create("gate").await;
    counters.reach("started", 1).await;
    let created = house.get(id).await.expect("there");
    clock.jump(-24 * HOUR);
    settle().await;
    assert_eq!(house.get(id).await.expect("there").status(), Status::Working);
    counters.raise("open");
    let task = house.until_status(id, Status::Completed).await;
    assert!(task.last_updated_at() >= created.created_at());
    assert!(task.ttl_ms() >= created.ttl_ms(), "a promise was shortened");
    // Retention counts from the end, which was not before the beginning.
    clock.jump(24 * HOUR + 2 * HOUR - 1);
    assert!(house.get(id).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_of_a_plain_call() {
    let (clock, counters) = (Manual::new(), Counters::new());
    let house = House::start(clock.clone(), vec![gate(&counters)]).await;
    let engine = house.engine.clone();
    let waiting = tokio::spawn(async move { engine.call(call("gate", false)).await });
    counters.reach("started", 1).await;
    clock.jump(1_000 * HOUR);
    let error = waiting.await.expect("no panic").expect_err("stopped");
    assert!(error.to_string().contains("timeout"), "{error}");
}

/// Expired is unknown at once, and gone from the disk after the next sweep.
#[tokio::test(start_paused = true)]
async fn what_has_expired_is_deleted() {
    let clock = Manual::new();
    let house = House::start(clock.clone(), vec![tool("quick", |_, _| async { done() })]).await;
    let kept = house.create("quick").await;
    house.until_status(kept, Status::Completed).await;
    clock.jump(HOUR);
    let younger = house.create("quick").await;
    house.until_status(younger, Status::Completed).await;
    // timeout and keep were promised at first, so that is how long it stays.
    clock.jump(2 * HOUR - 1);
    assert!(house.get(kept).await.is_some());
    clock.jump(1);
    assert!(house.get(kept).await.is_none());
    let owner = abide_core::Owner::local();
    assert!(house.engine.cancel(&owner, kept).await.is_err());
    assert!(house.engine.answer(&owner, kept, Vec::new()).await.is_err());
    for _ in 0..10_000 {
        if house.rows().get("completed") == Some(&1) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(house.rows().get("completed"), Some(&1));
    assert!(house.get(younger).await.is_some());
}

/// Work without a timeout outlasts any promise; the promise is renewed before it runs out.
#[tokio::test(start_paused = true)]
async fn promises_are_renewed() {
    let (clock, counters) = (Manual::new(), Counters::new());
    let mut endless = gate(&counters);
    endless.policy.timeout_ms = None;
    let house = House::start(clock.clone(), vec![endless]).await;
    let id = house.create("gate").await;
    counters.reach("started", 1).await;
    let first = house.get(id).await.expect("there").ttl_ms().expect("a promise");
    assert_eq!(first, 2 * HOUR as u64);
    for _ in 0..5 {
        // Just short of the end of what was promised.
        let promised = house.get(id).await.expect("there");
        let left = promised.expires_at().expect("an end").as_millis()
            - abide_core::Clock::now(clock.as_ref()).as_millis();
        clock.jump(left - 1_000);
        tokio::time::sleep(Duration::from_secs(61)).await;
        let renewed = house.until(id, |task| task.ttl_ms() > promised.ttl_ms()).await;
        assert_eq!(renewed.status(), Status::Working);
    }
    counters.raise("open");
    let task = house.until_status(id, Status::Completed).await;
    clock.jump(2 * HOUR - 1_000);
    assert!(house.get(id).await.is_some(), "kept after the end: {task:?}");
}

/// Time stands still while the task waits for input, and goes on after it.
#[tokio::test(start_paused = true)]
async fn waiting_for_input_takes_no_time() {
    let (clock, counters) = (Manual::new(), Counters::new());
    let asked = counters.clone();
    let asks = tool("asks", move |_, context| {
        let counters = asked.clone();
        async move {
            let request = RawJson::parse(r#"{"method":"roots/list","params":{}}"#).expect("JSON");
            let key = InputKey::new("k").expect("a key");
            match context.ask(key, request).await {
                Ok(_) => {
                    counters.raise("answered");
                    std::future::pending().await
                }
                Err(_) => done(),
            }
        }
    });
    let house = House::start(clock.clone(), vec![asks]).await;
    let id = house.create("asks").await;
    house.until_status(id, Status::InputRequired).await;
    clock.jump(10_000 * HOUR);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let task = house.get(id).await.expect("still there, though its first promise is long over");
    let State::InputRequired { time_left_ms, .. } = task.state() else { panic!("{task:?}") };
    assert_eq!(*time_left_ms, Some(HOUR as u64));
    let answer = RawJson::parse(r#"{"roots":[]}"#).expect("JSON");
    let key = InputKey::new("k").expect("a key");
    let owner = abide_core::Owner::local();
    house.engine.answer(&owner, id, vec![(key, answer)]).await.expect("acknowledged");
    counters.reach("answered", 1).await;
    clock.jump(HOUR - 1);
    settle().await;
    assert_eq!(house.get(id).await.expect("there").status(), Status::Working);
    clock.jump(1);
    house.until_status(id, Status::Failed).await;
}

/// The question is on disk, and in the same moment the time is over: the question counts.
#[tokio::test(start_paused = true)]
async fn a_question_in_the_last_moment() {
    let clock = Manual::new();
    let asks = tool("asks", move |_, context| async move {
        let request = RawJson::parse(r#"{"method":"roots/list","params":{}}"#).expect("JSON");
        match context.ask(InputKey::new("k").expect("a key"), request).await {
            Ok(_) => done(),
            Err(error) => Outcome::Failed(RpcError::internal("ask", error.to_string())),
        }
    });
    let house = House::start(clock.clone(), vec![asks]).await;
    let mut ids = Vec::new();
    for _ in 0..50 {
        let id = house.create("asks").await;
        while house.get(id).await.expect("there").status() != Status::InputRequired {}
        clock.jump(2 * HOUR);
        ids.push(id);
    }
    settle().await;
    for id in ids {
        assert_eq!(house.get(id).await.expect("there").status(), Status::InputRequired);
        let answer = RawJson::parse(r#"{"roots":[]}"#).expect("JSON");
        let key = InputKey::new("k").expect("a key");
        let owner = abide_core::Owner::local();
        house.engine.answer(&owner, id, vec![(key, answer)]).await.expect("acknowledged");
        house.until_status(id, Status::Completed).await;
    }
}

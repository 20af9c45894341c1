//! Work that outlasts its inline window, and work that just does not.

use std::sync::Arc;
use std::time::Duration;

use abide_core::Status;
use abide_engine::{Answer, SystemClock, Tool};
use futures::future::join_all;

use crate::harness::*;

/// A tool whose work takes `work` and whose window is `inline`.
fn sleeper(counters: &Counters, work: Duration, inline: Duration) -> Tool {
    let counters = counters.clone();
    let mut tool = tool("sleeper", move |_, _| {
        let counters = counters.clone();
        async move {
            counters.raise("begun");
            tokio::time::sleep(work).await;
            counters.raise("ended");
            done()
        }
    });
    tool.inline = inline;
    tool
}

/// Work that ends at the very end of its window is answered one way or the other, runs once, and
/// leaves a task exactly if there is a handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_with_its_window() {
    let counters = Counters::new();
    let window = Duration::from_millis(4);
    let house = House::start(Arc::new(SystemClock), vec![sleeper(&counters, window, window)]).await;
    let (mut plain, mut tasks) = (0, Vec::new());
    for _ in 0..25 {
        for answer in join_all((0..20).map(|_| house.call("sleeper"))).await {
            match answer.expect("answered") {
                Answer::Result(_) => plain += 1,
                Answer::Task(task) => tasks.push(*task.id()),
                other => panic!("{other:?}"),
            }
        }
    }
    for id in &tasks {
        house.until_status(*id, Status::Completed).await;
    }
    assert_eq!(plain + tasks.len(), 500);
    assert_eq!((counters.get("begun"), counters.get("ended")), (500, 500));
    let rows: i64 = house.rows().values().sum();
    assert_eq!(rows, tasks.len() as i64);
}

/// Callers go away at every moment around the promotion. Whatever became a task comes to its end;
/// whatever did not is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_go_away_in_between() {
    let counters = Counters::new();
    let work = Duration::from_millis(8);
    let house = House::start(Arc::new(SystemClock), vec![sleeper(&counters, work, work / 4)]).await;
    for round in 0..20u32 {
        let calls = (0..20u32).map(|at| {
            let patience = Duration::from_micros(u64::from(round * 20 + at) * 15);
            tokio::time::timeout(patience, house.call("sleeper"))
        });
        join_all(calls).await;
    }
    for _ in 0..10_000 {
        let unfinished = house.rows().iter().any(|(state, _)| state != "completed");
        if !unfinished {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rows = house.rows();
    assert!(rows.keys().all(|state| state == "completed"), "{rows:?}");
    // All slots are free again.
    let remaining = house.engine.shutdown(Duration::from_secs(30)).await;
    assert_eq!(remaining.running, 0);
}

/// A question ends the window at once.
#[tokio::test]
async fn a_question_needs_a_task() {
    use abide_core::{InputKey, RawJson};
    let mut asks = tool("asks", |_, context| async move {
        let request = RawJson::parse(r#"{"method":"roots/list","params":{}}"#).expect("JSON");
        let _ = context.ask(InputKey::new("k").expect("a key"), request).await;
        done()
    });
    asks.inline = Duration::from_secs(3_600);
    let house = House::start(Arc::new(SystemClock), vec![asks]).await;
    let id = house.create("asks").await;
    house.until_status(id, Status::InputRequired).await;
    // Nobody can be asked through a plain call.
    let answer = house.engine.call(call("asks", false)).await.expect("answered");
    assert!(matches!(answer, Answer::Result(_)), "{answer:?}");
}

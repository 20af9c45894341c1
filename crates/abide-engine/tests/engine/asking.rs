//! Questions and answers, when somebody goes away in the middle.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{AskError, InputKey, Outcome, Owner, RawJson, RpcError, Status, TaskId, limits};
use abide_engine::{EngineError, SystemClock, TaskContext, Tool};

use crate::harness::*;

fn key(name: &str) -> InputKey {
    InputKey::new(name).expect("a key")
}

fn raw(text: &str) -> RawJson {
    RawJson::parse(text).expect("JSON")
}

async fn ask(context: &TaskContext, name: &str) -> Result<RawJson, AskError> {
    context.ask(key(name), raw(r#"{"method":"roots/list","params":{}}"#)).await
}

async fn answer(house: &House, id: TaskId, name: &str) -> Result<(), EngineError> {
    let responses = vec![(key(name), raw(r#"{"roots":[]}"#))];
    house.engine.answer(&Owner::local(), id, responses).await
}

/// A tool that asks once and ends when it is answered.
fn asks_once() -> Tool {
    tool("asks", |_, context| async move {
        match ask(&context, "k").await {
            Ok(_) => done(),
            Err(_) => std::future::pending().await,
        }
    })
}

/// Whoever sends an update or a cancel may be gone before it is acknowledged. What was committed
/// all the same also has its effects: the job gets the answer, the work is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_goes_away_takes_nothing_back() {
    let counters = Counters::new();
    let house = House::start(Arc::new(SystemClock), vec![asks_once(), gate(&counters)]).await;
    let owner = Owner::local();
    let mut committed = 0;
    for round in 0..200u64 {
        let patience = Duration::from_micros(round * 5);
        let id = house.create("asks").await;
        house.until_status(id, Status::InputRequired).await;
        let _ = tokio::time::timeout(patience, answer(&house, id, "k")).await;
        // Either nothing was committed, and it can be answered again, or the job has the answer.
        answer(&house, id, "k").await.expect("acknowledged");
        house.until_status(id, Status::Completed).await;

        let id = house.create("gate").await;
        let cancel = house.engine.cancel(&owner, id);
        committed += u32::from(tokio::time::timeout(patience, cancel).await.is_err());
        house.engine.cancel(&owner, id).await.expect("acknowledged");
        house.until_status(id, Status::Cancelled).await;
    }
    assert!(committed > 0, "no cancel was ever interrupted");
}

/// A cancel and a question reach the store together. Whichever is first, the work is told that it is
/// being stopped, and the error with which it gives up is how it stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_comes_just_after_the_cancel() {
    let counters = Counters::new();
    let inside = counters.clone();
    let mut gives_up = tool("gives up", move |_, context| {
        let counters = inside.clone();
        async move {
            counters.raise("started");
            let number = counters.get("started");
            counters.reach("open", number).await;
            match ask(&context, "k").await {
                Ok(_) => done(),
                Err(error) => Outcome::Failed(RpcError::internal("ask", error.to_string())),
            }
        }
    });
    gives_up.inline = Duration::ZERO;
    let house = House::start(Arc::new(SystemClock), vec![gives_up]).await;
    for round in 1..=400 {
        let id = house.create("gives up").await;
        counters.reach("started", round).await;
        let engine = house.engine.clone();
        let cancel = tokio::spawn(async move { engine.cancel(&Owner::local(), id).await });
        counters.raise("open");
        cancel.await.expect("no panic").expect("acknowledged");
        let ended = house.until(id, |task| task.status().is_terminal()).await;
        assert_eq!(ended.status(), Status::Cancelled, "round {round}: {:?}", ended.state());
    }
}

/// A second question under the same key is refused, and the first one still gets its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_open_is_not_asked_again() {
    let counters = Counters::new();
    let refused = counters.clone();
    let twice = tool("twice", move |_, context| {
        let counters = refused.clone();
        async move {
            let second = async {
                // Only once the first one is out.
                counters.reach("ask again", 1).await;
                let again = ask(&context, "k").await;
                if matches!(&again, Err(AskError::Refused(text)) if text.contains("used before")) {
                    counters.raise("refused");
                }
            };
            let (first, ()) = tokio::join!(ask(&context, "k"), second);
            if first.is_ok() { done() } else { std::future::pending().await }
        }
    });
    let house = House::start(Arc::new(SystemClock), vec![twice]).await;
    let id = house.create("twice").await;
    house.until_status(id, Status::InputRequired).await;
    counters.raise("ask again");
    counters.reach("refused", 1).await;
    answer(&house, id, "k").await.expect("acknowledged");
    house.until_status(id, Status::Completed).await;
}

/// A job that no longer waits for the answer does not leave its task waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_dropped_is_taken_back() {
    let counters = Counters::new();
    let gone = counters.clone();
    let impatient = tool("impatient", move |_, context| {
        let counters = gone.clone();
        async move {
            tokio::select! {
                _ = ask(&context, "k") => {}
                () = counters.reach("enough", 1) => {}
            }
            counters.reach("open", 1).await;
            done()
        }
    });
    let house = House::start(Arc::new(SystemClock), vec![impatient]).await;
    let id = house.create("impatient").await;
    house.until_status(id, Status::InputRequired).await;
    counters.raise("enough");
    let working = house.until_status(id, Status::Working).await;
    assert!(working.deadline().is_some(), "the clock runs again");
    counters.raise("open");
    house.until_status(id, Status::Completed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_is_too_large_is_refused_by_name() {
    let house = House::start(Arc::new(SystemClock), vec![asks_once()]).await;
    let id = house.create("asks").await;
    house.until_status(id, Status::InputRequired).await;
    let large = format!(r#"{{"roots":["{}"]}}"#, "x".repeat(limits::MAX_INPUT_BYTES));
    let refused = house.engine.answer(&Owner::local(), id, vec![(key("k"), raw(&large))]).await;
    let Err(EngineError::InvalidInput(invalid)) = refused else { panic!("{refused:?}") };
    assert_eq!(invalid.key, "k");
    assert!(invalid.problem.contains("bytes"), "{invalid}");
    assert_eq!(house.get(id).await.expect("there").status(), Status::InputRequired);
}

/// An engine that starts on what another one left says at once what became of it, and a worker
/// that is gone and comes back writes no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_gone_engine_left_is_settled_before_anybody_asks() {
    let counters = Counters::new();
    let house = House::start(Arc::new(SystemClock), vec![gate(&counters)]).await;
    let id = house.create("gate").await;
    counters.reach("started", 1).await;
    // Gone without a word: its claim is as a killed process leaves it.
    house.engine.close().await;
    let next = House::on(house.folder.clone(), Arc::new(SystemClock), vec![gate(&counters)]).await;
    let task = next.get(id).await.expect("there");
    assert_eq!(task.status(), Status::Failed);
    assert!(task.status_message().is_some_and(|text| text.contains("may still be running")));
    counters.raise("open");
    assert_eq!(*next.get(id).await.expect("there"), *task);
}

//! Work that is told to stop.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{Outcome, Owner, RpcError, Status, StopReason};
use abide_engine::{CallError, SystemClock};

use crate::harness::*;

/// A stop that is committed just as a queued task is claimed still reaches the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_while_it_starts() {
    let counters = Counters::new();
    let first = counters.clone();
    let mut only_one = tool("one", move |_, _| {
        let counters = first.clone();
        async move {
            counters.raise("started");
            let number = counters.get("started");
            counters.reach("open", number).await;
            done()
        }
    });
    only_one.concurrency = 1;
    let house = House::start(Arc::new(SystemClock), vec![only_one]).await;
    let owner = Owner::local();
    for round in 0..100u64 {
        let started = counters.get("started");
        let running = house.create("one").await;
        counters.reach("started", started + 1).await;
        let queued = house.create("one").await;
        // The slot becomes free, and the cancel comes, in no certain order.
        let cancel = async {
            tokio::time::sleep(Duration::from_micros(round * 20)).await;
            house.engine.cancel(&owner, queued).await.expect("acknowledged");
        };
        let open = async {
            while counters.get("open") < started + 1 {
                counters.raise("open");
            }
        };
        futures::join!(cancel, open);
        house.until_status(running, Status::Completed).await;
        house.until_status(queued, Status::Cancelled).await;
        // A call that did start has used its number up.
        while counters.get("open") < counters.get("started") {
            counters.raise("open");
        }
    }
}

/// A handler that waits for the stop cleans up and ends by itself, and the task has not ended
/// before that.
#[tokio::test]
async fn handlers_that_clean_up() {
    let counters = Counters::new();
    let inside = counters.clone();
    let cleans = tool("cleans", move |_, context| {
        let counters = inside.clone();
        async move {
            counters.raise("started");
            let reason = context.stopped().await;
            assert_eq!(reason, StopReason::Cancelled);
            counters.raise("told");
            counters.reach("clean", 1).await;
            Outcome::Stopped
        }
    });
    let house = House::start(Arc::new(SystemClock), vec![cleans]).await;
    let id = house.create("cleans").await;
    counters.reach("started", 1).await;
    house.engine.cancel(&Owner::local(), id).await.expect("acknowledged");
    counters.reach("told", 1).await;
    let stopping = house.get(id).await.expect("there");
    assert_eq!(stopping.status(), Status::Working, "its work has not stopped");
    counters.raise("clean");
    house.until_status(id, Status::Cancelled).await;
}

/// Work that answers a stop with an error has stopped; work that has a result all the same keeps
/// it.
#[tokio::test]
async fn what_work_says_when_it_is_stopped() {
    let counters = Counters::new();
    let (one, other) = (counters.clone(), counters.clone());
    let complains = tool("complains", move |_, context| {
        let counters = one.clone();
        async move {
            counters.raise("started");
            context.stopped().await;
            Outcome::Failed(RpcError::internal("broken", "broken off"))
        }
    });
    let finishes = tool("finishes", move |_, context| {
        let counters = other.clone();
        async move {
            counters.raise("started");
            context.stopped().await;
            done()
        }
    });
    let house = House::start(Arc::new(SystemClock), vec![complains, finishes]).await;
    for (at, (name, status)) in
        [("complains", Status::Cancelled), ("finishes", Status::Completed)].into_iter().enumerate()
    {
        let id = house.create(name).await;
        counters.reach("started", at + 1).await;
        house.engine.cancel(&Owner::local(), id).await.expect("acknowledged");
        house.until_status(id, status).await;
    }
}

#[tokio::test]
async fn a_panic_is_a_failure() {
    let mut panics = tool("panics", |_, _| async { panic!("inside") });
    panics.concurrency = 1;
    let house = House::start(Arc::new(SystemClock), vec![panics]).await;
    // More often than there are slots: each panic gives its slot back.
    for _ in 0..3 {
        let id = house.create("panics").await;
        let task = house.until_status(id, Status::Failed).await;
        assert!(!task.status_message().expect("a message").contains("inside"));
        let error = house.engine.call(call("panics", false)).await.expect_err("an error");
        assert!(matches!(error, CallError::Rpc(_)), "{error:?}");
    }
}

/// A stopping engine takes no more calls, and what ran is told honestly; queued tasks stay.
#[tokio::test]
async fn shutting_down() {
    let counters = Counters::new();
    let mut gate = gate(&counters);
    gate.concurrency = 1;
    let house = House::start(Arc::new(SystemClock), vec![gate]).await;
    let running = house.create("gate").await;
    counters.reach("started", 1).await;
    let queued = house.create("gate").await;
    let remaining = house.engine.drain(Duration::ZERO).await;
    assert_eq!(remaining.running, 0);
    assert!(matches!(house.call("gate").await, Err(CallError::Closing)));
    let task = house.get(running).await.expect("there");
    assert_eq!(task.status(), Status::Failed);
    assert_eq!(house.get(queued).await.expect("there").attempts(), 0);
    house.engine.close().await;
    assert!(house.engine.get(&Owner::local(), running).await.is_err());
}

//! What a start finds of a former process.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{State, Status};
use abide_engine::SystemClock;

use crate::harness::*;

/// A queued call of a tool that is no longer offered ends with an error that says so; those of
/// other tools run.
#[tokio::test]
async fn tools_that_are_gone() {
    let counters = Counters::new();
    let mut gone = gate(&counters);
    gone.name = abide_core::ToolName::new("gone").expect("a name");
    let mut stays = gate(&counters);
    (gone.concurrency, stays.concurrency) = (1, 1);
    let clock = Arc::new(SystemClock);
    let house = House::start(clock.clone(), vec![gone, stays.clone()]).await;
    let mut ids = Vec::new();
    for name in ["gone", "gone", "gate", "gate"] {
        ids.push(house.create(name).await);
    }
    counters.reach("started", 2).await;
    house.engine.shutdown(Duration::ZERO).await;

    let house = House::on(house.folder, clock, vec![stays]).await;
    for _ in 0..3 {
        counters.raise("open");
    }
    let reason = |task: &abide_core::Task| match task.state() {
        State::Failed { error } => error.data.as_ref().map(|data| data.as_str().to_owned()),
        other => panic!("{other:?}"),
    };
    let interrupted = Some(r#"{"reason":"interrupted"}"#.to_owned());
    assert_eq!(reason(&*house.until_status(ids[0], Status::Failed).await), interrupted);
    let gone = house.until_status(ids[1], Status::Failed).await;
    assert_eq!(reason(&gone), Some(r#"{"reason":"tool_gone"}"#.to_owned()));
    assert!(gone.status_message().expect("a message").contains("\"gone\""));
    assert_eq!(reason(&*house.until_status(ids[2], Status::Failed).await), interrupted);
    house.until_status(ids[3], Status::Completed).await;
}

/// Hundreds of queued tasks, more than one batch of the recovery, all run after a restart.
#[tokio::test]
async fn many_queued_tasks() {
    let counters = Counters::new();
    let mut gate = gate(&counters);
    (gate.concurrency, gate.queue) = (1, 600);
    let clock = Arc::new(SystemClock);
    let house = House::start(clock.clone(), vec![gate]).await;
    let mut ids = Vec::new();
    for _ in 0..551 {
        ids.push(house.create("gate").await);
    }
    counters.reach("started", 1).await;
    house.engine.shutdown(Duration::ZERO).await;
    let quick = tool("gate", |_, _| async { done() });
    let house = House::on(house.folder, clock, vec![quick]).await;
    house.until_status(ids[0], Status::Failed).await;
    for id in &ids[1..] {
        house.until_status(*id, Status::Completed).await;
    }
    assert_eq!(house.rows().get("completed"), Some(&550));
}

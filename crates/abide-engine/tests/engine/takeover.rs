//! An engine that says nothing any more is taken over, and what it writes later does not count.
//!
//! Two engines work on one store, each with a clock of its own. When the second one's runs ahead,
//! the first one's lease has run out for it.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    Backend, BoxFuture, OnRestart, Outcome, Owner, RawJson, State, Status, StopReason, Task, Work,
    WorkContext,
};
use abide_engine::{SystemClock, Tool};

use crate::harness::*;

/// Longer than any lease.
const LEASES: i64 = 60_000;

/// A tool whose attempts raise `started` and wait until they are opened by their number; their
/// results name the attempt.
fn numbered(counters: &Counters, on_restart: OnRestart) -> Tool {
    let counters = counters.clone();
    let mut tool = tool("numbered", move |work: Work, _| {
        let counters = counters.clone();
        async move {
            counters.raise("started");
            counters.reach(["", "open 1", "open 2"][work.attempt as usize], 1).await;
            named(&format!("attempt {}", work.attempt))
        }
    });
    tool.policy.on_restart = on_restart;
    tool
}

fn named(text: &str) -> Outcome {
    let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    Outcome::Completed(RawJson::parse(&result).expect("JSON"))
}

fn result(task: &Task) -> &str {
    match task.state() {
        State::Completed { result } => result.as_str(),
        other => panic!("{other:?}"),
    }
}

fn reason(task: &Task) -> &str {
    match task.state() {
        State::Failed { error } => error.data.as_ref().expect("data").as_str(),
        other => panic!("{other:?}"),
    }
}

/// Two engines, and the clock of the second.
async fn two(tool: impl Fn() -> Tool) -> (House, House, Arc<Manual>) {
    let clock = Manual::new();
    let first = House::start(Manual::new(), vec![tool()]).await;
    let second = first.beside(clock.clone(), vec![tool()]).await;
    (first, second, clock)
}

#[tokio::test]
async fn what_the_stale_worker_writes_does_not_count() {
    let counters = Counters::new();
    let rerun = OnRestart::Rerun { max_attempts: 2 };
    let (first, second, clock) = two(|| numbered(&counters, rerun)).await;
    let id = first.create("numbered").await;
    counters.reach("started", 1).await;
    clock.jump(LEASES);
    counters.reach("started", 2).await;
    // The first attempt ends and is brought home, to a task that is not its engine's any more.
    counters.raise("open 1");
    assert_eq!(first.engine.drain(Duration::from_secs(60)).await.running, 0);
    let task = second.get(id).await.expect("there");
    assert_eq!((task.status(), task.attempts()), (Status::Working, 2));
    counters.raise("open 2");
    let task = second.until_status(id, Status::Completed).await;
    assert!(result(&task).contains("attempt 2"), "{}", result(&task));
}

#[tokio::test]
async fn attempts_are_bounded() {
    let counters = Counters::new();
    let rerun = OnRestart::Rerun { max_attempts: 2 };
    let (first, second, clock) = two(|| numbered(&counters, rerun)).await;
    let id = first.create("numbered").await;
    counters.reach("started", 1).await;
    clock.jump(LEASES);
    counters.reach("started", 2).await;
    // The second engine falls silent too; a third one finds the last attempt begun.
    let later = Manual::new();
    later.jump(3 * LEASES);
    let third = first.beside(later, vec![numbered(&counters, rerun)]).await;
    let task = third.until_status(id, Status::Failed).await;
    assert_eq!((reason(&task), task.attempts()), (r#"{"reason":"interrupted"}"#, 2));
    drop(second);
}

#[tokio::test]
async fn what_must_not_be_repeated_fails_honestly() {
    let counters = Counters::new();
    let (first, second, clock) = two(|| numbered(&counters, OnRestart::Fail)).await;
    let id = first.create("numbered").await;
    counters.reach("started", 1).await;
    clock.jump(LEASES);
    let task = second.until_status(id, Status::Failed).await;
    assert_eq!(reason(&task), r#"{"reason":"interrupted"}"#);
    assert_eq!(counters.get("started"), 1);
}

#[tokio::test]
async fn what_was_being_stopped_ends_as_cancelled() {
    let counters = Counters::new();
    let cleaning = || {
        let counters = counters.clone();
        tool("cleans", move |_, context| {
            let counters = counters.clone();
            async move {
                counters.raise("started");
                context.stopped().await;
                // And is never done with it.
                counters.raise("told");
                std::future::pending().await
            }
        })
    };
    let (first, second, clock) = two(cleaning).await;
    let id = first.create("cleans").await;
    counters.reach("started", 1).await;
    first.engine.cancel(&Owner::local(), id).await.expect("acknowledged");
    counters.reach("told", 1).await;
    clock.jump(LEASES);
    second.until_status(id, Status::Cancelled).await;
}

/// Work that goes on without its engine: it raises `run` or `resume`, and ends when `open` is
/// raised or when it is told to stop.
#[derive(Clone)]
struct Outliving(Counters);

impl Outliving {
    fn tool(counters: &Counters) -> Tool {
        let mut tool = gate(counters);
        tool.policy.on_restart = OnRestart::Reattach;
        tool.backend = Arc::new(Self(counters.clone()));
        tool
    }

    fn follow(
        &self,
        how: &'static str,
        context: Arc<dyn WorkContext>,
    ) -> BoxFuture<'static, Outcome> {
        let counters = self.0.clone();
        Box::pin(async move {
            counters.raise(how);
            tokio::select! {
                () = counters.reach("open", 1) => named(how),
                reason = context.stopped() => {
                    counters.raise(match reason {
                        StopReason::TimedOut => "timed out",
                        _ => "stopped",
                    });
                    Outcome::Stopped
                }
            }
        })
    }
}

impl Backend for Outliving {
    fn run(&self, _: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        self.follow("run", context)
    }

    fn outlives(&self) -> bool {
        true
    }

    fn resume(&self, _: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        self.follow("resume", context)
    }
}

#[tokio::test]
async fn work_that_outlives_its_engine_is_taken_up() {
    let counters = Counters::new();
    let (first, second, clock) = two(|| Outliving::tool(&counters)).await;
    let id = first.create("gate").await;
    counters.reach("run", 1).await;
    clock.jump(LEASES);
    counters.reach("resume", 1).await;
    counters.raise("open");
    let task = second.until_status(id, Status::Completed).await;
    assert!(result(&task).contains("resume"), "the stale engine was faster: {}", result(&task));
    assert_eq!((task.attempts(), counters.get("run")), (1, 1));
    first.engine.drain(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn an_engine_that_stops_lets_go_of_it() {
    let counters = Counters::new();
    let clock = Arc::new(SystemClock);
    let first = House::start(clock.clone(), vec![Outliving::tool(&counters)]).await;
    let id = first.create("gate").await;
    counters.reach("run", 1).await;
    // No grace: what could be stopped would be.
    assert_eq!(first.engine.shutdown(Duration::ZERO).await.running, 0);
    assert_eq!(counters.get("stopped"), 0);
    let second = House::on(first.folder, clock, vec![Outliving::tool(&counters)]).await;
    counters.reach("resume", 1).await;
    assert_eq!(second.get(id).await.expect("there").status(), Status::Working);
    counters.raise("open");
    second.until_status(id, Status::Completed).await;
}

/// The deadline is the moment that was set when the work began, whoever looks at the clock.
#[tokio::test(start_paused = true)]
async fn a_deadline_outlives_the_engine() {
    let counters = Counters::new();
    let (first, second, clock) = two(|| Outliving::tool(&counters)).await;
    let id = first.create("gate").await;
    counters.reach("run", 1).await;
    clock.jump(HOUR - 1);
    counters.reach("resume", 1).await;
    assert_eq!(second.get(id).await.expect("there").status(), Status::Working);
    clock.jump(1);
    let task = second.until_status(id, Status::Failed).await;
    assert_eq!(reason(&task), r#"{"reason":"timeout"}"#);
    assert_eq!(counters.get("timed out"), 1);
}

/// A clock that jumps makes an engine's own claims look abandoned, and it knows better.
#[tokio::test]
async fn nobody_takes_over_from_himself() {
    let counters = Counters::new();
    let clock = Manual::new();
    let first = House::start(Manual::new(), vec![]).await;
    let house = first.beside(clock.clone(), vec![numbered(&counters, OnRestart::Fail)]).await;
    let id = house.create("numbered").await;
    counters.reach("started", 1).await;
    for jump in [HOUR, -HOUR, 24 * HOUR] {
        clock.jump(jump / 2);
        // Several looks at whose worker is gone.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(house.get(id).await.map(|task| task.status()), Some(Status::Working));
    }
    counters.raise("open 1");
    house.until_status(id, Status::Completed).await;
}

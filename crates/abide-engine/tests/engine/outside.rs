//! Work that goes on outside of any engine, as a command under its runner does, and engines that
//! can be halted in the middle of everything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    Backend, BoxFuture, Clock, OnRestart, Outcome, Owner, RawJson, RpcError, Status, Store, Task,
    TaskId, ToolName, Work, WorkContext, WorkerId,
};
use abide_engine::{Answer, Engine, Options, Tool};
use abide_store::sqlite::{Options as StoreOptions, SqliteStore};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::harness::{Manual, call, done, tool};

/// How long a claim holds after the last sign of life of its engine.
pub(crate) const LEASE: i64 = 15_000;
/// How long something may take that waits for nothing but a disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// The world outside: what runs in it, and what has happened.
#[derive(Clone)]
pub(crate) struct Outside(Arc<watch::Sender<World>>);

#[derive(Default)]
struct World {
    jobs: HashMap<TaskId, Job>,
    /// `a began 1` says that the engine `a` began the first attempt.
    events: Vec<String>,
    /// Jobs that are told to stop go on until this is set.
    may_stop: bool,
    /// Bytes that each result has beyond its text.
    padding: usize,
}

struct Job {
    attempt: u32,
    ended: bool,
}

impl World {
    fn job(&self, work: &Work) -> Option<&Job> {
        self.jobs.get(&work.task_id).filter(|job| job.attempt == work.attempt)
    }
}

impl Outside {
    pub(crate) fn new() -> Self {
        let world = World { may_stop: true, ..World::default() };
        Self(Arc::new(watch::Sender::new(world)))
    }

    /// The job of a task ends by itself, with a result.
    pub(crate) fn finish(&self, id: TaskId) {
        self.0.send_modify(|world| world.jobs.get_mut(&id).expect("it runs").ended = true);
    }

    /// Whether jobs stop when they are told to.
    pub(crate) fn may_stop(&self, may: bool) {
        self.0.send_modify(|world| world.may_stop = may);
    }

    /// Makes all results longer.
    pub(crate) fn pad(&self, bytes: usize) {
        self.0.send_modify(|world| world.padding = bytes);
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.0.borrow().events.clone()
    }

    /// How many jobs run or have ended and nobody has stopped them.
    pub(crate) fn jobs(&self) -> usize {
        self.0.borrow().jobs.len()
    }

    pub(crate) fn note(&self, event: &str) {
        self.0.send_modify(|world| world.events.push(event.to_owned()));
    }

    /// A result that says who has seen it.
    pub(crate) fn result(&self, engine: &str, attempt: u32) -> Outcome {
        let padding = ".".repeat(self.0.borrow().padding);
        let text = format!("{engine} saw the end of {attempt}{padding}");
        let result = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
        Outcome::Completed(RawJson::parse(&result).expect("JSON"))
    }

    /// Waits for an event, as work does.
    pub(crate) async fn happens(&self, event: &str) {
        let seen = |world: &World| world.events.iter().any(|seen| seen == event);
        let _ = self.0.subscribe().wait_for(seen).await;
    }

    fn has_seen(&self, event: &str) -> bool {
        self.0.borrow().events.iter().any(|seen| seen == event)
    }

    /// The hand that an engine of that name has in the world.
    pub(crate) fn hand(&self, engine: &'static str) -> Hand {
        Hand { outside: self.clone(), engine }
    }
}

/// A backend whose work outlives the engine that began it.
#[derive(Clone)]
pub(crate) struct Hand {
    outside: Outside,
    engine: &'static str,
}

impl Hand {
    fn note(&self, verb: &str, work: &Work) {
        self.outside.note(&format!("{} {verb} {}", self.engine, work.attempt));
    }

    async fn attend(self, work: Work, context: Arc<dyn WorkContext>) -> Outcome {
        let mut world = self.outside.0.subscribe();
        let over = |world: &World| world.job(&work).is_none_or(|job| job.ended);
        tokio::select! {
            biased;
            _ = context.stopped() => {}
            _ = world.wait_for(over) => {
                return match self.outside.0.borrow().job(&work) {
                    Some(_) => self.result(&work),
                    None => Outcome::Failed(RpcError::internal("killed", "It was killed.")),
                };
            }
        }
        self.note("stops", &work);
        let _ = world.wait_for(|world| world.may_stop).await;
        self.take(&work);
        Outcome::Stopped
    }

    fn take(&self, work: &Work) -> Option<Job> {
        let mut taken = None;
        self.outside.0.send_modify(|world| {
            if world.job(work).is_some() {
                taken = world.jobs.remove(&work.task_id);
            }
        });
        taken
    }

    fn result(&self, work: &Work) -> Outcome {
        self.outside.result(self.engine, work.attempt)
    }
}

impl Backend for Hand {
    fn run(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        let job = Job { attempt: work.attempt, ended: false };
        self.outside.0.send_modify(|world| {
            let before = world.jobs.insert(work.task_id, job);
            assert!(before.is_none(), "an earlier attempt still runs");
        });
        self.note("began", &work);
        Box::pin(self.clone().attend(work, context))
    }

    fn outlives(&self) -> bool {
        true
    }

    fn resume(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        self.note("resumed", &work);
        Box::pin(self.clone().attend(work, context))
    }

    fn discard(&self, work: Work) -> BoxFuture<'static, Option<Outcome>> {
        let hand = self.clone();
        Box::pin(async move {
            hand.note("discards", &work);
            let _ = hand.outside.0.subscribe().wait_for(|world| world.may_stop).await;
            let ended = hand.take(&work).filter(|job| job.ended);
            ended.map(|_| hand.result(&work))
        })
    }
}

/// One database on a real file, for engines that share it.
pub(crate) struct Shared {
    pub(crate) folder: TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) clock: Arc<Manual>,
    pub(crate) outside: Outside,
    /// For questions that are nobody's but the test's.
    own: Runtime,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let store = open(&folder);
        let own = Builder::new_current_thread().build().expect("built");
        Self { folder, store, clock: Manual::new(), outside: Outside::new(), own }
    }

    /// Opens the file again, when an engine has closed it.
    pub(crate) fn reopen(&mut self) {
        self.store = open(&self.folder);
    }

    /// An engine whose only tool, `job`, does its work outside.
    pub(crate) fn engine(&self, name: &'static str, on_restart: OnRestart) -> Server {
        self.engine_with(self.job(name, on_restart))
    }

    /// The tool of such an engine.
    pub(crate) fn job(&self, name: &'static str, on_restart: OnRestart) -> Tool {
        let mut job = tool("job", |_, _| async { done() });
        job.policy.on_restart = on_restart;
        job.backend = Arc::new(self.outside.hand(name));
        (job.concurrency, job.queue) = (1_000, 1_000);
        job
    }

    pub(crate) fn engine_with(&self, tool: Tool) -> Server {
        let runtime =
            Builder::new_current_thread().enable_all().start_paused(true).build().expect("built");
        // Behind the runtime, which waits for whoever blocks, so that it goes first.
        let (awake, halted) = std::sync::mpsc::channel::<()>();
        // A paused clock moves on when there is nothing to do but to wait, be it for a disk. Not
        // while something blocks, though; so time is what `turn` makes of it.
        runtime.spawn_blocking(move || halted.recv());
        let options = Options { lease: Duration::from_millis(LEASE as u64), ..Options::default() };
        let start = Engine::start(self.store.clone(), self.clock.clone(), vec![tool], options);
        let engine = finish(&runtime, start).expect("starts");
        Server { _awake: awake, runtime, engine }
    }

    /// Time passes for the clock and for these engines, second by second.
    pub(crate) fn pass(&self, millis: i64, engines: &[&Server]) {
        for _ in 0..millis / 1_000 {
            self.clock.jump(1_000);
            self.turn(engines);
        }
        self.clock.jump(millis % 1_000);
        self.turn(engines);
    }

    /// The leases of all others run out, and these engines have looked for what is left.
    pub(crate) fn lapse(&self, engines: &[&Server]) {
        self.pass(LEASE, engines);
        for _ in 0..LEASE / 3_000 {
            self.turn(engines);
        }
    }

    /// Each of these engines does what is due within a second of its time.
    pub(crate) fn turn(&self, engines: &[&Server]) {
        for engine in engines {
            engine.run(async {
                tokio::time::advance(Duration::from_secs(1)).await;
                // The store does one thing after the other, so what the engine waits for is done
                // when this is; and then what it does next.
                for _ in 0..8 {
                    let nobody = WorkerId::new("nobody").expect("a name");
                    let nothing = ToolName::new("nothing").expect("a name");
                    let claimed = self.store.claim_next(nothing, nobody, self.clock.now()).await;
                    assert!(claimed.expect("answered").is_none());
                    self.store.unfinished(None, 0).await.expect("read");
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    /// The task as it is on disk.
    pub(crate) fn task(&self, id: TaskId) -> Arc<Task> {
        let found = self.own.block_on(self.store.get(id, Owner::local()));
        found.expect("read").expect("there")
    }
}

fn open(folder: &TempDir) -> Arc<SqliteStore> {
    let path = folder.path().join("abide.db");
    Arc::new(SqliteStore::open(&path, StoreOptions::default()).expect("opens"))
}

/// An engine on a runtime of its own. It does something only while it is [`Server::run`]; between
/// that it is halted, as on a machine that is suspended. Dropped, it has crashed.
pub(crate) struct Server {
    /// Goes before the runtime, as there.
    _awake: std::sync::mpsc::Sender<()>,
    runtime: Runtime,
    pub(crate) engine: Engine,
}

impl Server {
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Calls `job`.
    pub(crate) async fn create(&self) -> TaskId {
        match self.engine.call(call("job", true)).await.expect("answered") {
            Answer::Task(task) => *task.id(),
            other => panic!("no task: {other:?}"),
        }
    }

    /// Calls `job`, and sees its work begin.
    pub(crate) fn begin(&self, outside: &Outside, event: &str) -> TaskId {
        let id = self.run(self.create());
        self.sees(outside, event);
        id
    }

    /// Runs until this has happened. What needs time needs turns before.
    pub(crate) fn sees(&self, outside: &Outside, event: &str) {
        self.run(until(event, async || outside.has_seen(event).then_some(())));
    }

    /// Runs until the task has this status. What needs time needs turns before.
    pub(crate) fn until_status(&self, id: TaskId, status: Status) -> Arc<Task> {
        self.run(until(status.as_str(), async || {
            let task = self.engine.get(&Owner::local(), id).await.expect("read").expect("there");
            (task.status() == status).then_some(task)
        }))
    }

    /// Runs until the engine has been stopped: by itself, since its time stands still.
    pub(crate) fn drain(&self) {
        let engine = self.engine.clone();
        let drain = async move { engine.drain(Duration::from_secs(60)).await };
        assert_eq!(finish(&self.runtime, drain).running, 0);
    }
}

/// Runs a future to its end, within [`PATIENCE`].
fn finish<T: Send + 'static>(
    runtime: &Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let task = runtime.spawn(future);
    runtime.block_on(async {
        until("the end", async || task.is_finished().then_some(())).await;
        task.await.expect("no panic")
    })
}

/// Asks again and again. The bound is real time: a paused clock would never reach any.
#[expect(clippy::disallowed_methods, reason = "a paused clock measures nothing")]
async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} never came");
        tokio::task::yield_now().await;
        // Whoever is waited for, the store, has threads of its own.
        std::thread::sleep(Duration::from_micros(200));
    }
}

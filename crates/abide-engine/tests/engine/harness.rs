//! An engine over a SQLite file, a clock that tests set, and tools that wait.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use abide_core::{
    Clock, OnRestart, Outcome, Owner, Policy, RawJson, Status, Task, TaskId, Timestamp, ToolName,
    Work,
};
use abide_engine::{
    Answer, Call, CallError, Engine, Options, Schema, TaskContext, TaskSupport, Tool, handler,
};
use abide_store::sqlite::{Options as StoreOptions, SqliteStore};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

/// A clock that stands until it is set.
#[derive(Debug)]
pub(crate) struct Manual(AtomicI64);

impl Manual {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_785_283_200_000)))
    }

    /// Moves the clock by milliseconds, either way.
    pub(crate) fn jump(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Manual {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Counters by name, which tools raise and tests wait for, and the other way round.
#[derive(Clone)]
pub(crate) struct Counters(Arc<watch::Sender<HashMap<&'static str, usize>>>);

impl Counters {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(HashMap::new())))
    }

    pub(crate) fn raise(&self, name: &'static str) {
        self.0.send_modify(|counters| *counters.entry(name).or_default() += 1);
    }

    pub(crate) fn get(&self, name: &str) -> usize {
        self.0.borrow().get(name).copied().unwrap_or(0)
    }

    /// Waits, without a bound: under a paused clock no bound means anything.
    pub(crate) async fn reach(&self, name: &str, count: usize) {
        let mut counters = self.0.subscribe();
        let _ = counters.wait_for(|all| all.get(name).copied().unwrap_or(0) >= count).await;
    }
}

pub(crate) const HOUR: i64 = 3_600_000;

/// A tool with this handler: no inline window, an hour of time, two hours of retention.
pub(crate) fn tool<F, Fut>(name: &str, function: F) -> Tool
where
    F: Fn(Work, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    Tool {
        name: ToolName::new(name).expect("a name"),
        input: Schema::compile(&json!({ "type": "object" })).expect("compiles"),
        task: TaskSupport::Auto,
        inline: Duration::ZERO,
        policy: Policy {
            timeout_ms: Some(HOUR as u64),
            keep_ms: Some(2 * HOUR as u64),
            poll_interval_ms: 1_000,
            on_restart: OnRestart::Fail,
        },
        concurrency: 64,
        queue: 64,
        backend: Arc::new(handler(function)),
    }
}

/// A tool that raises `started`, waits until `open` is raised as often, and ends.
pub(crate) fn gate(counters: &Counters) -> Tool {
    let counters = counters.clone();
    tool("gate", move |_, _| {
        let counters = counters.clone();
        async move {
            counters.raise("started");
            let number = counters.get("started");
            counters.reach("open", number).await;
            done()
        }
    })
}

pub(crate) fn done() -> Outcome {
    let result = r#"{"resultType":"complete","content":[]}"#;
    Outcome::Completed(RawJson::parse(result).expect("JSON"))
}

/// An engine and the file it works on.
pub(crate) struct House {
    pub(crate) folder: Arc<TempDir>,
    pub(crate) engine: Engine,
}

impl House {
    pub(crate) async fn start(clock: Arc<dyn Clock>, tools: Vec<Tool>) -> Self {
        Self::on(Arc::new(TempDir::new().expect("a folder")), clock, tools).await
    }

    pub(crate) async fn on(folder: Arc<TempDir>, clock: Arc<dyn Clock>, tools: Vec<Tool>) -> Self {
        let path = folder.path().join("abide.db");
        let store = SqliteStore::open(&path, StoreOptions::default()).expect("opens");
        let options = Options::default();
        let engine = Engine::start(Arc::new(store), clock, tools, options).await.expect("starts");
        Self { folder, engine }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("abide.db")
    }

    /// Calls a tool as somebody who can take a task.
    pub(crate) async fn call(&self, tool: &str) -> Result<Answer, CallError> {
        self.engine.call(call(tool, true)).await
    }

    /// Calls a tool whose calls become tasks.
    pub(crate) async fn create(&self, tool: &str) -> TaskId {
        match self.call(tool).await.expect("answered") {
            Answer::Task(task) => *task.id(),
            other => panic!("no task: {other:?}"),
        }
    }

    pub(crate) async fn get(&self, id: TaskId) -> Option<Arc<Task>> {
        self.engine.get(&Owner::local(), id).await.expect("read")
    }

    /// Polls until the task is as wanted. The bound is real time, in which a busy disk may take
    /// seconds for one commit; a paused clock knows nothing of that.
    #[expect(clippy::disallowed_methods, reason = "a paused clock measures nothing")]
    pub(crate) async fn until(&self, id: TaskId, wanted: impl Fn(&Task) -> bool) -> Arc<Task> {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(120) {
            let task = self.get(id).await.expect("there");
            if wanted(&task) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{id} never came to be as wanted: {:?}", self.get(id).await);
    }

    pub(crate) async fn until_status(&self, id: TaskId, status: Status) -> Arc<Task> {
        self.until(id, |task| task.status() == status).await
    }

    /// Rows in the database by state.
    pub(crate) fn rows(&self) -> HashMap<String, i64> {
        let database = rusqlite::Connection::open(self.database()).expect("opens");
        let mut statement =
            database.prepare("SELECT state, count(*) FROM tasks GROUP BY state").expect("prepared");
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<Result<_, _>>().expect("read")
    }
}

pub(crate) fn call(tool: &str, may_be_task: bool) -> Call {
    let empty = || RawJson::parse("{}").expect("JSON");
    Call {
        owner: Owner::local(),
        tool: tool.to_owned(),
        arguments: empty(),
        may_be_task,
        capabilities: empty(),
        input_responses: None,
        request_state: None,
        progress: None,
    }
}

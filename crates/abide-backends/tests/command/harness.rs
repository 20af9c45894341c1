//! Runs a command tool as the engine would, and waits for conditions.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_backends::command::{
    CommandBackend, CommandSpec, DEFAULT_KILL_GRACE, DEFAULT_MAX_OUTPUT_BYTES, OutputMode,
};
use abide_backends::runner::{DEFAULT_MAX_LOG_BYTES, Found, Program, Spool};
use abide_core::{
    AskError, Backend, BoxFuture, InputKey, Outcome, Owner, Progress, RawJson, StopReason, TaskId,
    Timestamp, ToolName, Work, WorkContext, limits,
};
use serde_json::{Value, json};
use tokio::sync::watch;

/// How long a test waits for something that has to happen, on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The engine's side of a call: can tell it to stop.
#[derive(Debug)]
pub(crate) struct Context(watch::Sender<Option<StopReason>>);

impl Context {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(None)))
    }

    pub(crate) fn stop(&self) {
        self.0.send_replace(Some(StopReason::Cancelled));
    }
}

impl WorkContext for Context {
    fn say(&self, _progress: Progress) {}

    fn ask(
        &self,
        _key: InputKey,
        _request: RawJson,
    ) -> BoxFuture<'static, Result<RawJson, AskError>> {
        Box::pin(async { Err(AskError::NotATask) })
    }

    fn ask_for_others(
        &self,
        key: InputKey,
        request: RawJson,
    ) -> BoxFuture<'static, Result<RawJson, AskError>> {
        self.ask(key, request)
    }

    fn withdraw(&self, _key: InputKey) -> BoxFuture<'static, Result<(), AskError>> {
        Box::pin(async { Ok(()) })
    }

    fn slot(&self) -> BoxFuture<'static, Option<()>> {
        Box::pin(async { Some(()) })
    }

    fn stopped(&self) -> BoxFuture<'static, StopReason> {
        let mut receiver = self.0.subscribe();
        Box::pin(async move {
            loop {
                if let Some(reason) = *receiver.borrow_and_update() {
                    return reason;
                }
                if receiver.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        })
    }
}

/// A text tool with this command and the config's defaults.
pub(crate) fn spec(argv: &[&str]) -> CommandSpec {
    CommandSpec {
        argv: argv.iter().map(|element| (*element).to_owned()).collect(),
        cwd: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        output: OutputMode::Text,
        output_schema: None,
        max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
        max_log_bytes: DEFAULT_MAX_LOG_BYTES,
        kill_grace: DEFAULT_KILL_GRACE,
    }
}

/// A text tool that runs a shell script, whose braces are literal.
pub(crate) fn script(script: &str) -> CommandSpec {
    spec(&["sh", "-c", &script.replace('{', "{{").replace('}', "}}")])
}

/// A handle that no other call on the machine has: processes are recognised by it.
pub(crate) fn task_id() -> TaskId {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let mut unique = [7; TaskId::RANDOM_LEN];
    unique[..4].copy_from_slice(&std::process::id().to_be_bytes());
    unique[4..8].copy_from_slice(&LAST.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    TaskId::new(Timestamp::from_millis(1), unique)
}

/// The input schema of every tool here: the properties `a` to `d`.
pub(crate) fn input_schema() -> Value {
    json!({"type": "object", "properties": {"a": {}, "b": {}, "c": {}, "d": {}}})
}

/// A folder for the runs of some tools.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The spool, opened as a server does when it starts.
    pub(crate) fn spool(&self) -> Spool {
        let runner = Program {
            path: env!("CARGO_BIN_EXE_abide-runner").into(),
            args: Vec::new(),
            shown_as: None,
        };
        Spool::open(self.0.path(), runner).unwrap()
    }

    /// A backend for `spec`.
    pub(crate) fn backend(&self, spec: CommandSpec) -> CommandBackend {
        CommandBackend::new(spec, &input_schema(), self.spool(), None).unwrap()
    }
}

/// What a test that fails leaves behind is told to stop.
impl Drop for Place {
    fn drop(&mut self) {
        let spool = self.spool();
        let stop = async move {
            for run in spool.list().unwrap_or_default() {
                if let Ok(Found::Live(run)) = spool.find(&run) {
                    let _ = run.stop().await;
                }
            }
        };
        // Here a runtime may be running already.
        let stopping = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(stop);
        });
        let _ = stopping.join();
    }
}

/// A call of a tool.
pub(crate) fn work(task_id: TaskId, arguments: &str) -> Work {
    Work {
        task_id,
        owner: Owner::local(),
        tool: ToolName::new("tool").unwrap(),
        arguments: RawJson::parse(arguments).unwrap(),
        attempt: 1,
    }
}

/// Starts a call in a place of its own.
pub(crate) fn start(
    spec: CommandSpec,
    arguments: &str,
    context: &Arc<Context>,
) -> BoxFuture<'static, Outcome> {
    start_as(task_id(), spec, arguments, context)
}

/// The same under a given handle.
pub(crate) fn start_as(
    task_id: TaskId,
    spec: CommandSpec,
    arguments: &str,
    context: &Arc<Context>,
) -> BoxFuture<'static, Outcome> {
    let place = Place::new();
    let running = place.backend(spec).run(work(task_id, arguments), Arc::<Context>::clone(context));
    Box::pin(async move {
        let outcome = running.await;
        drop(place);
        outcome
    })
}

/// A finished call.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) raw: RawJson,
    pub(crate) value: Value,
}

impl Finished {
    pub(crate) fn is_error(&self) -> bool {
        self.value.get("isError").is_some_and(|flag| flag == true)
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
        let content = self.value["content"].as_array().unwrap();
        content.iter().map(|block| block["text"].as_str().unwrap()).collect()
    }

    /// The text of a call that succeeded.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        assert!(!self.is_error(), "{:?}", self.texts());
        assert_eq!(self.texts().len(), 1);
        self.texts()[0]
    }

    /// The first text of a call that failed, with each of `parts` in it.
    #[track_caller]
    pub(crate) fn complains(&self, parts: &[&str]) {
        assert!(self.is_error() && self.value.get("structuredContent").is_none());
        for part in parts {
            assert!(self.texts()[0].contains(part), "{:?} is not in {:?}", part, self.texts());
        }
    }
}

/// Runs a call to its end.
pub(crate) async fn call(spec: CommandSpec, arguments: &str) -> Finished {
    finished(within(start(spec, arguments, &Context::new())).await)
}

/// What a call has returned.
#[track_caller]
pub(crate) fn finished(outcome: Outcome) -> Finished {
    let Outcome::Completed(raw) = outcome else { panic!("{outcome:?}") };
    assert!(raw.as_str().starts_with(r#"{"resultType":"complete","content":["#));
    assert!(raw.len() <= limits::MAX_RESULT_BYTES);
    let value: Value = raw.to().unwrap();
    assert!(value["content"].as_array().unwrap().iter().all(|block| block["type"] == "text"));
    Finished { raw, value }
}

/// Runs a script to its end.
pub(crate) async fn run(text: &str) -> Finished {
    call(script(text), "{}").await
}

/// Waits for a future, with a bound.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it never ended")
}

/// Waits until a condition holds.
pub(crate) async fn until<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    within(async {
        loop {
            if let Some(value) = condition() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Waits until a script has written a process id, and a line break, into the file.
pub(crate) async fn pid_in(file: &Path) -> i32 {
    until(|| std::fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()).await
}

/// Whether the process runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

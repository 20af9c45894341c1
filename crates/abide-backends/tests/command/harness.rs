//! Runs a command tool as the engine would, and waits for conditions.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use abide_backends::command::{
    CommandBackend, CommandSpec, DEFAULT_KILL_GRACE, DEFAULT_MAX_OUTPUT_BYTES, OutputMode,
};
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
        output: OutputMode::Text,
        output_schema: None,
        max_output_bytes: DEFAULT_MAX_OUTPUT_BYTES,
        kill_grace: DEFAULT_KILL_GRACE,
    }
}

/// A text tool that runs a shell script, whose braces are literal.
pub(crate) fn script(script: &str) -> CommandSpec {
    spec(&["sh", "-c", &script.replace('{', "{{").replace('}', "}}")])
}

pub(crate) fn task_id() -> TaskId {
    TaskId::new(Timestamp::from_millis(1), [7; TaskId::RANDOM_LEN])
}

/// A backend for `spec` whose input schema has the properties `a` to `d`.
pub(crate) fn backend(spec: CommandSpec) -> CommandBackend {
    let schema = json!({"type": "object", "properties": {"a": {}, "b": {}, "c": {}, "d": {}}});
    CommandBackend::new(spec, &schema).unwrap()
}

/// Starts a call.
pub(crate) fn start(
    spec: CommandSpec,
    arguments: &str,
    context: &Arc<Context>,
) -> BoxFuture<'static, Outcome> {
    let work = Work {
        task_id: task_id(),
        owner: Owner::local(),
        tool: ToolName::new("tool").unwrap(),
        arguments: RawJson::parse(arguments).unwrap(),
        attempt: 1,
    };
    backend(spec).run(work, Arc::<Context>::clone(context))
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
    let outcome = within(start(spec, arguments, &Context::new())).await;
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

//! Who does the work, seen from the engine, and the engine, seen from whoever does the work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::RpcError;
use crate::id::{InputKey, Owner, TaskId, ToolName};
use crate::json::RawJson;

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One piece of work for a backend.
#[derive(Debug, Clone)]
pub struct Work {
    /// The handle, which exists before the task is durable.
    pub task_id: TaskId,
    /// On whose behalf.
    pub owner: Owner,
    /// The tool that was called.
    pub tool: ToolName,
    /// The arguments, which fit the tool's schema.
    pub arguments: RawJson,
    /// Counts from 1.
    pub attempt: u32,
}

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// With a `CallToolResult` as JSON, which may say `isError`.
    Completed(RawJson),
    /// With a JSON-RPC error. A tool that ran and failed is not this
    /// (`sep-2663-tool-error-uses-completed-status`).
    Failed(RpcError),
    /// Because it was told to stop; all of it has stopped.
    Stopped,
    /// It was not begun, because somebody who was asked did not want it: the task is cancelled.
    Declined,
    /// It could not be taken up again; what is left of it has been stopped. The error says what
    /// happened.
    Lost(RpcError),
}

/// Why work is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The owner cancelled the task.
    Cancelled,
    /// It took longer than its `timeout`.
    TimedOut,
    /// The caller of a plain call is gone, so nobody can ever see the result.
    Abandoned,
    /// The server is stopping.
    Shutdown,
}

/// Why a question got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// This call is not a task, so there is nobody to ask.
    #[error("this call is not a task, so it can't ask for input")]
    NotATask,
    /// The work is being stopped.
    #[error("the work is being stopped")]
    Stopping,
    /// The task refused the question.
    #[error("{0}")]
    Refused(String),
}

/// How far the work is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// A sentence for people.
    pub message: Option<String>,
    /// How much is done, growing.
    pub done: Option<f64>,
    /// How much there is in all.
    pub total: Option<f64>,
}

/// What work can do while it runs. The engine implements it.
pub trait WorkContext: Send + Sync {
    /// Says how far the work is; the newest wins.
    fn say(&self, progress: Progress);

    /// Asks the caller for input and waits, however long it takes, for the response.
    ///
    /// `request` is a JSON object with `method` and `params`, as the protocol has it in
    /// `inputRequests`. `key` names it, once in the task's life: the same key with the same request
    /// has the same answer at once, as when an earlier attempt has asked; with another request, or
    /// after the question was taken back, it is refused. Dropping the future takes the question
    /// back.
    fn ask(&self, key: InputKey, request: RawJson)
    -> BoxFuture<'static, Result<RawJson, AskError>>;

    /// Asks for a part of the work that is not in this process and may ask again: as
    /// [`ask`](Self::ask), but dropping the future leaves the question open, and the same question
    /// may be waited for by several.
    fn ask_for_others(
        &self,
        key: InputKey,
        request: RawJson,
    ) -> BoxFuture<'static, Result<RawJson, AskError>>;

    /// Takes a question back that [`ask_for_others`](Self::ask_for_others) has left open. One that
    /// is not open is left alone.
    fn withdraw(&self, key: InputKey) -> BoxFuture<'static, Result<(), AskError>>;

    /// Waits for one of the tool's slots, if the work has none yet; for work that
    /// [asks first](Backend::asks_first). None if the work is told to stop meanwhile.
    fn slot(&self) -> BoxFuture<'static, Option<()>>;

    /// Waits until the work is told to stop, and says why.
    fn stopped(&self) -> BoxFuture<'static, StopReason>;
}

/// What a tool may look at before its work begins and before any task exists.
#[derive(Debug, Clone)]
pub struct Prepare {
    /// The arguments, which fit the tool's schema.
    pub arguments: RawJson,
    /// JSON of the capabilities that this request declares.
    pub capabilities: RawJson,
    /// JSON object of responses to an earlier [`Prepared::NeedsInput`], by key.
    pub input_responses: Option<RawJson>,
    /// What came back of an earlier [`Prepared::NeedsInput`].
    pub request_state: Option<String>,
}

/// What a tool says before its work begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    /// Go on, with these arguments.
    Ready(RawJson),
    /// Ask the caller first, by the protocol's own multi-round-trip result
    /// (`sep-2663-mrtr-synchronous-before-task-creation`).
    NeedsInput {
        /// JSON object of requests by key.
        requests: RawJson,
        /// State that the caller hands back unread. The backend protects it against tampering.
        state: Option<String>,
    },
}

/// Which part of a log is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// The byte it begins at; below zero, counted from the end.
    pub from: i64,
    /// How many bytes at most.
    pub max: usize,
}

/// A part of what work has printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// The byte it begins at.
    pub from: u64,
    /// The bytes, which need not begin or end at a character's edge.
    pub bytes: Vec<u8>,
    /// How many bytes the log has by now.
    pub size: u64,
    /// Whether nothing more will come.
    pub ended: bool,
    /// Whether the work's result shows all of it.
    pub in_result: bool,
}

/// Does the work of one tool.
pub trait Backend: Send + Sync + 'static {
    /// Looks at a call before any work begins. By default every call goes on.
    ///
    /// # Errors
    /// The JSON-RPC error that the call is answered with.
    fn prepare(&self, call: Prepare) -> BoxFuture<'_, Result<Prepared, RpcError>> {
        Box::pin(async move { Ok(Prepared::Ready(call.arguments)) })
    }

    /// Does the work. When [`WorkContext::stopped`] resolves, it stops all of the work and then
    /// returns [`Outcome::Stopped`], or the result that came first.
    fn run(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome>;

    /// How long work may take to stop when it is told to, at most.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the work begins with a question. Then every call is a task, and the work has no slot
    /// until it waits for one with [`WorkContext::slot`], since an answer may take days.
    fn asks_first(&self) -> bool {
        false
    }

    /// Whether anything of work that [asks first](Self::asks_first) has been begun, as far as an
    /// earlier process has left traces.
    fn begun(&self, work: &Work) -> bool {
        let _ = work;
        true
    }

    /// Whether work goes on without this process, so that [`Backend::resume`] can take it up
    /// again after a restart. Dropping the future of such work leaves the work running.
    fn outlives(&self) -> bool {
        false
    }

    /// Takes up the work of an earlier process, running or finished, as if it had been begun by
    /// [`Backend::run`]; [`Outcome::Lost`] if there is nothing to take up. By default there never
    /// is.
    fn resume(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        let _ = (work, context);
        Box::pin(async {
            Outcome::Lost(RpcError::internal(
                "interrupted",
                "The server stopped while the work was running, and the work stopped with it. \
                 Call the tool again if it is safe to repeat.",
            ))
        })
    }

    /// Stops what is left of the work of an earlier process. Work that had ended by itself before
    /// gives its outcome.
    fn discard(&self, work: Work) -> BoxFuture<'static, Option<Outcome>> {
        let _ = work;
        Box::pin(async { None })
    }

    /// A part of the log of a task's work, running or ended; none if there is no log. By default
    /// there never is.
    ///
    /// # Errors
    /// The JSON-RPC error that the reader is answered with.
    fn log(
        &self,
        task: TaskId,
        attempt: u32,
        range: LogRange,
    ) -> BoxFuture<'static, Result<Option<LogPart>, RpcError>> {
        let _ = (task, attempt, range);
        Box::pin(async { Ok(None) })
    }

    /// These tasks are no more, and nothing of their work runs: what was kept for them can go.
    fn forget(&self, tasks: Vec<TaskId>) {
        let _ = tasks;
    }
}

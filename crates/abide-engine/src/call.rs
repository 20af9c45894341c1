//! A `tools/call`: a plain result within the inline window, a task beyond it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_core::{
    NewTask, OnRestart, Outcome, Owner, Policy, Prepare, Prepared, Progress, RawJson, RpcError,
    Start, State, StopReason, StoreError, Task, Work, limits,
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::context::Context;
use crate::effects::stop_reason;
use crate::engine::{Engine, Inner, ToolState};
use crate::outcome;
use crate::recovery::work;
use crate::run::{Phase, Run};
use crate::supervise::{plain, plain_stop};
use crate::tool::TaskSupport;

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct Call {
    /// The verified caller.
    pub owner: Owner,
    /// The tool's name as it was sent.
    pub tool: String,
    /// The arguments as they were sent.
    pub arguments: RawJson,
    /// Whether this very request declared that it can take a task
    /// (`sep-2663-server-rejects-undeclared-client`).
    pub may_be_task: bool,
    /// JSON of the capabilities that the request declares.
    pub capabilities: RawJson,
    /// Responses to an earlier [`Answer::InputRequired`], as a JSON object by key.
    pub input_responses: Option<RawJson>,
    /// What an earlier [`Answer::InputRequired`] asked to be handed back.
    pub request_state: Option<String>,
    /// Where a caller who waits for a plain result hears how far the work is. Dropped at once when
    /// the call may become a task.
    pub progress: Option<watch::Sender<Progress>>,
}

/// What a call is answered with.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A result, the JSON of a `CallToolResult`.
    Result(RawJson),
    /// A task, which is on disk.
    Task(Arc<Task>),
    /// Questions, before any work or task begins.
    InputRequired {
        /// JSON object of requests by key.
        requests: RawJson,
        /// State to be handed back.
        state: Option<String>,
    },
}

/// Why a call did not begin, or ended without a result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// There is no such tool.
    #[error("unknown tool")]
    UnknownTool,
    /// The tool's calls are always tasks, and this caller can't take one
    /// (`sep-2663-server-returns-missing-capability-when-required`).
    #[error("the tool needs a task")]
    NeedsTask,
    /// The arguments do not fit the tool's schema.
    #[error("the arguments do not fit the tool's schema: {}", .0.join("; "))]
    Arguments(Vec<String>),
    /// All slots are taken and the queue is full.
    #[error("busy: {queued} calls wait already")]
    Busy {
        /// How many wait.
        queued: u32,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Closing,
    /// The work ended in a JSON-RPC error.
    #[error("{}", .0.message)]
    Rpc(RpcError),
    /// Our fault; details are for the log.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Calls a tool.
    ///
    /// Dropping the future before it resolves says that the caller is gone: work without a task is
    /// stopped, since nobody could ever see its result; a task goes on.
    ///
    /// # Errors
    /// A [`CallError`].
    pub async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let inner = &self.0;
        let state = inner.tools.get(call.tool.as_str()).ok_or(CallError::UnknownTool)?;
        let tool = &state.tool;
        let always = tool.task == TaskSupport::Required || tool.backend.asks_first();
        if always && !call.may_be_task {
            return Err(CallError::NeedsTask);
        }
        if inner.closing.is_cancelled() {
            return Err(CallError::Closing);
        }
        check_arguments(state, &call.arguments)?;

        let prepare = Prepare {
            arguments: call.arguments,
            capabilities: call.capabilities,
            input_responses: call.input_responses,
            request_state: call.request_state,
        };
        let arguments = match tool.backend.prepare(prepare).await.map_err(CallError::Rpc)? {
            Prepared::Ready(arguments) => arguments,
            Prepared::NeedsInput { requests, state } => {
                return Ok(Answer::InputRequired { requests, state });
            }
        };

        let new = NewTask {
            id: inner.new_id()?,
            owner: call.owner,
            tool: tool.name.clone(),
            arguments,
            policy: tool.policy,
        };
        if !call.may_be_task || tool.task == TaskSupport::Never {
            return inner.call_plain(state, new, call.progress).await;
        }
        if tool.backend.asks_first() {
            drop(call.progress);
            return inner.spawn_owned(|inner| inner.create_asking(new)).await;
        }
        // A call that becomes a task sends nothing before its handle.
        drop(call.progress);
        match state.slots.clone().try_acquire_owned() {
            Ok(slot) if tool.task == TaskSupport::Auto && !tool.inline.is_zero() => {
                inner.call_inline(state, new, slot, tool.inline).await
            }
            // The work belongs to the engine from here on, whatever becomes of the request.
            Ok(slot) => inner.spawn_owned(|inner| inner.create_claimed(new, slot)).await,
            Err(_) => {
                let waiting = state.waiting.load(Ordering::Relaxed);
                let room = tool.queue.saturating_sub(waiting);
                inner.spawn_owned(|inner| inner.create_queued(new, room)).await
            }
        }
    }
}

impl Inner {
    /// Runs a future to its end even if the caller stops waiting for it.
    async fn spawn_owned<F>(
        self: &Arc<Self>,
        make: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<Answer, CallError>
    where
        F: Future<Output = Result<Answer, CallError>> + Send + 'static,
    {
        self.tracker.spawn(make(self.clone())).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a call was lost");
            Err(CallError::Rpc(RpcError::internal("panic", "The call failed unexpectedly.")))
        })
    }

    /// No task: the caller waits, for a slot and for the work.
    async fn call_plain(
        self: &Arc<Self>,
        state: &ToolState,
        new: NewTask,
        progress: Option<watch::Sender<Progress>>,
    ) -> Result<Answer, CallError> {
        let slot = self.wait_for_slot(state, progress.as_ref()).await?;
        let (run, outcome) = self.start_plain(state, new, slot, false);
        let mut gone = AbandonOnDrop(Some(run.clone()));
        let forward = async {
            let Some(to) = progress else { return std::future::pending().await };
            let mut from = run.progress.subscribe();
            // What the work said before anybody listened counts too.
            if *from.borrow() != Progress::default() {
                from.mark_changed();
            }
            while from.changed().await.is_ok() {
                to.send_replace(from.borrow_and_update().clone());
            }
        };
        let answer = tokio::select! {
            biased;
            answer = plain_answer(&run, outcome) => answer,
            () = forward => Err(CallError::Closing),
        };
        gone.0 = None;
        answer
    }

    /// Work that ends within the window is answered plainly and leaves no task; otherwise the task
    /// is made durable, then the handle goes out.
    async fn call_inline(
        self: &Arc<Self>,
        state: &ToolState,
        new: NewTask,
        slot: OwnedSemaphorePermit,
        window: Duration,
    ) -> Result<Answer, CallError> {
        let (run, mut outcome) = self.start_plain(state, new.clone(), slot, true);
        let mut gone = AbandonOnDrop(Some(run.clone()));
        tokio::select! {
            biased;
            answer = plain_answer(&run, &mut outcome) => {
                gone.0 = None;
                return answer;
            }
            () = tokio::time::sleep(window) => {}
            () = run.wants_task.notified() => {}
        }
        gone.0 = None;
        self.spawn_owned(|inner| inner.promote(run, new, outcome)).await
    }

    /// Makes a task of work that is running.
    async fn promote(
        self: Arc<Self>,
        run: Arc<Run>,
        new: NewTask,
        outcome: oneshot::Receiver<Outcome>,
    ) -> Result<Answer, CallError> {
        let mut phase = run.phase.lock().await;
        // What has been told to stop has no future that could be promised.
        if matches!(*phase, Phase::Ended) || run.stop_reason().is_some() {
            drop(phase);
            return plain_answer(&run, outcome).await;
        }
        let start = Start::Claimed { worker: self.worker.clone(), since: run.since };
        let task = Task::create(new, start, self.clock.now());
        let created = match self.hold_lease().await {
            Ok(()) => self.store.create(task, None).await,
            Err(error) => Err(error),
        };
        match created {
            Ok(task) => {
                *phase = Phase::Durable(task.fence());
                run.take_deadline(&task, task.deadline());
                run.fence.send_replace(Some(task.fence()));
                Ok(Answer::Task(task))
            }
            Err(error) => {
                run.stop(StopReason::Abandoned);
                Err(error.into())
            }
        }
    }

    /// A task with a slot: on disk first, then the work begins.
    async fn create_claimed(
        self: Arc<Self>,
        new: NewTask,
        slot: OwnedSemaphorePermit,
    ) -> Result<Answer, CallError> {
        self.hold_lease().await?;
        let now = self.clock.now();
        let start = Start::Claimed { worker: self.worker.clone(), since: now };
        let task = self.store.create(Task::create(new, start, now), None).await?;
        self.start_durable(task.clone(), slot);
        Ok(Answer::Task(task))
    }

    /// A task whose work asks before it begins: it takes a slot later.
    async fn create_asking(self: Arc<Self>, new: NewTask) -> Result<Answer, CallError> {
        let state = self.tools.get(&new.tool).ok_or(CallError::UnknownTool)?;
        let waiting = self.count_waiting(&new.tool);
        if waiting >= limits::MAX_WAITING_FOR_APPROVAL {
            return Err(CallError::Busy { queued: u32::try_from(waiting).unwrap_or(u32::MAX) });
        }
        self.hold_lease().await?;
        let now = self.clock.now();
        let start = Start::Claimed { worker: self.worker.clone(), since: now };
        let task = self.store.create(Task::create(new, start, now), None).await?;
        let run = self.durable_run(state, &task);
        let context = self.context(&run);
        self.start(state.tool.backend.run(work(&task), context), run, None);
        Ok(Answer::Task(task))
    }

    /// A task without a slot: it waits in the store.
    async fn create_queued(self: Arc<Self>, new: NewTask, room: u32) -> Result<Answer, CallError> {
        let state = self.tools.get(&new.tool).ok_or(CallError::UnknownTool)?;
        let creating = Counted::enter(&state.creating);
        let ahead = self.store.queued(new.tool.clone(), room).await?.len();
        let start = Start::Queued { ahead: u32::try_from(ahead).unwrap_or(u32::MAX) };
        let task = Task::create(new, start, self.clock.now());
        match self.store.create(task, Some(room)).await {
            Ok(task) => {
                state.wake.notify_one();
                if !creating.was_alone() {
                    // Both may have counted the same tasks ahead.
                    state.moved.notify_one();
                }
                Ok(Answer::Task(task))
            }
            Err(StoreError::QueueFull { queued }) => {
                let waiting = state.tool.queue.saturating_sub(room);
                Err(CallError::Busy { queued: queued.saturating_add(waiting) })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn wait_for_slot(
        &self,
        state: &ToolState,
        progress: Option<&watch::Sender<Progress>>,
    ) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(slot) = state.slots.clone().try_acquire_owned() {
            return Ok(slot);
        }
        // Queued tasks and callers who wait share the room.
        let queued = self.store.queued(state.tool.name.clone(), state.tool.queue).await?.len();
        let waiting = Waiting::enter(state, u32::try_from(queued).unwrap_or(u32::MAX))?;
        if let Some(progress) = progress {
            let message = Some(format!("Queued; {} calls wait.", waiting.with_me));
            progress.send_replace(Progress { message, ..Progress::default() });
        }
        tokio::select! {
            slot = state.slots.clone().acquire_owned() => slot.map_err(|_| CallError::Closing),
            () = self.closing.cancelled() => Err(CallError::Closing),
        }
    }

    /// Starts work that has no task.
    fn start_plain(
        self: &Arc<Self>,
        state: &ToolState,
        new: NewTask,
        slot: OwnedSemaphorePermit,
        may_be_task: bool,
    ) -> (Arc<Run>, oneshot::Receiver<Outcome>) {
        let now = self.clock.now();
        let deadline = new.policy.timeout_ms.map(|timeout| now.plus_millis(timeout));
        let (phase, outcome) = plain();
        let outlives = outlives(state, new.policy);
        let work = Work {
            task_id: new.id,
            owner: new.owner,
            tool: new.tool,
            arguments: new.arguments,
            attempt: 1,
        };
        let run = Run::new(&work, may_be_task, now, deadline, outlives, phase);
        let context = self.context(&run);
        self.start(state.tool.backend.run(work, context), run.clone(), Some(slot));
        (run, outcome)
    }

    /// Starts the work of a task that this engine has claimed.
    pub(crate) fn start_durable(self: &Arc<Self>, task: Arc<Task>, slot: OwnedSemaphorePermit) {
        let Some(state) = self.tools.get(task.tool()) else { return };
        let run = self.durable_run(state, &task);
        let context = self.context(&run);
        self.start(state.tool.backend.run(work(&task), context), run, Some(slot));
    }

    /// Takes up the work of a task that this engine has taken over.
    pub(crate) fn resume(self: &Arc<Self>, task: Arc<Task>, slot: Option<OwnedSemaphorePermit>) {
        let Some(state) = self.tools.get(task.tool()) else { return };
        let run = self.durable_run(state, &task);
        if let State::Stopping { why, .. } = task.state() {
            run.stop(stop_reason(*why));
        }
        let context = self.context(&run);
        self.start(state.tool.backend.resume(work(&task), context), run, slot);
    }

    fn durable_run(&self, state: &ToolState, task: &Task) -> Arc<Run> {
        let run = Run::new(
            &work(task),
            true,
            self.clock.now(),
            task.deadline(),
            outlives(state, task.policy()),
            Phase::Durable(task.fence()),
        );
        if state.tool.backend.asks_first() && !state.tool.backend.begun(&work(task)) {
            run.waits();
        }
        run
    }

    fn context(self: &Arc<Self>, run: &Arc<Run>) -> Arc<Context> {
        Arc::new(Context { inner: self.clone(), run: run.clone() })
    }
}

/// Whether the work of a task with this policy goes on without this process.
fn outlives(state: &ToolState, policy: Policy) -> bool {
    policy.on_restart == OnRestart::Reattach && state.tool.backend.outlives()
}

/// Checks the arguments' size, kind and schema.
fn check_arguments(state: &ToolState, arguments: &RawJson) -> Result<(), CallError> {
    if arguments.len() > limits::MAX_ARGUMENTS_BYTES {
        return Err(CallError::Arguments(vec![format!(
            "they have {} bytes, more than the {} allowed",
            arguments.len(),
            limits::MAX_ARGUMENTS_BYTES
        )]));
    }
    let value: Value =
        arguments.to().map_err(|error| CallError::Arguments(vec![error.to_string()]))?;
    let problems = state.tool.input.problems(&value);
    if problems.is_empty() { Ok(()) } else { Err(CallError::Arguments(problems)) }
}

async fn plain_answer(
    run: &Run,
    outcome: impl Future<Output = Result<Outcome, oneshot::error::RecvError>>,
) -> Result<Answer, CallError> {
    match outcome.await {
        Ok(Outcome::Completed(result)) if result.len() > limits::MAX_RESULT_BYTES => {
            Err(CallError::Rpc(outcome::too_large(result.len(), limits::MAX_RESULT_BYTES)))
        }
        Ok(Outcome::Completed(result)) => Ok(Answer::Result(result)),
        Ok(Outcome::Failed(error)) => Err(CallError::Rpc(error)),
        Ok(Outcome::Stopped | Outcome::Declined | Outcome::Lost(_)) | Err(_) => {
            Err(CallError::Rpc(plain_stop(run.stop_reason())))
        }
    }
}

/// Stops the work of a caller who is gone.
struct AbandonOnDrop(Option<Arc<Run>>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        if let Some(run) = &self.0 {
            run.stop(StopReason::Abandoned);
        }
    }
}

/// Counts those who are in the middle of something.
struct Counted<'a> {
    count: &'a AtomicU32,
    before: u32,
}

impl<'a> Counted<'a> {
    fn enter(count: &'a AtomicU32) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }

    /// Whether nobody was in the middle of it when this one came.
    fn was_alone(&self) -> bool {
        self.before == 0
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A plain call's place among those that wait.
struct Waiting<'a> {
    state: &'a ToolState,
    with_me: u32,
}

impl<'a> Waiting<'a> {
    fn enter(state: &'a ToolState, queued: u32) -> Result<Self, CallError> {
        let limit = state.tool.queue.saturating_sub(queued);
        state
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1))
            .map(|before| Self { state, with_me: before + 1 })
            .map_err(|waiting| CallError::Busy { queued: queued.saturating_add(waiting) })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.state.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Tools written as async Rust functions.

use std::future::Future;
use std::sync::Arc;

use abide_core::{
    AskError, Backend, BoxFuture, InputKey, Outcome, Progress, RawJson, StopReason, Work,
    WorkContext,
};

/// What a Rust handler can do while it runs.
#[derive(Clone)]
pub struct TaskContext(Arc<dyn WorkContext>);

impl TaskContext {
    /// Sets the task's status message; the newest wins.
    pub fn say(&self, message: impl Into<String>) {
        self.0.say(Progress { message: Some(message.into()), ..Progress::default() });
    }

    /// Says how far the work is.
    pub fn progress(&self, progress: Progress) {
        self.0.say(progress);
    }

    /// Asks the caller and waits for the response, however long it takes.
    ///
    /// `request` is a JSON object with `method` and `params`.
    ///
    /// # Errors
    /// [`AskError`] when this call is not a task, is being stopped, or used the key before.
    pub async fn ask(&self, key: InputKey, request: RawJson) -> Result<RawJson, AskError> {
        self.0.ask(key, request).await
    }

    /// Waits until the work is told to stop, for handlers that have something to clean up.
    pub async fn stopped(&self) -> StopReason {
        self.0.stopped().await
    }
}

/// Makes a backend of an async function. When the work is told to stop, its future is dropped.
pub fn handler<F, Fut>(function: F) -> impl Backend
where
    F: Fn(Work, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    Handler(function)
}

struct Handler<F>(F);

impl<F, Fut> Backend for Handler<F>
where
    F: Fn(Work, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    fn run(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        let stopped = context.stopped();
        let work = (self.0)(work, TaskContext(context));
        Box::pin(async move {
            tokio::select! {
                outcome = work => outcome,
                _ = stopped => Outcome::Stopped,
            }
        })
    }
}

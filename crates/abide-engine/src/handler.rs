//! Tools written as async Rust functions.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_core::{
    AskError, Backend, BoxFuture, InputKey, Outcome, Progress, RawJson, StopReason, Work,
    WorkContext,
};

/// What a Rust handler can do while it runs.
#[derive(Clone)]
pub struct TaskContext {
    context: Arc<dyn WorkContext>,
    /// Whether the handler stops by itself.
    stops_itself: Arc<AtomicBool>,
}

impl TaskContext {
    /// Sets the task's status message; the newest wins.
    pub fn say(&self, message: impl Into<String>) {
        self.context.say(Progress { message: Some(message.into()), ..Progress::default() });
    }

    /// Says how far the work is.
    pub fn progress(&self, progress: Progress) {
        self.context.say(progress);
    }

    /// Asks the caller and waits for the response, however long it takes.
    ///
    /// `request` is a JSON object with `method` and `params`.
    ///
    /// # Errors
    /// [`AskError`] when this call is not a task, is being stopped, or used the key before.
    pub async fn ask(&self, key: InputKey, request: RawJson) -> Result<RawJson, AskError> {
        self.context.ask(key, request).await
    }

    /// Waits until the work is told to stop, for handlers that have something to clean up: once
    /// this was called, the handler is not dropped but has to end by itself.
    pub async fn stopped(&self) -> StopReason {
        self.stops_itself.store(true, Ordering::Release);
        self.context.stopped().await
    }
}

/// Makes a backend of an async function. When the work is told to stop, its future is dropped,
/// unless it has called [`TaskContext::stopped`]: then it ends by itself.
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
        let stops_itself = Arc::new(AtomicBool::new(false));
        let context = TaskContext { context, stops_itself: stops_itself.clone() };
        let work = (self.0)(work, context);
        Box::pin(async move {
            let mut work = std::pin::pin!(work);
            tokio::select! {
                // Stopping first: what work says once it was told to stop is about the stopping.
                biased;
                _ = stopped => {}
                outcome = &mut work => return outcome,
            }
            if stops_itself.load(Ordering::Acquire) { work.await } else { Outcome::Stopped }
        })
    }
}

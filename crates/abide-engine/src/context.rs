//! What running work sees of the engine.

use std::sync::Arc;

use abide_core::{
    AskError, BoxFuture, Command, Fence, InputKey, Progress, RawJson, Refusal, StopReason,
    StoreError, WorkContext,
};

use crate::engine::Inner;
use crate::run::Run;

/// The engine's [`WorkContext`].
pub(crate) struct Context {
    pub(crate) inner: Arc<Inner>,
    pub(crate) run: Arc<Run>,
}

impl WorkContext for Context {
    fn say(&self, progress: Progress) {
        self.run.progress.send_replace(progress);
    }

    fn ask(
        &self,
        key: InputKey,
        request: RawJson,
    ) -> BoxFuture<'static, Result<RawJson, AskError>> {
        let (inner, run) = (self.inner.clone(), self.run.clone());
        Box::pin(async move {
            if !run.may_be_task {
                return Err(AskError::NotATask);
            }
            tokio::select! {
                response = ask(inner, run.clone(), key, request) => response,
                _ = run.stopped() => Err(AskError::Stopping),
            }
        })
    }

    fn ask_for_others(
        &self,
        key: InputKey,
        request: RawJson,
    ) -> BoxFuture<'static, Result<RawJson, AskError>> {
        let (inner, run) = (self.inner.clone(), self.run.clone());
        Box::pin(async move {
            if !run.may_be_task {
                return Err(AskError::NotATask);
            }
            tokio::select! {
                response = ask_for_others(inner, run.clone(), key, request) => response,
                _ = run.stopped() => Err(AskError::Stopping),
            }
        })
    }

    fn withdraw(&self, key: InputKey) -> BoxFuture<'static, Result<(), AskError>> {
        let (inner, run) = (self.inner.clone(), self.run.clone());
        Box::pin(async move {
            let Some(fence) = *run.fence.borrow() else { return Ok(()) };
            let withdraw = Command::Withdraw { fence, key };
            let withdrawn = inner.apply_until_done(run.id, withdraw).await;
            withdrawn.map(drop).map_err(|error| refused(&run, error))
        })
    }

    fn slot(&self) -> BoxFuture<'static, Option<()>> {
        let (inner, run) = (self.inner.clone(), self.run.clone());
        Box::pin(async move {
            if !run.is_waiting() {
                return Some(());
            }
            let state = inner.tools.get(&run.tool)?;
            let slot = tokio::select! {
                slot = state.slots.clone().acquire_owned() => slot.ok()?,
                _ = run.clone().stopped() => return None,
            };
            // The work's time begins, before anything could say that it is over.
            let fence = *run.fence.borrow();
            if let Some(fence) = fence {
                let begin = Command::Begin { fence };
                if let Err(error) = inner.apply_until_done(run.id, begin).await {
                    tracing::info!(task = %run.id, %error, "approved work does not begin");
                    return None;
                }
            }
            run.begins(slot);
            Some(())
        })
    }

    fn stopped(&self) -> BoxFuture<'static, StopReason> {
        Box::pin(self.run.clone().stopped())
    }
}

async fn ask(
    inner: Arc<Inner>,
    run: Arc<Run>,
    key: InputKey,
    request: RawJson,
) -> Result<RawJson, AskError> {
    let fence = durable(&run).await?;
    // Before the question is out: the response may come back at once.
    let Some(response) = run.expect_answer(key.clone()) else {
        return Err(AskError::Refused(Refusal::KeyUsed(key).to_string()));
    };
    let mut asking =
        Asking { inner: inner.clone(), run: run.clone(), key: key.clone(), fence, open: true };
    let answered = match inner.apply_until_done(run.id, Command::Ask { fence, key, request }).await
    {
        Ok(_) => response.await.map_err(|_| AskError::Stopping),
        Err(error) => Err(refused(&run, error)),
    };
    asking.open = false;
    run.forget_answer(&asking.key);
    answered
}

async fn ask_for_others(
    inner: Arc<Inner>,
    run: Arc<Run>,
    key: InputKey,
    request: RawJson,
) -> Result<RawJson, AskError> {
    let fence = durable(&run).await?;
    // Before the question is out: the response may come back at once.
    let response = run.join_answer(key.clone());
    match inner.apply_until_done(run.id, Command::Ask { fence, key, request }).await {
        Ok(_) => response.await.map_err(|_| AskError::Stopping),
        Err(error) => Err(refused(&run, error)),
    }
}

fn refused(run: &Run, error: StoreError) -> AskError {
    match error {
        StoreError::Refused(Refusal::Stopping) => {
            // The stop is committed, and its effect still on the way. The work hears of it here
            // first, so that however it ends now is how it stopped; the task knows why.
            run.stop(StopReason::Cancelled);
            AskError::Stopping
        }
        StoreError::Refused(refusal) => AskError::Refused(refusal.to_string()),
        error => AskError::Refused(error.to_string()),
    }
}

/// A question that is being asked. Dropped while it is open, it is taken back: a job that no longer
/// waits must not leave its task waiting.
struct Asking {
    inner: Arc<Inner>,
    run: Arc<Run>,
    key: InputKey,
    fence: Fence,
    open: bool,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        self.run.forget_answer(&self.key);
        let (inner, id) = (self.inner.clone(), self.run.id);
        let withdraw = Command::Withdraw { fence: self.fence, key: self.key.clone() };
        self.inner.tracker.spawn(async move {
            match inner.apply_until_done(id, withdraw).await {
                // A task that has ended or is being stopped has no open questions.
                Ok(_) | Err(StoreError::Refused(_) | StoreError::NotFound) => {}
                Err(error) => tracing::warn!(task = %id, %error, "a question was not taken back"),
            }
        });
    }
}

/// Waits until there is a task to ask through: a question ends the inline window.
async fn durable(run: &Run) -> Result<Fence, AskError> {
    run.wants_task.notify_one();
    let mut fence = run.fence.subscribe();
    loop {
        if let Some(fence) = *fence.borrow_and_update() {
            return Ok(fence);
        }
        if fence.changed().await.is_err() {
            return Err(AskError::Stopping);
        }
    }
}

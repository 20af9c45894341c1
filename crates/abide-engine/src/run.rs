//! One piece of work that this process runs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_core::{
    Fence, InputKey, Outcome, Progress, RawJson, StopReason, Task, TaskId, Timestamp, ToolName,
    Work,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Whether the work has a task on disk.
#[derive(Debug)]
pub(crate) enum Phase {
    /// No task: the result goes to the caller who waits.
    Plain(oneshot::Sender<Outcome>),
    /// A task, claimed under this number: the result goes to the store.
    Durable(Fence),
    /// The work has ended, and its outcome is on its way.
    Ended,
}

/// The engine's side of a piece of work.
pub(crate) struct Run {
    pub(crate) id: TaskId,
    pub(crate) tool: ToolName,
    /// Counts from 1.
    pub(crate) attempt: u32,
    /// Whether this work may become a task.
    pub(crate) may_be_task: bool,
    /// When the work began.
    pub(crate) since: Timestamp,
    /// Whether the work, once it has begun, goes on when it is let go.
    outlives: bool,
    /// Whether the work has not begun, because it waits for an answer or, after that, for a slot.
    waiting: AtomicBool,
    /// The slot that it has waited for.
    slot: Mutex<Option<OwnedSemaphorePermit>>,
    /// Cancelled when this process no longer cares for the work, which goes on.
    pub(crate) let_go: CancellationToken,
    /// Held while the work becomes durable and while it ends, so that one happens before the
    /// other.
    pub(crate) phase: tokio::sync::Mutex<Phase>,
    /// The claim's number once there is a task.
    pub(crate) fence: watch::Sender<Option<Fence>>,
    /// Set once, when the work is told to stop.
    pub(crate) stop: watch::Sender<Option<StopReason>>,
    /// The newest thing the work said.
    pub(crate) progress: watch::Sender<Progress>,
    /// Rung when the work has a question, which only a task can ask.
    pub(crate) wants_task: Notify,
    /// The deadline, with the version of the task it comes from.
    deadline: watch::Sender<(u64, Option<Timestamp>)>,
    answers: Mutex<HashMap<InputKey, Vec<oneshot::Sender<RawJson>>>>,
}

impl Run {
    pub(crate) fn new(
        work: &Work,
        may_be_task: bool,
        since: Timestamp,
        deadline: Option<Timestamp>,
        outlives: bool,
        phase: Phase,
    ) -> Arc<Self> {
        let fence = match &phase {
            Phase::Durable(fence) => Some(*fence),
            _ => None,
        };
        Arc::new(Self {
            id: work.task_id,
            tool: work.tool.clone(),
            attempt: work.attempt,
            may_be_task,
            since,
            outlives,
            waiting: AtomicBool::new(false),
            slot: Mutex::default(),
            let_go: CancellationToken::new(),
            phase: tokio::sync::Mutex::new(phase),
            fence: watch::Sender::new(fence),
            stop: watch::Sender::new(None),
            progress: watch::Sender::new(Progress::default()),
            wants_task: Notify::new(),
            deadline: watch::Sender::new((0, deadline)),
            answers: Mutex::default(),
        })
    }

    /// Whether the task's work goes on when it is let go.
    pub(crate) fn outlives(&self) -> bool {
        // A question goes on whatever becomes of the work later.
        self.outlives || self.is_waiting()
    }

    /// Whether the work has not begun.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The work asks before it begins.
    pub(crate) fn waits(&self) {
        self.waiting.store(true, Ordering::Relaxed);
    }

    /// The waiting is over, and the work begins.
    pub(crate) fn begins(&self, slot: OwnedSemaphorePermit) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(slot);
        self.waiting.store(false, Ordering::Relaxed);
        // Whoever keeps the time looks again.
        self.deadline.send_modify(|_| ());
    }

    /// The work is over: its slot goes to the next.
    pub(crate) fn give_slot_back(&self) {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Tells the work to stop; the first reason counts.
    pub(crate) fn stop(&self, reason: StopReason) {
        self.stop.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason);
            }
            first
        });
    }

    /// Why the work was told to stop, if it was.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        *self.stop.borrow()
    }

    /// Waits until the work is told to stop.
    pub(crate) async fn stopped(self: Arc<Self>) -> StopReason {
        let mut stop = self.stop.subscribe();
        loop {
            if let Some(reason) = *stop.borrow_and_update() {
                return reason;
            }
            if stop.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes the deadline of a committed task, unless a newer version's is known already: effects
    /// of two commits may be carried out in either order.
    pub(crate) fn take_deadline(&self, task: &Task, deadline: Option<Timestamp>) {
        self.deadline.send_if_modified(|current| {
            let newer = task.version() > current.0;
            if newer {
                *current = (task.version(), deadline);
            }
            newer
        });
    }

    pub(crate) fn watch_deadline(&self) -> watch::Receiver<(u64, Option<Timestamp>)> {
        self.deadline.subscribe()
    }

    /// Registers interest in the response to `key`, before the question is asked. None if somebody
    /// waits for it already.
    pub(crate) fn expect_answer(&self, key: InputKey) -> Option<oneshot::Receiver<RawJson>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match answers.entry(key) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                let (sender, receiver) = oneshot::channel();
                vacant.insert(vec![sender]);
                Some(receiver)
            }
        }
    }

    /// The same beside whoever waits for it already.
    pub(crate) fn join_answer(&self, key: InputKey) -> oneshot::Receiver<RawJson> {
        let (sender, receiver) = oneshot::channel();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = answers.entry(key).or_default();
        waiting.retain(|waiting| !waiting.is_closed());
        waiting.push(sender);
        receiver
    }

    /// Nobody waits for the response to `key` any more.
    pub(crate) fn forget_answer(&self, key: &InputKey) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Hands a committed response to whoever asked.
    pub(crate) fn deliver(&self, key: &InputKey, response: RawJson) {
        let waiting = self.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        for sender in waiting.into_iter().flatten() {
            // A receiver that is gone has stopped waiting; the response stays in the task.
            let _ = sender.send(response.clone());
        }
    }
}

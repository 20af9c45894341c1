//! What may be asked of a task, what follows, and why it may be refused.

use crate::error::RpcError;
use crate::id::{Fence, InputKey, WorkerId};
use crate::json::RawJson;
use crate::state::{Status, WhyStopping};
use crate::task::Task;
use crate::time::Timestamp;

/// Something to be done to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The owner answers open input requests; keys that are not open are ignored
    /// (`sep-2663-update-ignore-unknown-keys`).
    Answer {
        /// Responses by key.
        responses: Vec<(InputKey, RawJson)>,
    },
    /// The owner asks that the work stop.
    Cancel,
    /// A worker takes a queued task.
    Claim {
        /// The worker.
        worker: WorkerId,
    },
    /// The worker says where it stands.
    Say {
        /// The claim's fencing number.
        fence: Fence,
        /// The new status message.
        message: String,
    },
    /// The worker asks for input. The same question under the same key is one question: while it
    /// is open nothing changes, and once it was answered the answer is delivered at once.
    Ask {
        /// The claim's fencing number.
        fence: Fence,
        /// The request's key, never used before in this task.
        key: InputKey,
        /// The request: a JSON object with `method` and `params`.
        request: RawJson,
    },
    /// The worker takes a question back.
    Withdraw {
        /// The claim's fencing number.
        fence: Fence,
        /// The request's key.
        key: InputKey,
    },
    /// The work has a result.
    Complete {
        /// The claim's fencing number.
        fence: Fence,
        /// The result as it will be sent.
        result: RawJson,
    },
    /// The work ended in a JSON-RPC error.
    Fail {
        /// The claim's fencing number.
        fence: Fence,
        /// The error; its message becomes the status message.
        error: RpcError,
    },
    /// The work of a [`State::Stopping`](crate::State::Stopping) task has stopped.
    Stopped {
        /// The claim's fencing number.
        fence: Fence,
    },
    /// The work has taken longer than its `timeout`. Does nothing before the deadline.
    TimeUp {
        /// The claim's fencing number.
        fence: Fence,
    },
    /// Work that has waited for its turn since it was claimed begins now, and its time with it.
    Begin {
        /// The claim's fencing number.
        fence: Fence,
    },
    /// Another worker takes the claim of a worker that is gone, with the work as it is.
    TakeOver {
        /// The fencing number of the claim that is taken over.
        from: Fence,
        /// The new worker.
        worker: WorkerId,
    },
    /// The work was interrupted, nothing of it is left, and it may begin again. It fails instead
    /// if it must not be repeated, or not once more.
    Requeue {
        /// The claim's fencing number.
        fence: Fence,
        /// What happened, as the task's error if it fails.
        error: RpcError,
    },
    /// The queue has moved.
    Position {
        /// How many are ahead of this task now.
        ahead: u32,
    },
    /// The promise of a task that has not ended is about to run out.
    Extend,
}

/// What has to be done outside once the transition is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Begin the work.
    Start,
    /// The task waits for a slot again.
    Requeued,
    /// Stop the work.
    Stop(WhyStopping),
    /// Hand this response to the job.
    Deliver(InputKey, RawJson),
    /// Say in the log that responses came for keys that are not open.
    Ignored(Vec<InputKey>),
    /// The clock of `timeout` now runs until this deadline, or stands still.
    Deadline(Option<Timestamp>),
    /// The task has ended; its slot is free.
    Ended(Status),
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// The task is another one now.
    Changed {
        /// The new state.
        task: Box<Task>,
        /// What follows.
        effects: Vec<Effect>,
    },
    /// There was nothing to change; this is no error.
    Unchanged {
        /// What follows all the same.
        effects: Vec<Effect>,
    },
}

/// Why a command was refused. The task is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The task has ended, and never changes again.
    #[error("the task is {} already", .0.as_str())]
    Ended(Status),
    /// Another claim is newer: whoever wrote this is no longer the task's worker.
    #[error("the claim {held:?} is stale, the task's is {current:?}")]
    StaleFence {
        /// The number that came with the command.
        held: Fence,
        /// The number of the newest claim.
        current: Fence,
    },
    /// Only a queued task can be claimed or moved in the queue.
    #[error("the task is not queued")]
    NotQueued,
    /// Only a task that is being stopped can have stopped.
    #[error("the task is not being stopped")]
    NotStopping,
    /// The task is being stopped, so it can't ask.
    #[error("the task is being stopped")]
    Stopping,
    /// The key was used before in this task
    /// (`sep-2663-input-request-key-unique-per-task`, `sep-2663-no-key-reuse-after-response`).
    #[error("the input key {0} was used before in this task")]
    KeyUsed(InputKey),
    /// The task has asked too often.
    #[error("a task may ask at most {} times", crate::limits::MAX_INPUTS_PER_TASK)]
    TooManyInputs,
    /// A request, response or result is too large.
    #[error("{what} has {size} bytes, more than the {max} that are allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
}

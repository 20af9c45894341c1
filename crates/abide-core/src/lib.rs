//! The task itself: what it is, what may happen to it, and what follows from that.
//!
//! This crate is pure. It knows no runtime, no protocol library, no database, no clock and no
//! source of random numbers; those come in as arguments or through the traits at its edge
//! ([`Store`], [`Backend`], [`Clock`]). A change to a task is a function,
//! [`Task::apply`]: (task, command, now) → (task, effects) or a refusal.

mod backend;
mod clock;
mod command;
mod error;
mod id;
mod json;
pub mod limits;
mod record;
mod state;
mod store;
mod task;
mod time;
mod transition;

pub use backend::{
    AskError, Backend, BoxFuture, LogPart, LogRange, Outcome, Prepare, Prepared, Progress,
    StopReason, Work, WorkContext,
};
pub use clock::Clock;
pub use command::{Command, Effect, Refusal, Transition};
pub use error::RpcError;
pub use id::{Fence, IdError, InputKey, Owner, TaskId, ToolName, WorkerId};
pub use json::{JsonError, RawJson};
pub use record::{CorruptRecord, Record};
pub use state::{Outstanding, Settled, SettledAs, State, Status, WhyStopping};
pub use store::{Applied, Authority, Health, Store, StoreError, Sweep};
pub use task::{NewTask, OnRestart, Policy, Start, Task};
pub use time::Timestamp;

//! Runs tasks: who gets a slot, who waits, when time is up, what follows a commit.
//!
//! The engine knows neither the store behind [`abide_core::Store`] nor the transport that calls
//! come from nor what a [`abide_core::Backend`] does. It holds no second truth: what it keeps in
//! memory is the work that this process runs, and every change of a task goes through the store.

mod call;
mod clock;
mod context;
mod effects;
mod engine;
mod handler;
mod input;
mod lease;
mod log;
mod outcome;
mod queue;
mod recovery;
mod run;
mod schema;
mod supervise;
mod sweep;
mod tool;

pub use call::{Answer, Call, CallError};
pub use clock::SystemClock;
pub use engine::{Engine, EngineError, Options, Remaining};
pub use handler::{TaskContext, handler};
pub use input::InvalidInput;
pub use log::{LogError, log_uri};
pub use schema::{Schema, SchemaError};
pub use tool::{TaskSupport, Tool};

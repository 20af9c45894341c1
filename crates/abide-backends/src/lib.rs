//! Who does the work behind a tool. Each module is one kind of
//! [`Backend`](abide_core::Backend); the engine doesn't know which one it runs.

pub mod command;
#[cfg(target_os = "linux")]
pub mod runner;

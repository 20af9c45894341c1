//! Who does the work behind a tool. Each module is one kind of
//! [`Backend`](abide_core::Backend); the engine doesn't know which one it runs.

pub mod approval;
pub mod command;
pub mod desk;
pub mod runner;

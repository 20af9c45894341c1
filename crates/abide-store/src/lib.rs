//! Durable homes for tasks.
//!
//! [`sqlite`] keeps tasks in one file, by one process. The feature `suite` adds the contract suite
//! that every implementation of [`abide_core::Store`] passes, whatever database is under it.
//!
//! What a task's row holds is decided in [`abide_core::Record`], how a task changes in
//! [`abide_core::Task::apply`]; a store reads, applies and writes in one transaction and adds no
//! rules of its own.

pub mod sqlite;
#[cfg(feature = "suite")]
pub mod suite;

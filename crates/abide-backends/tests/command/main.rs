//! The command backend, with real processes.

mod command_line;
mod failures;
mod harness;
mod json;
mod logs;
mod output;
mod restart;
mod stopping;

//! The commands, one file each.

pub mod config;
pub mod connect;
pub mod demo;
pub mod help_markdown;
pub mod serve;
mod snippet;
mod try_it;

//! The commands, one file each.

pub mod ask;
pub mod config;
pub mod connect;
pub mod db;
pub mod demo;
pub mod help_markdown;
pub mod log;
pub mod say;
pub mod serve;
mod snippet;
mod store_args;
mod try_it;
mod waited;

pub use store_args::StoreArgs;

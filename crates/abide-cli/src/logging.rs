//! Logs: to standard error, as text or JSON, filtered; never in the way of the work.

mod queue;

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::env;
use crate::failure::Failure;

pub use queue::Logs;

/// Without a filter of the user's. rmcp logs several lines a request at info, and at warn the text
/// of every error that it answers with, which may repeat what a client sent.
const DEFAULT_FILTER: &str = "info,rmcp=error";
/// What holds under every filter that does not name these targets itself: they would log requests
/// and results as they are.
const QUIET: &str = "rmcp=error,hyper=info,h2=info";

/// What is logged, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// What to log: levels and targets, such as `debug` or `abide_engine=debug,info`
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = env::LOG.name,
        hide_env_values = true,
        default_value = DEFAULT_FILTER
    )]
    pub log: String,

    /// How to log it
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        env = env::LOG_FORMAT.name,
        hide_env_values = true,
        default_value = "text"
    )]
    pub log_format: LogFormat,
}

/// A log's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text for people
    Text,
    /// One JSON object a line
    Json,
}

/// Sends the process's logs to standard error from now on. What is logged at the end is written
/// when the returned value is dropped.
///
/// # Errors
/// [`Failure`] when the filter can't be understood.
pub fn init(args: &LogArgs) -> Result<Logs, Failure> {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", args.log)).map_err(|error| {
        Failure::usage(format!("the log filter {:?} can't be used: {error}", args.log))
            .hint("write a level such as `debug`, or `target=level` pairs with commas between")
    })?;
    let failed = |error| Failure::failed(format!("logs can't be set up: {error}"));
    let (logs, lines) = Logs::start().map_err(|error| failed(error.to_string()))?;
    let format = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines)
        .with_ansi(std::io::stderr().is_terminal())
        // It would say so on standard error, and panic when nobody reads that.
        .log_internal_errors(false);
    let set = match args.log_format {
        LogFormat::Text => format.try_init(),
        LogFormat::Json => format.json().flatten_event(true).try_init(),
    };
    set.map_err(|error| failed(error.to_string()))?;
    Ok(logs)
}

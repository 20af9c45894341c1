//! The command line: what can be typed, and where it leads.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{ask, config, connect, db, demo, help_markdown, log, say, serve};
use crate::failure::Failure;
use crate::logging::{self, LogArgs};
use crate::terminal;
use crate::wiring;

/// Durable tasks for MCP: long-running commands as tools whose results are never lost
///
/// Exit codes: 0 when all went well, 1 when something failed, 2 when the command line or the
/// config file is wrong and nothing was done.
#[derive(Debug, Parser)]
#[command(name = "abide", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Demo(demo::DemoArgs),
    Connect(connect::ConnectArgs),
    Log(log::LogArgs),
    #[command(subcommand)]
    Db(db::DbCommand),
    Ask(ask::AskArgs),
    Say(say::SayArgs),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print this help as Markdown
    #[command(hide = true)]
    HelpMarkdown,
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    // Before anything else: a runner is to be small, and to inherit nothing.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == wiring::RUNNER) {
        return abide_backends::runner::main(args);
    }
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            terminal::report(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let _logs = logging::init(&cli.log)?;
    let done = match cli.command {
        Command::Ask(args) => return ask::run(&args),
        Command::Say(args) => say::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Connect(args) => connect::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Db(command) => db::run(&command),
        Command::Config(command) => config::run(&command),
        Command::HelpMarkdown => help_markdown::run(),
    };
    done.map(|()| ExitCode::SUCCESS)
}

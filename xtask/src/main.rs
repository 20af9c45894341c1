//! The chores of this repository, run as `cargo xtask <command>`: `test` runs everything that CI
//! runs, the others are parts of it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for people that starts other programs and takes the time they need"
)]

mod conformance;
mod examples;
mod generated;
mod run;
mod steps;
mod tidy;
mod tools;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the abide repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run everything that CI runs, in order; stops at the first failure.
    Test(steps::Options),
    /// Check the house rules: crate edges, source files, manifests, words, links.
    Tidy,
    /// Write the checked-in files that are generated from the code.
    Generate,
    /// Run the official MCP conformance suite.
    Conformance(conformance::Options),
    /// Kill servers under load at any moment, and prove that nothing acknowledged is lost.
    Torture(torture::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Test(options) => steps::run(&options),
        Chore::Tidy => {
            tidy::run().map(|checked| println!("the house rules hold: {}", checked.join(", ")))
        }
        Chore::Generate => generated::generate(),
        Chore::Conformance(options) => conformance::run(&options).map(drop),
        Chore::Torture(options) => torture::run(&options).map(drop),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

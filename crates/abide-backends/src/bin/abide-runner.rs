//! The runner as a program of its own; in `abide` it is a hidden subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    abide_backends::runner::main(std::env::args_os().skip(1))
}

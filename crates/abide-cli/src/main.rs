//! Entry point of the program `abide`.

use std::process::ExitCode;

fn main() -> ExitCode {
    abide_cli::cli::main()
}

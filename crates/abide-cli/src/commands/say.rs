//! `abide say`: how far a command's work is.

use std::time::Duration;

use abide_backends::desk::{Action, Client, ClientError, Reply};
use abide_core::limits;
use clap::Args;

use super::waited::Waited;
use crate::failure::Failure;
use crate::terminal;

/// How long a server that is not there is waited for. Work must not wait for somebody to listen.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(100);

/// Say how far the work is; for use inside a command tool
///
/// It is the task's `statusMessage`, and a progress notification for who waits without a task. The
/// newest counts; many in a short time are one. When no server listens it is dropped, with a word
/// on standard error and exit code 0.
#[derive(Debug, Args)]
pub struct SayArgs {
    /// A sentence for people
    message: String,
    /// How much is done
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100))]
    percent: Option<u8>,
}

/// Runs `abide say`.
///
/// # Errors
/// [`Failure`] when this is not inside a command.
pub fn run(args: &SayArgs) -> Result<(), Failure> {
    let client = Client::from_env().map_err(|error| Failure::usage(error.to_string()))?;
    let action = Action::Say {
        message: Some(limits::bounded_message(&args.message)),
        percent: args.percent.map(f64::from),
    };
    let waited = Waited::begin();
    loop {
        match client.send(&action, Some(PATIENCE)) {
            Ok(Reply::Done) => return Ok(()),
            Ok(Reply::Refused(problem)) => return Err(Failure::failed(problem)),
            Err(error @ ClientError::NotInside(_)) => {
                return Err(Failure::usage(error.to_string()));
            }
            Ok(_) | Err(ClientError::Gone(_)) => {}
        }
        if waited.so_far() > PATIENCE {
            terminal::say("no server listens; go on without it");
            return Ok(());
        }
        std::thread::sleep(RETRY);
    }
}

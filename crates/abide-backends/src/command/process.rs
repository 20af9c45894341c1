//! One run of a command: started, read, waited for or stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use abide_core::{BoxFuture, StopReason, TaskId};
use process_wrap::tokio::{CommandWrap, ProcessSession};
use rustix::io::Errno;
use tokio::process::{ChildStderr, ChildStdout};

use super::group::{Group, Leader};
use super::output::{Capture, Captured};
use super::spec::CommandSpec;

/// The variable that tells a command the handle of its task.
pub const TASK_ID_VARIABLE: &str = "ABIDE_TASK_ID";
/// How long after its exit a command's output is still read when something that it left behind
/// keeps the pipes open. What the command itself wrote is in them already.
pub const PIPES_AFTER_EXIT: Duration = Duration::from_secs(2);
/// How long a result waits, beyond the grace, for what the command left behind to die.
const LEFTOVERS_AFTER_KILL: Duration = Duration::from_secs(5);
/// What a command inherits of our environment.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// A running command.
#[derive(Debug)]
pub(super) struct Job {
    // Before the leader, so that a dropped job kills the group while the leader still holds its
    // number.
    group: Group,
    leader: Leader,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

/// How a command's run ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself, or by somebody else's signal.
    Exited { status: ExitStatus, stdout: Captured, stderr: Captured },
    /// Because it was told to; nothing in its group runs any more.
    Stopped(StopReason),
    /// It can't be waited for, so its exit status is unknown.
    Lost(io::Error),
}

/// A command could not be started; says what to do, to whoever reads the result.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(
        "The program `{0}` was not found. The tool's operator has to install it, or to correct \
         the command in the tool's settings."
    )]
    NotFound(String),
    #[error(
        "The program `{0}` can't be run because the interpreter that its first line names was \
         not found. The tool's operator has to correct the line or install the interpreter."
    )]
    NoInterpreter(String),
    #[error(
        "The program `{0}` must not be run: permission denied. The tool's operator has to make \
         it executable (`chmod +x`) for the server's user."
    )]
    Denied(String),
    #[error(
        "The program `{0}` is neither a program for this machine nor a script with a `#!` line. \
         The tool's operator has to correct it."
    )]
    NotAProgram(String),
    #[error(
        "The working directory `{}` does not exist, is not a directory or must not be entered. \
         The tool's operator has to create it, or to correct `cwd` in the tool's settings.",
        .0.display()
    )]
    NoDirectory(PathBuf),
    #[error("The command line of `{0}` is longer than the system allows. Send shorter arguments.")]
    TooLong(String),
    #[error(
        "The program `{program}` could not be started: {error}. The server may be short of \
         processes, files or memory; try again later, or ask its operator."
    )]
    Other { program: String, error: io::Error },
}

impl Job {
    /// Starts `argv`, which has at least the program.
    pub(super) fn start(
        spec: &CommandSpec,
        argv: &[String],
        task: &TaskId,
    ) -> Result<Self, StartError> {
        let program = argv.first().map_or("", String::as_str);
        let mut command = CommandWrap::with_new(program, |command| {
            command
                .args(argv.iter().skip(1))
                .env_clear()
                .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
                .envs(&spec.env)
                .env(TASK_ID_VARIABLE, task.as_str())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true);
            if let Some(cwd) = &spec.cwd {
                command.current_dir(cwd);
            }
        });
        let other = |error| StartError::Other { program: program.to_owned(), error };
        // What is inside the wrapper is the leader alone: the wrapper would wait for the others
        // too, and without an end.
        let mut leader = command
            .wrap(ProcessSession)
            .spawn()
            .map_err(|error| explain(error, program, spec.cwd.as_deref()))?
            .into_inner();
        let group = Group::of(&leader).map_err(other)?;
        match (leader.stdout().take(), leader.stderr().take()) {
            (Some(stdout), Some(stderr)) => Ok(Self { group, leader, stdout, stderr }),
            _ => Err(other(io::Error::other("the child has no pipes"))),
        }
    }

    /// Runs the command to its end, or until `stopped` resolves. When the future is dropped,
    /// the whole group is killed.
    pub(super) async fn run(
        self,
        spec: &CommandSpec,
        mut stopped: BoxFuture<'static, StopReason>,
    ) -> End {
        let Self { mut group, mut leader, stdout: out_pipe, stderr: err_pipe } = self;
        let mut stdout = Capture::new(spec.max_output_bytes);
        let mut stderr = Capture::new(spec.max_output_bytes);
        let first = {
            // Both at once, or a child that fills the one that is not read would hang.
            let drain = async { tokio::join!(stdout.fill(out_pipe), stderr.fill(err_pipe)) };
            tokio::pin!(drain);
            let mut drained = false;
            let first = loop {
                tokio::select! {
                    biased;
                    status = leader.wait() => break Ok(status),
                    reason = &mut stopped => break Err(reason),
                    _ = &mut drain, if !drained => drained = true,
                }
            };
            if first.is_ok() {
                if !drained {
                    drained = tokio::time::timeout(PIPES_AFTER_EXIT, &mut drain).await.is_ok();
                }
                if !drained {
                    tracing::warn!(
                        group = group.id(),
                        "the command has exited, but something that it started keeps its output \
                         open; no longer reading it"
                    );
                }
            } else {
                // Read on: a child that is blocked by a full pipe could not clean up.
                let stop = group.stop(&mut leader, spec.kill_grace);
                tokio::pin!(stop);
                loop {
                    tokio::select! {
                        () = &mut stop => break,
                        _ = &mut drain, if !drained => drained = true,
                    }
                }
            }
            first
        };

        let status = match first {
            Err(reason) => return End::Stopped(reason),
            Ok(status) => status,
        };
        if group.has_living_members().await {
            tracing::info!(group = group.id(), "stopping what the command left behind");
            let stop = group.stop(&mut leader, spec.kill_grace);
            let patience = spec.kill_grace.saturating_add(LEFTOVERS_AFTER_KILL);
            if tokio::time::timeout(patience, stop).await.is_err() {
                tracing::error!(group = group.id(), "what the command left behind can't be killed");
            }
        } else {
            group.forget();
        }
        match status {
            Ok(status) => End::Exited { status, stdout: stdout.finish(), stderr: stderr.finish() },
            Err(error) => End::Lost(error),
        }
    }
}

/// Says what a failure to start means. The system has one error for several things.
fn explain(error: io::Error, program: &str, cwd: Option<&Path>) -> StartError {
    if let Some(cwd) = cwd
        && std::fs::metadata(cwd.join(".")).is_err()
    {
        return StartError::NoDirectory(cwd.to_owned());
    }
    let name = program.to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR) => {
            let file = cwd.unwrap_or(Path::new("")).join(program);
            if program.contains('/') && file.exists() {
                StartError::NoInterpreter(name)
            } else {
                StartError::NotFound(name)
            }
        }
        Some(Errno::ACCESS | Errno::PERM | Errno::ISDIR) => StartError::Denied(name),
        Some(Errno::NOEXEC) => StartError::NotAProgram(name),
        Some(Errno::TOOBIG) => StartError::TooLong(name),
        _ => StartError::Other { program: name, error },
    }
}

//! Runs each job under a small process of its own, the runner, which outlives the server.
//!
//! # The folder of a run
//! A run is found by its folder in the spool, `<root>/<task id>.<attempt>/` (mode 0700, files
//! 0600). The folder appears with a rename, with the first two files already in it:
//!
//! | file | what |
//! |---|---|
//! | `lock` | held with `flock` by the runner, from before it exists until it is gone; what it says about its processes, a line each |
//! | `job.json` | what to run and its limits; the names of secret variables, never the value of any |
//! | `stdout`, `stderr` | the first part of each stream |
//! | `stdout.N`, `stderr.N` | the last part: the newest two segments of those that follow the first part |
//! | `log` | both streams in the order in which they came, up to a limit, with a mark in words at the cut |
//! | `outcome.json` | how it ended; appears with a rename, after everything it speaks of is on disk |
//! | `outcome.draft` | room for `outcome.json`, taken at the start so that a full disk can't hold it up |
//! | `runner.err` | standard error of the runner itself; empty unless it panicked |
//!
//! Whether a run lives is asked of the lock and of nothing else. The server takes the lock while
//! nobody else can see the folder, and the runner inherits it. So from the first moment in which
//! the job could run the lock is held, whoever is killed when; and once the lock is free, nothing
//! can ever start in this folder again. Free, with an outcome: [`Found::Finished`]. Free without
//! one: [`Found::Lost`].
//!
//! `flock` has to be the kernel's own, so the spool must be on a local file system.
//!
//! # The runner
//! [`main`] is its whole life: one thread, no async runtime. It leads a session without a terminal
//! and is the subreaper of everything that the job starts. The job leads a process group of its
//! own. The runner drains both pipes, replaces the values of secrets, and waits. When the job has
//! exited, its exit status counts. What it left behind is stopped, as everything is on SIGTERM to
//! the runner: SIGTERM, a grace, SIGKILL. Nothing can leave the tree: a process that detaches
//! itself becomes the runner's child. Where the process may create a cgroup, the job gets one, and
//! with it a SIGKILL that takes all at once.
//!
//! The environment comes over the socket by which the runner is started and is only ever in
//! memory. It is not the runner's own, so that an `LD_PRELOAD` for the job does not get into the
//! runner.
//!
//! When the runner itself is killed, nobody can learn how the job ends. [`Lost::stop_leftovers`]
//! stops what is left of it; it is recognised by its cgroup, by [`RUN_VARIABLE`] in its environment, and
//! by descent.

mod cgroup;
mod clock;
mod folder;
mod job;
mod lock;
mod lost;
mod name;
mod outcome;
mod output;
mod proc;
mod process;
mod run;
mod spool;
mod start;

pub use job::{DEFAULT_MAX_LOG_BYTES, JobSpec, MAX_ENV_BYTES};
pub use lost::{Leftovers, Lost};
pub use name::{NotARunName, RunName};
pub use outcome::{Exit, LogSizes, RunOutcome, Stopped, StreamSizes};
pub use output::{Captured, Output};
pub use process::{LEFTOVERS_AFTER_KILL, PIPES_AFTER_EXIT, SMALLEST_SECRET_BYTES, main};
pub use run::{Ended, Run};
pub use spool::{Found, Program, Spool};
pub use start::StartError;

/// The variable by which the processes of a run are recognised: the name of the run.
pub const RUN_VARIABLE: &str = "ABIDE_RUN";

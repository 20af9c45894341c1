//! `abide log`: what the work of a task has printed, from the disk, with or without a server.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::time::Duration;

use abide_backends::runner::{RunName, Spool};
use abide_core::{LogRange, TaskId};
use anyhow::Context as _;
use clap::Args;

use super::StoreArgs;
use crate::failure::Failure;
use crate::wiring;

/// Bytes that are read at a time.
const PART_BYTES: usize = 64 * 1024;
/// Between two looks at a log that grows.
const LOOK: Duration = Duration::from_millis(100);

/// Print what the work of a task has printed
///
/// Standard output and standard error, in the order in which they came. Reads the files beside the
/// database, so it works whether or not a server runs, for whoever may read them.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The task's id, or as much of its beginning as is needed to tell it from others
    id: String,
    /// Go on printing until the work has ended
    #[arg(long, short)]
    follow: bool,
    /// Print only the last so many bytes of what is there
    #[arg(long, value_name = "BYTES")]
    tail: Option<u32>,
    /// Print the log of an earlier attempt; the first is 1
    #[arg(long, value_name = "NUMBER")]
    attempt: Option<u32>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Runs `abide log`.
///
/// # Errors
/// [`Failure`] when there is no such log, or it can't be read.
pub fn run(args: &LogArgs) -> Result<(), Failure> {
    let root = wiring::spool_root(&args.store.location()?);
    let unreadable = || format!("can't read {}, the folder of the runs", root.display());
    let spool = match Spool::look_into(&root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::failed(format!("there are no logs: no {}", root.display()))
                .hint("name the database with --store, or the config file with --config"));
        }
        spool => spool.with_context(unreadable)?,
    };
    let runs = spool.list().with_context(unreadable)?;
    let run = choose(args, &runs)?;

    let mut range = LogRange { from: -i64::from(args.tail.unwrap_or(0)), max: PART_BYTES };
    if args.tail.is_none() {
        range.from = 0;
    }
    let mut out = io::stdout().lock();
    loop {
        let part = spool.read_log(&run, range).with_context(|| format!("the log of {run}"))?;
        let Some(part) = part else {
            return Err(Failure::failed(format!("the run {run} has no log: nothing was started")));
        };
        out.write_all(&part.bytes)?;
        let next = part.from + part.bytes.len() as u64;
        range.from = i64::try_from(next).unwrap_or(i64::MAX);
        if next < part.size {
            continue;
        }
        out.flush()?;
        if part.ended || !args.follow {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// The run that is meant: the newest attempt, unless another is asked for.
fn choose(args: &LogArgs, runs: &[RunName]) -> Result<RunName, Failure> {
    let meant = |run: &&RunName| run.task.as_str().starts_with(&args.id);
    let tasks: BTreeSet<TaskId> = runs.iter().filter(meant).map(|run| run.task).collect();
    if tasks.len() > 1 {
        return Err(Failure::usage(format!(
            "{} tasks have ids that begin with {:?}; give more of it",
            tasks.len(),
            args.id
        )));
    }
    let wanted = |run: &&RunName| args.attempt.is_none_or(|attempt| run.attempt == attempt);
    let run = runs.iter().filter(meant).filter(wanted).max();
    run.copied().ok_or_else(|| {
        let which = args.attempt.map(|attempt| format!(" in attempt {attempt}"));
        Failure::failed(format!(
            "no command of the task {:?} has run here{}",
            args.id,
            which.unwrap_or_default()
        ))
        .hint(
            "a task that has not started yet has no log, and the log goes with the task; name \
             another database with --store or --config",
        )
    })
}

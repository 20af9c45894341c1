//! `abide db`: the operator's hands on a database.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use abide_store::sqlite::{self, BackupError, Lock, SCHEMA_VERSION};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use rustix::io::{FdFlags, fcntl_setfd};

use super::StoreArgs;
use crate::config::{StoreLocation, human_size};
use crate::failure::Failure;
use crate::terminal;

/// Check, copy or look into a database, beside a server that uses it
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Read every page, index and task, and say whether anything is damaged
    ///
    /// Exit code 1 if something is. Nothing is changed.
    Check(CheckArgs),
    /// Copy the database, as it is at one moment, into a new file
    ///
    /// The copy appears when it is whole, checked and on disk. To restore it, stop the server and
    /// put it in the place of the database, without the old `-wal` and `-shm` files.
    Backup(BackupArgs),
    /// Open the database in the program `sqlite3`, for reading only unless `--writable` is given
    ///
    /// SQL on standard input works too.
    Shell(ShellArgs),
}

/// `abide db check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,
}

/// `abide db backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The new file
    to: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

/// `abide db shell`.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Let what is typed change the database; only while no server uses it, and none can start
    /// meanwhile
    #[arg(long)]
    writable: bool,
    /// What `sqlite3` gets besides, such as SQL to run
    #[arg(last = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Runs one of the commands.
///
/// # Errors
/// [`Failure`] when the database is damaged, or can't be used.
pub fn run(command: &DbCommand) -> Result<(), Failure> {
    match command {
        DbCommand::Check(args) => check(&path(&args.store)?),
        DbCommand::Backup(args) => backup(&path(&args.store)?, &args.to),
        DbCommand::Shell(args) => shell(&path(&args.store)?, args),
    }
}

/// The database that is meant, which has to be there.
fn path(store: &StoreArgs) -> Result<PathBuf, Failure> {
    let StoreLocation::Sqlite(path) = store.location()?;
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::failed(format!("there is no database {}", path.display()))
        .hint("name the database with --store, or the config file with --config"))
}

fn check(path: &Path) -> Result<(), Failure> {
    let found = sqlite::check(path).map_err(anyhow::Error::from)?;
    let mut tasks: Vec<_> =
        found.tasks.iter().map(|(state, count)| format!("{count} {state}")).collect();
    if tasks.is_empty() {
        tasks.push("no tasks".to_owned());
    }
    let size = human_size(found.bytes);
    terminal::data(format_args!("{}: {}, {size}", path.display(), tasks.join(", ")))?;
    if found.schema < SCHEMA_VERSION {
        terminal::say(format_args!(
            "its schema is version {}; `abide serve` brings it up to {SCHEMA_VERSION}, and its \
             tasks can be checked after that",
            found.schema
        ));
    }
    if found.problem_count == 0 {
        terminal::data("no damage found")?;
        return Ok(());
    }
    for problem in &found.problems {
        terminal::data(format_args!("damaged: {problem}"))?;
    }
    let untold = found.problem_count - found.problems.len() as u64;
    if untold > 0 {
        terminal::data(format_args!("and {untold} more"))?;
    }
    Err(Failure::failed(format!("{} is damaged", path.display())).hint(
        "stop abide and restore a backup, or get out what can be read; docs/operations.md says how",
    ))
}

fn backup(path: &Path, to: &Path) -> Result<(), Failure> {
    let copied = sqlite::backup(path, to).map_err(|error| match error {
        BackupError::Exists { .. } => Failure::usage(error.to_string()),
        BackupError::Damaged { .. } => Failure::from(anyhow::Error::from(error))
            .hint("`abide db check` tells all that is wrong"),
        BackupError::Open(_) => anyhow::Error::from(error).into(),
    })?;
    terminal::data(format_args!(
        "{}: {} tasks, {}",
        copied.file.display(),
        copied.findings.task_count(),
        human_size(copied.findings.bytes)
    ))?;
    Ok(())
}

/// Becomes the program; returns only when that fails.
#[expect(clippy::disallowed_methods, reason = "this process becomes the program")]
fn shell(path: &Path, args: &ShellArgs) -> Result<(), Failure> {
    let mut command = std::process::Command::new("sqlite3");
    // An older sqlite3 that writes beside a server could undo commits when it resets the log.
    let lock = if args.writable {
        let lock = Lock::hold(path).map_err(anyhow::Error::from)?;
        // The program inherits it, and with it the lock.
        fcntl_setfd(lock.as_fd(), FdFlags::empty())
            .map_err(io::Error::from)
            .context("can't hand the lock over")?;
        Some(lock)
    } else {
        command.arg("-readonly");
        None
    };
    let error = command.arg(path).args(&args.arguments).exec();
    drop(lock);
    if error.kind() == io::ErrorKind::NotFound {
        return Err(Failure::failed("the program `sqlite3` was not found")
            .hint("install it; on Debian and Ubuntu: apt-get install sqlite3"));
    }
    Err(anyhow::Error::from(error).context("can't run sqlite3").into())
}

//! `abide db`: the operator's hands on a database.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use abide_store::sqlite::{self, SCHEMA_VERSION};
use clap::{Args, Subcommand};

use super::StoreArgs;
use crate::config::{StoreLocation, human_size};
use crate::failure::Failure;
use crate::terminal;

/// Check, copy or look into a database, beside a server that uses it
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Read every page and every task, and say whether anything is damaged
    ///
    /// Exit code 1 if something is. Nothing is changed.
    Check(CheckArgs),
    /// Copy the database, as it is at one moment, into a new file
    ///
    /// The copy appears when it is whole, checked and on disk. To restore it, stop the server and
    /// put it in the place of the database, without the old `-wal` and `-shm` files.
    Backup(BackupArgs),
    /// Open the database in the program `sqlite3`, for reading only unless `--writable` is given
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
    /// Let what is typed change the database; only while no server runs
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
        DbCommand::Shell(args) => Err(shell(&path(&args.store)?, args)),
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
    let report = sqlite::check(path).map_err(anyhow::Error::from)?;
    let mut tasks: Vec<_> =
        report.tasks.iter().map(|(status, count)| format!("{count} {status}")).collect();
    if tasks.is_empty() {
        tasks.push("no tasks".to_owned());
    }
    terminal::data(format_args!("{}: {}", path.display(), tasks.join(", ")))?;
    if report.schema < SCHEMA_VERSION {
        terminal::say(format_args!(
            "its schema is version {}; `abide serve` brings it up to {SCHEMA_VERSION}, and its \
             tasks can be checked after that",
            report.schema
        ));
    }
    if report.problems.is_empty() {
        terminal::data("no damage found")?;
        return Ok(());
    }
    for problem in &report.problems {
        terminal::data(format_args!("damaged: {problem}"))?;
    }
    Err(Failure::failed(format!("{} is damaged", path.display())).hint(
        "restore a backup, or get out what can be read: abide db shell -- .recover | sqlite3 NEW",
    ))
}

fn backup(path: &Path, to: &Path) -> Result<(), Failure> {
    if to.exists() {
        return Err(Failure::usage(format!("{} is there already", to.display()))
            .hint("name a new file; a backup is never written over another"));
    }
    let copied = sqlite::backup(path, to).map_err(anyhow::Error::from)?;
    terminal::data(format_args!(
        "{}: {} tasks, {}",
        to.display(),
        copied.tasks,
        human_size(copied.bytes)
    ))?;
    Ok(())
}

/// Becomes the program; returns only when that fails.
#[expect(clippy::disallowed_methods, reason = "this process becomes the program")]
fn shell(path: &Path, args: &ShellArgs) -> Failure {
    let mut command = std::process::Command::new("sqlite3");
    if !args.writable {
        command.arg("-readonly");
    }
    let error = command.arg(path).args(&args.arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Failure::failed("the program `sqlite3` was not found")
            .hint("install it; on Debian and Ubuntu: apt-get install sqlite3");
    }
    anyhow::Error::from(error).context("can't run sqlite3").into()
}

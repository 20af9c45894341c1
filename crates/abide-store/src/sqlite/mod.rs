//! The embedded store: one SQLite file, one process.
//!
//! - **One writer thread** takes all changes that are waiting, runs each in a savepoint of one
//!   transaction, commits with one fsync, and only then answers them (`writer`, `changes`).
//! - **A few reader threads** with connections of their own answer reads, so that neither a slow
//!   disk nor a long scan holds up the async runtime (`reader`).
//! - **A checkpoint thread** moves the write-ahead log into the database off the writer's path
//!   (`checkpoint`).
//! - Nothing polls: a store that is not used does not wake up.
//!
//! A lock beside the file (`lock`) keeps every other process out, since two engines on one file
//! would each take the other's claims for dead ones. Reading the file with other SQLite tools
//! while it is in use is fine.

mod backup;
mod changes;
mod check;
mod checkpoint;
mod error;
mod health;
mod lock;
mod open;
#[cfg(feature = "torture")]
mod power_cut;
mod reader;
mod rows;
mod schema;
mod set_aside;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abide_core::{
    Applied, Authority, BoxFuture, Command, Health, Owner, Store, StoreError, Sweep, Task, TaskId,
    Timestamp, ToolName, WorkerId,
};
use tokio::sync::{mpsc, watch};

pub use self::backup::{BackupError, Copied, backup};
pub use self::check::{Findings, check};
pub use self::error::OpenError;
pub use self::lock::Lock;
pub use self::schema::LATEST as SCHEMA_VERSION;
pub use self::set_aside::{SetAside, set_aside_beside};

use self::health::Gauge;

/// How a [`SqliteStore`] spends threads and memory. Zeros count as ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Reader threads, each with a connection.
    pub readers: usize,
    /// Calls that may wait for the writer, and as many for the readers; more wait for a place.
    pub queue: usize,
    /// Changes that share one commit at most.
    pub batch: usize,
    /// Bytes of new content that share one commit, beyond the first change.
    pub batch_bytes: usize,
    /// Pages of 4096 bytes that the write-ahead log grows by before a checkpoint begins.
    pub checkpoint_pages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 2,
            queue: 1024,
            batch: 256,
            batch_bytes: 16 * 1024 * 1024,
            checkpoint_pages: 4096,
        }
    }
}

/// Tasks in one SQLite file.
///
/// [`Store::close`] waits until everything is on disk and the file is free again. A store that is
/// dropped without it finishes in the background what it has accepted.
pub struct SqliteStore {
    path: PathBuf,
    writer: mpsc::Sender<writer::Message>,
    readers: mpsc::Sender<reader::Message>,
    gauge: Arc<Gauge>,
    closed: watch::Receiver<()>,
}

impl SqliteStore {
    /// Opens the database at `path`, creates it if there is none, and brings its schema up to
    /// date. Blocks while it does; nothing that is there is ever deleted or emptied. Whether the file
    /// is damaged is looked at first: whole if it is small, else in what an engine reads at its start.
    ///
    /// A new file can be read by its owner only (mode 0600). Beside it lie `-wal` and `-shm`,
    /// which belong to SQLite, and `.lock`, which stays.
    ///
    /// # Errors
    /// An [`OpenError`] that names the file and what to do.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        Self::start(open::open(path, options, None)?, options)
    }

    /// The same; but a database of abide's that SQLite finds damaged is moved out of the way, with its
    /// write-ahead log and its companions, and an empty one takes its place. That is told by a log line
    /// at the level of errors, and by a warning at every later opening as long as the file lies
    /// there ([`set_aside_beside`]).
    ///
    /// # Errors
    /// An [`OpenError`] that names the file and what to do; then nothing was moved.
    pub fn open_or_set_aside(
        path: &Path,
        options: Options,
        damaged: SetAside<'_>,
    ) -> Result<Self, OpenError> {
        Self::start(open::open(path, options, Some(damaged))?, options)
    }

    fn start(opened: open::Opened, options: Options) -> Result<Self, OpenError> {
        let gauge = Arc::new(Gauge::new(opened.path.clone()));
        let path = opened.path.clone();
        let (writer, readers, closed) = writer::start(opened, options, &gauge)?;
        Ok(Self { path, writer, readers, gauge, closed })
    }

    /// The file, as an absolute path without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn create(
        &self,
        task: Task,
        queue_limit: Option<u32>,
    ) -> BoxFuture<'_, Result<Arc<Task>, StoreError>> {
        let bytes = task.arguments().len();
        Box::pin(writer::run(&self.writer, bytes, move |connection| {
            changes::create(connection, task, queue_limit)
        }))
    }

    fn apply(
        &self,
        id: TaskId,
        authority: Authority,
        command: Command,
        now: Timestamp,
    ) -> BoxFuture<'_, Result<Applied, StoreError>> {
        let bytes = changes::size_of(&command);
        Box::pin(writer::run(&self.writer, bytes, move |connection| {
            changes::apply(connection, &id, &authority, command, now)
        }))
    }

    fn get(
        &self,
        id: TaskId,
        owner: Owner,
    ) -> BoxFuture<'_, Result<Option<Arc<Task>>, StoreError>> {
        Box::pin(reader::run(&self.readers, &self.gauge, move |connection| {
            Ok(rows::find_owned(connection, &id, &owner)?.map(Arc::new))
        }))
    }

    fn claim_next(
        &self,
        tool: ToolName,
        worker: WorkerId,
        now: Timestamp,
    ) -> BoxFuture<'_, Result<Option<Applied>, StoreError>> {
        Box::pin(writer::run(&self.writer, 0, move |connection| {
            changes::claim_next(connection, &tool, worker, now)
        }))
    }

    fn queued(&self, tool: ToolName, limit: u32) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>> {
        Box::pin(reader::run(&self.readers, &self.gauge, move |connection| {
            rows::queued(connection, &tool, limit)
        }))
    }

    fn unfinished(
        &self,
        after: Option<TaskId>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Arc<Task>>, StoreError>> {
        Box::pin(reader::run(&self.readers, &self.gauge, move |connection| {
            rows::unfinished(connection, after.as_ref(), limit)
        }))
    }

    fn existing(&self, ids: Vec<TaskId>) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>> {
        Box::pin(reader::run(&self.readers, &self.gauge, move |connection| {
            rows::existing(connection, &ids)
        }))
    }

    fn heartbeat(
        &self,
        worker: WorkerId,
        until: Timestamp,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(writer::run(&self.writer, 0, move |connection| {
            changes::heartbeat(connection, &worker, until)
        }))
    }

    fn orphans(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Arc<Task>>, StoreError>> {
        Box::pin(reader::run(&self.readers, &self.gauge, move |connection| {
            rows::orphans(connection, now.as_millis(), limit)
        }))
    }

    fn retire(&self, worker: WorkerId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(writer::run(&self.writer, 0, move |connection| {
            changes::retire(connection, &worker)
        }))
    }

    fn sweep(
        &self,
        now: Timestamp,
        horizon: Timestamp,
        limit: u32,
    ) -> BoxFuture<'_, Result<Sweep, StoreError>> {
        Box::pin(writer::run(&self.writer, 0, move |connection| {
            changes::sweep(connection, now, horizon, limit)
        }))
    }

    /// While the answer is [`Health::Failing`], each call also has the writer try a write of its
    /// own, so that health comes back without anybody risking a task for it.
    fn health(&self) -> Health {
        let health = self.gauge.health();
        if health != Health::Ok && self.gauge.may_probe() && !writer::probe(&self.writer) {
            self.gauge.probe_not_sent();
        }
        health
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            writer::close(&self.writer).await;
            // Nothing is ever sent; the sender's end goes when the last file is closed.
            let mut closed = self.closed.clone();
            while closed.changed().await.is_ok() {}
        })
    }
}

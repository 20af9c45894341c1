//! The one thread that changes the database: group commit.
//!
//! It takes every change that is waiting, runs each in a savepoint of one transaction, commits
//! with one fsync and only then answers. If the commit fails, none of the batch has happened and
//! every one of it is told so, also those that only looked: what they saw may be gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use abide_core::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::Options;
use super::changes::{self, Change};
use super::checkpoint::Checkpointer;
use super::error::{self, Failure, OpenError, breaks_transaction};
use super::health::Gauge;
use super::lock::Lock;
use super::open::Opened;
use super::reader::{self, Readers};

/// What goes to the writer.
pub(super) enum Message {
    /// A change, with whoever waits for it.
    Change(Box<dyn Pending>),
    /// Finish what came before, and release the database.
    Close,
}

/// A change on its way through a batch.
pub(super) trait Pending: Send {
    /// Bytes that it will add.
    fn bytes(&self) -> usize;
    /// Runs it, and keeps its answer back.
    fn run(&mut self, connection: &Connection) -> Ran;
    /// Answers it: with its own answer if the batch is on disk, else with the batch's error.
    fn answer(self: Box<Self>, batch: Result<(), &StoreError>);
}

/// What a change left in its savepoint.
pub(super) enum Ran {
    /// Something to keep, or nothing.
    Done {
        /// Whether there is something to commit.
        wrote: bool,
    },
    /// Something to roll back, perhaps; with what SQLite said, if it refused.
    Undo(Option<rusqlite::Error>),
    /// A transaction that can't be trusted.
    Broken(rusqlite::Error),
}

struct Job<T, F> {
    bytes: usize,
    change: Option<F>,
    outcome: Result<T, StoreError>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Pending for Job<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<Change<T>, Failure> + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn run(&mut self, connection: &Connection) -> Ran {
        let Some(change) = self.change.take() else { return Ran::Undo(None) };
        // A panic here is a bug in one change; it must not take everybody's writer with it. The
        // savepoint is rolled back, and nothing else is shared.
        let result = catch_unwind(AssertUnwindSafe(|| change(connection)));
        match result {
            Ok(Ok(Change { value, wrote })) => {
                self.outcome = Ok(value);
                Ran::Done { wrote }
            }
            Ok(Err(Failure::Sqlite(error))) if breaks_transaction(&error) => Ran::Broken(error),
            Ok(Err(Failure::Sqlite(error))) => {
                tracing::error!(error = %error, "the database refused a change");
                self.outcome = Err(StoreError::unavailable(error::problem(&error)));
                Ran::Undo(Some(error))
            }
            Ok(Err(failure)) => {
                self.outcome = Err(failure.into());
                Ran::Undo(None)
            }
            Err(_panic) => {
                self.outcome = Err(StoreError::unavailable("the change failed inside"));
                Ran::Undo(None)
            }
        }
    }

    fn answer(self: Box<Self>, batch: Result<(), &StoreError>) {
        // Whoever waited may have gone; the change is committed all the same.
        let _ = self.answer.send(batch.map_err(Clone::clone).and(self.outcome));
    }
}

/// Has the writer make a change, and waits until it is on disk.
pub(super) async fn run<T, F>(
    writer: &mpsc::Sender<Message>,
    bytes: usize,
    change: F,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<Change<T>, Failure> + Send + 'static,
{
    let (job, answered) = job(bytes, change);
    writer.send(Message::Change(job)).await.map_err(|_| error::closed())?;
    answered.await.unwrap_or_else(|_| Err(error::closed()))
}

/// Has the writer try a write that changes nothing; false if it has no room for one now.
pub(super) fn probe(writer: &mpsc::Sender<Message>) -> bool {
    let (job, _answered) = job(0, changes::probe);
    writer.try_send(Message::Change(job)).is_ok()
}

/// Tells the writer to finish.
pub(super) async fn close(writer: &mpsc::Sender<Message>) {
    // An error means that it has been told already.
    let _ = writer.send(Message::Close).await;
}

fn job<T, F>(
    bytes: usize,
    change: F,
) -> (Box<dyn Pending>, oneshot::Receiver<Result<T, StoreError>>)
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<Change<T>, Failure> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let outcome = Err(error::closed());
    (Box::new(Job { bytes, change: Some(change), outcome, answer }), answered)
}

type Started = (mpsc::Sender<Message>, mpsc::Sender<reader::Message>, watch::Receiver<()>);

/// Starts all threads of a database. The writer's is the one that ends the others.
pub(super) fn start(
    opened: Opened,
    options: Options,
    gauge: &Arc<Gauge>,
) -> Result<Started, OpenError> {
    let Opened { path: _, lock, writer: mut connection, checkpointer, readers } = opened;
    let checkpointer =
        Checkpointer::start(checkpointer, &mut connection, options.checkpoint_pages)?;
    let (readers, reads) = Readers::start(readers, options.queue)?;
    let (sender, receiver) = mpsc::channel(options.queue.max(1));
    let (released, closed) = watch::channel(());
    let writer = Writer {
        connection,
        receiver,
        batch: options.batch.max(1),
        batch_bytes: options.batch_bytes,
        gauge: Arc::clone(gauge),
        checkpointer,
        readers,
        lock,
        released,
    };
    thread::Builder::new()
        .name("abide-writer".to_owned())
        .spawn(move || writer.work())
        .map_err(OpenError::Thread)?;
    Ok((sender, reads, closed))
}

/// The fields are dropped in this order: the database is closed before its lock is released, and
/// released before anybody hears of it.
struct Writer {
    connection: Connection,
    receiver: mpsc::Receiver<Message>,
    batch: usize,
    batch_bytes: usize,
    gauge: Arc<Gauge>,
    checkpointer: Checkpointer,
    readers: Readers,
    lock: Lock,
    released: watch::Sender<()>,
}

impl Writer {
    fn work(mut self) {
        let alive = DeathNotice(Arc::clone(&self.gauge));
        let mut jobs = Vec::with_capacity(self.batch);
        while let Some(first) = self.receiver.blocking_recv() {
            self.collect(first, &mut jobs);
            if jobs.is_empty() {
                continue;
            }
            let committed = self.transaction(&mut jobs);
            match &committed {
                Ok(true) => self.gauge.works(),
                Ok(false) => {}
                Err(error) => {
                    self.gauge.failed(error);
                    // Room in the log may be what is missing.
                    self.checkpointer.nudge();
                }
            }
            let failed = committed.err().map(|error| Failure::Sqlite(error).into());
            for job in jobs.drain(..) {
                job.answer(failed.as_ref().map_or(Ok(()), Err));
            }
            self.checkpointer.after_commit(&self.connection);
        }
        drop(alive);
        let Self { connection, checkpointer, readers, lock, released, .. } = self;
        readers.finish();
        checkpointer.finish();
        if let Err((_connection, error)) = connection.close() {
            tracing::warn!(error = %error, "the database was not closed cleanly; nothing is lost");
        }
        drop(lock);
        drop(released);
    }

    /// Takes what is waiting, within the bounds of one commit.
    fn collect(&mut self, first: Message, jobs: &mut Vec<Box<dyn Pending>>) {
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Change(job) => {
                    bytes += job.bytes();
                    jobs.push(job);
                }
                // Later calls are turned away, those that are waiting still come out.
                Message::Close => self.receiver.close(),
            }
            if jobs.len() >= self.batch || bytes >= self.batch_bytes {
                break;
            }
            next = self.receiver.try_recv().ok();
        }
    }

    /// Runs the batch and commits it. Says whether there was anything to commit.
    fn transaction(&self, jobs: &mut [Box<dyn Pending>]) -> rusqlite::Result<bool> {
        let result = self.try_transaction(jobs);
        if result.is_err() && !self.connection.is_autocommit() {
            self.execute("ROLLBACK")?;
        }
        result
    }

    fn try_transaction(&self, jobs: &mut [Box<dyn Pending>]) -> rusqlite::Result<bool> {
        if !self.connection.is_autocommit() {
            self.execute("ROLLBACK")?;
        }
        self.execute("BEGIN IMMEDIATE")?;
        let mut any = false;
        for job in jobs {
            self.execute("SAVEPOINT change")?;
            match job.run(&self.connection) {
                Ran::Done { wrote } => any |= wrote,
                Ran::Undo(error) => {
                    if let Some(error) = error {
                        self.gauge.note(&error);
                    }
                    self.execute("ROLLBACK TO change")?;
                }
                Ran::Broken(error) => return Err(error),
            }
            self.execute("RELEASE change")?;
        }
        #[cfg(feature = "torture")]
        abide_torture::point("store-commit");
        self.execute("COMMIT")?;
        // On disk, and nobody has been told.
        #[cfg(feature = "torture")]
        abide_torture::point("store-committed");
        Ok(any)
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

/// Says that the writer has died, if it is dropped by a panic.
struct DeathNotice(Arc<Gauge>);

impl Drop for DeathNotice {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.died();
        }
    }
}

//! Moving the write-ahead log into the database, off the writer's path.
//!
//! A thread does the bulk whenever the log has grown by a threshold (PASSIVE, which stops
//! nobody), and sleeps otherwise. A writer that never pauses would keep such checkpoints from
//! ever catching up, and the log would grow without end; so beyond [`RESTART_FACTOR`] thresholds
//! the writer itself moves the little that is left, right after the thread has moved the bulk, and
//! begins the log anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};

use super::error::OpenError;
use super::open::BUSY_TIMEOUT;

/// The log begins anew when it has grown to this many thresholds.
const RESTART_FACTOR: i32 = 8;

/// How long the writer waits for readers to leave the log. Another program may read for minutes;
/// then the log grows on, and this is tried again a threshold later.
const RESTART_PATIENCE: Duration = Duration::from_millis(100);

/// The checkpoint thread, as the writer sees it.
pub(super) struct Checkpointer {
    signal: SyncSender<()>,
    thread: JoinHandle<()>,
    threshold: i32,
    /// Pages in the log after the last commit.
    pages: Arc<AtomicI32>,
    /// Pages in the log when the thread was last woken.
    seen: i32,
    restart_due: Arc<AtomicBool>,
}

impl Checkpointer {
    /// Starts the thread, and counts the log's pages at each commit of `writer`.
    pub(super) fn start(
        connection: Connection,
        writer: &mut Connection,
        checkpoint_pages: u32,
    ) -> Result<Self, OpenError> {
        let threshold = i32::try_from(checkpoint_pages.max(1)).unwrap_or(i32::MAX);
        let pages = Arc::new(AtomicI32::new(0));
        let counter = Arc::clone(&pages);
        let hook = move |_: &mut rusqlite::hooks::Wal, count| {
            counter.store(count, Ordering::Relaxed);
            Ok(())
        };
        let path = std::path::PathBuf::from(writer.path().unwrap_or_default());
        writer.wal_hook(Some(hook)).map_err(|error| OpenError::from_sqlite(&path, error))?;

        let restart_due = Arc::new(AtomicBool::new(false));
        let due = Arc::clone(&restart_due);
        let limit = threshold.saturating_mul(RESTART_FACTOR);
        let (signal, signals) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("abide-checkpoint".to_owned())
            .spawn(move || work(&connection, &signals, limit, &due))
            .map_err(OpenError::Thread)?;
        Ok(Self { signal, thread, threshold, pages, seen: 0, restart_due })
    }

    /// Wakes the thread if the log has grown enough, and begins the log anew if it is time.
    pub(super) fn after_commit(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.seen {
            self.seen = 0;
        }
        if pages - self.seen >= self.threshold {
            self.seen = pages;
            self.nudge();
        }
        if self.restart_due.load(Ordering::Acquire) {
            match restart(writer) {
                Ok(()) => self.seen = 0,
                Err(error) => {
                    tracing::debug!(error = %error, "the write-ahead log can't begin anew yet");
                }
            }
            self.restart_due.store(false, Ordering::Release);
        }
    }

    /// Wakes the thread now. One signal that waits already is enough.
    pub(super) fn nudge(&self) {
        let _ = self.signal.try_send(());
    }

    /// Empties the log and ends the thread.
    pub(super) fn finish(self) {
        drop(self.signal);
        if self.thread.join().is_err() {
            tracing::error!("the checkpoint thread has died");
        }
    }
}

fn restart(writer: &Connection) -> rusqlite::Result<()> {
    writer.busy_timeout(RESTART_PATIENCE)?;
    let restarted = writer.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::RESTART);
    writer.busy_timeout(BUSY_TIMEOUT)?;
    restarted.map(drop)
}

fn work(connection: &Connection, signals: &Receiver<()>, limit: i32, restart_due: &AtomicBool) {
    let mut failing = false;
    while signals.recv().is_ok() {
        // SQLite runs one checkpoint at a time and turns a second one away; the writer's comes
        // first, and there is nothing left for this one.
        if restart_due.load(Ordering::Acquire) {
            continue;
        }
        let checkpoint = connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE);
        match &checkpoint {
            Ok((pages, _moved)) if *pages >= limit => restart_due.store(true, Ordering::Release),
            Ok(_) => {}
            Err(error) if !failing => tracing::warn!(
                error = %error,
                "a checkpoint failed; the write-ahead log keeps everything, and grows"
            ),
            Err(_) => {}
        }
        if failing && checkpoint.is_ok() {
            tracing::info!("checkpoints work again");
        }
        failing = checkpoint.is_err();
    }
    if let Err(error) = connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE) {
        tracing::warn!(error = %error, "the last checkpoint failed; the next start makes up for it");
    }
}

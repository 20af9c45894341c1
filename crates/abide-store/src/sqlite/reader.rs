//! The threads that read.
//!
//! A point read on a warm connection takes microseconds, but a cold page or a long page of tasks
//! takes milliseconds, which the async runtime's own threads must not spend. Threads of our own
//! cost one hand-over, as `spawn_blocking` would, and keep their connection and its prepared
//! statements with them; under load each takes several reads at once and shares one snapshot.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use abide_core::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::error::{self, Failure, OpenError};
use super::health::Gauge;

/// Reads that share one snapshot at most. Small, so that one thread does not take what another
/// could be doing.
const READS_AT_ONCE: usize = 16;

/// What goes to the readers.
pub(super) enum Message {
    /// A read that sends its own answer.
    Read(Box<dyn FnOnce(&Connection) + Send>),
    /// Finish what came before, and end.
    Close,
}

/// Has a reader run `read` after everything that was committed before this call.
pub(super) async fn run<T, F>(
    readers: &mpsc::Sender<Message>,
    gauge: &Arc<Gauge>,
    read: F,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let gauge = Arc::clone(gauge);
    let read = Box::new(move |connection: &Connection| {
        if !answer.is_closed() {
            let result = read(connection).map_err(|failure| {
                if let Failure::Sqlite(error) = &failure {
                    gauge.note(error);
                }
                StoreError::from(failure)
            });
            let _ = answer.send(result);
        }
    });
    readers.send(Message::Read(read)).await.map_err(|_| error::closed())?;
    answered.await.unwrap_or_else(|_| Err(error::closed()))
}

/// The reader threads, as the writer sees them, who ends them.
pub(super) struct Readers {
    sender: mpsc::Sender<Message>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(
        connections: Vec<Connection>,
        queue: usize,
    ) -> Result<(Self, mpsc::Sender<Message>), OpenError> {
        let (sender, receiver) = mpsc::channel(queue.max(1));
        let receiver = Arc::new(Mutex::new(receiver));
        let mut readers = Self { sender: sender.clone(), threads: Vec::new() };
        for connection in connections {
            let receiver = Arc::clone(&receiver);
            let thread = thread::Builder::new()
                .name("abide-reader".to_owned())
                .spawn(move || work(&connection, &receiver))
                .map_err(OpenError::Thread)?;
            readers.threads.push(thread);
        }
        Ok((readers, sender))
    }

    /// Answers what is waiting, and ends the threads.
    pub(super) fn finish(self) {
        // An error means that all of them have ended.
        let _ = self.sender.blocking_send(Message::Close);
        drop(self.sender);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a reader thread has died");
            }
        }
    }
}

fn work(connection: &Connection, receiver: &Mutex<mpsc::Receiver<Message>>) {
    let mut messages = Vec::with_capacity(READS_AT_ONCE);
    loop {
        {
            // One idle thread waits for messages, the others wait for their turn to wait.
            let mut receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            if receiver.blocking_recv_many(&mut messages, READS_AT_ONCE) == 0 {
                return;
            }
            if messages.iter().any(|message| matches!(message, Message::Close)) {
                receiver.close();
            }
        }
        let shared = messages.len() > 1 && connection.execute_batch("BEGIN").is_ok();
        for message in messages.drain(..) {
            if let Message::Read(read) = message {
                // A panic is a bug in one read; whoever waits for it hears that it failed.
                let _ = catch_unwind(AssertUnwindSafe(|| read(connection)));
            }
        }
        // Nothing was written; unlike COMMIT, this ends the snapshot whatever state it is in.
        if shared && let Err(error) = connection.execute_batch("ROLLBACK") {
            tracing::error!(error = %error, "a reader could not end its snapshot");
        }
    }
}

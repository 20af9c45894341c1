//! Lines on their way to standard error. Whoever reads it may be slow, stuck or gone, and that must
//! not hold up or break the work that is being logged.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait for standard error to take them. Those that come when as many wait are dropped,
/// and counted.
const WAITING_LINES: usize = 1024;
/// How long the end of the program waits for the last lines to be taken.
const LAST_LINES: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// Everything before it is to be written; then say so.
    Flush(SyncSender<()>),
}

/// The process's logs. When dropped, what is still on its way is written, within bounded time.
#[derive(Debug)]
pub struct Logs {
    queue: SyncSender<Message>,
}

/// Where log lines are written to.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Logs {
    pub(super) fn start() -> io::Result<(Self, Lines)> {
        let (queue, messages) = sync_channel(WAITING_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let lines = Lines { queue: queue.clone(), dropped: dropped.clone() };
        std::thread::Builder::new()
            .name("abide-logs".to_owned())
            .spawn(move || write_all(&messages, &dropped))?;
        Ok((Self { queue }, lines))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        // A full queue belongs to a reader who is stuck; then there is nothing to wait for.
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

fn write_all(messages: &Receiver<Message>, dropped: &AtomicU64) {
    for message in messages {
        match message {
            Message::Line(line) => {
                // A reader who is gone is nobody to tell.
                let _ = io::stderr().lock().write_all(&line);
            }
            Message::Flush(done) => drop(done.send(())),
        }
        match dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => tracing::warn!(
                lines,
                "log lines were dropped, because standard error did not take them"
            ),
        }
    }
}

/// Takes one whole line at each write, as `tracing_subscriber::fmt` writes them.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Line(line.to_vec())) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

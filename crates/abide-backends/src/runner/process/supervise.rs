//! The runner's loop: reads both pipes, reaps, and stops what has to be stopped.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::runner::clock;
use crate::runner::folder::Folder;
use crate::runner::outcome::{RunOutcome, Stopped};

use super::stream::{Spooled, Which};
use super::tree::Tree;

/// How long after the job's exit its output is still read before what it left behind, and what
/// keeps the pipes open, is stopped.
pub const PIPES_AFTER_EXIT: Duration = Duration::from_secs(2);
/// The same once the pipes are closed: a process closes them a moment before it is gone.
const ENDING: Duration = Duration::from_millis(50);
/// How long an outcome waits, beyond the grace, for what the job left behind to die.
pub const LEFTOVERS_AFTER_KILL: Duration = Duration::from_secs(5);

/// Bytes that are read at a time: what a pipe holds on Linux.
const READ_BYTES: usize = 64 * 1024;
/// Bytes that are read after the end of the tree from a pipe that somebody else keeps filling: the
/// most that a pipe can hold, unless the system's administrator says otherwise.
const LAST_READ_BYTES: usize = 1024 * 1024;
/// The first wait between two looks at a tree that got SIGKILL.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// Later waits double up to this.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Signals to the runner, as bytes that can be polled for. Handlers, not a mask: a mask would be
/// handed on to the job.
pub(super) struct Signals {
    stop: UnixStream,
    child: UnixStream,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let listen = |signals: &[Signal]| -> io::Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            for signal in signals {
                signal_hook::low_level::pipe::register(signal.as_raw(), theirs.try_clone()?)?;
            }
            Ok(ours)
        };
        // Not what it means for a process without a terminal, and one that has reached a limit on
        // the size of its files learns it from the error.
        for signal in [Signal::HUP, Signal::XFSZ] {
            signal_hook::flag::register(signal.as_raw(), Arc::new(AtomicBool::new(false)))?;
        }
        Ok(Self { stop: listen(&[Signal::TERM, Signal::INT])?, child: listen(&[Signal::CHILD])? })
    }

    /// Whether a SIGTERM has come since the last time.
    pub(super) fn asked_to_stop(&self) -> bool {
        empty(&self.stop)
    }
}

/// Takes what is there; whether there was anything.
fn empty(mut stream: &UnixStream) -> bool {
    let mut any = false;
    while matches!(stream.read(&mut [0; 64]), Ok(1..)) {
        any = true;
    }
    any
}

/// Where the run stands.
enum Phase {
    Running,
    /// The job has exited, but something is still there, and may write.
    Lingering {
        until: Instant,
    },
    /// Nothing that is still there can write any more.
    Ending {
        until: Instant,
    },
    /// What is left got SIGTERM.
    Terminating {
        until: Instant,
    },
    /// What is left gets SIGKILL, until it is gone.
    Killing {
        since: Instant,
        look: Instant,
        wait: Duration,
    },
}

/// Sees a job to its end, and puts into the outcome how it came.
pub(super) fn supervise(
    outcome: &mut RunOutcome,
    spooled: &mut Spooled,
    folder: &Folder,
    signals: &Signals,
    grace: Duration,
    mut tree: Tree,
    mut child: Child,
) {
    let mut buffer = vec![0; READ_BYTES];
    let mut pipes = Pipes::of(&mut child);
    let mut phase = Phase::Running;
    loop {
        empty(&signals.child);
        tree.reap();
        let stop = signals.asked_to_stop();
        if tree.is_gone {
            break;
        }
        let now = clock::instant();
        phase = match phase {
            // A job that has exited first was not stopped.
            Phase::Running if stop && tree.exit.is_none() => {
                outcome.stopped = Some(Stopped { killed: false });
                tree.terminate();
                Phase::Terminating { until: later(now, grace) }
            }
            Phase::Running | Phase::Lingering { .. }
                if tree.exit.is_some() && pipes.are_closed() =>
            {
                Phase::Ending { until: later(now, ENDING) }
            }
            Phase::Running if tree.exit.is_some() => {
                Phase::Lingering { until: later(now, PIPES_AFTER_EXIT) }
            }
            Phase::Lingering { until } | Phase::Ending { until } if stop || until <= now => {
                outcome.left_behind = u32::try_from(tree.running().len()).unwrap_or(u32::MAX);
                tree.terminate();
                Phase::Terminating { until: later(now, grace) }
            }
            Phase::Terminating { until } if until <= now => {
                outcome.stopped.iter_mut().for_each(|stopped| stopped.killed = true);
                tree.kill();
                Phase::Killing { since: now, look: later(now, FIRST_LOOK), wait: FIRST_LOOK }
            }
            // The result of a job that has exited is not held up for ever.
            Phase::Killing { since, .. }
                if outcome.stopped.is_none() && later(since, LEFTOVERS_AFTER_KILL) <= now =>
            {
                outcome.unkillable = u32::try_from(tree.running().len()).unwrap_or(u32::MAX);
                break;
            }
            Phase::Killing { since, look, wait } if look <= now => {
                tree.kill();
                let wait = (wait * 2).min(LAST_LOOK);
                Phase::Killing { since, look: later(now, wait), wait }
            }
            phase => phase,
        };
        let until = match phase {
            Phase::Running => None,
            Phase::Lingering { until } | Phase::Ending { until } | Phase::Terminating { until } => {
                Some(until)
            }
            Phase::Killing { look, .. } => Some(look),
        };
        pipes.wait(signals, until.map(|until| until.saturating_duration_since(now)));
        pipes.read(&mut buffer, |which, bytes| spooled.push(folder, which, bytes));
    }
    // What was written last is still in the pipes.
    let mut left = LAST_READ_BYTES;
    while left > 0 {
        let mut read = 0;
        pipes.read(&mut buffer, |which, bytes| {
            read += bytes.len();
            spooled.push(folder, which, bytes);
        });
        left = if read == 0 { 0 } else { left.saturating_sub(read) };
    }
    outcome.exit = tree.exit;
}

/// A time so far away that it can't be written is as good as a year.
fn later(now: Instant, wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    now.checked_add(wait).unwrap_or_else(|| now + YEAR)
}

/// Our ends of the job's output.
struct Pipes(Vec<(Which, std::fs::File)>);

impl Pipes {
    fn of(child: &mut Child) -> Self {
        let stdout = child.stdout.take().map(|pipe| (Which::Stdout, pipe.into()));
        let stderr = child.stderr.take().map(|pipe| (Which::Stderr, pipe.into()));
        let pipes: Vec<(Which, std::os::fd::OwnedFd)> = stdout.into_iter().chain(stderr).collect();
        for (_, pipe) in &pipes {
            // A pipe that was made a moment ago does not refuse it.
            let _ = rustix::io::ioctl_fionbio(pipe, true);
        }
        Self(pipes.into_iter().map(|(which, pipe)| (which, pipe.into())).collect())
    }

    const fn are_closed(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for output, for a signal, or for so long.
    fn wait(&self, signals: &Signals, timeout: Option<Duration>) {
        // Rounded up to milliseconds, or the last of them would be spent spinning.
        let timeout = timeout.map(|timeout| timeout + Duration::from_millis(1));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = vec![
            PollFd::new(&signals.stop, PollFlags::IN),
            PollFd::new(&signals.child, PollFlags::IN),
        ];
        fds.extend(
            self.0.iter().map(|(_, pipe)| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)),
        );
        // Interrupted by one of our signals, whose byte is there then.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Reads once from each pipe that has something, and drops those that have ended.
    fn read(&mut self, buffer: &mut [u8], mut push: impl FnMut(Which, &[u8])) {
        self.0.retain_mut(|(which, pipe)| match pipe.read(buffer) {
            Ok(0) => false,
            Ok(length) => {
                push(*which, &buffer[..length]);
                true
            }
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        });
    }
}

//! A run that lives, whoever has started it.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::folder::Folder;
use super::lock::{self, Facts};
use super::lost::Lost;
use super::name::RunName;
use super::outcome::RunOutcome;
use super::output::Output;
use super::proc::Identity;
use super::spool::{Found, Spool};

/// Between two looks at a run whose runner is just beginning or just gone. Only then is it looked
/// at again and again.
const LOOK: Duration = Duration::from_millis(5);

/// A run that lives, or lived a moment ago. Dropping it changes nothing about the run.
#[derive(Debug, Clone)]
pub struct Run {
    spool: Spool,
    name: RunName,
    runner: Option<Identity>,
    /// The runner's descriptor, where the system has such things.
    handle: Option<Arc<AsyncFd<OwnedFd>>>,
}

/// How a run ended, as far as it is known.
#[derive(Debug)]
pub enum Ended {
    /// It has an outcome.
    Finished(RunOutcome),
    /// Nobody knows how it ended.
    Lost(Lost),
}

impl Run {
    /// A run that was found.
    pub(super) fn found(spool: Spool, name: RunName, runner: Option<Identity>) -> Self {
        let handle = runner.and_then(|runner| runner.open().ok().flatten());
        let handle = handle.and_then(|fd| watch(fd).ok());
        Self { spool, name, runner, handle: handle.map(Arc::new) }
    }

    /// A run whose runner is our child, which has to be reaped when it ends.
    pub(super) fn begun(spool: Spool, name: RunName, mut child: Child) -> Self {
        let runner = i32::try_from(child.id()).ok().and_then(Identity::of);
        let run = Self::found(spool, name, runner);
        if let Some(handle) = run.handle.clone() {
            tokio::spawn(async move {
                // If it can't be waited for there is no zombie either.
                let _ = handle.readable().await;
                let _ = child.wait();
            });
        } else {
            thread::spawn(move || child.wait());
        }
        run
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &RunName {
        &self.name
    }

    /// Waits until the run has ended and nothing of it runs any more. Costs nothing meanwhile.
    ///
    /// # Errors
    /// As [`Spool::find`]; and [`io::ErrorKind::NotFound`] if somebody has removed the folder.
    pub async fn wait(&self) -> io::Result<Ended> {
        let mut run = self.clone();
        loop {
            run.runner_ended().await?;
            match self.spool.find(&self.name)? {
                Found::Finished(outcome) => return Ok(Ended::Finished(outcome)),
                Found::Lost(lost) => return Ok(Ended::Lost(lost)),
                Found::Live(found) => run = found,
                Found::Absent => {
                    let what = format!("the folder of the run {} has been removed", self.name);
                    return Err(io::Error::new(io::ErrorKind::NotFound, what));
                }
            }
            // The runner was not yet one, or a process that it was about to start has inherited
            // the lock and has not let go of it.
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Tells the run to stop: SIGTERM, the job's grace, SIGKILL. Returns when it is told;
    /// [`Run::wait`] tells when it is done. A run that has ended is left alone.
    ///
    /// # Errors
    /// That the runner can't be seen or must not be signalled, or its folder can't be read.
    pub async fn stop(&self) -> io::Result<()> {
        let mut runner = self.runner;
        loop {
            if let Some(runner) = runner {
                runner.signal(Signal::TERM)?;
                // One that somebody has suspended gets to it only when it goes on.
                runner.signal(Signal::CONT)?;
                return if runner.exists() { Ok(()) } else { self.check_ended() };
            }
            // It does not listen yet.
            let Some(folder) = self.spool.folder(&self.name)? else { return Ok(()) };
            if !lock::is_held(&folder)? {
                return Ok(());
            }
            runner = Facts::read(&folder)?.runner;
            if runner.is_none() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// What is kept of its output so far.
    ///
    /// # Errors
    /// That its folder can't be read.
    pub fn output(&self) -> io::Result<Output> {
        self.spool.output(&self.name)
    }

    /// Waits until the process is gone that was the runner when this was found.
    async fn runner_ended(&self) -> io::Result<()> {
        match (&self.handle, self.runner) {
            (Some(handle), _) => handle.readable().await.map(drop),
            (None, Some(_)) => {
                let Some(folder) = self.spool.folder(&self.name)? else { return Ok(()) };
                lock_free(folder).await
            }
            (None, None) => Ok(()),
        }
    }

    /// Whether there is no runner any more, now that its process is not there.
    fn check_ended(&self) -> io::Result<()> {
        match self.spool.folder(&self.name)? {
            // As when two containers have the spool in common.
            Some(folder) if lock::is_held(&folder)? => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "the runner of {} is not among the processes that can be seen here",
                    self.name
                ),
            )),
            _ => Ok(()),
        }
    }
}

#[expect(
    deprecated,
    reason = "the successor is unsafe for types that exchange their descriptor; this one does not"
)]
fn watch(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(process, Interest::READABLE)
}

/// Waits for the lock. On a thread of its own: one of the runtime's would hold up the end of the
/// server.
async fn lock_free(folder: Folder) -> io::Result<()> {
    let (free, done) = oneshot::channel();
    thread::Builder::new().name("abide-run-lock".to_owned()).spawn(move || {
        // Nobody waits any more.
        let _ = free.send(lock::wait(&folder));
    })?;
    done.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_process_descriptors_the_lock_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let held = lock::create(&folder).unwrap();
        let waiting = tokio::spawn(lock_free(folder));
        assert!(
            tokio::time::timeout(Duration::from_millis(50), async {
                while !waiting.is_finished() {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .is_err()
        );
        drop(held);
        waiting.await.unwrap().unwrap();
    }
}

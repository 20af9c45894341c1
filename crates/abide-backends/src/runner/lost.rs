//! A run of which nobody knows how it ended: its runner was killed, or the machine went down.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use super::cgroup::Cgroup;
use super::folder::{Folder, JOB};
use super::job::JobFile;
use super::lock::Facts;
use super::name::RunName;
use super::proc::{self, Identity, Stat};
use super::{LEFTOVERS_AFTER_KILL, RUN_VARIABLE};

/// The first wait between two looks at what is being stopped.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// Later waits double up to this.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// A run without a runner and without an outcome.
#[derive(Debug, Clone)]
pub struct Lost {
    name: RunName,
    facts: Arc<Facts>,
    kill_grace: Duration,
    rebooted: bool,
}

/// What was left of a lost run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leftovers {
    /// How many processes still ran.
    pub found: usize,
    /// How many of these could not be killed.
    pub unkillable: usize,
}

impl Lost {
    pub(super) fn of(name: RunName, folder: Folder) -> io::Result<Self> {
        let facts = Arc::new(Facts::read(&folder)?);
        // A file that did not make it to the disk before the power went is empty or broken.
        let job = folder.read_json::<JobFile>(JOB);
        let (kill_grace, boot) = match job {
            Ok(Some(job)) => (job.kill_grace(), job.boot_id),
            Ok(None) => (Duration::ZERO, String::new()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                (Duration::ZERO, String::new())
            }
            Err(error) => return Err(error),
        };
        Ok(Self { name, facts, kill_grace, rebooted: boot != proc::boot_id() })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &RunName {
        &self.name
    }

    /// Whether the machine has been started anew since the run began, so that nothing of it can
    /// be left. Otherwise the runner was killed.
    #[must_use]
    pub const fn rebooted(&self) -> bool {
        self.rebooted
    }

    /// Whether the job may have been started. If not, it certainly was not, and never will be.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        // After a power cut the file may lack what was written last.
        self.rebooted || self.facts.starting
    }

    /// Stops what is left of the job: SIGTERM, the job's grace, SIGKILL. Returns when nothing of
    /// it runs, or when it can't be killed.
    ///
    /// # Errors
    /// That the system does not say which processes there are.
    pub async fn stop_leftovers(&self) -> io::Result<Leftovers> {
        let mut left = self.left().await?;
        let found = left.len();
        for signal in [Signal::TERM, Signal::CONT] {
            signal_all(&left, signal);
        }
        self.watch(&mut left, self.kill_grace, false).await?;
        self.watch(&mut left, LEFTOVERS_AFTER_KILL, true).await?;
        if left.is_empty() {
            self.facts.cgroup.clone().map(Cgroup::at).iter().for_each(Cgroup::remove);
        }
        Ok(Leftovers { found, unkillable: left.len() })
    }

    /// Looks until nothing is left, or the time is over.
    async fn watch(
        &self,
        left: &mut Vec<Identity>,
        patience: Duration,
        kill: bool,
    ) -> io::Result<()> {
        let looks = async {
            let mut wait = FIRST_LOOK;
            while !left.is_empty() {
                if kill {
                    // If it can't be done all at once, it is done one by one.
                    self.facts.cgroup.clone().map(|dir| Cgroup::at(dir).kill());
                    signal_all(left, Signal::KILL);
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LAST_LOOK);
                *left = self.left().await?;
            }
            Ok(())
        };
        tokio::time::timeout(patience, looks).await.unwrap_or(Ok(()))
    }

    /// What runs of it.
    async fn left(&self) -> io::Result<Vec<Identity>> {
        if self.rebooted {
            return Ok(Vec::new());
        }
        let lost = self.clone();
        let left = tokio::task::spawn_blocking(move || {
            let mark = format!("{RUN_VARIABLE}={}", lost.name);
            let members = lost.facts.cgroup.clone().map(|dir| Cgroup::at(dir).members());
            let all = proc::all()?;
            Ok(belonging(&all, |stat| {
                Some(stat.identity) == lost.facts.job
                    || members.iter().flatten().any(|pid| *pid == stat.identity.pid)
                    || proc::was_started_with(stat.identity.pid, &mark)
            }))
        });
        left.await.map_err(io::Error::other)?
    }
}

/// What certainly belongs to the run, and what follows from it: who shares a session with such a
/// process, since all of these sessions began in the run, and who descends from one.
fn belonging(all: &[Stat], is_certain: impl Fn(&Stat) -> bool) -> Vec<Identity> {
    let mut found: Vec<Stat> = all.iter().filter(|stat| is_certain(stat)).copied().collect();
    loop {
        let known: HashSet<i32> = found.iter().map(|stat| stat.identity.pid).collect();
        let sessions: HashSet<i32> = found.iter().map(|stat| stat.session).collect();
        let more = all.iter().filter(|stat| !known.contains(&stat.identity.pid));
        let more =
            more.filter(|stat| sessions.contains(&stat.session) || known.contains(&stat.parent));
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            return found.into_iter().map(|stat| stat.identity).collect();
        }
    }
}

fn signal_all(processes: &[Identity], signal: Signal) {
    for process in processes {
        // One that must not be signalled is counted at the end.
        let _ = process.signal(signal);
    }
}

//! The processes of the job, as their subreaper sees them.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group};

use crate::runner::cgroup::Cgroup;
use crate::runner::outcome::Exit;
use crate::runner::proc::{self, Identity, Stat};

/// The job and all that came of it.
pub(super) struct Tree {
    own: Identity,
    leader: i32,
    cgroup: Option<Cgroup>,
    /// How the first process ended, once it has.
    pub(super) exit: Option<Exit>,
    /// Whether nothing is left. It is certain: whatever loses its parent becomes our child, so
    /// who has no children has no descendants.
    pub(super) is_gone: bool,
}

impl Tree {
    /// The tree below this process, whose first process is `leader`.
    pub(super) const fn new(own: Identity, leader: i32, cgroup: Option<Cgroup>) -> Self {
        Self { own, leader, cgroup, exit: None, is_gone: false }
    }

    /// Reaps what has ended.
    pub(super) fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid() == self.leader => {
                    self.exit = exit(status);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return,
                Err(_) => {
                    self.is_gone = true;
                    return;
                }
            }
        }
    }

    /// What runs; a system that does not say has none.
    pub(super) fn running(&self) -> Vec<Stat> {
        proc::all().map_or_else(|_| Vec::new(), |all| proc::descendants(&all, self.own.pid))
    }

    /// Sends SIGTERM to everything, once. What is started after that, to clean up, does not get
    /// it.
    pub(super) fn terminate(&self) {
        // A process that is suspended gets to its SIGTERM only when it goes on.
        for signal in [Signal::TERM, Signal::CONT] {
            self.signal(&self.running(), signal);
        }
    }

    /// Sends SIGKILL to everything. Has to be repeated until nothing is left: a process can be
    /// started while we look.
    pub(super) fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            // If it can't be done all at once, it is done one by one.
            let _ = cgroup.kill();
        }
        self.signal(&self.running(), Signal::KILL);
    }

    fn signal(&self, running: &[Stat], signal: Signal) {
        // The group first: the kernel lets nobody escape from it by starting another meanwhile.
        // While it has a member that descends from us, its number belongs to no other.
        let leads = |stat: &Stat| stat.group == self.leader;
        if running.iter().any(leads)
            && let Some(group) = Pid::from_raw(self.leader)
        {
            let _ = kill_process_group(group, signal);
        }
        for stat in running.iter().filter(|stat| !leads(stat)) {
            // A process of another user; it is counted when the time is up.
            let _ = stat.identity.signal(signal);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.cgroup.iter().for_each(Cgroup::remove);
    }
}

fn exit(status: WaitStatus) -> Option<Exit> {
    let status = ExitStatus::from_raw(status.as_raw());
    status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal))
}

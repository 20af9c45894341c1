//! A command's process group: who is in it, and how it is stopped.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use process_wrap::tokio::ChildWrapper;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid,
};

/// The first wait between two looks at a group that is being stopped.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// Later waits double up to this.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// How long after SIGKILL it is said in the log that a process does not go away.
const SAY_UNKILLABLE_AFTER: Duration = Duration::from_secs(5);

/// The group that a command leads. When it is dropped before it is known to be empty, it is
/// killed.
#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    empty: bool,
}

/// The leader, to be waited for.
pub(super) type Leader = Box<dyn ChildWrapper>;

impl Group {
    /// The group of a leader that has not been waited for.
    pub(super) fn of(leader: &Leader) -> io::Result<Self> {
        let id = leader.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let id = id.ok_or_else(|| io::Error::other("the child has no process id"))?;
        Ok(Self { id, empty: false })
    }

    /// The group's number.
    pub(super) const fn id(&self) -> i32 {
        self.id.as_raw_pid()
    }

    /// Stops the group: SIGTERM, `grace`, SIGKILL. Returns when the leader has been reaped and
    /// nothing that runs is left; waits for ever for a process that can't be killed.
    pub(super) async fn stop(&mut self, leader: &mut Leader, grace: Duration) {
        self.signal(Signal::TERM);
        // A process that is suspended gets to its SIGTERM only when it goes on.
        self.signal(Signal::CONT);
        let gone = async {
            reap(leader).await;
            let mut looks = Looks::new();
            while self.has_living_members().await {
                looks.wait().await;
            }
        };
        if tokio::time::timeout(grace, gone).await.is_err() {
            self.signal(Signal::KILL);
            let killed = self.killed(leader);
            tokio::pin!(killed);
            if tokio::time::timeout(SAY_UNKILLABLE_AFTER, &mut killed).await.is_err() {
                tracing::error!(
                    group = self.id(),
                    "a process of the group is still there after SIGKILL; waiting for it. It \
                     hangs in the kernel or belongs to another user; look at it with `ps`"
                );
                killed.await;
            }
        }
        self.empty = true;
    }

    /// Waits until a group that got SIGKILL is empty.
    async fn killed(&self, leader: &mut Leader) {
        reap(leader).await;
        let mut looks = Looks::new();
        while self.has_living_members().await {
            self.signal(Signal::KILL);
            looks.wait().await;
        }
    }

    /// Whether anything runs in the group. Only for a group whose leader has been reaped.
    pub(super) async fn has_living_members(&self) -> bool {
        // A zombie counts as a member until its parent reaps it, and an orphan's new parent may
        // be an init that never does, as in some containers.
        let id = self.id();
        self.has_members()
            && tokio::task::spawn_blocking(move || living_members(id)).await.unwrap_or(true)
    }

    /// Marks the group as empty, so that its number is not signalled any more.
    pub(super) const fn forget(&mut self) {
        self.empty = true;
    }

    /// Whether the group has members, zombies included. Only for a group whose leader has been
    /// reaped: here orphans are reaped that fell to us because we are a container's init, and the
    /// leader's exit status would go with them.
    fn has_members(&self) -> bool {
        while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
        test_kill_process_group(self.id) != Err(Errno::SRCH)
    }

    fn signal(&self, signal: Signal) {
        // That there is nobody left is what is hoped for.
        if let Err(error) = kill_process_group(self.id, signal)
            && error != Errno::SRCH
        {
            tracing::warn!(group = self.id(), ?signal, %error, "a process group can't be signalled");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.empty {
            self.signal(Signal::KILL);
        }
    }
}

/// Waits for the leader; a leader that can't be waited for is gone already.
async fn reap(leader: &mut Leader) -> Option<ExitStatus> {
    leader.wait().await.ok()
}

/// The waits between looks at a group, since the kernel does not tell when it is empty.
struct Looks(Duration);

impl Looks {
    const fn new() -> Self {
        Self(FIRST_LOOK)
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LAST_LOOK);
    }
}

/// Whether a process of the group runs, zombies left out.
#[cfg(target_os = "linux")]
fn living_members(group: i32) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    processes
        .flatten()
        .filter(|entry| {
            entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
        })
        .filter_map(|entry| std::fs::read(entry.path().join("stat")).ok())
        .any(|stat| {
            // proc_pid_stat(5): pid (name) state ppid pgrp …; the name may hold anything.
            let after_name = stat.iter().rposition(|byte| *byte == b')').unwrap_or(0) + 1;
            let stat = String::from_utf8_lossy(&stat[after_name.min(stat.len())..]);
            let mut fields = stat.split_ascii_whitespace();
            let running = fields.next().is_some_and(|state| !matches!(state, "Z" | "X" | "x"));
            running && fields.nth(1).and_then(|pgrp| pgrp.parse().ok()) == Some(group)
        })
}

/// Whether a process of the group runs: elsewhere every init reaps.
#[cfg(not(target_os = "linux"))]
const fn living_members(_group: i32) -> bool {
    true
}

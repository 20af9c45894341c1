//! Other processes, as `/proc` shows them. A number alone names no process, since numbers are
//! used again; a number and a start time do.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) pid: i32,
    /// In clock ticks since the machine booted.
    pub(super) start: u64,
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    pub(super) identity: Identity,
    state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
}

impl Stat {
    fn parse(stat: &[u8]) -> Option<Self> {
        // proc_pid_stat(5): pid (name) state ppid pgrp session … and the start time as field 22.
        // The name may hold anything.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let pid = std::str::from_utf8(stat.split(|byte| *byte == b' ').next()?).ok()?;
        let mut fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        let start = fields.nth(15)?.parse().ok()?;
        let identity = Identity { pid: pid.parse().ok()?, start };
        Some(Self { identity, state, parent, group, session })
    }

    /// The process with this number, zombies included.
    pub(super) fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it has ended, and only waits to be reaped.
    pub(super) const fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// All processes, zombies left out.
pub(super) fn all() -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        found.extend(pid.and_then(Stat::of).filter(|stat| !stat.is_zombie()));
    }
    Ok(found)
}

/// Everything that descends from `ancestor`, itself left out.
pub(super) fn descendants(all: &[Stat], ancestor: i32) -> Vec<Stat> {
    let mut found: Vec<Stat> = Vec::new();
    let mut next = vec![ancestor];
    while let Some(parent) = next.pop() {
        let children = all.iter().filter(|stat| stat.parent == parent);
        for child in children {
            // A number that is used again while we look could make a circle.
            if found.iter().all(|known| known.identity.pid != child.identity.pid) {
                next.push(child.identity.pid);
                found.push(*child);
            }
        }
    }
    found
}

/// Whether the process was started with this entry (`NAME=value`) in its environment. No, if it
/// belongs to somebody else.
pub(super) fn was_started_with(pid: i32, entry: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|env| env.split(|byte| *byte == 0).any(|one| one == entry.as_bytes()))
}

impl Identity {
    /// The process with this number now.
    pub(super) fn of(pid: i32) -> Option<Self> {
        Stat::of(pid).map(|stat| stat.identity)
    }

    /// Whether the process is there, zombies included.
    pub(super) fn exists(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// A descriptor of the process. None if it has ended.
    ///
    /// # Errors
    /// [`Errno::NOSYS`] before Linux 5.3 and where a sandbox has none.
    pub(super) fn open(self) -> Result<Option<OwnedFd>, Errno> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            // The descriptor is of whoever has the number now.
            Ok(fd) => Ok(self.exists().then_some(fd)),
            // INVAL: the number is now that of a thread.
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a signal to this process and no other; nothing happens if it has ended.
    ///
    /// # Errors
    /// That it must not be signalled.
    pub(super) fn signal(self, signal: Signal) -> Result<(), Errno> {
        let sent = match self.open() {
            Ok(None) => return Ok(()),
            Ok(Some(fd)) => pidfd_send_signal(fd, signal),
            Err(_) if !self.exists() => return Ok(()),
            Err(_) => match Pid::from_raw(self.pid) {
                Some(pid) => kill_process(pid, signal),
                None => return Ok(()),
            },
        };
        match sent {
            Err(Errno::SRCH) => Ok(()),
            sent => sent,
        }
    }
}

/// Which run of the kernel this is; empty if it does not say.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_itself() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = Stat::of(pid).unwrap();
        assert!(own.identity.pid == pid && own.identity.exists() && !own.is_zombie());
        assert_eq!(own.parent, i32::try_from(std::os::unix::process::parent_id()).unwrap());
        assert!(all().unwrap().iter().any(|stat| stat.identity == own.identity));
        assert!(descendants(&all().unwrap(), own.parent).iter().any(|s| s.identity.pid == pid));
        let other = Identity { start: own.identity.start + 1, ..own.identity };
        assert!(!other.exists() && other.open().unwrap().is_none());
        assert_eq!(other.signal(Signal::KILL), Ok(()));
    }

    #[test]
    fn a_name_may_look_like_the_fields_after_it() {
        let stat = b"7 (a) R 1 (b)) S 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!(stat.identity, Identity { pid: 7, start: 99 });
        assert_eq!((stat.parent, stat.group, stat.session, stat.is_zombie()), (3, 4, 5, false));
    }
}

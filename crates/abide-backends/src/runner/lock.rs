//! The lock file: held as long as there is a runner, and what is known of the run's processes.
//!
//! A line each, written by the runner: `runner PID START`, once it can be signalled; `cgroup DIR`,
//! if the job has one; `starting`, before the job is started; `job PID START` after that.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::folder::{Folder, LOCK};
use super::proc::Identity;

/// What the lock file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The runner, from when it listens to SIGTERM.
    pub(super) runner: Option<Identity>,
    /// The job's cgroup.
    pub(super) cgroup: Option<PathBuf>,
    /// Whether the job may have been started.
    pub(super) starting: bool,
    /// The job's first process, which leads the job's process group.
    pub(super) job: Option<Identity>,
}

impl Facts {
    pub(super) fn read(folder: &Folder) -> io::Result<Self> {
        let bytes = folder.read(LOCK)?.unwrap_or_default();
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> Self {
        let mut facts = Self::default();
        // A line without its end was not written to its end.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("runner", rest) => facts.runner = identity(rest),
                ("cgroup", rest) => facts.cgroup = Some(PathBuf::from(rest)),
                ("starting", _) => facts.starting = true,
                ("job", rest) => facts.job = identity(rest),
                _ => {}
            }
        }
        facts
    }
}

fn identity(text: &str) -> Option<Identity> {
    let (pid, start) = text.split_once(' ')?;
    Some(Identity { pid: pid.parse().ok()?, start: start.parse().ok()? })
}

/// Adds what the runner is.
pub(super) fn say_runner(lock: &mut File, runner: Identity) -> io::Result<()> {
    lock.write_all(format!("runner {} {}\n", runner.pid, runner.start).as_bytes())
}

/// Adds where the job will be, and that it is about to be started.
pub(super) fn say_starting(lock: &mut File, cgroup: Option<&Path>) -> io::Result<()> {
    let cgroup = cgroup.map(|dir| format!("cgroup {}\n", dir.display())).unwrap_or_default();
    lock.write_all(format!("{cgroup}starting\n").as_bytes())
}

/// Adds what the job is.
pub(super) fn say_job(lock: &mut File, job: Identity) -> io::Result<()> {
    lock.write_all(format!("job {} {}\n", job.pid, job.start).as_bytes())
}

/// Makes the file, and holds it.
pub(super) fn create(folder: &Folder) -> io::Result<File> {
    let file = folder.append(LOCK)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// The lock of a run that is over, held until it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    _file: Option<File>,
}

/// Takes the lock of a run that is over; none if somebody holds it. A folder without the file is
/// one that nobody holds.
pub(super) fn take(folder: &Folder) -> io::Result<Option<Taken>> {
    try_lock(folder, FlockOperation::NonBlockingLockExclusive)
}

/// Whether somebody holds the lock.
pub(super) fn is_held(folder: &Folder) -> io::Result<bool> {
    // Shared, so that two who ask don't take each other for a runner.
    Ok(try_lock(folder, FlockOperation::NonBlockingLockShared)?.is_none())
}

fn try_lock(folder: &Folder, operation: FlockOperation) -> io::Result<Option<Taken>> {
    let file = match folder.file(LOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(Taken { _file: None }));
        }
        file => file?,
    };
    match flock(&file, operation) {
        Ok(()) => Ok(Some(Taken { _file: Some(file) })),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Blocks until nobody holds the lock.
pub(super) fn wait(folder: &Folder) -> io::Result<()> {
    let file = match folder.file(LOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    loop {
        match flock(&file, FlockOperation::LockShared) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_lines_and_unknown_lines_say_nothing() {
        let text = "runner 7 99\nlater thing\ncgroup /a b/c\nstarting\njob 8 100";
        let mut facts = Facts {
            runner: Some(Identity { pid: 7, start: 99 }),
            cgroup: Some("/a b/c".into()),
            starting: true,
            job: None,
        };
        assert_eq!(Facts::parse(text), facts);
        facts.job = Some(Identity { pid: 8, start: 100 });
        assert_eq!(Facts::parse(&format!("{text}\n")), facts);
        assert_eq!(Facts::parse("starting"), Facts::default());
    }

    #[test]
    fn the_lock_is_held_until_its_last_holder_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        assert!(!is_held(&folder).unwrap());
        let held = create(&folder).unwrap();
        let inherited = held.try_clone().unwrap();
        drop(held);
        assert!(is_held(&folder).unwrap() && take(&folder).unwrap().is_none());
        let waiting = std::thread::spawn(move || wait(&folder));
        assert!(!waiting.is_finished());
        drop(inherited);
        waiting.join().unwrap().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        assert!(!is_held(&folder).unwrap() && take(&folder).unwrap().is_some());
    }
}

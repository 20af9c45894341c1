//! A cgroup (version 2) for a job, where the process may create one: all processes of the job are
//! in it, whatever they do, and one write kills them at once. Nothing depends on it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The job's cgroup.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup below the one of this process and moves this process there, so that a
    /// child that is started next begins in it. None if that can't be done here.
    pub(super) fn enter(name: &str) -> Option<(Self, Home)> {
        let home = own(
            &fs::read_to_string("/proc/self/cgroup").ok()?,
            &fs::read_to_string("/proc/self/mountinfo").ok()?,
        )?;
        let dir = home.join(name);
        fs::create_dir(&dir).ok()?;
        let cgroup = Self { dir };
        // cgroup.kill came with Linux 5.14.
        if cgroup.dir.join("cgroup.kill").exists() && enter(&cgroup.dir).is_ok() {
            Some((cgroup, Home(home)))
        } else {
            cgroup.remove();
            None
        }
    }

    /// The cgroup that another process has created here.
    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where it is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Sends SIGKILL to everything in it.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.kill"), "1")
    }

    /// The processes in it, zombies included; none if it is gone.
    pub(super) fn members(&self) -> Vec<i32> {
        fs::read_to_string(self.dir.join("cgroup.procs"))
            .map(|pids| pids.lines().filter_map(|pid| pid.parse().ok()).collect())
            .unwrap_or_default()
    }

    /// Removes it, if it is empty.
    pub(super) fn remove(&self) {
        // One that stays behind costs nothing but its name.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// The cgroup that a process was in before.
#[derive(Debug)]
pub(super) struct Home(PathBuf);

impl Home {
    /// Goes back, and leaves the children where they are.
    pub(super) fn return_to(&self) -> io::Result<()> {
        enter(&self.0)
    }
}

/// Moves this process.
fn enter(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

/// The directory of a process's cgroup, from `/proc/PID/cgroup` and `/proc/PID/mountinfo`.
fn own(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    // proc_pid_mountinfo(5): id parent device root mount-point options … - type source options
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if !kind.starts_with("cgroup2 ") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        // `..`: the mount does not show where this process is.
        let is_plain = below.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        // Such a path would be cut into lines in the lock file, or is written in octal here.
        let is_plain = is_plain && !at.contains(['\\', '\n']) && !path.contains('\n');
        is_plain.then(|| Path::new(at).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_found_under_its_mount() {
        let mount = |root: &str, at: &str| {
            format!(
                "1 2 0:3 / /proc rw - proc proc rw\n30 24 0:27 {root} {at} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
            )
        };
        for (cgroup, mountinfo, dir) in [
            ("0::/a/b.service\n", mount("/", "/sys/fs/cgroup"), Some("/sys/fs/cgroup/a/b.service")),
            ("9:memory:/x\n0::/\n", mount("/", "/cg/unified"), Some("/cg/unified/")),
            ("0::/docker/1/x\n", mount("/docker/1", "/cg"), Some("/cg/x")),
            ("0::/elsewhere\n", mount("/docker/1", "/cg"), None),
            ("0::/../other\n", mount("/", "/cg"), None),
            ("9:memory:/x\n", mount("/", "/cg"), None),
            ("0::/\n", String::new(), None),
        ] {
            assert_eq!(own(cgroup, &mountinfo), dir.map(PathBuf::from), "{cgroup}");
        }
    }
}

//! A run's folder: the names of its files, and access to them by the folder's descriptor, so that
//! a folder that is moved or replaced meanwhile is never confused with another.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

/// Held by whoever runs the job; says which processes these are.
pub(super) const LOCK: &str = "lock";
/// What to run.
pub(super) const JOB: &str = "job.json";
/// The first part of standard output; the segments of its last part have a number behind a dot.
pub(super) const STDOUT: &str = "stdout";
/// The same of standard error.
pub(super) const STDERR: &str = "stderr";
/// Both streams as they came.
pub(super) const LOG: &str = "log";
/// How it ended.
pub(super) const OUTCOME: &str = "outcome.json";
/// Room for the outcome.
pub(super) const DRAFT: &str = "outcome.draft";
/// Standard error of the runner.
pub(super) const COMPLAINTS: &str = "runner.err";

/// The only version of `job.json` and `outcome.json`. It is raised when an older reader would
/// misread a file; fields that are added don't raise it.
pub(super) const VERSION: u32 = 1;

/// Bytes of a file that is read as a whole: well above the longest command line.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::open_at(rustix::fs::CWD, path)
    }

    fn open_at(at: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(at, path, flags, Mode::empty())?))
    }

    /// Creates an empty file that is written at its end, or opens the one that is there.
    pub(super) fn append(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(self.fd(), name, flags | OFlags::NOFOLLOW, mode)?.into())
    }

    /// Creates an empty file, or empties the one that is there.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(self.fd(), name, flags | OFlags::NOFOLLOW, mode)?.into())
    }

    /// Opens a file to read it.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(self.fd(), name, flags, Mode::empty())?.into())
    }

    /// Reads a whole file; none if there is none.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.file(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads a file that was written as JSON by this version of abide or another; none if there
    /// is none.
    pub(super) fn read_json<T: DeserializeOwned + Versioned>(
        &self,
        name: &str,
    ) -> io::Result<Option<T>> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let value: T = serde_json::from_slice(&bytes)
            .map_err(|error| bad(format!("the file {name} of the run can't be read: {error}")))?;
        if value.version() > VERSION {
            return Err(bad(format!(
                "the file {name} of the run was written by a newer version of abide: its format \
                 is {}, this version reads {VERSION}",
                value.version()
            )));
        }
        Ok(Some(value))
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(self.fd(), from, self.fd(), to)?)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(self.fd(), name, AtFlags::empty())?)
    }

    /// The names of the files.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.fd())? {
            names.extend(entry?.file_name().to_str().ok().map(ToOwned::to_owned));
        }
        Ok(names)
    }

    /// Makes the names in the folder, and the folder's own, last through a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        fsync(self.fd())?;
        let parent = Self::open_at(self.fd(), Path::new(".."))?;
        Ok(fsync(parent.fd())?)
    }

    /// Whether somebody has removed the folder, so that nobody can find what is written there.
    pub(super) fn is_removed(&self) -> bool {
        fstat(self.fd()).map_or_else(|error| error == Errno::NOENT, |stat| stat.st_nlink == 0)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A file's format has a number.
pub(super) trait Versioned {
    fn version(&self) -> u32;
}

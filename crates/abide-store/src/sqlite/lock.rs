//! Which file is meant, and the lock that keeps every other abide away from it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::error::OpenError;

/// Finds the one name of the database file, so that a relative path or a symbolic link to it is
/// the same file and the same lock.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    match fs::canonicalize(path) {
        Ok(real) => {
            let metadata =
                fs::metadata(&real).map_err(|source| OpenError::from_io(&real, source))?;
            if metadata.is_file() { Ok(real) } else { Err(OpenError::NotAFile { path: real }) }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => resolve_new(path),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(OpenError::FolderMissing { folder: folder_of(path).to_owned() })
        }
        Err(source) => Err(OpenError::from_io(path, source)),
    }
}

/// The same for a file that is still to be created.
fn resolve_new(path: &Path) -> Result<PathBuf, OpenError> {
    if path.is_symlink() {
        return Err(OpenError::DanglingLink { path: path.to_owned() });
    }
    let Some(name) = path.file_name() else {
        return Err(OpenError::NotAFile { path: path.to_owned() });
    };
    let folder = folder_of(path);
    match fs::canonicalize(folder) {
        Ok(folder) => Ok(folder.join(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OpenError::FolderMissing { folder: folder.to_owned() })
        }
        Err(source) => Err(OpenError::from_io(folder, source)),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The lock on a database, held until it is dropped or the process ends, however it ends.
///
/// It lies in a file of its own, since SQLite's locks on the database file are lost when any
/// handle to that file is closed in the same process. The file is never deleted: a deleted lock
/// file and a new one of the same name could both be held.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock on a database that exists, to keep every abide away from it.
    ///
    /// # Errors
    /// An [`OpenError`], [`OpenError::Locked`] among them.
    pub fn hold(path: &Path) -> Result<Self, OpenError> {
        Self::take(&resolve(path)?)
    }

    /// Takes the lock on the database at `path`, which [`resolve`] has returned.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let name = PathBuf::from(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        private(&mut options);
        let mut file = options.open(&name).map_err(|source| OpenError::from_io(&name, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { path: path.to_owned(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(OpenError::from_io(&name, source)),
        }
        // The number only serves the message that another process prints, so that a full disk is
        // no reason to fail here.
        let _ = file
            .set_len(0)
            .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
        Ok(Self { file })
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Lock {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Makes what `options` create readable by its owner only: results can be private.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

//! Moving a damaged database out of the way, with an empty one in its place.
//!
//! Nothing is moved before its replacement lies ready, and nothing is ever overwritten. What the caller
//! keeps beside the database goes first: left behind, it would be taken for the new one's. The database
//! goes before its write-ahead log: a log without its database is noticed at the next opening, a
//! database without its log would be taken for whole.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use abide_core::Timestamp;

use super::error::OpenError;
use super::schema;

/// What lies between the name of a database and the time at which it was set aside.
const MARK: &str = ".damaged-";

/// The files that belong together: the database, its log, the log's shared memory, and the journal
/// of the time before there was a log.
const PARTS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// Damaged databases of one name and second. More than one is a loop that somebody has to look at.
const MAX_PER_SECOND: u32 = 100;

/// Moves a damaged database out of the way when it is opened.
#[derive(Debug, Clone, Copy)]
pub struct SetAside<'a> {
    /// The time for the name.
    pub now: Timestamp,
    /// What else belongs to the database, by what is behind its name: `.runs`.
    pub companions: &'a [&'a str],
}

/// The databases that were set aside for the one at `path`, the first one first.
///
/// # Errors
/// What the operating system says when the folder can't be read.
pub fn set_aside_beside(path: &Path) -> io::Result<Vec<PathBuf>> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(vec![]) };
    let folder = if folder == Path::new("") { Path::new(".") } else { folder };
    let prefix = format!("{}{MARK}", name.to_string_lossy());
    // Such as 2026-12-01T093000Z, or 2026-12-01T093000Z-2.
    let is_time = |text: &str| {
        let number = text.split_once("Z-").map(|(_, number)| number);
        text.len() >= "2026-12-01T093000Z".len()
            && number.map_or(text.ends_with('Z'), |number| number.parse::<u32>().is_ok())
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().strip_prefix(&prefix).is_some_and(is_time) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// The time as it stands in a name: `2026-12-01T093000Z`. Colons are no good in names that people type.
fn name_of(time: Timestamp) -> String {
    let text = time.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    format!("{}Z", seconds.replace(':', ""))
}

/// Whether the file that could not be opened is one to set aside: SQLite says that it is damaged,
/// and its header says that it is abide's and not from a newer one. Where there is no header left,
/// companions beside it, which are made only for a database that was opened, say so too. Whatever
/// else it may be is somebody's, and stays where it is.
pub(super) fn may_be(error: &OpenError, path: &Path, companions: &[&str]) -> bool {
    match error {
        OpenError::Corrupt { .. } => is_ours(path),
        OpenError::NotADatabase { .. } => {
            is_ours(path) || companions.iter().any(|part| with(path, part).is_dir())
        }
        _ => false,
    }
}

/// Looks at the header in the file. sqlite.org/fileformat.html, "The Database Header": the schema
/// version and the application's id are big-endian numbers at 60 and 68.
fn is_ours(path: &Path) -> bool {
    let mut header = [0; 100];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        i32::from_be_bytes(bytes.unwrap_or_default())
    };
    read.is_ok()
        && number(68) == schema::APPLICATION_ID
        && (1..=schema::LATEST).contains(&number(60))
}

/// Moves the database at `path` and what belongs to it to names with the time, and puts what `create`
/// makes of an empty file into its place. If that can't be done, everything is where it was.
pub(super) fn set_aside(
    path: &Path,
    problem: &OpenError,
    SetAside { now, companions }: SetAside<'_>,
    create: impl FnOnce(&Path) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let parts: Vec<&str> = companions.iter().copied().chain(PARTS).collect();
    let folder = path.parent().unwrap_or(Path::new("."));
    let io = |source| OpenError::from_io(path, source);
    // Of a name that nobody else has, readable by its owner only, gone if this ends in an error.
    let fresh = tempfile::Builder::new()
        .prefix(".abide-new-")
        .suffix(".db")
        .tempfile_in(folder)
        .map_err(|source| OpenError::from_io(folder, source))?;
    create(fresh.path())?;
    fresh.as_file().sync_all().map_err(io)?;

    let aside = free_name(path, now, &parts).map_err(io)?;
    let mut moved = Vec::new();
    let placed = parts
        .iter()
        .try_for_each(|part| {
            let (from, to) = (with(path, part), with(&aside, part));
            match fs::rename(&from, &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(()) => {
                    moved.push((from, to));
                    Ok(())
                }
            }
        })
        .and_then(|()| fresh.persist_noclobber(path).map(drop).map_err(|error| error.error))
        .and_then(|()| File::open(folder)?.sync_all());
    if let Err(error) = placed {
        for (from, to) in moved.iter().rev().filter(|(from, _)| !from.exists()) {
            if let Err(error) = fs::rename(to, from) {
                tracing::error!(file = %to.display(), %error, "could not be moved back");
            }
        }
        return Err(io(error));
    }
    tracing::error!(
        database = %path.display(),
        set_aside = %aside.display(),
        problem = match problem {
            OpenError::Corrupt { problem, .. } => problem,
            _ => "its header is torn",
        },
        "THE DATABASE IS DAMAGED. It was set aside, and abide starts with an EMPTY one: all earlier \
         tasks are unknown until it is restored. Nothing was deleted: see what is left with `abide \
         db check --store sqlite:{}`; to go back, stop abide and restore a backup (docs/operations.md)",
        aside.display()
    );
    Ok(())
}

/// Says again that there is something to look at.
pub(super) fn remind(path: &Path) {
    for file in set_aside_beside(path).unwrap_or_default() {
        tracing::warn!(
            database = %path.display(),
            set_aside = %file.display(),
            "a database that was set aside lies beside the one in use, which does not know its tasks: \
             restore a backup, or move the file to another folder when it is no longer needed"
        );
    }
}

fn with(path: &Path, part: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(part);
    PathBuf::from(name)
}

/// A name under which no part of a database lies.
fn free_name(path: &Path, now: Timestamp, parts: &[&str]) -> io::Result<PathBuf> {
    let base = with(path, &format!("{MARK}{}", name_of(now)));
    let numbered = (2..MAX_PER_SECOND).map(|number| with(&base, &format!("-{number}")));
    let free = |name: &PathBuf| {
        parts.iter().all(|part| {
            fs::symlink_metadata(with(name, part))
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        })
    };
    std::iter::once(base.clone()).chain(numbered).find(free).ok_or_else(|| {
        io::Error::new(io::ErrorKind::AlreadyExists, "too many databases were set aside at once")
    })
}

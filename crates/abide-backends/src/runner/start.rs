//! Starts a run: makes its folder, starts its runner, and waits for the runner's word that the
//! job runs.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::folder::{COMPLAINTS, Folder, JOB};
use super::job::{JobFile, JobSpec, MAX_ENV_BYTES};
use super::lock::{self, Facts};
use super::name::RunName;
use super::spool::{BEGUN, Program};

/// Bytes that a runner's word may have.
const MAX_ACK_BYTES: u64 = 64 * 1024;

/// A run could not be started; says what to do, to whoever reads the result. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such program.
    #[error(
        "The program `{0}` was not found. The tool's operator has to install it, or to correct \
         the command in the tool's settings."
    )]
    NotFound(String),
    /// The script's first line names a program that does not exist.
    #[error(
        "The program `{0}` can't be run because the interpreter that its first line names was \
         not found. The tool's operator has to correct the line or install the interpreter."
    )]
    NoInterpreter(String),
    /// The file must not be executed.
    #[error(
        "The program `{0}` must not be run: permission denied. The tool's operator has to make \
         it executable (`chmod +x`) for the server's user."
    )]
    Denied(String),
    /// The file can't be executed.
    #[error(
        "The program `{0}` is neither a program for this machine nor a script with a `#!` line. \
         The tool's operator has to correct it."
    )]
    NotAProgram(String),
    /// The working directory can't be used.
    #[error(
        "The working directory `{}` does not exist, is not a directory or must not be entered. \
         The tool's operator has to create it, or to correct `cwd` in the tool's settings.",
        .0.display()
    )]
    NoDirectory(PathBuf),
    /// Arguments and environment are too large.
    #[error("The command line of `{0}` is longer than the system allows. Send shorter arguments.")]
    TooLong(String),
    /// Anything else about the program.
    #[error(
        "The program `{program}` could not be started: {error}. The server may be short of \
         processes, files or memory; try again later, or ask its operator."
    )]
    Other {
        /// The program.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// There is a run of this name already.
    #[error("The run {0} was started before; a run is started once.")]
    Exists(RunName),
    /// The spool can't be written.
    #[error(
        "The command was not started, because its output could not be kept: {0}. The server's \
         operator has to make room on the disk of its spool, or to correct the permissions there."
    )]
    Spool(String),
    /// The runner could not be started, or ended before the job was started.
    #[error(
        "The command was not started, because the process that would watch over it did not \
         start: {0}. The server may be short of processes, files or memory; try again later, or \
         ask its operator."
    )]
    Runner(String),
}

/// The runner's word to the server that started it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ack {
    /// The job runs, or has run.
    Started,
    /// The job's program could not be started.
    Exec { errno: Option<i32>, error: String },
    /// The spool could not be used.
    Spool { error: String },
}

/// Starts a run. Blocks for as long as a process and a few files take.
pub(super) fn start(
    root: &Path,
    program: &Program,
    name: &RunName,
    job: &JobFile,
    env: &[u8],
) -> Result<Child, StartError> {
    let spool = |error: io::Error| StartError::Spool(error.to_string());
    let begun = root.join(format!("{BEGUN}{name}"));
    let path = root.join(name.to_string());
    match DirBuilder::new().mode(0o700).create(&begun) {
        // Somebody else is just about to start it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(StartError::Exists(*name));
        }
        created => created.map_err(spool)?,
    }
    let folder = NewFolder(begun);
    let open = Folder::open(&folder.0).map_err(spool)?;
    // Held from here on, before anybody can see the folder.
    let lock = lock::create(&open).map_err(spool)?;
    let json = serde_json::to_vec(job).map_err(|error| spool(error.into()))?;
    let written = open.create(JOB).and_then(|mut file| {
        file.write_all(&json)?;
        file.sync_data()
    });
    written.map_err(spool)?;
    let complaints = open.append(COMPLAINTS).map_err(spool)?;
    match renameat_with(CWD, &folder.0, CWD, &path, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => return Err(StartError::Exists(*name)),
        renamed => renamed.map_err(|errno| spool(errno.into()))?,
    }
    let folder = folder.moved_to(path);
    // From here on the job could run, and a power cut must not make it look as if it never had.
    open.sync().map_err(spool)?;

    let runner = |error: io::Error| StartError::Runner(error.to_string());
    let (ours, theirs) = UnixStream::pair().map_err(runner)?;
    let mut child = spawn(program, &folder.0, lock, theirs, complaints).map_err(runner)?;
    // A runner that has ended meanwhile says why, or leaves no word at all.
    let _ = (&ours).write_all(env).and_then(|()| ours.shutdown(Shutdown::Write));
    let mut word = Vec::new();
    let _ = ours.take(MAX_ACK_BYTES).read_to_end(&mut word);
    let problem = match serde_json::from_slice(&word) {
        Ok(Ack::Started) => {
            folder.keep();
            return Ok(child);
        }
        Ok(Ack::Exec { errno, error }) => explain(errno, error, job),
        Ok(Ack::Spool { error }) => StartError::Spool(error),
        Err(_) => {
            let problem = silent(&mut child, &open);
            // It was killed before it could say what it had done.
            if Facts::read(&open).map_or(true, |facts| facts.starting) {
                folder.keep();
                return Ok(child);
            }
            problem
        }
    };
    // Only a runner that has not started anything gets here.
    let _ = child.wait();
    Err(problem)
}

/// A runner that ended without a word.
fn silent(child: &mut Child, folder: &Folder) -> StartError {
    let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let complaints = folder.read(COMPLAINTS).ok().flatten().unwrap_or_default();
    let complaints = String::from_utf8_lossy(&complaints);
    let complaints = complaints.lines().next().unwrap_or_default();
    StartError::Runner(format!("it ended with {ended} ({complaints})"))
}

#[expect(clippy::disallowed_methods, reason = "this is where children are started")]
fn spawn(
    program: &Program,
    folder: &Path,
    lock: File,
    server: UnixStream,
    complaints: File,
) -> io::Result<Child> {
    let mut command = std::process::Command::new(&program.path);
    if let Some(name) = &program.shown_as {
        command.arg0(name);
    }
    command
        .args(&program.args)
        .arg(folder)
        .env_clear()
        .stdin(Stdio::from(lock))
        .stdout(Stdio::from(OwnedFd::from(server)))
        .stderr(Stdio::from(complaints));
    #[cfg(feature = "torture")]
    command.envs(std::env::var_os(abide_torture::VARIABLE).map(|v| (abide_torture::VARIABLE, v)));
    // With the command our copies of its three descriptors go, so that the runner's end is seen.
    command.spawn()
}

/// A job's environment, as the runner receives it.
pub(super) fn encode(
    env: &BTreeMap<String, String>,
    spec: &JobSpec,
) -> Result<Vec<u8>, StartError> {
    let mut bytes = Vec::new();
    for (name, value) in env {
        for part in [name, "=", value, "\0"] {
            bytes.extend_from_slice(part.as_bytes());
        }
    }
    bytes.push(0);
    if bytes.len() > MAX_ENV_BYTES {
        let program = spec.argv.first().cloned().unwrap_or_default();
        return Err(StartError::TooLong(program));
    }
    Ok(bytes)
}

/// A folder that is removed again unless the run begins.
struct NewFolder(PathBuf);

impl NewFolder {
    fn moved_to(self, path: PathBuf) -> Self {
        self.keep();
        Self(path)
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        // What can't be removed is found lost, and removed later.
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "a run that did not begin stays in the spool");
        }
    }
}

/// Says what a failure to start means. The system has one error for several things.
fn explain(errno: Option<i32>, error: String, job: &JobFile) -> StartError {
    if let Some(cwd) = &job.cwd
        && fs::metadata(cwd.join(".")).is_err()
    {
        return StartError::NoDirectory(cwd.clone());
    }
    let program = job.argv.first().cloned().unwrap_or_default();
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR) => {
            let file = job.cwd.as_deref().unwrap_or(Path::new("")).join(&program);
            if program.contains('/') && file.exists() {
                StartError::NoInterpreter(program)
            } else {
                StartError::NotFound(program)
            }
        }
        Some(Errno::ACCESS | Errno::PERM | Errno::ISDIR) => StartError::Denied(program),
        Some(Errno::NOEXEC) => StartError::NotAProgram(program),
        Some(Errno::TOOBIG) => StartError::TooLong(program),
        _ => {
            let error = errno.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error);
            StartError::Other { program, error }
        }
    }
}

//! The spool: the folders of all runs, seen from the server.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abide_core::limits::MAX_ATTEMPTS;
use abide_core::{LogPart, LogRange, TaskId};

use super::folder::{Folder, JOB, LOG, OUTCOME};
use super::job::{JobFile, JobSpec};
use super::lock::{self, Facts};
use super::lost::Lost;
use super::name::RunName;
use super::outcome::RunOutcome;
use super::output::{self, Output};
use super::run::Run;
use super::start::{self, StartError};

/// What the name of a folder begins with before its run exists.
pub(super) const BEGUN: &str = ".new-";
/// What it begins with while it is being removed.
const REMOVED: &str = ".gone-";

/// From so many tasks on, one look at all runs is quicker than looking for each.
const LOOKED_FOR: usize = 16;

/// How a runner is started: a program that calls [`main`](super::main) with what follows `args`.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments before the run's folder.
    pub args: Vec<OsString>,
    /// What it is listed as among processes; the path if none.
    pub shown_as: Option<OsString>,
}

impl Program {
    /// The program that this process runs, whatever has become of its file since.
    ///
    /// # Errors
    /// That the system does not say which that is.
    pub fn this(args: impl IntoIterator<Item = impl Into<OsString>>) -> io::Result<Self> {
        let name = std::env::current_exe()?;
        Ok(Self {
            // An upgrade replaces the file at the name, and a runner should be of the version that
            // starts it.
            path: "/proc/self/exe".into(),
            args: args.into_iter().map(Into::into).collect(),
            shown_as: Some(name.into_os_string()),
        })
    }
}

/// The folder in which runs have their folders.
#[derive(Debug, Clone)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    program: Program,
    cgroups: bool,
}

/// What there is of a run.
#[derive(Debug)]
pub enum Found {
    /// Nothing: it was never started, or was removed.
    Absent,
    /// It runs.
    Live(Run),
    /// It has ended.
    Finished(RunOutcome),
    /// Nobody knows how it ended.
    Lost(Lost),
}

impl Spool {
    /// Opens the spool, creates it if there is none, and clears away what a killed server has
    /// left half done. Jobs get a cgroup of their own where that is possible.
    ///
    /// # Errors
    /// That the folder can't be created, read or written.
    pub fn open(root: &Path, program: Program) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        // Runners may be in another directory than we are.
        let root = root.canonicalize()?;
        let spool = Self(Arc::new(Inner { root, program, cgroups: true }));
        spool.sweep()?;
        Ok(spool)
    }

    /// A spool that only is looked into, beside the server that owns it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none; else that it can't be entered.
    pub fn look_into(root: &Path) -> io::Result<Self> {
        let program = Program { path: PathBuf::new(), args: Vec::new(), shown_as: None };
        let root = root.canonicalize()?;
        fs::read_dir(&root)?;
        Ok(Self(Arc::new(Inner { root, program, cgroups: false })))
    }

    /// The same, without cgroups.
    #[must_use]
    pub fn without_cgroups(self) -> Self {
        let Inner { root, program, .. } = &*self.0;
        let (root, program) = (root.clone(), program.clone());
        Self(Arc::new(Inner { root, program, cgroups: false }))
    }

    /// Starts a run, and returns when its program has been executed. The environment is the job's
    /// whole environment, but for [`RUN_VARIABLE`](super::RUN_VARIABLE).
    ///
    /// If the future is dropped the run may have begun; [`Spool::find`] tells.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs and nothing is left in the spool.
    pub async fn start(
        &self,
        name: &RunName,
        spec: &JobSpec,
        env: &BTreeMap<String, String>,
    ) -> Result<Run, StartError> {
        let env = start::encode(env, spec)?;
        let job = JobFile::new(spec, self.0.cgroups);
        let (spool, name) = (self.clone(), *name);
        let started = tokio::task::spawn_blocking(move || {
            let child = start::start(&spool.0.root, &spool.0.program, &name, &job, &env)?;
            Ok(Run::begun(spool, name, child))
        });
        started.await.map_err(|error| StartError::Runner(error.to_string()))?
    }

    /// What there is of a run. To be called in a Tokio runtime.
    ///
    /// # Errors
    /// That its folder can't be read: [`io::ErrorKind::InvalidData`] if a file in it is broken or
    /// of a newer version.
    pub fn find(&self, name: &RunName) -> io::Result<Found> {
        let Some(folder) = self.folder(name)? else { return Ok(Found::Absent) };
        if lock::is_held(&folder)? {
            let runner = Facts::read(&folder)?.runner;
            return Ok(Found::Live(Run::found(self.clone(), *name, runner)));
        }
        // In this order: who lets go of the lock has written the outcome before.
        if let Some(outcome) = folder.read_json::<RunOutcome>(OUTCOME)? {
            return Ok(Found::Finished(outcome));
        }
        Ok(Found::Lost(Lost::of(*name, folder)?))
    }

    /// The folder in which the program lies that is a runner, if that is known.
    pub(crate) fn program_folder(&self) -> Option<&Path> {
        Path::new(self.0.program.shown_as.as_ref()?).parent()
    }

    /// The names of all runs that have a folder.
    ///
    /// # Errors
    /// That the spool can't be read.
    pub fn list(&self) -> io::Result<Vec<RunName>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0.root)? {
            let name = entry?.file_name();
            names.extend(name.to_str().and_then(|name| name.parse::<RunName>().ok()));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes a run's folder, if there is one.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if it runs; else that the folder can't be removed.
    pub fn remove(&self, name: &RunName) -> io::Result<()> {
        self.remove_folder(&name.to_string())
    }

    /// Removes every run of these tasks. A run that has not ended stays, and so does what can't be
    /// removed.
    ///
    /// # Errors
    /// That the spool can't be read, or the first folder that can't be removed.
    pub fn remove_tasks(&self, tasks: &[TaskId]) -> io::Result<()> {
        let mut result = Ok(());
        if tasks.len() < LOOKED_FOR {
            // What each plain call comes to must not grow with all that is kept.
            for task in tasks {
                for attempt in 1..=MAX_ATTEMPTS {
                    result = result.and(self.remove(&RunName { task: *task, attempt }));
                }
            }
            return result;
        }
        let tasks: HashSet<&TaskId> = tasks.iter().collect();
        for name in self.list()?.iter().filter(|name| tasks.contains(&name.task)) {
            result = result.and(self.remove(name));
        }
        result
    }

    /// What is kept of a run's output so far.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such run; else that its folder can't be read.
    pub fn output(&self, name: &RunName) -> io::Result<Output> {
        let folder = self.folder(name)?.ok_or(io::ErrorKind::NotFound)?;
        let job = folder.read_json::<JobFile>(JOB)?.ok_or(io::ErrorKind::NotFound)?;
        output::read(&folder, &job, folder.read_json::<RunOutcome>(OUTCOME)?.as_ref())
    }

    /// A part of the log of a run: what both streams have printed so far, in the order in which it
    /// came. None if there is no such run, or nothing has run. It grows at its end until the run
    /// has ended.
    ///
    /// # Errors
    /// That its folder can't be read.
    pub fn read_log(&self, name: &RunName, range: LogRange) -> io::Result<Option<LogPart>> {
        let Some(folder) = self.folder(name)? else { return Ok(None) };
        // In this order: when nobody holds the lock any more, the log has all that it ever will.
        let ended = !lock::is_held(&folder)?;
        let mut log = match folder.file(LOG) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            log => log?,
        };
        let size = log.metadata()?.len();
        let from = match u64::try_from(range.from) {
            Ok(from) => from.min(size),
            Err(_) => size.saturating_sub(range.from.unsigned_abs()),
        };
        let mut bytes = Vec::new();
        log.seek(io::SeekFrom::Start(from))?;
        log.take((size - from).min(range.max as u64)).read_to_end(&mut bytes)?;
        Ok(Some(LogPart { from, bytes, size, ended, in_result: false }))
    }

    /// A run's folder; none if there is none.
    pub(super) fn folder(&self, name: &RunName) -> io::Result<Option<Folder>> {
        match Folder::open(&self.0.root.join(name.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            folder => folder.map(Some),
        }
    }

    fn remove_folder(&self, name: &str) -> io::Result<()> {
        let path = self.0.root.join(name);
        let folder = match Folder::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => folder?,
        };
        if lock::take(&folder)?.is_none() {
            let what = format!("the run in {name} has not ended; stop it first");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        // First out of sight, so that nobody finds half of it.
        let bare = name.trim_start_matches(BEGUN).trim_start_matches(REMOVED);
        let removed = self.0.root.join(format!("{REMOVED}{bare}"));
        if path != removed {
            if removed.exists() {
                fs::remove_dir_all(&removed)?;
            }
            fs::rename(&path, &removed)?;
        }
        fs::remove_dir_all(&removed)
    }

    /// Removes what was not begun, or not removed, to its end.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.0.root)? {
            let name = entry?.file_name();
            let half_done = |name: &&str| name.starts_with(BEGUN) || name.starts_with(REMOVED);
            if let Some(name) = name.to_str().filter(half_done)
                && let Err(error) = self.remove_folder(name)
                && error.kind() != io::ErrorKind::ResourceBusy
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

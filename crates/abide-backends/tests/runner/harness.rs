//! Starts runs in a spool of their own, and waits for conditions.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use abide_backends::runner::{
    Captured, DEFAULT_MAX_LOG_BYTES, Ended, Found, JobSpec, Lost, Program, Run, RunName,
    RunOutcome, Spool,
};
use abide_core::{TaskId, Timestamp};

/// The argument with which this program is a runner.
pub(crate) const RUNNER: &str = "runner";
/// How long a test waits for something that has to happen, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than any test waits.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The name of a run that nobody else has, on the whole machine: processes are recognised by it.
pub(crate) fn fresh_name() -> RunName {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let mut unique = [0; TaskId::RANDOM_LEN];
    unique[..4].copy_from_slice(&std::process::id().to_be_bytes());
    unique[4..8].copy_from_slice(&LAST.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    RunName { task: TaskId::new(Timestamp::from_millis(1), unique), attempt: 1 }
}

/// Opens a spool whose runners are this program.
pub(crate) fn open(root: &Path) -> Spool {
    Spool::open(root, Program::this([RUNNER]).unwrap()).unwrap()
}

/// A job that is a shell script.
pub(crate) fn script(text: &str) -> JobSpec {
    JobSpec {
        argv: ["sh", "-c", text].map(str::to_owned).into(),
        cwd: None,
        kill_grace: NEVER,
        max_output_bytes: 1024 * 1024,
        max_log_bytes: DEFAULT_MAX_LOG_BYTES,
        secrets: Default::default(),
    }
}

/// What a job needs to find its programs.
pub(crate) fn env() -> BTreeMap<String, String> {
    BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())])
}

/// A spool in a directory of its own, in which its jobs run too.
pub(crate) struct Place {
    pub(crate) spool: Spool,
    /// The name of its first run.
    pub(crate) name: RunName,
    directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let spool = open(&directory.path().join("spool"));
        Self { spool, name: fresh_name(), directory }
    }

    /// One with cgroups, if there are any, and one without.
    pub(crate) fn both() -> [Self; 2] {
        let mut without = Self::new();
        without.spool = without.spool.without_cgroups();
        [Self::new(), without]
    }

    /// A file in the directory in which jobs run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The spool's directory.
    pub(crate) fn root(&self) -> PathBuf {
        self.file("spool")
    }

    /// A file in a run's folder.
    pub(crate) fn in_run(&self, run: &RunName, name: &str) -> PathBuf {
        self.root().join(run.to_string()).join(name)
    }

    /// Starts a job as the first run.
    pub(crate) async fn start(&self, mut job: JobSpec) -> Run {
        job.cwd = Some(self.directory.path().to_owned());
        within(self.spool.start(&self.name, &job, &env())).await.unwrap()
    }

    /// Runs a job to its end.
    pub(crate) async fn run(&self, job: JobSpec) -> (RunOutcome, abide_backends::runner::Output) {
        let run = self.start(job).await;
        let outcome = finished(&run).await;
        (outcome, run.output().unwrap())
    }

    /// The process that a script has written into a file.
    pub(crate) async fn pid(&self, file: &str) -> i32 {
        pid_in(&self.file(file)).await
    }

    /// The runner of a run.
    pub(crate) fn runner(&self, run: &RunName) -> i32 {
        let lock = fs::read_to_string(self.in_run(run, "lock")).unwrap();
        let line = lock.lines().find_map(|line| line.strip_prefix("runner ")).unwrap();
        line.split(' ').next().unwrap().parse().unwrap()
    }
}

/// Waits for a run that has an outcome.
pub(crate) async fn finished(run: &Run) -> RunOutcome {
    match within(run.wait()).await.unwrap() {
        Ended::Finished(outcome) => outcome,
        Ended::Lost(lost) => panic!("{lost:?}"),
    }
}

/// A run that lives.
#[track_caller]
pub(crate) fn live(spool: &Spool, name: &RunName) -> Run {
    match spool.find(name).unwrap() {
        Found::Live(run) => run,
        other => panic!("{other:?}"),
    }
}

/// A run that is lost.
#[track_caller]
pub(crate) fn lost(spool: &Spool, name: &RunName) -> Lost {
    match spool.find(name).unwrap() {
        Found::Lost(lost) => lost,
        other => panic!("{other:?}"),
    }
}

/// A stream of which nothing was left out, as text.
#[track_caller]
pub(crate) fn whole(captured: &Captured) -> &str {
    assert!(captured.tail.is_none() && captured.lost == 0, "not whole: {} bytes", captured.total);
    assert_eq!(captured.head.len() as u64, captured.total);
    std::str::from_utf8(&captured.head).unwrap()
}

/// Waits for a future, with a bound.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it never ended")
}

/// Waits until a condition holds.
pub(crate) async fn until<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    within(async {
        loop {
            if let Some(value) = condition() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Waits until a script has written a process id, and a line break, into the file.
pub(crate) async fn pid_in(file: &Path) -> i32 {
    until(|| fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()).await
}

/// Whether the process runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

/// Sends a signal.
pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A line of `/proc/PID/status`, in kB.
pub(crate) fn memory(pid: i32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(':')).unwrap();
    value.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

//! How a run ended, which is also the format of `outcome.json`.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

use super::folder::{VERSION, Versioned};

/// How a run ended. By then nothing of it runs any more, but for what [`RunOutcome::unkillable`]
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// The version of the file's format.
    version: u32,
    /// How the job's first process ended; none if the run was stopped before there was one.
    pub exit: Option<Exit>,
    /// When the job was started, in milliseconds since the Unix epoch.
    pub started_ms: i64,
    /// When the last of its processes was gone, in milliseconds since the Unix epoch.
    pub ended_ms: i64,
    /// If the run was told to stop before the job had exited, by [`Run::stop`](super::Run::stop)
    /// or by anybody else's SIGTERM to the runner.
    #[serde(default)]
    pub stopped: Option<Stopped>,
    /// How many processes the job had left behind, and that were stopped, when it exited by
    /// itself.
    #[serde(default)]
    pub left_behind: u32,
    /// How many of these could not be killed: they hang in the kernel, or belong to another user.
    #[serde(default)]
    pub unkillable: u32,
    /// What was printed on standard output.
    pub stdout: StreamSizes,
    /// What was printed on standard error.
    pub stderr: StreamSizes,
    /// Both together.
    pub log: LogSizes,
    /// The first error that writing to the spool met, in words. Output that got lost by it is
    /// counted in the sizes.
    #[serde(default)]
    pub spool_error: Option<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// How a run was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stopped {
    /// Whether something was still there when the grace was over, and got SIGKILL.
    #[serde(default)]
    pub killed: bool,
}

/// The sizes of one stream, after secrets have been replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSizes {
    /// Bytes in all.
    pub total: u64,
    /// How many of these could not be written, because the disk was full or broken.
    #[serde(default)]
    pub lost: u64,
}

/// The size of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogSizes {
    /// Bytes of output that the log has, the mark at the cut left out.
    pub kept: u64,
    /// Whether it was cut at its limit.
    #[serde(default)]
    pub cut: bool,
    /// How many bytes below the limit could not be written.
    #[serde(default)]
    pub lost: u64,
}

impl RunOutcome {
    /// The outcome of a run in which nothing happened yet, to be filled.
    pub(super) const fn empty(started_ms: i64) -> Self {
        Self {
            version: VERSION,
            exit: None,
            started_ms,
            ended_ms: started_ms,
            stopped: None,
            left_behind: 0,
            unkillable: 0,
            stdout: StreamSizes { total: 0, lost: 0 },
            stderr: StreamSizes { total: 0, lost: 0 },
            log: LogSizes { kept: 0, cut: false, lost: 0 },
            spool_error: None,
        }
    }
}

impl Exit {
    /// The form that the standard library has for it.
    #[must_use]
    pub fn status(self) -> ExitStatus {
        // wait(2): the code is in the second byte, a signal in the first.
        ExitStatus::from_raw(match self {
            Self::Code(code) => (code & 0xff) << 8,
            Self::Signal(signal) => signal & 0x7f,
        })
    }
}

impl Versioned for RunOutcome {
    fn version(&self) -> u32 {
        self.version
    }
}

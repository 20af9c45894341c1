//! What a run is to do, and `job.json`, in which it is written down.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::folder::{VERSION, Versioned};
use super::{clock, proc};

/// Bytes of the log that are kept, unless the spec says otherwise.
pub const DEFAULT_MAX_LOG_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of a job's environment, names and values with a byte each for `=` and the end. Linux
/// allows less for it and the command line together.
pub const MAX_ENV_BYTES: usize = 4 * 1024 * 1024;

/// What to run. Its environment is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it runs; the server's working directory if none.
    pub cwd: Option<PathBuf>,
    /// How long it has between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// How many bytes of standard output, and as many of standard error, are kept: the first half
    /// and the last half.
    pub max_output_bytes: usize,
    /// How many bytes of both together, in the order in which they came, are kept in the log.
    pub max_log_bytes: u64,
    /// The names of the variables whose values are replaced in everything that is kept.
    pub secrets: BTreeSet<String>,
}

/// `job.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobFile {
    pub(super) version: u32,
    /// The version of abide that wrote it, for people.
    pub(super) written_by: String,
    /// When, in milliseconds since the Unix epoch.
    pub(super) created_ms: i64,
    /// Which run of the kernel this belongs to.
    pub(super) boot_id: String,
    pub(super) argv: Vec<String>,
    #[serde(default)]
    pub(super) cwd: Option<PathBuf>,
    pub(super) kill_grace_ms: u64,
    pub(super) max_output_bytes: usize,
    pub(super) max_log_bytes: u64,
    #[serde(default)]
    pub(super) secrets: BTreeSet<String>,
    /// Whether the job may get a cgroup of its own.
    #[serde(default)]
    pub(super) cgroup: bool,
}

impl JobFile {
    pub(super) fn new(spec: &JobSpec, cgroup: bool) -> Self {
        Self {
            version: VERSION,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            created_ms: clock::now_ms(),
            boot_id: proc::boot_id(),
            argv: spec.argv.clone(),
            cwd: spec.cwd.clone(),
            kill_grace_ms: u64::try_from(spec.kill_grace.as_millis()).unwrap_or(u64::MAX),
            max_output_bytes: spec.max_output_bytes,
            max_log_bytes: spec.max_log_bytes,
            secrets: spec.secrets.clone(),
            cgroup,
        }
    }

    pub(super) const fn kill_grace(&self) -> Duration {
        Duration::from_millis(self.kill_grace_ms)
    }

    /// Bytes of the first and of the last part of a stream.
    pub(super) const fn parts(&self) -> (u64, u64) {
        let first = self.max_output_bytes / 2;
        (first as u64, (self.max_output_bytes - first) as u64)
    }
}

impl Versioned for JobFile {
    fn version(&self) -> u32 {
        self.version
    }
}

//! The servers that are tortured: built, started, killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::http::Http;
use crate::run::{cargo, command, show};

/// How long a server may take to say where it listens.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(3);

/// A build that is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Broken {
    /// Commits are not synced.
    Fsync,
    /// Stale workers may write.
    Fencing,
}

/// The programs of one build.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) abide: PathBuf,
    /// `examples/torture_server.rs` of the server's crate.
    pub(super) handlers: PathBuf,
}

/// Builds the programs with the points at which they die, and puts copies of them away, since other
/// builds go to the same place.
pub(super) fn build(broken: Option<Broken>) -> Result<Programs> {
    let (name, feature) = match broken {
        None => ("good", ""),
        Some(Broken::Fsync) => ("broken-fsync", ",abide-store/broken-fsync"),
        Some(Broken::Fencing) => ("broken-fencing", ",abide-core/broken-fencing"),
    };
    println!("building the {name} programs");
    let mut features = "abide-store/torture,abide-engine/torture,abide-backends/torture".to_owned();
    features.push_str(feature);
    // Both at once, so that they share what they are made of.
    let packages = ["build", "-p", "abide-cli", "-p", "abide-server", "-p", "abide-store"];
    let more = ["-p", "abide-engine", "-p", "abide-backends", "-p", "abide-core"];
    let what = ["--bin", "abide", "--example", "torture_server", "--features", &features];
    show(cargo(&packages).args(more).args(what))?;
    let target = target_folder();
    let folder = target.join("torture").join(name);
    fs::create_dir_all(&folder)?;
    let put = |from: PathBuf| -> Result<PathBuf> {
        let to = folder.join(from.file_name().context("a name")?);
        // The old one may be running.
        let _ = fs::remove_file(&to);
        fs::copy(&from, &to).with_context(|| format!("can't copy {}", from.display()))?;
        Ok(to)
    };
    Ok(Programs {
        abide: put(target.join("debug/abide"))?,
        handlers: put(target.join("debug/examples/torture_server"))?,
    })
}

fn target_folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from)
}

/// A running server. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program; both its outputs go to the file `log`.
    pub(super) fn spawn(
        program: &Path,
        arguments: &[&str],
        points: &str,
        log: &Path,
    ) -> Result<Self> {
        let file = File::create(log).context("can't write a log")?;
        let mut command: Command = command(program, arguments);
        let child = command
            .env("ABIDE_TORTURE", points)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("can't start {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Waits until it says where it listens; none if it is gone before that.
    ///
    /// # Errors
    /// It says nothing.
    pub(super) fn http(&mut self) -> Result<Option<Http>> {
        let began = Instant::now();
        while began.elapsed() < START_PATIENCE {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            let url = text.find("http://").and_then(|at| text[at..].split_inclusive("/mcp").next());
            if let Some(http) = url.and_then(Http::new) {
                return Ok(Some(http));
            }
            if self.has_ended() {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
        bail!("a server said nothing for {} s; its log: {}", began.elapsed().as_secs(), self.tail())
    }

    /// The end of its log.
    pub(super) fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    pub(super) fn signal(&self, signal: &str) {
        send(signal, self.child.id());
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended by itself, or for so long; says which.
    pub(super) fn ends_within(&mut self, patience: Duration) -> bool {
        let began = Instant::now();
        while !self.has_ended() {
            if began.elapsed() >= patience {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Kills it, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal by its name; that the process is gone is no failure.
pub(super) fn send(signal: &str, pid: u32) {
    let mut kill = command("kill", &[&format!("-{signal}"), &pid.to_string()]);
    let _ = kill.stderr(Stdio::null()).status();
}

/// Whether a process runs and has this in its environment; one that is only not reaped yet does
/// not run.
pub(super) fn runs_with(pid: u32, part: &str) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    !environ.is_empty() && String::from_utf8_lossy(&environ).contains(part)
}

/// The processes that have this in their environment.
pub(super) fn all_with(part: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| runs_with(*pid, part))
        .collect()
}

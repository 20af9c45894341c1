//! The servers that are tortured: built, started, killed.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

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

impl Broken {
    /// The losses that must come of it.
    pub(super) const fn expected(self) -> &'static [&'static str] {
        match self {
            Self::Fsync => &["lost handles", "lost updates", "lost cancels"],
            Self::Fencing => &["stale writes"],
        }
    }
}

/// How a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Killed by itself, at a point in the code; or by us.
    Killed,
    /// As it was told to.
    Stopped,
    /// It has crashed.
    Crashed(ExitStatus),
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

    pub(super) fn signal(&self, signal: Signal) {
        send(signal, self.child.id());
    }

    /// How it has ended; none while it runs.
    ///
    /// # Errors
    /// The system doesn't know.
    pub(super) fn end(&mut self) -> Result<Option<End>> {
        Ok(self.child.try_wait()?.map(|status| match (status.success(), status.signal()) {
            (true, _) => End::Stopped,
            (false, Some(signal)) if signal == Signal::KILL.as_raw() => End::Killed,
            _ => End::Crashed(status),
        }))
    }

    fn has_ended(&mut self) -> bool {
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

/// Sends a signal; that the process is gone is no failure.
pub(super) fn send(signal: Signal, pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// A process's environment, with a NUL after each variable; empty once it does not run any more,
/// even if it is not reaped yet.
fn environment(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A process's command line, with spaces between the words.
pub(super) fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Whether a process runs and has this variable in its environment.
pub(super) fn runs_with(pid: u32, variable: &str) -> bool {
    environment(pid).split('\0').any(|one| one == variable)
}

/// A variable of a process's environment.
pub(super) fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = environment(pid);
    let value = |one: &str| one.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
    environment.split('\0').find_map(value)
}

/// All processes of the machine.
pub(super) fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

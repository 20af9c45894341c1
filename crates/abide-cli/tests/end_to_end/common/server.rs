//! The real program as a server: started, asked, stopped, killed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use rustix::process::Signal;

use super::logs::{Logs, finished};
use super::{Http, eventually, signal_process};

/// The program with these arguments, and none of its variables in the environment.
pub(crate) fn abide<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    abide_at(Path::new(env!("CARGO_BIN_EXE_abide")), arguments)
}

/// The same for a copy of the program.
#[expect(clippy::disallowed_methods, reason = "these tests start the program itself")]
fn abide_at<S: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ABIDE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A server over HTTP. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    reader: Option<JoinHandle<()>>,
    pub(crate) logs: Logs,
    pub(crate) http: Http,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) logs: String,
}

impl Ended {
    /// Asserts exit code 0.
    #[track_caller]
    pub(crate) fn well(&self) {
        assert_eq!(self.status.code(), Some(0), "{}", self.logs);
    }
}

impl Server {
    /// Starts a server and waits until it serves.
    pub(crate) async fn start(config: &Path) -> Self {
        Self::start_with(config, &[]).await
    }

    /// The same with more arguments.
    pub(crate) async fn start_with(config: &Path, arguments: &[&str]) -> Self {
        let mut server = Self::spawn(config, arguments);
        let url = server.logs.url().await;
        server.http = Http::new(&url);
        server
    }

    /// Starts a server and does not wait for it; its `http` leads nowhere yet.
    pub(crate) fn spawn(config: &Path, arguments: &[&str]) -> Self {
        let mut command = abide([OsStr::new("serve"), config.as_os_str()]);
        command.args(["--log-format", "json"]).args(arguments);
        Self::run(command)
    }

    /// Starts a server with these variables in its environment, and waits until it serves.
    pub(crate) async fn start_in(config: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = abide([OsStr::new("serve"), config.as_os_str()]);
        command.args(["--log-format", "json"]).envs(variables.iter().copied());
        let mut server = Self::run(command);
        let url = server.logs.url().await;
        server.http = Http::new(&url);
        server
    }

    /// Starts a copy of the program and waits until it serves.
    pub(crate) async fn start_copy(program: &Path, config: &Path) -> Self {
        let mut command = abide_at(program, [OsStr::new("serve"), config.as_os_str()]);
        command.args(["--log-format", "json"]);
        let mut server = Self::run(command);
        let url = server.logs.url().await;
        server.http = Http::new(&url);
        server
    }

    fn run(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let (logs, reader) = Logs::read(child.stderr.take().expect("a pipe"));
        Self { child, reader: Some(reader), logs, http: Http::new("http://127.0.0.1:1/mcp") }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_process(self.pid(), signal);
    }

    /// Kills it without a word, and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        exit(&mut self.child).await;
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(mut self) -> Ended {
        let status = exit(&mut self.child).await;
        if let Some(reader) = self.reader.take() {
            finished(reader).await;
        }
        Ended { status, logs: self.logs.text() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program that ends by itself, and takes what it said on standard error.
pub(crate) async fn ended(command: Command) -> Ended {
    Server::run(command).ended().await
}

/// Waits for the end of a child.
pub(crate) async fn exit(child: &mut Child) -> ExitStatus {
    eventually("the process ends", async || child.try_wait().expect("a child of ours")).await
}

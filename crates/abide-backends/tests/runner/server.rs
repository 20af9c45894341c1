//! A server to be killed: starts a run and does nothing else.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use abide_backends::runner::RunName;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::harness::{env, open, runtime, script, within};

/// The argument with which this program is such a server.
pub(crate) const ROLE: &str = "server";

/// Starts a script as a run, says so, and waits to be killed.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.into_string().unwrap()).collect();
    let [root, name, directory, text] = &args[..] else { panic!("{args:?}") };
    let mut job = script(text);
    job.cwd = Some(directory.into());
    runtime().block_on(async {
        let name: RunName = name.parse().unwrap();
        let run = open(Path::new(root)).start(&name, &job, &env()).await.unwrap();
        let mut out = std::io::stdout();
        writeln!(out, "started").and_then(|()| out.flush()).unwrap();
        run.wait().await.unwrap();
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

/// The command line of such a server. Its standard output is where it says that the run has
/// started.
pub(crate) fn command(root: &Path, name: &RunName, directory: &Path, text: &str) -> Vec<OsString> {
    let exe = std::env::current_exe().unwrap();
    let name = name.to_string();
    [
        exe.as_os_str(),
        ROLE.as_ref(),
        root.as_os_str(),
        name.as_ref(),
        directory.as_os_str(),
        text.as_ref(),
    ]
    .map(ToOwned::to_owned)
    .into()
}

/// Starts a command whose standard output is read.
#[expect(clippy::disallowed_methods, reason = "the child is this program itself")]
pub(crate) fn spawn(command: &[OsString]) -> Child {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the server has started its run.
pub(crate) async fn has_started(server: &mut Child) {
    let stdout = tokio::process::ChildStdout::from_std(server.stdout.take().unwrap()).unwrap();
    let line = within(BufReader::new(stdout).lines().next_line()).await.unwrap();
    assert_eq!(line.as_deref(), Some("started"));
}

//! The server under test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::run::{cargo, command, output};

/// How long the server may take to say where it listens.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What it says then, on standard output.
const LISTENING: &str = "listening on ";
/// Bytes of its log that are shown when it is gone.
const LOG_TAIL: usize = 4_000;

/// A server, and its process if it is ours; that is killed in the end.
pub(super) struct Server {
    url: String,
    process: Option<(Child, PathBuf)>,
}

impl Server {
    /// A server that somebody else started.
    pub(super) fn running(url: &str) -> Self {
        Self { url: url.to_owned(), process: None }
    }

    /// Builds and starts the fixture server.
    pub(super) fn start(log: &Path) -> Result<Self> {
        let program = build().context("can't build the fixture server")?;
        Self::start_program(&mut command(program, &[]), log, START_TIMEOUT)
    }

    fn start_program(command: &mut Command, log: &Path, timeout: Duration) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log).context("can't write the server's log")?)
            .spawn()
            .context("can't start the fixture server")?;
        let stdout = child.stdout.take();
        let mut server = Self { url: String::new(), process: Some((child, log.to_owned())) };
        let (sender, receiver) = mpsc::channel();
        // Reads on to the end, so that the server never blocks on a full pipe.
        thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
                if let Some(url) = line.ok().as_deref().and_then(|l| l.strip_prefix(LISTENING)) {
                    let _ = sender.send(url.trim().to_owned());
                }
            }
        });
        match receiver.recv_timeout(timeout) {
            Ok(url) => server.url = url,
            Err(mpsc::RecvTimeoutError::Timeout) => bail!(
                "the fixture server did not print `{LISTENING}URL` within {} s\n{}",
                timeout.as_secs(),
                tail(log)
            ),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                bail!("the fixture server ended before it printed `{LISTENING}URL`\n{}", tail(log))
            }
        }
        Ok(server)
    }

    /// Where it listens.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the process is still there.
    ///
    /// # Errors
    /// It has ended; shows the end of its log.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some((child, log)) = &mut self.process else { return Ok(()) };
        match child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                Err(anyhow!("the server ended during the run, with {status}\n{}", tail(log)))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.process {
            // Fails only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let from = text.len().saturating_sub(LOG_TAIL);
    String::from_utf8_lossy(&text[from..]).into_owned()
}

/// Builds the example and finds where cargo put it.
fn build() -> Result<PathBuf> {
    let messages = output(&mut cargo(&[
        "build",
        "--package",
        "abide-server",
        "--example",
        "conformance_server",
        "--message-format",
        "json-render-diagnostics",
    ]))?;
    executable(&messages).context("cargo named no executable")
}

fn executable(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| {
            let wanted = message["target"]["name"] == "conformance_server";
            message["executable"].as_str().filter(|_| wanted).map(PathBuf::from)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, timeout: Duration) -> Result<Server> {
        let name = format!("xtask-server-{}-{}.log", std::process::id(), script.len());
        let log = std::env::temp_dir().join(name);
        let server = Server::start_program(&mut command("sh", &["-c", script]), &log, timeout);
        let _ = fs::remove_file(log);
        server
    }

    #[test]
    fn a_server_is_waited_for_and_killed() {
        let script = "echo hello; echo 'listening on http://127.0.0.1:1/mcp'; exec sleep 1000";
        let mut server = start(script, START_TIMEOUT).unwrap();
        assert_eq!(server.url(), "http://127.0.0.1:1/mcp");
        server.check().unwrap();
        let id = server.process.as_ref().unwrap().0.id().to_string();
        drop(server);
        assert!(!Path::new("/proc").join(id).exists());
    }

    #[test]
    fn a_server_that_dies_or_says_nothing_is_an_error() {
        let died = start("echo oops >&2; exit 3", START_TIMEOUT).err().unwrap().to_string();
        assert!(died.contains("ended before") && died.contains("oops"), "{died}");
        let silent = start("exec sleep 1000", Duration::from_millis(10)).err().unwrap().to_string();
        assert!(silent.contains("did not print"), "{silent}");
    }

    #[test]
    fn the_executable_is_found_among_cargos_messages() {
        let messages = concat!(
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"x\"},\"executable\":\"/x\"}\n",
            "{\"target\":{\"name\":\"conformance_server\"},\"executable\":\"/y\"}\n",
        );
        assert_eq!(executable(messages), Some(PathBuf::from("/y")));
        assert_eq!(executable("not json\n"), None);
    }
}

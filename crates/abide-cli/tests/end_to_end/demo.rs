//! `abide demo`: what it prints to be tried is run by a shell as it stands.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{abide, alive, say, signal_process, until};

/// A line of the guide that comes after all that is tried here.
const LAST: &str = "claude_desktop_config.json";

/// A demo whose guide was read. Dropped, it is killed.
struct Demo {
    child: Child,
    /// Open, since a demo that prints to nobody would be another case.
    _output: BufReader<ChildStdout>,
    guide: String,
    pid: u32,
}

impl Demo {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut guide = String::new();
        while !guide.contains(LAST) {
            assert_ne!(output.read_line(&mut guide).expect("readable"), 0, "{guide}");
        }
        let pid = lines_after(&guide, "the work has gone on.")[0]
            .strip_prefix("kill -9 ")
            .and_then(|pid| pid.parse().ok())
            .expect("its process id");
        Self { child, _output: output, guide, pid }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        signal_process(self.pid, Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The block of lines after the heading that ends like this.
fn lines_after<'a>(guide: &'a str, heading: &str) -> Vec<&'a str> {
    guide
        .lines()
        .skip_while(|line| !line.ends_with(heading))
        .skip(2)
        .take_while(|line| !line.is_empty())
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "people paste into a shell")]
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Runs lines and gives what they print.
fn paste(script: &str) -> String {
    let mut child = shell(script).stdout(Stdio::piped()).spawn().expect("sh is there");
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    assert!(child.wait().expect("ended").success(), "{script}\n{out}");
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_demo_prints_works_as_printed() {
    if !shell("command -v curl > /dev/null").status().is_ok_and(|status| status.success()) {
        say("\n*** the demo's commands DID NOT RUN: curl is not installed here ***");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = abide(["demo", "--listen", "127.0.0.1:0"]);
    command.env("TMPDIR", folder.path());
    let first = Demo::start(command);
    assert_eq!(first.pid, first.child.id());

    let create = lines_after(&first.guide, "and keep its handle:").join("\n");
    let id = paste(&create).trim().to_owned();
    assert_eq!(id.len(), 39, "{id:?}\n{}", first.guide);
    let poll = lines_after(&first.guide, "as often as you like:").join("\n");
    let poll = || -> Value {
        let said = paste(&format!("TASK={id}\n{poll}"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    };
    let polled = poll();
    assert_eq!(polled["result"]["taskId"], id, "{polled}");
    assert_eq!(polled["result"]["status"], "working", "{polled}");

    let again = lines_after(&first.guide, "the work has gone on.");
    let [kill, again] = again[..] else { panic!("{}", first.guide) };
    paste(kill);
    until("the demo is gone", || !alive(first.pid)).await;
    let second = Demo::start(shell(again));
    let polled = poll();
    assert_eq!(polled["result"]["taskId"], id, "{polled}");
    // The work has gone on meanwhile, and says so.
    assert_eq!(polled["result"]["status"], "working", "{polled}");
    until("it says how far it is", || {
        poll()["result"]["statusMessage"]
            .as_str()
            .is_some_and(|said| said.ends_with("seconds left"))
    })
    .await;
    assert_ne!(second.pid, first.pid);
    // And a new one can be made under the old address.
    assert_eq!(paste(&create).trim().len(), 39);
    drop(second);
}

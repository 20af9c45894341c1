//! The real program over standard input and output.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio as Pipe};
use std::thread::JoinHandle;

use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::mpsc;

use super::logs::{Logs, finished};
use super::server::{Ended, abide, exit};
use super::{Declares, eventually, is_terminal, request, signal_process, task, within};

/// One session. Dropped, the process is killed.
#[derive(Debug)]
pub(crate) struct Stdio {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<Vec<u8>>,
    reader: Option<JoinHandle<()>>,
    pub(crate) logs: Logs,
    next: u64,
    /// Answers that came while another was waited for.
    aside: Vec<Value>,
}

impl Stdio {
    /// Starts `abide serve CONFIG --stdio`.
    pub(crate) fn start(config: &Path) -> Self {
        let mut command = abide(["serve"]);
        command.arg(config).args(["--stdio", "--log-format", "json"]);
        Self::run(command)
    }

    /// Starts a program that speaks the protocol over its standard input and output.
    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Pipe::piped()).stdout(Pipe::piped()).stderr(Pipe::piped());
        let mut child = command.spawn().expect("the program starts");
        let (logs, reader) = Logs::read(child.stderr.take().expect("a pipe"));
        let output = child.stdout.take().expect("a pipe");
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, reader: Some(reader), logs, next: 1, aside: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_process(self.pid(), signal);
    }

    /// Sends one line as it is.
    pub(crate) fn line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("input is open");
        input.write_all(format!("{line}\n").as_bytes()).expect("sent");
    }

    /// Sends a request without waiting; gives its id.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.line(&request(id, method, params));
        id
    }

    /// The next line, which has to be a message of the protocol; none at the end.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        let line = within("a line", self.lines.recv()).await?;
        let message: Value = serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&line)));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        Some(message)
    }

    /// The answer to a request.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        let is_it = |message: &Value| message.get("method").is_none() && message["id"] == id;
        if let Some(at) = self.aside.iter().position(is_it) {
            return self.aside.remove(at);
        }
        loop {
            let Some(message) = self.message().await else {
                panic!("ended before {id} was answered:\n{}", self.logs.text())
            };
            if is_it(&message) {
                return message;
            }
            self.aside.push(message);
        }
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer(id).await
    }

    /// Calls a tool.
    pub(crate) async fn call(
        &mut self,
        declares: Declares,
        tool: &str,
        arguments: &Value,
    ) -> Value {
        self.ask("tools/call", &declares.call(tool, arguments)).await
    }

    /// Polls until the task has a terminal status.
    pub(crate) async fn end_of(&mut self, id: &str) -> Value {
        eventually("the task ends", async || {
            let answer = self.ask("tasks/get", &task(id)).await;
            let task = answer["result"].clone();
            task["status"].as_str().is_some_and(is_terminal).then_some(task)
        })
        .await
    }

    /// Ends the input.
    pub(crate) fn end_input(&mut self) {
        self.input = None;
    }

    /// Waits until the process has ended; gives what it still said.
    pub(crate) async fn ended(mut self) -> (Ended, Vec<Value>) {
        let mut messages = std::mem::take(&mut self.aside);
        while let Some(message) = self.message().await {
            messages.push(message);
        }
        let status = exit(&mut self.child).await;
        if let Some(reader) = self.reader.take() {
            finished(reader).await;
        }
        (Ended { status, logs: self.logs.text() }, messages)
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A client for standard input and output, over pipes in memory.

use std::sync::atomic::{AtomicI64, Ordering};

use abide_server::{Server, serve_stdio};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex,
};
use tokio_util::sync::CancellationToken;

use super::{request, within};

/// One session.
pub(crate) struct Stdio {
    input: Option<WriteHalf<DuplexStream>>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    /// Messages that came while another was waited for.
    aside: Vec<String>,
    next: AtomicI64,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
    pub(crate) stop: CancellationToken,
}

impl Stdio {
    pub(crate) fn start(server: Server) -> Self {
        let (client, theirs) = duplex(1 << 16);
        let (read, write) = tokio::io::split(client);
        let (input, output) = tokio::io::split(theirs);
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve_stdio(server, input, output, stop.clone()));
        Self {
            input: Some(write),
            lines: BufReader::new(read).lines(),
            aside: Vec::new(),
            next: AtomicI64::new(1),
            served,
            stop,
        }
    }

    /// Sends bytes as they are.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("input is open");
        within("the input is read", input.write_all(bytes)).await.expect("sent");
    }

    /// Sends one line.
    pub(crate) async fn line(&mut self, line: &str) {
        self.raw(format!("{line}\n").as_bytes()).await;
    }

    /// Sends a request without waiting; gives its id.
    pub(crate) async fn send(&mut self, method: &str, params: &Value) -> Value {
        let id = json!(self.next.fetch_add(1, Ordering::Relaxed));
        self.line(&request(&id, method, params)).await;
        id
    }

    /// Sends a notification.
    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        let line = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
        self.line(&line).await;
    }

    /// The next line; none at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        within("a line", self.lines.next_line()).await.expect("readable")
    }

    /// The answer to a request, as it was written.
    pub(crate) async fn answer(&mut self, id: &Value) -> String {
        let is_it = |line: &String| {
            let message: Value = serde_json::from_str(line).expect("every line is JSON");
            message.get("method").is_none() && &message["id"] == id
        };
        if let Some(at) = self.aside.iter().position(is_it) {
            return self.aside.remove(at);
        }
        loop {
            let line =
                self.next().await.unwrap_or_else(|| panic!("ended before {id} was answered"));
            if is_it(&line) {
                return line;
            }
            self.aside.push(line);
        }
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params).await;
        serde_json::from_str(&self.answer(&id).await).expect("JSON")
    }

    /// What came while answers were waited for.
    pub(crate) fn aside(&self) -> &[String] {
        &self.aside
    }

    /// Ends the input.
    pub(crate) async fn close(&mut self) {
        let mut input = self.input.take().expect("input is open");
        input.shutdown().await.expect("closed");
    }

    /// Ends the input, and gives all lines that still come.
    pub(crate) async fn end(mut self) -> Vec<String> {
        self.close().await;
        self.finish().await
    }

    /// The lines that still come, until the server has ended well.
    pub(crate) async fn finish(mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.aside);
        while let Some(line) = self.next().await {
            lines.push(line);
        }
        within("the server ends", &mut self.served).await.expect("no panic").expect("no error");
        lines
    }
}

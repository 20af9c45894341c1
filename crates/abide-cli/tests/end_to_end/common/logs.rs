//! What a process writes to standard error, line by line, while it runs.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::sync::watch;

use super::within;

/// The lines so far. Clones see the same.
#[derive(Debug, Clone)]
pub(crate) struct Logs(Arc<watch::Sender<Vec<String>>>);

impl Logs {
    /// Reads until the process and all that hold its pipe have ended.
    pub(crate) fn read(pipe: impl Read + Send + 'static) -> (Self, JoinHandle<()>) {
        let logs = Self(Arc::new(watch::Sender::new(Vec::new())));
        let lines = logs.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                lines.0.send_modify(|lines| lines.push(line));
            }
        });
        (logs, reader)
    }

    /// All lines so far.
    pub(crate) fn text(&self) -> String {
        self.0.borrow().join("\n")
    }

    /// Waits for a line with `part` in it.
    pub(crate) async fn line(&self, part: &str) -> String {
        self.find(part, |line| line.contains(part).then(|| line.to_owned())).await
    }

    /// Waits for the URL that a server that logs JSON says it serves.
    pub(crate) async fn url(&self) -> String {
        self.find("the server's url", |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "serving").then(|| line["url"].as_str().map(str::to_owned))?
        })
        .await
    }

    async fn find(&self, what: &str, pick: impl Fn(&str) -> Option<String>) -> String {
        let mut lines = self.0.subscribe();
        let find = async {
            loop {
                let found = lines.borrow_and_update().iter().find_map(|line| pick(line));
                if let Some(found) = found {
                    return found;
                }
                lines.changed().await.expect("the sender is here");
            }
        };
        tokio::time::timeout(super::PATIENCE, find)
            .await
            .unwrap_or_else(|_| panic!("{what}: not in\n{}", self.text()))
    }
}

/// Waits for a reader to have read everything.
pub(crate) async fn finished(reader: JoinHandle<()>) {
    let joined = tokio::task::spawn_blocking(move || reader.join());
    within("the end of standard error", joined).await.expect("no panic").expect("no panic");
}

//! Clients that create, poll, answer and cancel until their server is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::chance::Chance;
use super::http::Http;
use super::ledger::{Entry, Kind, Ledger};

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(8);

/// A tool, with its settings in the config if it is a command, and how its arguments are chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) settings: &'static str,
    /// What the command does besides, and for how many milliseconds it works at most.
    pub(super) how: &'static str,
    pub(super) millis: u64,
}

/// Shared by the clients and whoever kills.
pub(super) type Shared = Arc<Mutex<Ledger>>;

pub(super) fn locked(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts clients; they end when `over` is set or the server is gone.
pub(super) fn start(
    clients: u64,
    http: &Http,
    tools: &'static [Tool],
    ledger: &Shared,
    over: &Arc<AtomicBool>,
    chance: &mut Chance,
) -> Vec<JoinHandle<()>> {
    (0..clients)
        .map(|_| {
            let client = Client {
                http: http.clone(),
                tools,
                ledger: ledger.clone(),
                over: over.clone(),
                chance: chance.fork(),
                mine: Vec::new(),
            };
            thread::spawn(move || client.work())
        })
        .collect()
}

struct Client {
    http: Http,
    tools: &'static [Tool],
    ledger: Shared,
    over: Arc<AtomicBool>,
    chance: Chance,
    mine: Vec<String>,
}

impl Client {
    fn work(mut self) {
        while !self.over.load(Ordering::Relaxed) && self.step().is_some() {
            thread::sleep(PAUSE);
        }
    }

    /// None when the server is gone.
    fn step(&mut self) -> Option<()> {
        let choice = self.chance.below(100);
        if choice < 40 || self.mine.is_empty() {
            return self.create();
        }
        let known = if choice < 50 { locked(&self.ledger).open().to_vec() } else { Vec::new() };
        let of = if known.is_empty() { &self.mine } else { &known };
        let id = self.chance.pick(of)?.clone();
        if choice < 52 { self.cancel(&id) } else { self.poll(&id) }
    }

    fn create(&mut self) -> Option<()> {
        let tool = self.chance.pick(self.tools)?;
        let millis = self.chance.below(tool.millis + 1);
        let arguments = if tool.how.is_empty() {
            json!({ "ms": millis })
        } else {
            json!({ "seconds": format!("{}.{:03}", millis / 1000, millis % 1000), "how": tool.how })
        };
        let sent = Instant::now();
        let params = json!({ "name": tool.name, "arguments": arguments });
        let answer = self.http.ask("tools/call", tool.name, params).ok()?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        let result = &answer["result"];
        if result["resultType"] == "task" {
            locked(&self.ledger).created(tool.name, tool.kind, sent, result);
            self.mine.extend(result["taskId"].as_str().map(str::to_owned));
        }
        Some(())
    }

    fn poll(&mut self, id: &str) -> Option<()> {
        let answer = self.http.ask("tasks/get", id, json!({ "taskId": id })).ok()?;
        let open = locked(&self.ledger).polled(id, &answer);
        match open {
            None => self.mine.retain(|mine| mine != id),
            Some(task) => self.answer(id, &task)?,
        }
        Some(())
    }

    /// Answers what the task asks.
    fn answer(&mut self, id: &str, task: &Value) -> Option<()> {
        let Some((key, _)) = task["inputRequests"].as_object().and_then(|open| open.iter().next())
        else {
            return Some(());
        };
        let number = self.chance.below(1 << 40);
        let response = json!({ "action": "accept", "content": { "number": number } });
        let params = json!({ "taskId": id, "inputResponses": { key: response } });
        // Held, so that of two clients the one whose answer comes first is known.
        let mut ledger = locked(&self.ledger);
        let answer = self.http.ask("tasks/update", id, params).ok()?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        if answer["result"]["resultType"] == "complete" {
            ledger.answered(id, key, number);
        }
        Some(())
    }

    fn cancel(&self, id: &str) -> Option<()> {
        match locked(&self.ledger).entry_mut(id) {
            // The engine that was asked may not be the one that does the work.
            None | Some(Entry { kind: Kind::TakenOver, .. }) => return Some(()),
            Some(entry) => entry.cancel_sent |= entry.terminal.is_none(),
        }
        let answer = self.http.ask("tasks/cancel", id, json!({ "taskId": id })).ok()?;
        if answer.contains("\"result\"") {
            locked(&self.ledger).cancelled();
        }
        Some(())
    }
}

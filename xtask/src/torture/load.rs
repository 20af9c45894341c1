//! Clients that create, poll, answer and cancel until their server is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::chance::Chance;
use super::http::Http;
use super::ledger::Ledger;
use super::tools::{Kind, Tool};

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(8);
/// Longer than anything waits for it; bounded, in case a run is broken off.
const ENDLESS_MILLIS: u64 = 1_800_000;

/// Shared by the clients and whoever kills.
pub(super) type Shared = Arc<Mutex<Ledger>>;

pub(super) fn locked(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts clients; they end when `over` is set or the server is gone. They take up between them what
/// former ones have left: a task has one client at a time, which sees its answers in order.
pub(super) fn start(
    clients: u64,
    http: &Http,
    tools: &'static [Tool],
    ledger: &Shared,
    over: &Arc<AtomicBool>,
    chance: &mut Chance,
) -> Vec<JoinHandle<()>> {
    let left = locked(ledger).open().to_vec();
    (0..clients)
        .map(|number| {
            let mine = (0..).zip(&left).filter(|(at, _)| at % clients == number);
            let client = Client {
                http: http.clone(),
                tools,
                ledger: ledger.clone(),
                over: over.clone(),
                chance: chance.fork(),
                mine: mine.map(|(_, id)| id.clone()).collect(),
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
        let id = self.chance.pick(&self.mine)?.clone();
        if choice < 48 { self.cancel(&id) } else { self.poll(&id) }
    }

    fn create(&mut self) -> Option<()> {
        let tool = self.chance.pick(self.tools)?;
        let millis = tool.millis.map_or(ENDLESS_MILLIS, |most| self.chance.below(most + 1));
        let arguments = if tool.is_handler() {
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
            locked(&self.ledger).created(*tool, sent, result);
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
        let Some((key, request)) =
            task["inputRequests"].as_object().and_then(|open| open.iter().next())
        else {
            return Some(());
        };
        let fields = request["params"]["requestedSchema"]["properties"].as_object();
        let Some(field) = fields.and_then(|fields| fields.keys().next()) else { return Some(()) };
        let number = self.chance.below(1 << 40);
        let response = json!({ "action": "accept", "content": { field: number } });
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
        // The engine that was asked may not be the one that does the work.
        if locked(&self.ledger).entry(id).is_none_or(|entry| entry.tool.kind == Kind::TakenOver) {
            return Some(());
        }
        cancel(&self.http, &self.ledger, id)
    }
}

/// Cancels a task. None when the server is gone.
pub(super) fn cancel(http: &Http, ledger: &Shared, id: &str) -> Option<()> {
    locked(ledger).cancelling(id);
    let answer = http.ask("tasks/cancel", id, json!({ "taskId": id })).ok()?;
    if answer.contains("\"result\"") {
        locked(ledger).cancelled(id);
    }
    Some(())
}

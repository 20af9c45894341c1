//! What a server has acknowledged, kept outside of it, and what contradicts it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::runs_with;

/// Offenders of a kind that are described.
const DESCRIBED: usize = 3;

/// What must never happen, by name, in the order of the table.
pub(super) const LOSSES: [&str; 11] = [
    "lost handles",
    "lost updates",
    "doubled updates",
    "doubled effects",
    "missing effects",
    "changed ends",
    "wrong ends",
    "stuck tasks",
    "stale writes",
    "left processes",
    "left spools",
];

/// What a tool promises about its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command that is taken up again.
    Reattach,
    /// A command that fails with its server.
    Fail,
    /// A command that is done again.
    Rerun,
    /// A command that takes longer than it may.
    Late,
    /// A handler that asks for a number.
    Asks,
    /// A handler whose claims are taken over.
    TakenOver,
}

/// What is known of one handle.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) tool: &'static str,
    pub(super) kind: Kind,
    /// When the call was sent, and for how long the task was promised from then on.
    sent: Instant,
    ttl: Option<Duration>,
    /// The bytes of `tasks/get` once the task had ended.
    pub(super) terminal: Option<String>,
    pub(super) cancel_sent: bool,
    /// Its runner, or its command, was killed, or may have been.
    pub(super) runner_hurt: bool,
    pub(super) job_hurt: bool,
    /// A server ended while the task had not, as far as was known.
    pub(super) interrupted: bool,
    /// The numbers that were acknowledged, by key.
    answered: BTreeMap<String, u64>,
}

/// Losses found so far: how many, and a few in words.
#[derive(Debug, Default, Clone)]
pub(super) struct Losses(BTreeMap<&'static str, (u64, Vec<String>)>);

impl Losses {
    pub(super) fn add(&mut self, what: &'static str, words: String) {
        let (count, described) = self.0.entry(what).or_default();
        *count += 1;
        if described.len() < DESCRIBED {
            described.push(words);
        }
    }

    pub(super) fn count(&self, what: &str) -> u64 {
        self.0.get(what).map_or(0, |(count, _)| *count)
    }

    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn described(&self) -> impl Iterator<Item = (&'static str, &String)> {
        self.0.iter().flat_map(|(what, (_, words))| words.iter().map(|words| (*what, words)))
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (what, (count, words)) in other.0 {
            let (all, described) = self.0.entry(what).or_default();
            *all += count;
            described.extend(words);
            described.truncate(DESCRIBED);
        }
    }
}

/// How much was done.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) tasks: u64,
    pub(super) polls: u64,
    pub(super) updates: u64,
    pub(super) cancels: u64,
    pub(super) expired: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
}

/// All handles of one database.
#[derive(Debug)]
pub(super) struct Ledger {
    marks: PathBuf,
    entries: BTreeMap<String, Entry>,
    /// Whether the present server's runners die at points in the code.
    runners_may_die: bool,
    /// Those that have not ended.
    open: Vec<String>,
    ended: Vec<String>,
    pub(super) losses: Losses,
    pub(super) counts: Counts,
}

impl Ledger {
    pub(super) fn new(marks: PathBuf) -> Self {
        Self {
            marks,
            entries: BTreeMap::new(),
            runners_may_die: false,
            open: Vec::new(),
            ended: Vec::new(),
            losses: Losses::default(),
            counts: Counts::default(),
        }
    }

    /// A call that was sent at this time was answered with a task.
    pub(super) fn created(&mut self, tool: &'static str, kind: Kind, sent: Instant, task: &Value) {
        let Some(id) = task["taskId"].as_str() else { return };
        self.counts.tasks += 1;
        let entry = Entry {
            tool,
            kind,
            sent,
            ttl: task["ttlMs"].as_u64().map(Duration::from_millis),
            terminal: None,
            cancel_sent: false,
            runner_hurt: self.runners_may_die,
            job_hurt: false,
            interrupted: false,
            answered: BTreeMap::new(),
        };
        if self.entries.insert(id.to_owned(), entry).is_some() {
            self.losses.add("wrong ends", format!("{id} was given out twice"));
        }
        self.open.push(id.to_owned());
    }

    pub(super) fn open(&self) -> &[String] {
        &self.open
    }

    pub(super) fn ended(&self) -> &[String] {
        &self.ended
    }

    pub(super) fn entry_mut(&mut self, id: &str) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    /// A server starts, whose runners may die at points in the code.
    pub(super) fn server_starts(&mut self, runners_may_die: bool) {
        self.runners_may_die = runners_may_die;
        for id in &self.open {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.runner_hurt |= runners_may_die;
            }
        }
    }

    /// The server is about to be stopped or killed.
    pub(super) fn server_ends(&mut self) {
        for id in &self.open {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.interrupted = true;
            }
        }
    }

    pub(super) fn cancelled(&mut self) {
        self.counts.cancels += 1;
    }

    /// An update was acknowledged.
    pub(super) fn answered(&mut self, id: &str, key: &str, number: u64) {
        self.counts.updates += 1;
        if let Some(entry) = self.entries.get_mut(id) {
            // Of two answers the first counts, as the server has to see it too.
            entry.answered.entry(key.to_owned()).or_insert(number);
        }
    }

    /// A poll was answered with these bytes. Hands back the task while it has not ended.
    pub(super) fn polled(&mut self, id: &str, bytes: &str) -> Option<Value> {
        self.counts.polls += 1;
        let answer: Value = serde_json::from_str(bytes).unwrap_or_default();
        let Some(entry) = self.entries.get_mut(id) else { return Some(answer["result"].clone()) };
        let task = &answer["result"];
        if task["taskId"] != id {
            let may_be_gone = entry.ttl.is_some_and(|ttl| entry.sent.elapsed() >= ttl);
            let unknown = answer["error"]["code"] == -32602;
            if may_be_gone && unknown {
                self.counts.expired += 1;
                self.close(id);
            } else {
                let words = format!("{id} ({}) is not there: {bytes}", entry.tool);
                self.losses.add("lost handles", words);
                self.close(id);
            }
            return None;
        }
        if let Some(before) = &entry.terminal {
            if before != bytes {
                let words = format!("{id} was {before}\nand is {bytes}");
                self.losses.add("changed ends", words);
            }
            return None;
        }
        if let Some(ttl) = task["ttlMs"].as_u64() {
            entry.ttl = entry.ttl.map(|before| before.max(Duration::from_millis(ttl)));
        }
        match task["status"].as_str().unwrap_or_default() {
            "working" | "input_required" => return Some(task.clone()),
            "completed" => self.counts.completed += 1,
            "failed" => self.counts.failed += 1,
            "cancelled" => self.counts.cancelled += 1,
            _ => {
                self.losses.add("wrong ends", format!("{id} is {bytes}"));
                return None;
            }
        }
        entry.terminal = Some(bytes.to_owned());
        let entry = entry.clone();
        self.ended.push(id.to_owned());
        self.open.retain(|open| open != id);
        self.check_end(id, &entry, task);
        None
    }

    /// Nobody asks for it any more.
    fn close(&mut self, id: &str) {
        self.entries.remove(id);
        self.open.retain(|open| open != id);
        self.ended.retain(|ended| ended != id);
    }

    pub(super) fn stuck(&mut self, words: impl Fn(&str, &Entry) -> String) {
        for id in std::mem::take(&mut self.open) {
            if let Some(entry) = self.entries.get(&id) {
                let words = words(&id, entry);
                self.losses.add("stuck tasks", words);
            }
        }
    }

    /// Lines of the task's marks.
    fn marks(&self, id: &str) -> Vec<String> {
        let text = fs::read_to_string(self.marks.join(id)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Holds the end of a task against what its work has left and what was done to it.
    fn check_end(&mut self, id: &str, entry: &Entry, task: &Value) {
        let marks = self.marks(id);
        let what =
            || format!("{id} ({}) has the marks {marks:?}, is {task}; {entry:?}", entry.tool);
        let count = |mark: &str| marks.iter().filter(|line| line.starts_with(mark)).count();
        let (starts, dones) = (count("start"), count("done"));
        let mut loss = |name| self.losses.add(name, what());
        let status = task["status"].as_str().unwrap_or_default();
        let reason = task["error"]["data"]["reason"].as_str().unwrap_or_default();
        let is_error = task["result"]["isError"] == true;

        if status == "cancelled" && !entry.cancel_sent {
            loss("wrong ends");
        }
        match entry.kind {
            Kind::Reattach | Kind::Fail | Kind::Rerun | Kind::Late => {
                let once = entry.kind != Kind::Rerun;
                if once && (starts > 1 || dones > 1) {
                    loss("doubled effects");
                }
                if status == "completed" && is_error && !entry.job_hurt {
                    loss("wrong ends");
                }
                if status == "completed" && !is_error && dones == 0 {
                    loss("missing effects");
                }
                let may_fail = match (entry.kind, reason) {
                    (Kind::Late, "timeout") => true,
                    (Kind::Reattach | Kind::Late, "interrupted") => entry.runner_hurt,
                    (Kind::Fail | Kind::Rerun, "interrupted") => {
                        entry.interrupted || entry.runner_hurt
                    }
                    _ => false,
                };
                if status == "failed" && !may_fail {
                    loss("wrong ends");
                }
                let still =
                    marks.iter().filter_map(|line| line.strip_prefix("start ")?.parse().ok());
                if still.into_iter().any(|pid: u32| runs_with(pid, id)) {
                    loss("left processes");
                }
            }
            Kind::Asks | Kind::TakenOver => {
                let result = &task["result"]["structuredContent"];
                let begun =
                    marks.iter().filter_map(|line| line.strip_prefix("start ")?.parse().ok());
                let last: Option<u64> = begun.max();
                if status == "failed" {
                    loss("wrong ends");
                }
                if status == "completed" && result["attempt"].as_u64() != last {
                    loss("stale writes");
                }
                if status == "completed" && entry.kind == Kind::Asks {
                    let key = result["key"].as_str().unwrap_or_default();
                    // What was sent when the server died may count, too.
                    let right = match entry.answered.get(key) {
                        Some(number) => result["number"].as_u64() == Some(*number),
                        None => entry.answered.is_empty(),
                    };
                    if !right {
                        loss("lost updates");
                    }
                }
                let mut delivered: Vec<_> =
                    marks.iter().filter(|line| line.starts_with("answer ")).collect();
                let all = delivered.len();
                delivered.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
                delivered.dedup_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
                if delivered.len() != all {
                    loss("doubled updates");
                }
            }
        }
    }
}

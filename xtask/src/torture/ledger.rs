//! What a server has acknowledged, kept outside of it, and how that is held against what it says
//! later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::losses::Losses;
use super::marks::Marks;
use super::tools::{Kind, Tool};
use super::verify;

/// What is known of one handle.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) tool: Tool,
    /// When the call was sent, and for how long the task was promised from then on.
    sent: Instant,
    ttl: Option<Duration>,
    /// The bytes of `tasks/get` once the task had ended.
    terminal: Option<String>,
    pub(super) cancel_sent: bool,
    pub(super) cancel_acknowledged: bool,
    /// Its runner, or its command, was killed, or may have been.
    pub(super) runner_hurt: bool,
    pub(super) job_hurt: bool,
    /// A server ended while the task had not, as far as was known.
    pub(super) interrupted: bool,
    /// The present server has found it: an earlier attempt may still have to be settled.
    carried_over: bool,
    /// The numbers that were acknowledged and have to count, by key.
    pub(super) answered: BTreeMap<String, u64>,
}

impl Entry {
    /// What was done to it, in words.
    pub(super) fn story(&self) -> String {
        let mut story = vec![format!("sent {} ms ago", self.sent.elapsed().as_millis())];
        let mut add = |is_so: bool, words: &str| story.extend(is_so.then(|| words.to_owned()));
        add(self.cancel_sent && !self.cancel_acknowledged, "a cancel was sent");
        add(self.cancel_acknowledged, "a cancel was acknowledged");
        add(self.runner_hurt, "its runner may have been killed");
        add(self.job_hurt, "its job may have been killed");
        add(self.interrupted, "its server has ended meanwhile");
        for (key, number) in &self.answered {
            story.push(format!("{number} was acknowledged for {key}"));
        }
        story.join(", ")
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
    /// Whether the present server was told to stop.
    stopping: bool,
    /// Tasks whose runner or job was killed, known here or not yet; with true it was the runner.
    hurt: BTreeMap<String, bool>,
    /// Those that have not ended.
    open: Vec<String>,
    ended: Vec<String>,
    /// Whose effects have been complained about.
    doubled: BTreeSet<String>,
    pub(super) losses: Losses,
    pub(super) counts: Counts,
}

impl Ledger {
    pub(super) fn new(marks: PathBuf) -> Self {
        Self {
            marks,
            entries: BTreeMap::new(),
            runners_may_die: false,
            stopping: false,
            hurt: BTreeMap::new(),
            open: Vec::new(),
            ended: Vec::new(),
            doubled: BTreeSet::new(),
            losses: Losses::default(),
            counts: Counts::default(),
        }
    }

    /// A call that was sent at this time was answered with a task.
    pub(super) fn created(&mut self, tool: Tool, sent: Instant, task: &Value) {
        let Some(id) = task["taskId"].as_str() else { return };
        self.counts.tasks += 1;
        let hurt = self.hurt.get(id);
        let entry = Entry {
            tool,
            sent,
            ttl: task["ttlMs"].as_u64().map(Duration::from_millis),
            terminal: None,
            cancel_sent: false,
            cancel_acknowledged: false,
            runner_hurt: self.runners_may_die || hurt == Some(&true),
            job_hurt: hurt.is_some(),
            interrupted: false,
            carried_over: false,
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

    pub(super) fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Whether this task is known to have ended.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.terminal.is_some())
    }

    /// A server starts, whose runners may die at points in the code.
    pub(super) fn server_starts(&mut self, runners_may_die: bool) {
        self.runners_may_die = runners_may_die;
        self.stopping = false;
        for id in &self.open {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.runner_hurt |= runners_may_die;
                entry.carried_over = true;
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

    /// The server is about to be told to stop.
    pub(super) fn server_stops(&mut self) {
        self.server_ends();
        self.stopping = true;
    }

    /// A task's runner or job is about to be killed.
    pub(super) fn hurts(&mut self, id: &str, runner: bool) {
        *self.hurt.entry(id.to_owned()).or_default() |= runner;
        if let Some(entry) = self.entries.get_mut(id) {
            // Whoever is killed, the other may be what is found first.
            entry.runner_hurt |= runner;
            entry.job_hurt = true;
        }
    }

    /// A cancel is about to be sent.
    pub(super) fn cancelling(&mut self, id: &str) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.cancel_sent |= entry.terminal.is_none();
        }
    }

    /// A cancel was acknowledged.
    pub(super) fn cancelled(&mut self, id: &str) {
        self.counts.cancels += 1;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.cancel_acknowledged = true;
        }
    }

    /// An update was acknowledged.
    pub(super) fn answered(&mut self, id: &str, key: &str, number: u64) {
        self.counts.updates += 1;
        let Some(entry) = self.entries.get_mut(id) else { return };
        // The question may have been taken back just before, with the attempt that asked it; and
        // whoever answers one that is not open is told the same. That answer counts or not.
        let settling = entry.carried_over && entry.tool.kind == Kind::Rerun;
        if self.stopping || entry.runner_hurt || entry.job_hurt || settling {
            return;
        }
        // Of two answers the first counts, as the server has to see it too.
        entry.answered.entry(key.to_owned()).or_insert(number);
    }

    /// A poll was answered with these bytes. Hands back the task while it has not ended.
    pub(super) fn polled(&mut self, id: &str, bytes: &str) -> Option<Value> {
        self.counts.polls += 1;
        let answer: Value = serde_json::from_str(bytes).unwrap_or_default();
        let Some(entry) = self.entries.get_mut(id) else { return Some(answer["result"].clone()) };
        let task = &answer["result"];
        if task["taskId"] != id {
            let may_be_gone = entry.ttl.is_some_and(|ttl| entry.sent.elapsed() >= ttl);
            if may_be_gone && answer["error"]["code"] == -32602 {
                self.counts.expired += 1;
            } else {
                let words = format!(
                    "{id} of {}: expected to be there for {:?}, seen {bytes}; {}",
                    entry.tool.name,
                    entry.ttl,
                    entry.story()
                );
                self.losses.add("lost handles", words);
            }
            self.close(id);
            return None;
        }
        if let Some(before) = &entry.terminal {
            if before != bytes {
                let words = format!("{id}: expected as before {before}\nseen {bytes}");
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
                self.losses.add("wrong ends", format!("{id}: expected a status, seen {bytes}"));
                return None;
            }
        }
        entry.terminal = Some(bytes.to_owned());
        let found = verify::end(id, entry, &Marks::of(&self.marks, id), task);
        for (what, words) in found {
            if what == "doubled effects" {
                self.doubled.insert(id.to_owned());
            }
            self.losses.add(what, words);
        }
        self.ended.push(id.to_owned());
        self.open.retain(|open| open != id);
        None
    }

    /// Nobody asks for it any more.
    fn close(&mut self, id: &str) {
        self.entries.remove(id);
        self.open.retain(|open| open != id);
        self.ended.retain(|ended| ended != id);
    }

    /// What is still open has had all the time that it may need.
    pub(super) fn stuck(&mut self, log: &str) {
        for id in std::mem::take(&mut self.open) {
            let Some(entry) = self.entries.get(&id) else { continue };
            let (what, expected) = if entry.tool.is_endless() && entry.cancel_acknowledged {
                ("lost cancels", "to be cancelled")
            } else {
                ("stuck tasks", "to have ended")
            };
            let words = format!(
                "{id} of {}: expected {expected}, seen at work; {}; the server says {log}",
                entry.tool.name,
                entry.story()
            );
            self.losses.add(what, words);
        }
    }

    /// Looks through everything that commands have ever done, for tasks known here or not.
    pub(super) fn look_through_marks(&mut self, kind_of: impl Fn(&str) -> Option<Kind>) {
        for (id, marks) in Marks::all(&self.marks) {
            let kind = marks.tool.as_deref().and_then(&kind_of);
            let problem = kind.and_then(|kind| verify::doubled(kind, &marks));
            if let Some(expected) = problem
                && self.doubled.insert(id.clone())
            {
                let words = format!("{id}: expected {expected}, seen {marks}");
                self.losses.add("doubled effects", words);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! What the server has acknowledged, kept outside of it: in memory, and as lines in a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::common::{is_terminal, text};

/// What is known of one handle.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) tool: &'static str,
    /// The argument that the result has to repeat.
    pub(super) number: u64,
    /// The bytes of `tasks/get` once the task had ended.
    pub(super) terminal: Option<String>,
    /// A cancel was sent when the task was not known to have ended.
    pub(super) cancel_sent: bool,
    /// And acknowledged.
    pub(super) cancel_acknowledged: bool,
}

/// All handles, in the order of their ids, which is that of time.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: Mutex<BTreeMap<String, Entry>>,
    file: Mutex<File>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(super) fn new(path: &Path) -> Self {
        let file = Mutex::new(File::create(path).expect("a file for the ledger"));
        Self { entries: Mutex::default(), file }
    }

    fn write(&self, line: &Value) {
        locked(&self.file).write_all(format!("{line}\n").as_bytes()).expect("written");
    }

    /// A handle was given out.
    pub(super) fn created(&self, id: &str, tool: &'static str, number: u64) {
        self.write(&json!({ "created": id, "tool": tool, "number": number }));
        let entry =
            Entry { tool, number, terminal: None, cancel_sent: false, cancel_acknowledged: false };
        let before = locked(&self.entries).insert(id.to_owned(), entry);
        assert!(before.is_none(), "the handle {id} was given out twice");
    }

    /// A cancel is about to be sent.
    pub(super) fn cancelling(&self, id: &str) {
        self.write(&json!({ "cancelling": id }));
        self.change(id, |entry| entry.cancel_sent |= entry.terminal.is_none());
    }

    /// A cancel was acknowledged.
    pub(super) fn cancelled(&self, id: &str) {
        self.write(&json!({ "cancelled": id }));
        self.change(id, |entry| entry.cancel_acknowledged = entry.cancel_sent);
    }

    /// An update was acknowledged; it answers nothing, so it changes nothing.
    pub(super) fn updated(&self, id: &str) {
        self.write(&json!({ "updated": id }));
    }

    /// A poll was answered. Panics if that contradicts what was said before. Gives whether the
    /// task has ended.
    pub(super) fn polled(&self, id: &str, bytes: &str, marks: &Path) -> bool {
        let answer: Value = serde_json::from_str(bytes).expect("JSON");
        let task = &answer["result"];
        assert_eq!(task["taskId"], id, "a handle that was given out is not there: {bytes}");
        let status = task["status"].as_str().expect("a status");
        let entry = self.entry(id);
        if let Some(before) = &entry.terminal {
            assert_eq!(bytes, before, "a terminal task has changed");
            return true;
        }
        assert!(status == "working" || is_terminal(status), "{bytes}");
        if is_terminal(status) {
            check_end(id, &entry, task, marks);
            self.write(&json!({ "ended": id, "bytes": bytes }));
            self.change(id, |entry| {
                let first = entry.terminal.get_or_insert_with(|| bytes.to_owned());
                assert_eq!(bytes, first, "two polls see two ends");
            });
        }
        is_terminal(status)
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Entry)) {
        change(locked(&self.entries).get_mut(id).expect("a handle of the ledger"));
    }

    pub(super) fn entry(&self, id: &str) -> Entry {
        locked(&self.entries)[id].clone()
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(String, Entry)> {
        locked(&self.entries).iter().map(|(id, entry)| (id.clone(), entry.clone())).collect()
    }
}

/// What the work of a task has left: how often it was begun, and how often it came to its end.
pub(super) fn marks_of(id: &str, marks: &Path) -> (usize, usize) {
    let text = std::fs::read_to_string(marks.join(id)).unwrap_or_default();
    let count = |mark: &str| text.lines().filter(|line| *line == mark).count();
    (count("start"), count("done"))
}

/// Holds the end of a task against what its work has left and what was asked of it.
fn check_end(id: &str, entry: &Entry, task: &Value, marks: &Path) {
    let (started, done) = marks_of(id, marks);
    let what = format!("{entry:?} started {started}, done {done}, is {task}");
    assert!(started <= 1, "the work was done twice: {what}");
    match task["status"].as_str().expect("a status") {
        "completed" => {
            assert_eq!((started, done), (1, 1), "completed without its work: {what}");
            assert!(task["result"].get("isError").is_none(), "{what}");
            assert_eq!(text(&task["result"]), format!("{id} {}\n", entry.number), "{what}");
        }
        "failed" => panic!("the work outlives its server, so nothing fails: {what}"),
        _ => assert!(entry.cancel_sent, "cancelled, and nobody asked for it: {what}"),
    }
}

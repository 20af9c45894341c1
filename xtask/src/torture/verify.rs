//! Holds the end of a task against what its work has left behind and what was done to it.

use serde_json::Value;

use super::ledger::Entry;
use super::marks::Marks;
use super::server::runs_with;
use super::tools::Kind;

/// How often a `rerun` command may begin; the config of the run says so.
pub(super) const MAX_ATTEMPTS: usize = 4;

/// What is wrong with the end of a task: which loss, and in words.
pub(super) fn end(
    id: &str,
    entry: &Entry,
    marks: &Marks,
    task: &Value,
) -> Vec<(&'static str, String)> {
    let mut problems = match entry.tool.kind {
        Kind::Asks | Kind::TakenOver => handler(entry, marks, task),
        _ => command(id, entry, marks, task),
    };
    problems.extend(answers(entry, marks, task));
    let words = |expected: String| {
        format!(
            "{id} of {}: expected {expected}; seen {task} and {marks}; {}",
            entry.tool.name,
            entry.story()
        )
    };
    problems.into_iter().map(|(what, expected)| (what, words(expected))).collect()
}

/// What is expected of the effects of a command, if it is not so.
pub(super) fn doubled(kind: Kind, marks: &Marks) -> Option<String> {
    let most = if kind == Kind::Rerun { MAX_ATTEMPTS } else { 1 };
    let too_often = marks.starts.len() > most || marks.dones > most;
    too_often.then(|| format!("to begin and to be done at most {most} times"))
}

type Problems = Vec<(&'static str, String)>;

fn command(id: &str, entry: &Entry, marks: &Marks, task: &Value) -> Problems {
    let mut problems = Problems::new();
    let mut problem = |what, expected: &str| problems.push((what, expected.to_owned()));
    let status = task["status"].as_str().unwrap_or_default();
    let reason = task["error"]["data"]["reason"].as_str().unwrap_or_default();
    let is_error = task["result"]["isError"] == true;

    if status == "cancelled" && !entry.cancel_sent {
        problem("wrong ends", "not to be cancelled, since nobody asked for that");
    }
    if status == "completed" && is_error && !entry.job_hurt {
        problem("wrong ends", "a command that was not killed to exit well");
    }
    if status == "completed" && !is_error && entry.tool.is_endless() {
        problem("wrong ends", "endless work not to complete");
    }
    if status == "completed" && !is_error && marks.dones == 0 {
        problem("missing effects", "what is completed to be done");
    }
    let may_fail = match (entry.tool.kind, reason) {
        (Kind::Late, "timeout") => true,
        (Kind::Reattach | Kind::Late, "interrupted") => entry.runner_hurt,
        (Kind::Fail | Kind::Rerun, "interrupted") => entry.interrupted || entry.runner_hurt,
        _ => false,
    };
    if status == "failed" && !may_fail {
        problem("wrong ends", "no failure, or one for another reason");
    }
    if let Some(expected) = doubled(entry.tool.kind, marks) {
        problem("doubled effects", &expected);
    }
    let pids = marks.starts.iter().filter_map(|pid| u32::try_from(*pid).ok());
    for pid in pids.filter(|pid| runs_with(*pid, &format!("ABIDE_TASK_ID={id}"))) {
        problem("left processes", &format!("its process {pid} to be gone"));
    }
    problems
}

fn handler(entry: &Entry, marks: &Marks, task: &Value) -> Problems {
    let mut problems = Problems::new();
    let mut problem = |what, expected: String| problems.push((what, expected));
    let status = task["status"].as_str().unwrap_or_default();
    if status == "failed" || status == "cancelled" && !entry.cancel_sent {
        problem("wrong ends", "to complete, or to be cancelled if somebody asks for that".into());
    }
    if status != "completed" {
        return problems;
    }
    let result = &task["result"]["structuredContent"];
    let (attempt, last) = (result["attempt"].as_u64(), marks.starts.iter().max().copied());
    if attempt != last {
        problem("stale writes", format!("the result of attempt {last:?}, which began last"));
    }
    if entry.tool.kind == Kind::Asks {
        let key = result["key"].as_str().unwrap_or_default();
        let delivered = marks.answers.iter().any(|answer| {
            Some(answer.attempt) == attempt
                && answer.key == key
                && Some(answer.number) == result["number"].as_u64()
        });
        if !delivered {
            problem("lost updates", "the result's number to be what was delivered".into());
        }
    }
    problems
}

/// Holds the answers that have come to work against what was acknowledged.
fn answers(entry: &Entry, marks: &Marks, task: &Value) -> Problems {
    let mut problems = Problems::new();
    let mut problem = |what, expected: &str| problems.push((what, expected.to_owned()));
    let mut attempts: Vec<u64> = marks.answers.iter().map(|answer| answer.attempt).collect();
    attempts.sort_unstable();
    if attempts.windows(2).any(|two| two[0] == two[1]) {
        problem("doubled updates", "one answer to each attempt");
    }
    for answer in &marks.answers {
        if entry.answered.get(&answer.key).is_some_and(|number| *number != answer.number) {
            problem("lost updates", "the number that was acknowledged");
        }
    }
    let asks = entry.tool.kind == Kind::Asks || entry.tool.asks();
    let done = task["status"] == "completed" && task["result"]["isError"] != true;
    if asks && done {
        match marks.answers.iter().max_by_key(|answer| answer.attempt) {
            None => problem("lost updates", "the work to be told a number"),
            // What was sent when the server died may count, too; but then nothing else was asked.
            Some(told) if entry.answered.keys().any(|key| *key != told.key) => {
                problem("lost updates", "the answer that was acknowledged to count");
            }
            Some(_) => {}
        }
    }
    problems
}

//! Damaged rows.

use abide_core::{Command, OnRestart, Policy, Record, Start, Task};
use proptest::prelude::*;

use crate::common::{at, json, key, next, task, worker};
use crate::steps::{created, error, step};
use crate::{check_round_trip, config, run};

proptest! {
    #![proptest_config(config(1_000))]

    /// A damaged row is refused, or it is another whole task: nothing is guessed and nothing that
    /// was stored is dropped.
    #[test]
    fn a_damaged_record_is_refused_or_read_whole(
        created in created(),
        steps in prop::collection::vec(step(), 0..12),
        damage in prop::collection::vec((0..COLUMNS.len(), junk()), 1..4),
    ) {
        let mut record = Record::from(&run(created, &steps, |_| {}));
        for (column, junk) in &damage {
            COLUMNS[*column].1(&mut record, junk);
        }
        if let Ok(task) = Task::try_from(record.clone()) {
            assert_eq!(canonical(Record::from(&task)), canonical(record));
        }
    }
}

#[derive(Debug, Clone)]
struct Junk {
    text: String,
    number: i64,
    none: bool,
}

fn junk() -> impl Strategy<Value = Junk> {
    let text = prop_oneof![
        "\\PC{0,12}",
        ".{0,6}",
        prop::sample::select(vec![
            "",
            "queued",
            "working",
            "input_required",
            "stopping",
            "completed",
            "failed",
            "cancelled",
            "cancel",
            "timeout",
            "{}",
            "null",
            "{",
            r#"{"a":{"request":1}}"#,
            r#"{"a":{"request":1,"response":2,"withdrawn":true}}"#,
            r#"{"code":1,"message":"m"}"#,
        ])
        .prop_map(str::to_owned),
        Just("x".repeat(2_000)),
        Just("[".repeat(20_000)),
    ];
    let number = prop_oneof![any::<i64>(), -2..3_i64, Just(i64::MIN), Just(i64::MAX)];
    (text, number, prop::bool::weighted(0.2)).prop_map(|(text, number, none)| Junk {
        text,
        number,
        none,
    })
}

impl Junk {
    fn maybe_text(&self) -> Option<String> {
        (!self.none).then(|| self.text.clone())
    }

    fn maybe_number(&self) -> Option<i64> {
        (!self.none).then_some(self.number)
    }
}

type Damage = fn(&mut Record, &Junk);

/// How to damage each column.
const COLUMNS: [(&str, Damage); 23] = [
    ("id", |r, j| r.id = j.text.clone()),
    ("owner", |r, j| r.owner = j.text.clone()),
    ("tool", |r, j| r.tool = j.text.clone()),
    ("arguments", |r, j| r.arguments = j.text.clone()),
    ("state", |r, j| r.state = j.text.clone()),
    ("version", |r, j| r.version = j.number),
    ("created_at", |r, j| r.created_at = j.number),
    ("last_updated_at", |r, j| r.last_updated_at = j.number),
    ("expires_at", |r, j| r.expires_at = j.maybe_number()),
    ("ttl_ms", |r, j| r.ttl_ms = j.maybe_number()),
    ("timeout_ms", |r, j| r.timeout_ms = j.maybe_number()),
    ("keep_ms", |r, j| r.keep_ms = j.maybe_number()),
    ("poll_interval_ms", |r, j| r.poll_interval_ms = j.number),
    ("on_restart", |r, j| r.on_restart = j.text.clone()),
    ("max_attempts", |r, j| r.max_attempts = j.maybe_number()),
    ("status_message", |r, j| r.status_message = j.maybe_text()),
    ("attempts", |r, j| r.attempts = j.number),
    ("fence", |r, j| r.fence = j.number),
    ("worker", |r, j| r.worker = j.maybe_text()),
    ("clock", |r, j| r.clock = j.maybe_number()),
    ("why", |r, j| r.why = j.maybe_text()),
    ("inputs", |r, j| r.inputs = j.maybe_text()),
    ("outcome", |r, j| r.outcome = j.maybe_text()),
];

/// The record with its JSON columns as values, so that spacing doesn't count.
fn canonical(mut record: Record) -> (Record, Vec<Option<serde_json::Value>>) {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let mut values = vec![json(&record.arguments)];
    record.arguments.clear();
    for column in [record.inputs.take(), record.outcome.take()] {
        values.push(column.as_deref().and_then(json));
    }
    (record, values)
}

#[test]
fn each_column_is_checked() {
    let policy = Policy {
        timeout_ms: Some(1_000),
        keep_ms: Some(9_000),
        poll_interval_ms: 500,
        on_restart: OnRestart::Rerun { max_attempts: 3 },
    };
    let claimed = task(policy, Start::Claimed { worker: worker(), since: at(5) }, at(5));
    let with = |state: &str, base: &Task| Record { state: state.to_owned(), ..Record::from(base) };
    let apply = |task: &Task, command| next(task, &task.apply(command, at(6)));
    let fence = claimed.fence();
    let ask = Command::Ask { fence, key: key("a"), request: json("{}") };
    let asked = apply(&claimed, ask);
    let stopping = apply(&asked, Command::Cancel);
    let failed = apply(&claimed, Command::Fail { fence, error: error(1) });
    let good = || Record::from(&claimed);
    let bad = [
        ("id", Record { id: "1".to_owned(), ..good() }),
        ("owner", Record { owner: String::new(), ..good() }),
        ("tool", Record { tool: "a\nb".to_owned(), ..good() }),
        ("arguments", Record { arguments: "{".to_owned(), ..good() }),
        ("state", with("resting", &claimed)),
        ("input_required without an open request", with("input_required", &claimed)),
        ("an open request in state", with("working", &asked)),
        ("outcome", with("completed", &stopping)),
        ("version", Record { version: 0, ..good() }),
        ("last_updated_at", Record { created_at: 7, ..good() }),
        ("last_updated_at", Record { last_updated_at: 4, ..good() }),
        ("expires_at", Record { expires_at: Some(1), ..good() }),
        ("expires_at", Record { expires_at: None, ..good() }),
        ("ttl_ms", Record { ttl_ms: Some(0), expires_at: Some(5), ..good() }),
        ("ttl_ms", Record { ttl_ms: None, expires_at: None, ..good() }),
        ("timeout_ms", Record { timeout_ms: Some(-1), ..good() }),
        ("keep_ms", Record { keep_ms: Some(-1), ..good() }),
        ("poll_interval_ms", Record { poll_interval_ms: -1, ..good() }),
        ("on_restart", Record { on_restart: "perhaps".to_owned(), ..good() }),
        ("on_restart", Record { max_attempts: None, ..good() }),
        ("on_restart", Record { max_attempts: Some(0), ..good() }),
        ("on_restart", Record { on_restart: "fail".to_owned(), ..good() }),
        ("attempts", Record { attempts: -1, ..good() }),
        ("fence", Record { fence: -1, ..good() }),
        ("worker", Record { worker: None, ..good() }),
        ("worker", Record { worker: Some("w".to_owned()), ..Record::from(&failed) }),
        ("without a time", Record { clock: None, ..Record::from(&stopping) }),
        ("clock", Record { clock: Some(-1), ..Record::from(&asked) }),
        ("clock", Record { clock: Some(1), ..Record::from(&failed) }),
        ("reason to stop", Record { why: None, ..Record::from(&stopping) }),
        ("why", Record { why: Some("cancel".to_owned()), ..good() }),
        ("inputs", Record { inputs: Some("[]".to_owned()), ..good() }),
        ("outcome", Record { outcome: None, ..Record::from(&failed) }),
        ("outcome", Record { outcome: Some("{}".to_owned()), ..good() }),
        ("error", Record { outcome: Some(r#"{"code":"x"}"#.to_owned()), ..Record::from(&failed) }),
    ];
    for task in [&claimed, &asked, &stopping, &failed] {
        check_round_trip(task);
    }
    for (problem, record) in bad {
        let refused = Task::try_from(record.clone()).expect_err(problem);
        assert_eq!(refused.id, record.id);
        assert!(refused.problem.contains(problem), "{problem}: {refused}");
    }
}

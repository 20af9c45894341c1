//! A task in the flat form in which stores keep it: one field a column.
//!
//! Stores write records and read records; what a record may hold is decided here, once, so that
//! SQLite and PostgreSQL keep the same thing. The form is guarded by stored fixtures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::RpcError;
use crate::id::{Fence, InputKey, Owner, TaskId, ToolName, WorkerId};
use crate::json::RawJson;
use crate::state::{Outstanding, Settled, SettledAs, State, WhyStopping};
use crate::task::{OnRestart, Policy, Task};
use crate::time::Timestamp;

/// What the store holds is not a task. Nothing is guessed; the row is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored task {id} can't be read: {problem}")]
pub struct CorruptRecord {
    /// The id as stored.
    pub id: String,
    /// What is wrong.
    pub problem: String,
}

/// The columns of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Text form of the [`TaskId`].
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// The tool that was called.
    pub tool: String,
    /// JSON of the arguments.
    pub arguments: String,
    /// `queued`, `working`, `input_required`, `stopping`, `completed`, `failed` or `cancelled`.
    pub state: String,
    /// [`Task::version`].
    pub version: i64,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub last_updated_at: i64,
    /// [`Task::expires_at`], for the sweep's index.
    pub expires_at: Option<i64>,
    /// [`Task::ttl_ms`].
    pub ttl_ms: Option<i64>,
    /// [`Policy::timeout_ms`].
    pub timeout_ms: Option<i64>,
    /// [`Policy::keep_ms`].
    pub keep_ms: Option<i64>,
    /// [`Policy::poll_interval_ms`].
    pub poll_interval_ms: i64,
    /// [`Policy::on_restart`]: `reattach`, `rerun` or `fail`.
    pub on_restart: String,
    /// `rerun`: how often the work may begin in all.
    pub max_attempts: Option<i64>,
    /// [`Task::status_message`].
    pub status_message: Option<String>,
    /// [`Task::attempts`].
    pub attempts: i64,
    /// [`Task::fence`].
    pub fence: i64,
    /// The worker that holds the claim.
    pub worker: Option<String>,
    /// `working`: the deadline in milliseconds since the epoch. `input_required`: the
    /// milliseconds that are left. `stopping`: since when.
    pub clock: Option<i64>,
    /// `stopping`: `cancel` or `timeout`.
    pub why: Option<String>,
    /// JSON object of all input requests by key, open and settled; none if there were none.
    pub inputs: Option<String>,
    /// `completed`: the result's bytes. `failed`: JSON of the error.
    pub outcome: Option<String>,
}

/// One input request as stored.
#[derive(Serialize, Deserialize)]
struct StoredInput {
    request: RawJson,
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        deserialize_with = "crate::json::present"
    )]
    response: Option<RawJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    withdrawn: bool,
}

impl From<&Task> for Record {
    fn from(task: &Task) -> Self {
        let (state, clock, why, outcome) = match &task.state {
            State::Queued => ("queued", None, None, None),
            State::Working { deadline, .. } => {
                ("working", deadline.map(Timestamp::as_millis), None, None)
            }
            State::InputRequired { time_left_ms, .. } => {
                ("input_required", time_left_ms.map(clamp), None, None)
            }
            State::Stopping { why, since, .. } => {
                let why = match why {
                    WhyStopping::Cancel => "cancel",
                    WhyStopping::Timeout => "timeout",
                };
                ("stopping", Some(since.as_millis()), Some(why), None)
            }
            State::Completed { result } => {
                ("completed", None, None, Some(result.as_str().to_owned()))
            }
            State::Failed { error } => ("failed", None, None, serde_json::to_string(error).ok()),
            State::Cancelled => ("cancelled", None, None, None),
        };
        Self {
            id: task.id.to_string(),
            owner: task.owner.to_string(),
            tool: task.tool.to_string(),
            arguments: task.arguments.as_str().to_owned(),
            state: state.to_owned(),
            version: clamp(task.version),
            created_at: task.created_at.as_millis(),
            last_updated_at: task.last_updated_at.as_millis(),
            expires_at: task.expires_at().map(Timestamp::as_millis),
            ttl_ms: task.ttl_ms.map(clamp),
            timeout_ms: task.policy.timeout_ms.map(clamp),
            keep_ms: task.policy.keep_ms.map(clamp),
            poll_interval_ms: clamp(task.policy.poll_interval_ms),
            on_restart: match task.policy.on_restart {
                OnRestart::Reattach => "reattach",
                OnRestart::Rerun { .. } => "rerun",
                OnRestart::Fail => "fail",
            }
            .to_owned(),
            max_attempts: match task.policy.on_restart {
                OnRestart::Rerun { max_attempts } => Some(i64::from(max_attempts)),
                OnRestart::Reattach | OnRestart::Fail => None,
            },
            status_message: task.status_message.clone(),
            attempts: i64::from(task.attempts),
            fence: clamp(task.fence.0),
            worker: task.state.worker().map(ToString::to_string),
            clock,
            why: why.map(str::to_owned),
            inputs: stored_inputs(task),
            outcome,
        }
    }
}

fn stored_inputs(task: &Task) -> Option<String> {
    let mut inputs = BTreeMap::new();
    for (key, settled) in &task.settled {
        let (response, withdrawn) = match &settled.by {
            SettledAs::Answered(response) => (Some(response.clone()), false),
            SettledAs::Withdrawn => (None, true),
        };
        let request = settled.request.clone();
        inputs.insert(key.as_str(), StoredInput { request, response, withdrawn });
    }
    if let State::InputRequired { outstanding, .. } = &task.state {
        for (key, request) in outstanding.as_map() {
            let request = request.clone();
            inputs.insert(key.as_str(), StoredInput { request, response: None, withdrawn: false });
        }
    }
    if inputs.is_empty() { None } else { serde_json::to_string(&inputs).ok() }
}

impl TryFrom<Record> for Task {
    type Error = CorruptRecord;

    fn try_from(record: Record) -> Result<Self, CorruptRecord> {
        let id = record.id.clone();
        read(record).map_err(|problem| CorruptRecord { id, problem })
    }
}

fn read(record: Record) -> Result<Task, String> {
    let text = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let (outstanding, settled) = read_inputs(record.inputs.as_deref())?;
    let worker = || -> Result<WorkerId, String> {
        let name = record.worker.as_deref().ok_or("no worker")?;
        WorkerId::new(name).map_err(|error| text("worker", &error))
    };
    let outcome = || record.outcome.as_deref().ok_or_else(|| "no outcome".to_owned());
    let open = !outstanding.is_empty();
    let state = match record.state.as_str() {
        "queued" => State::Queued,
        "working" => {
            State::Working { worker: worker()?, deadline: record.clock.map(Timestamp::from_millis) }
        }
        "input_required" => State::InputRequired {
            worker: worker()?,
            outstanding: Outstanding::from_map(outstanding)
                .ok_or("input_required without an open request")?,
            time_left_ms: record.clock.map(|left| unsigned("clock", left)).transpose()?,
        },
        "stopping" => State::Stopping {
            worker: worker()?,
            why: match record.why.as_deref() {
                Some("cancel") => WhyStopping::Cancel,
                Some("timeout") => WhyStopping::Timeout,
                other => return Err(format!("unknown reason to stop {other:?}")),
            },
            since: Timestamp::from_millis(record.clock.ok_or("stopping without a time")?),
        },
        "completed" => State::Completed {
            result: RawJson::parse(outcome()?).map_err(|error| text("result", &error))?,
        },
        "failed" => State::Failed {
            error: serde_json::from_str::<RpcError>(outcome()?)
                .map_err(|error| text("error", &error))?,
        },
        "cancelled" => State::Cancelled,
        other => return Err(format!("unknown state {other:?}")),
    };
    if open && !matches!(state, State::InputRequired { .. }) {
        return Err(format!("an open request in state {:?}", record.state));
    }
    let task = Task {
        id: record.id.parse::<TaskId>().map_err(|error| text("id", &error))?,
        owner: Owner::new(&record.owner).map_err(|error| text("owner", &error))?,
        tool: ToolName::new(&record.tool).map_err(|error| text("tool", &error))?,
        arguments: RawJson::parse(&record.arguments).map_err(|error| text("arguments", &error))?,
        policy: Policy {
            timeout_ms: record.timeout_ms.map(|ms| unsigned("timeout_ms", ms)).transpose()?,
            keep_ms: record.keep_ms.map(|ms| unsigned("keep_ms", ms)).transpose()?,
            poll_interval_ms: unsigned("poll_interval_ms", record.poll_interval_ms)?,
            on_restart: match (record.on_restart.as_str(), record.max_attempts) {
                ("reattach", None) => OnRestart::Reattach,
                ("rerun", Some(max)) if max > 0 => OnRestart::Rerun {
                    max_attempts: u32::try_from(max)
                        .map_err(|error| text("max_attempts", &error))?,
                },
                ("fail", None) => OnRestart::Fail,
                other => return Err(format!("unknown on_restart {other:?}")),
            },
        },
        created_at: Timestamp::from_millis(record.created_at),
        last_updated_at: Timestamp::from_millis(record.last_updated_at),
        version: unsigned("version", record.version)?,
        ttl_ms: record.ttl_ms.map(|ms| unsigned("ttl_ms", ms)).transpose()?,
        status_message: record.status_message.clone(),
        attempts: u32::try_from(record.attempts).map_err(|error| text("attempts", &error))?,
        fence: Fence(unsigned("fence", record.fence)?),
        settled,
        state,
    };
    check_columns(&task, &record)?;
    Ok(task)
}

/// Refuses columns that no task has together, which reading alone would pass over.
fn check_columns(task: &Task, record: &Record) -> Result<(), String> {
    let has_worker = task.state.worker().is_some();
    let has_clock = match &task.state {
        State::Working { .. } | State::InputRequired { .. } => task.policy.timeout_ms.is_some(),
        State::Stopping { .. } => true,
        _ => false,
    };
    let has_why = matches!(task.state, State::Stopping { .. });
    let has_outcome = matches!(task.state, State::Completed { .. } | State::Failed { .. });
    let has_ttl = task.policy.keep_ms.is_some();
    let checks = [
        ("worker", record.worker.is_some() == has_worker),
        ("clock", record.clock.is_some() == has_clock),
        ("why", record.why.is_some() == has_why),
        ("outcome", record.outcome.is_some() == has_outcome),
        ("version", task.version > 0),
        ("last_updated_at", task.last_updated_at >= task.created_at),
        ("ttl_ms", task.ttl_ms.is_some() == has_ttl && task.ttl_ms != Some(0)),
        ("expires_at", record.expires_at == task.expires_at().map(Timestamp::as_millis)),
    ];
    match checks.iter().find(|(_, fits)| !fits) {
        Some((column, _)) => Err(format!("{column} does not fit the rest of the task")),
        None => Ok(()),
    }
}

type Inputs = (BTreeMap<InputKey, RawJson>, BTreeMap<InputKey, Settled>);

fn read_inputs(json: Option<&str>) -> Result<Inputs, String> {
    let mut open = BTreeMap::new();
    let mut settled = BTreeMap::new();
    let Some(json) = json else { return Ok((open, settled)) };
    let stored: BTreeMap<String, StoredInput> =
        serde_json::from_str(json).map_err(|error| format!("inputs: {error}"))?;
    if stored.is_empty() {
        return Err("inputs: none, but not null".to_owned());
    }
    for (key, StoredInput { request, response, withdrawn }) in stored {
        let key = InputKey::new(&key).map_err(|error| format!("inputs: {error}"))?;
        match (response, withdrawn) {
            (Some(_), true) => return Err(format!("inputs: {key} is answered and withdrawn")),
            (Some(response), false) => {
                settled.insert(key, Settled { request, by: SettledAs::Answered(response) });
            }
            (None, true) => {
                settled.insert(key, Settled { request, by: SettledAs::Withdrawn });
            }
            (None, false) => {
                open.insert(key, request);
            }
        }
    }
    Ok((open, settled))
}

/// Stores keep signed 64-bit integers; numbers beyond them are beyond every limit too.
fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(what: &str, number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{what} is negative"))
}

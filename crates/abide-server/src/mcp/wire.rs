//! A task as the wire has it: the one place where its shape is written, and where it is wrapped.

use abide_core::{State, Task};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::mcp::members::Members;

/// How tasks are wrapped in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Envelope {
    /// The task's members are members of the result, as the extension's schema has it.
    #[default]
    Flat,
    /// The task is a member `task` of the result, as older guides show it.
    Nested,
}

/// The result of `tasks/get`, flat: `resultType`, the task, and what its status carries.
pub(crate) fn get_result(task: &Task) -> String {
    let mut out = String::with_capacity(512);
    out.push_str(r#"{"resultType":"complete","#);
    write_members(task, &mut out);
    match task.state() {
        State::InputRequired { outstanding, .. } => {
            out.push_str(r#","inputRequests":{"#);
            for (at, (key, request)) in outstanding.as_map().iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                push_string(&mut out, key.as_str());
                out.push(':');
                out.push_str(request.as_str());
            }
            out.push('}');
        }
        State::Completed { result } => {
            out.push_str(r#","result":"#);
            out.push_str(result.as_str());
        }
        State::Failed { error } => {
            out.push_str(r#","error":{"code":"#);
            out.push_str(&error.code.to_string());
            out.push_str(r#","message":"#);
            push_string(&mut out, &error.message);
            if let Some(data) = &error.data {
                out.push_str(r#","data":"#);
                out.push_str(data.as_str());
            }
            out.push('}');
        }
        State::Queued | State::Working { .. } | State::Stopping { .. } | State::Cancelled => {}
    }
    out.push('}');
    out
}

/// The members that every task has (`tasks.schema.json`, `Task`).
fn write_members(task: &Task, out: &mut String) {
    out.push_str(r#""taskId":"#);
    push_string(out, task.id().as_str());
    out.push_str(r#","status":"#);
    push_string(out, task.status().as_str());
    if let Some(message) = task.status_message() {
        out.push_str(r#","statusMessage":"#);
        push_string(out, message);
    }
    out.push_str(&format!(
        r#","createdAt":"{}","lastUpdatedAt":"{}","ttlMs":{},"pollIntervalMs":{}"#,
        task.created_at(),
        task.last_updated_at(),
        task.ttl_ms().map_or("null".to_owned(), |ttl| ttl.to_string()),
        task.policy().poll_interval_ms,
    ));
}

fn push_string(out: &mut String, text: &str) {
    out.push_str(&Value::from(text).to_string());
}

impl Envelope {
    /// Wraps a whole outgoing message. Every answer of either lane passes here; only those that
    /// carry a task change.
    pub(crate) fn wrap(self, message: String) -> String {
        match self {
            Self::Flat => message,
            Self::Nested => nest(&message).unwrap_or(message),
        }
    }
}

/// Moves a task's members into a member `task`; none if the message carries no task.
fn nest(message: &str) -> Option<String> {
    let Members(message) = serde_json::from_str(message).ok()?;
    let result = message.iter().find(|(name, _)| name == "result")?.1;
    let Members(result) = serde_json::from_str(result.get()).ok()?;
    if !result.iter().any(|(name, _)| name == "taskId") {
        return None;
    }
    let (outside, task): (Vec<_>, Vec<_>) =
        result.into_iter().partition(|(name, _)| matches!(name.as_str(), "resultType" | "_meta"));
    let task = write_object(task.iter().map(|(name, value)| (name.as_str(), value.get())));
    let result = write_object(
        outside
            .iter()
            .map(|(name, value)| (name.as_str(), value.get()))
            .chain([("task", task.as_str())]),
    );
    Some(write_object(message.iter().map(|(name, value): &(String, &RawValue)| {
        let value = if name == "result" { result.as_str() } else { value.get() };
        (name.as_str(), value)
    })))
}

fn write_object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (name, value) in members {
        if out.len() > 1 {
            out.push(',');
        }
        push_string(&mut out, name);
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_moves_the_task_and_nothing_else() {
        let flat = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"x","status":"working","n":1.10,"_meta":{}}}"#;
        let nested = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","_meta":{},"task":{"taskId":"x","status":"working","n":1.10}}}"#;
        assert_eq!(Envelope::Nested.wrap(flat.to_owned()), nested);
        assert_eq!(Envelope::Flat.wrap(flat.to_owned()), flat);
        for other in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"x"}}"#,
            "not json",
        ] {
            assert_eq!(Envelope::Nested.wrap(other.to_owned()), other);
        }
    }
}

//! What the store's changes do inside the transaction. The rules of a task are core's; here they
//! meet rows.

use std::sync::Arc;

use abide_core::{
    Applied, Authority, Command, Refusal, State, StoreError, Sweep, Task, TaskId, Timestamp,
    ToolName, Transition, WorkerId,
};
use rusqlite::Connection;

use super::error::Failure;
use super::rows;

/// What a change answers, and whether it has written anything.
pub(super) struct Change<T> {
    pub(super) value: T,
    pub(super) wrote: bool,
}

pub(super) fn create(
    connection: &Connection,
    task: Task,
    queue_limit: Option<u32>,
) -> Result<Change<Arc<Task>>, Failure> {
    if let (State::Queued, Some(limit)) = (task.state(), queue_limit) {
        let queued = rows::count_queued(connection, task.tool())?;
        if queued >= limit {
            return Err(StoreError::QueueFull { queued }.into());
        }
    }
    rows::insert(connection, &task)?;
    Ok(Change { value: Arc::new(task), wrote: true })
}

pub(super) fn apply(
    connection: &Connection,
    id: &TaskId,
    authority: &Authority,
    command: Command,
    now: Timestamp,
) -> Result<Change<Applied>, Failure> {
    let found = match authority {
        Authority::Caller(owner) => rows::find_owned(connection, id, owner)?,
        Authority::Engine => rows::find(connection, id)?,
    };
    let task = found.ok_or(StoreError::NotFound)?;
    commit_transition(connection, task, command, now)
}

pub(super) fn claim_next(
    connection: &Connection,
    tool: &ToolName,
    worker: WorkerId,
    now: Timestamp,
) -> Result<Change<Option<Applied>>, Failure> {
    let Some(task) = rows::oldest_queued(connection, tool)? else {
        return Ok(Change { value: None, wrote: false });
    };
    let Change { value, wrote } =
        commit_transition(connection, task, Command::Claim { worker }, now)?;
    Ok(Change { value: Some(value), wrote })
}

pub(super) fn sweep(
    connection: &Connection,
    now: Timestamp,
    horizon: Timestamp,
    limit: u32,
) -> Result<Change<Sweep>, Failure> {
    let deleted = rows::delete_expired(connection, now.as_millis(), limit)?;
    let extend = rows::ending_promises(connection, horizon.as_millis(), limit)?;
    let full = limit as usize;
    let more = limit > 0 && (deleted.len() >= full || extend.len() >= full);
    let wrote = !deleted.is_empty();
    Ok(Change { value: Sweep { deleted, extend, more }, wrote })
}

pub(super) fn heartbeat(
    connection: &Connection,
    worker: &WorkerId,
    until: Timestamp,
) -> Result<Change<()>, Failure> {
    rows::heartbeat(connection, worker, until.as_millis())?;
    Ok(Change { value: (), wrote: true })
}

pub(super) fn retire(connection: &Connection, worker: &WorkerId) -> Result<Change<()>, Failure> {
    rows::retire(connection, worker)?;
    Ok(Change { value: (), wrote: true })
}

/// Writes a page without changing what it says: the header keeps its schema version.
pub(super) fn probe(connection: &Connection) -> Result<Change<()>, Failure> {
    connection.pragma_update(None, "user_version", super::SCHEMA_VERSION)?;
    Ok(Change { value: (), wrote: true })
}

/// The one place where a task's row changes.
fn commit_transition(
    connection: &Connection,
    task: Task,
    command: Command,
    now: Timestamp,
) -> Result<Change<Applied>, Failure> {
    let transition =
        task.apply(command, now).map_err(|refusal: Refusal| StoreError::Refused(refusal))?;
    Ok(match transition {
        Transition::Changed { task, effects } => {
            rows::update(connection, &task)?;
            let value = Applied { task: Arc::from(task), effects, changed: true };
            Change { value, wrote: true }
        }
        Transition::Unchanged { effects } => {
            let value = Applied { task: Arc::new(task), effects, changed: false };
            Change { value, wrote: false }
        }
    })
}

/// Bytes that the command adds to the database, for the bound on one commit.
pub(super) fn size_of(command: &Command) -> usize {
    match command {
        Command::Answer { responses } => responses.iter().map(|(_, json)| json.len()).sum(),
        Command::Ask { request, .. } => request.len(),
        Command::Complete { result, .. } => result.len(),
        Command::Fail { error, .. } | Command::Requeue { error, .. } => {
            error.data.as_ref().map_or(0, abide_core::RawJson::len)
        }
        _ => 0,
    }
}

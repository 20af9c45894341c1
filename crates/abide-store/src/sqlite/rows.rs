//! Tasks as rows: every statement that reads or writes one, and every query over them.
//!
//! Queries name their index, so that a lost index is an error when the database is opened and
//! never a slow scan.

use std::sync::Arc;

use abide_core::{CorruptRecord, Owner, Record, Task, TaskId, ToolName, WorkerId};
use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::error::Failure;

/// The columns in the order of the table.
macro_rules! columns {
    () => {
        "id, owner, tool, state, version, created_at, last_updated_at, expires_at, ttl_ms, \
         timeout_ms, keep_ms, poll_interval_ms, attempts, fence, worker, clock, why, \
         status_message, arguments, inputs, outcome, on_restart, max_attempts"
    };
}

/// The states of tasks that have not ended, as the partial indexes name them.
macro_rules! unfinished {
    () => {
        "state IN ('queued', 'working', 'input_required', 'stopping')"
    };
}

/// The states of tasks that have ended, as the partial indexes name them.
macro_rules! ended {
    () => {
        "state IN ('completed', 'failed', 'cancelled')"
    };
}

const INSERT: &str = concat!(
    "INSERT INTO tasks (",
    columns!(),
    ") VALUES (:id, :owner, :tool, :state, :version, :created_at, :last_updated_at, :expires_at, \
     :ttl_ms, :timeout_ms, :keep_ms, :poll_interval_ms, :attempts, :fence, :worker, :clock, :why, \
     :status_message, :arguments, :inputs, :outcome, :on_restart, :max_attempts)"
);
/// Leaves out what never changes in a task's life.
const UPDATE: &str = "UPDATE tasks SET state = :state, version = :version, \
     last_updated_at = :last_updated_at, expires_at = :expires_at, ttl_ms = :ttl_ms, \
     attempts = :attempts, fence = :fence, worker = :worker, clock = :clock, why = :why, \
     status_message = :status_message, inputs = :inputs, outcome = :outcome WHERE id = :id";
const FIND: &str = concat!("SELECT ", columns!(), " FROM tasks WHERE id = ?1");
const FIND_OWNED: &str = concat!("SELECT ", columns!(), " FROM tasks WHERE id = ?1 AND owner = ?2");
const OLDEST_QUEUED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks INDEXED BY tasks_queued WHERE state = 'queued' AND tool = ?1 ORDER BY id"
);
const QUEUED: &str = "SELECT id FROM tasks INDEXED BY tasks_queued \
     WHERE state = 'queued' AND tool = ?1 ORDER BY id LIMIT ?2";
const COUNT_QUEUED: &str = "SELECT count(*) FROM tasks INDEXED BY tasks_queued \
     WHERE state = 'queued' AND tool = ?1";
const UNFINISHED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks INDEXED BY tasks_unfinished WHERE ",
    unfinished!(),
    " AND id > ?1 ORDER BY id LIMIT ?2"
);
const DELETE_EXPIRED: &str = concat!(
    "DELETE FROM tasks WHERE rowid IN (SELECT rowid FROM tasks INDEXED BY tasks_expiring WHERE ",
    ended!(),
    " AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2) RETURNING id, tool"
);
const ORPHANS: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks INDEXED BY tasks_claimed WHERE worker IS NOT NULL AND id > '' AND NOT EXISTS \
     (SELECT 1 FROM workers WHERE workers.id = tasks.worker AND until_ms > ?1) \
     ORDER BY id LIMIT ?2"
);
const HEARTBEAT: &str = "INSERT INTO workers (id, until_ms) VALUES (?1, ?2) \
     ON CONFLICT (id) DO UPDATE SET until_ms = max(until_ms, excluded.until_ms)";
const EXISTS: &str = "SELECT 1 FROM tasks WHERE id = ?1";
const RETIRE: &str = "DELETE FROM workers WHERE id = ?1";
const ENDING_PROMISES: &str = concat!(
    "SELECT id FROM tasks INDEXED BY tasks_promised WHERE ",
    unfinished!(),
    " AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2"
);

/// What an engine reads when it starts: the tasks that have not ended, and their indexes.
const AT_START: [&str; 4] = [
    concat!(
        "SELECT count(*) + total(length(arguments)) + total(length(inputs)) FROM tasks \
         INDEXED BY tasks_unfinished WHERE ",
        unfinished!()
    ),
    "SELECT count(*) FROM tasks INDEXED BY tasks_queued WHERE state = 'queued'",
    concat!(
        "SELECT count(*) FROM tasks INDEXED BY tasks_promised WHERE expires_at IS NOT NULL AND ",
        unfinished!()
    ),
    "SELECT count(*) FROM tasks INDEXED BY tasks_claimed WHERE worker IS NOT NULL",
];
/// The whole table, in the order of its pages.
const EVERYTHING: &str = concat!("SELECT ", columns!(), " FROM tasks");

/// Every statement, for the check at the opening.
const ALL: [&str; 14] = [
    INSERT,
    UPDATE,
    FIND,
    FIND_OWNED,
    OLDEST_QUEUED,
    QUEUED,
    COUNT_QUEUED,
    UNFINISHED,
    DELETE_EXPIRED,
    ENDING_PROMISES,
    ORPHANS,
    HEARTBEAT,
    RETIRE,
    EXISTS,
];

/// Prepares every statement, so that a schema that is not what its version says is found early.
pub(super) fn prepare_all(connection: &Connection) -> rusqlite::Result<()> {
    ALL.iter().try_for_each(|sql| connection.prepare_cached(sql).map(drop))
}

/// Reads what an engine reads when it starts, as far as tables and indexes of the first schema have
/// it, to find out whether it can be read.
pub(super) fn read_unfinished(connection: &Connection) -> rusqlite::Result<()> {
    AT_START.iter().try_for_each(|sql| {
        match connection.query_row(sql, [], |row| row.get_ref(0).map(drop)) {
            // An older schema, which lacks some of them, is migrated first.
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == rusqlite::ErrorCode::Unknown =>
            {
                Ok(())
            }
            read => read,
        }
    })
}

/// Hands over every row, as a task or as the reason why it is none, until one can't be read at all.
pub(super) fn for_each(
    connection: &Connection,
    mut see: impl FnMut(Result<Task, CorruptRecord>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(EVERYTHING)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        see(read(row)?);
    }
    Ok(())
}

/// Writes a new task.
pub(super) fn insert(connection: &Connection, task: &Task) -> Result<(), Failure> {
    let record = Record::from(task);
    connection.prepare_cached(INSERT)?.execute(named_params! {
        ":id": record.id,
        ":owner": record.owner,
        ":tool": record.tool,
        ":state": record.state,
        ":version": record.version,
        ":created_at": record.created_at,
        ":last_updated_at": record.last_updated_at,
        ":expires_at": record.expires_at,
        ":ttl_ms": record.ttl_ms,
        ":timeout_ms": record.timeout_ms,
        ":keep_ms": record.keep_ms,
        ":poll_interval_ms": record.poll_interval_ms,
        ":attempts": record.attempts,
        ":fence": record.fence,
        ":worker": record.worker,
        ":clock": record.clock,
        ":why": record.why,
        ":status_message": record.status_message,
        ":arguments": record.arguments,
        ":inputs": record.inputs,
        ":outcome": record.outcome,
        ":on_restart": record.on_restart,
        ":max_attempts": record.max_attempts,
    })?;
    Ok(())
}

/// Writes the new state of a task that exists.
pub(super) fn update(connection: &Connection, task: &Task) -> Result<(), Failure> {
    let record = Record::from(task);
    connection.prepare_cached(UPDATE)?.execute(named_params! {
        ":id": record.id,
        ":state": record.state,
        ":version": record.version,
        ":last_updated_at": record.last_updated_at,
        ":expires_at": record.expires_at,
        ":ttl_ms": record.ttl_ms,
        ":attempts": record.attempts,
        ":fence": record.fence,
        ":worker": record.worker,
        ":clock": record.clock,
        ":why": record.why,
        ":status_message": record.status_message,
        ":inputs": record.inputs,
        ":outcome": record.outcome,
    })?;
    Ok(())
}

/// The task, whoever it belongs to.
pub(super) fn find(connection: &Connection, id: &TaskId) -> Result<Option<Task>, Failure> {
    one(connection.prepare_cached(FIND)?.query_row([id.as_str()], read).optional()?)
}

/// The task, if it is this owner's.
pub(super) fn find_owned(
    connection: &Connection,
    id: &TaskId,
    owner: &Owner,
) -> Result<Option<Task>, Failure> {
    let mut statement = connection.prepare_cached(FIND_OWNED)?;
    one(statement.query_row([id.as_str(), owner.as_str()], read).optional()?)
}

/// The oldest queued task of a tool.
pub(super) fn oldest_queued(
    connection: &Connection,
    tool: &ToolName,
) -> Result<Option<Task>, Failure> {
    let mut statement = connection.prepare_cached(OLDEST_QUEUED)?;
    let mut rows = statement.query([tool.as_str()])?;
    while let Some(row) = rows.next()? {
        match read(row)? {
            Ok(task) => return Ok(Some(task)),
            Err(corrupt) => tracing::error!(%corrupt, "a queued task is passed over"),
        }
    }
    Ok(None)
}

/// The queued tasks of a tool, oldest first.
pub(super) fn queued(
    connection: &Connection,
    tool: &ToolName,
    limit: u32,
) -> Result<Vec<TaskId>, Failure> {
    let mut statement = connection.prepare_cached(QUEUED)?;
    ids(statement.query((tool.as_str(), limit))?)
}

/// How many tasks of a tool are queued.
pub(super) fn count_queued(connection: &Connection, tool: &ToolName) -> Result<u32, Failure> {
    let mut statement = connection.prepare_cached(COUNT_QUEUED)?;
    let count: i64 = statement.query_row([tool.as_str()], |row| row.get(0))?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Tasks that have not ended, by id.
pub(super) fn unfinished(
    connection: &Connection,
    after: Option<&TaskId>,
    limit: u32,
) -> Result<Vec<Arc<Task>>, Failure> {
    let mut statement = connection.prepare_cached(UNFINISHED)?;
    tasks(statement.query((after.map_or("", TaskId::as_str), limit))?)
}

/// Claimed tasks whose worker has no lease that holds at `now`, by id.
pub(super) fn orphans(
    connection: &Connection,
    now: i64,
    limit: u32,
) -> Result<Vec<Arc<Task>>, Failure> {
    tasks(connection.prepare_cached(ORPHANS)?.query((now, limit))?)
}

/// Makes a worker's claims hold until `until`, or longer if they do already.
pub(super) fn heartbeat(
    connection: &Connection,
    worker: &WorkerId,
    until: i64,
) -> Result<(), Failure> {
    connection.prepare_cached(HEARTBEAT)?.execute((worker.as_str(), until))?;
    Ok(())
}

/// Forgets a worker, whose claims hold no longer.
pub(super) fn retire(connection: &Connection, worker: &WorkerId) -> Result<(), Failure> {
    connection.prepare_cached(RETIRE)?.execute([worker.as_str()])?;
    Ok(())
}

/// Forgets all workers. Only the one process that has the database may say that all are gone.
pub(super) fn retire_all(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM workers", [])?;
    Ok(())
}

/// Rows as tasks. One that can't be read is named and passed over, so that it holds up nobody but
/// whoever asks for it.
fn tasks(mut rows: rusqlite::Rows<'_>) -> Result<Vec<Arc<Task>>, Failure> {
    let mut tasks = Vec::new();
    while let Some(row) = rows.next()? {
        match read(row)? {
            Ok(task) => tasks.push(Arc::new(task)),
            Err(corrupt) => tracing::error!(%corrupt, "a stored task is passed over"),
        }
    }
    Ok(tasks)
}

/// Deletes tasks that have ended and whose promise has run out, the longest-expired first, and
/// says which.
pub(super) fn delete_expired(
    connection: &Connection,
    now: i64,
    limit: u32,
) -> Result<Vec<(TaskId, ToolName)>, Failure> {
    let mut statement = connection.prepare_cached(DELETE_EXPIRED)?;
    let mut rows = statement.query((now, limit))?;
    let mut deleted = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column).and_then(|value| Ok(value.as_str()?.to_owned()));
        match (text(0)?.parse(), ToolName::new(&text(1)?)) {
            (Ok(id), Ok(tool)) => deleted.push((id, tool)),
            _ => tracing::error!("a stored task that was deleted had no readable id or tool"),
        }
    }
    Ok(deleted)
}

/// Which of these are tasks.
pub(super) fn existing(connection: &Connection, ids: &[TaskId]) -> Result<Vec<TaskId>, Failure> {
    let mut statement = connection.prepare_cached(EXISTS)?;
    let mut existing = Vec::new();
    for id in ids {
        if statement.exists([id.as_str()])? {
            existing.push(*id);
        }
    }
    Ok(existing)
}

/// Tasks that have not ended and whose promise runs out, the first to run out first.
pub(super) fn ending_promises(
    connection: &Connection,
    horizon: i64,
    limit: u32,
) -> Result<Vec<TaskId>, Failure> {
    let mut statement = connection.prepare_cached(ENDING_PROMISES)?;
    ids(statement.query((horizon, limit))?)
}

/// Rows of which only the id is wanted. One that is not an id is passed over: it names no task
/// that anybody could ask for.
fn ids(mut rows: rusqlite::Rows<'_>) -> Result<Vec<TaskId>, Failure> {
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        match row.get_ref(0)?.as_str().map(str::parse) {
            Ok(Ok(id)) => ids.push(id),
            _ => tracing::error!("a stored task has an id that is none"),
        }
    }
    Ok(ids)
}

fn one(row: Option<Result<Task, CorruptRecord>>) -> Result<Option<Task>, Failure> {
    Ok(row.transpose()?)
}

/// Reads a row with all columns. What is not a task is a [`CorruptRecord`]; what SQLite can't
/// read is SQLite's error.
fn read(row: &Row<'_>) -> rusqlite::Result<Result<Task, CorruptRecord>> {
    match record(row) {
        Ok(record) => Ok(Task::try_from(record)),
        Err(error @ rusqlite::Error::SqliteFailure(..)) => Err(error),
        Err(error) => {
            let id = row.get::<_, String>(0).unwrap_or_else(|_| "without a readable id".to_owned());
            Ok(Err(CorruptRecord { id, problem: error.to_string() }))
        }
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        id: row.get(0)?,
        owner: row.get(1)?,
        tool: row.get(2)?,
        state: row.get(3)?,
        version: row.get(4)?,
        created_at: row.get(5)?,
        last_updated_at: row.get(6)?,
        expires_at: row.get(7)?,
        ttl_ms: row.get(8)?,
        timeout_ms: row.get(9)?,
        keep_ms: row.get(10)?,
        poll_interval_ms: row.get(11)?,
        attempts: row.get(12)?,
        fence: row.get(13)?,
        worker: row.get(14)?,
        clock: row.get(15)?,
        why: row.get(16)?,
        status_message: row.get(17)?,
        arguments: row.get(18)?,
        inputs: row.get(19)?,
        outcome: row.get(20)?,
        on_restart: row.get(21)?,
        max_attempts: row.get(22)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    #[test]
    fn no_query_sorts_or_scans_the_table() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        for sql in ALL {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let parameters = vec![None::<i64>; explain.parameter_count()];
            let plan: Vec<String> = explain
                .query_map(rusqlite::params_from_iter(parameters), |row| row.get(3))
                .unwrap()
                .map(Result::unwrap)
                .collect();
            for step in &plan {
                assert!(!step.contains("TEMP B-TREE"), "{sql}: {plan:?}");
                assert!(!step.contains("SCAN"), "{sql}: {plan:?}");
            }
        }
    }
}

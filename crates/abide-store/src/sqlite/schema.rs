//! Whose database a file is, and the numbered migrations that bring it up to date.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::OpenError;

/// Says in the header of the file that the database is abide's: "abid" in ASCII.
pub(super) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"abid");

/// Forward only: a migration that was released never changes. The number of a migration is its
/// place in this list, from 1, and the `user_version` of a database that has it.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sqlite/0001_tasks.sql"),
    include_str!("../../migrations/sqlite/0002_takeover.sql"),
];

/// The newest schema version that this program knows.
pub const LATEST: i32 = MIGRATIONS.len() as i32;

/// The schema version of a database that abide may use; 0 if there is nothing in it yet.
pub(super) fn identify(connection: &Connection, path: &Path) -> Result<i32, OpenError> {
    let header = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let read = || {
        let objects: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((header("application_id")?, header("user_version")?, objects))
    };
    let path_buf = path.to_owned();
    match read().map_err(|error| OpenError::from_sqlite(path, error))? {
        (0, 0, 0) => Ok(0),
        (APPLICATION_ID, found, _) if found > LATEST => {
            Err(OpenError::Newer { path: path_buf, found, known: LATEST })
        }
        (APPLICATION_ID, found, _) if found > 0 => Ok(found),
        _ => Err(OpenError::OtherApplication { path: path_buf }),
    }
}

/// Runs the migrations after `version`, each in a transaction of its own.
pub(super) fn migrate(connection: &mut Connection, version: i32) -> rusqlite::Result<()> {
    for (sql, number) in MIGRATIONS.iter().zip(1..).filter(|(_, number)| *number > version) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
        if version > 0 {
            tracing::info!(schema = number, "the database was migrated");
        }
    }
    Ok(())
}

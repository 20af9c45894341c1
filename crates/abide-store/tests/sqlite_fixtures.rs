//! Stored formats: what earlier versions wrote is read as it was meant, and what this version
//! writes is what its fixture says. `ABIDE_WRITE_FIXTURES=1` writes the fixture of a new schema
//! version; those of older ones never change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use abide_core::{Store, Task};
use abide_store::sqlite::{Options, SCHEMA_VERSION, SqliteStore};
use abide_store::suite::specimens::every_state;
use rusqlite::Connection;
use rusqlite::types::Value;

fn fixture(version: i32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}.sql"))
}

/// The database as SQL: header, schema and rows.
fn dump(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    let mut sql = String::new();
    for name in ["application_id", "user_version"] {
        let value: i64 = connection.pragma_query_value(None, name, |row| row.get(0)).unwrap();
        writeln!(sql, "PRAGMA {name} = {value};").unwrap();
    }
    let schema = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
    let mut schema = connection.prepare(schema).unwrap();
    for statement in schema.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        writeln!(sql, "{};", statement.unwrap()).unwrap();
    }
    let mut rows = connection.prepare("SELECT * FROM tasks ORDER BY id").unwrap();
    let columns = rows.column_count();
    let mut rows = rows.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let values: Vec<String> =
            (0..columns).map(|column| literal(row.get(column).unwrap())).collect();
        writeln!(sql, "INSERT INTO tasks VALUES ({});", values.join(", ")).unwrap();
    }
    sql
}

/// A value in SQL, with everything by its number that an editor might hide or change.
fn literal(value: Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => {
            let mut literal = String::from("'");
            for character in text.chars() {
                match character {
                    '\'' => literal.push_str("''"),
                    ' '..='~' => literal.push(character),
                    other => write!(literal, "'||char({})||'", u32::from(other)).unwrap(),
                }
            }
            literal.push('\'');
            literal
        }
        other => panic!("a column of tasks holds {other:?}"),
    }
}

async fn read_all(path: &Path) -> BTreeMap<String, Task> {
    let connection = Connection::open(path).unwrap();
    let mut owners = connection.prepare("SELECT id, owner FROM tasks").unwrap();
    let owners: Vec<(String, String)> = owners
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let store = SqliteStore::open(path, Options::default()).unwrap();
    let mut tasks = BTreeMap::new();
    for (id, owner) in owners {
        let owner = abide_core::Owner::new(&owner).unwrap();
        let task = store.get(id.parse().unwrap(), owner).await.unwrap().unwrap();
        tasks.insert(id, Task::clone(&task));
    }
    store.close().await;
    tasks
}

#[tokio::test]
async fn what_every_version_wrote_is_read() {
    let expected: BTreeMap<String, Task> =
        every_state().into_iter().map(|task| (task.id().to_string(), task)).collect();
    for version in 1..=SCHEMA_VERSION {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let sql = fs::read_to_string(fixture(version)).unwrap();
        Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let tasks = read_all(&path).await;
        assert!(tasks.len() >= 16, "version {version} has {} tasks", tasks.len());
        for (id, task) in tasks {
            assert_eq!(Some(&task), expected.get(&id), "version {version}");
        }
        let version_now: i32 = Connection::open(&path)
            .unwrap()
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(version_now, SCHEMA_VERSION);
    }
}

/// A difference here means that tasks are stored in another form than before: databases that
/// exist need a migration, and the new version a fixture of its own.
#[tokio::test]
async fn what_is_written_is_what_the_fixture_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.db");
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    for task in every_state() {
        store.create(task, None).await.unwrap();
    }
    store.close().await;
    let written = dump(&path);
    let fixture = fixture(SCHEMA_VERSION);
    if std::env::var_os("ABIDE_WRITE_FIXTURES").is_some() && !fixture.exists() {
        fs::write(&fixture, &written).unwrap();
    }
    let expected = fs::read_to_string(&fixture).unwrap();
    for (line, (written, expected)) in (1..).zip(written.lines().zip(expected.lines())) {
        assert_eq!(written, expected, "line {line} of the fixture");
    }
    assert_eq!(written.lines().count(), expected.lines().count());
}

//! Databases that can't be used: what is not abide's is left as it is, and the server says why it
//! does not start; what is abide's and damaged is put aside, loudly. And copies of good ones.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::common::{
    Declares, Ended, Folder, Server, abide, alive, ended, handle, mount, on_a_small_disk, pids_in,
    plain, say, task, text, until,
};

const TOOLS: &str = r#"
[tools.hello]
description = "d"
command = ["echo", "hello"]
inline = "0s"

[tools.gate]
description = "Waits for the file `gate`"
command = ["./gate.sh"]
inline = "0s"
"#;

/// Starts a server that can't start.
async fn refused(config: &Path, store: &Path) -> Ended {
    let store = format!("sqlite:{}", store.display());
    let mut command = abide(["serve"]);
    command.arg(config).args(["--store", &store]);
    let ended = ended(command).await;
    assert_eq!(ended.status.code(), Some(1), "{}", ended.logs);
    ended
}

/// Starts a server on a database, and makes it work.
async fn works(config: &Path, store: &Path) -> (Server, String) {
    let store = format!("sqlite:{}", store.display());
    let server = Server::start_with(config, &["--store", &store]).await;
    let id = handle(&server.http.call(Declares::Tasks, "hello", &json!({})).await);
    assert_eq!(text(&server.http.end_of(&id).await["result"]), "hello\n");
    (server, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_usable_database_is_left_as_it_is() {
    let folder = Folder::new("", TOOLS);
    folder.write("notes.db", &"These are my notes, and no database. ".repeat(300));
    fs::create_dir(folder.path("a-folder.db")).unwrap();
    for (name, says) in [
        ("notes.db", "is not a SQLite database; it was left as it is"),
        ("a-folder.db", "is not a file"),
        ("none/x.db", "does not exist; create it"),
    ] {
        let before = fs::read(folder.path(name)).ok();
        let Ended { logs, .. } = refused(&folder.config(), &folder.path(name)).await;
        assert!(logs.contains(says) && logs.contains("error: "), "{name}: {logs}");
        let named = name.trim_end_matches("/x.db");
        assert!(logs.contains(folder.path(named).to_str().unwrap()), "{name}: {logs}");
        assert!(fs::read(folder.path(name)).ok() == before, "{name} was changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_database_is_put_aside_with_its_runs() {
    type Damage = fn(&mut [u8]);
    let damages: [Damage; 3] = [
        // Every page but the first is torn; the header still looks right.
        |bytes| bytes[4096..].iter_mut().for_each(|byte| *byte = !*byte),
        |bytes| bytes[100..200].fill(0xa5),
        |bytes| bytes[..100].fill(0xa5),
    ];
    for damage in damages {
        let folder = Folder::new("", TOOLS);
        folder.gate();
        let (server, id) = works(&folder.config(), &folder.database()).await;
        let gate = handle(&server.http.call(Declares::Tasks, "gate", &json!({})).await);
        let processes = pids_in(&folder.path("pids"), 2).await;
        server.stop().await.well();
        let mut bytes = fs::read(folder.database()).unwrap();
        assert!(bytes.starts_with(b"SQLite format 3\0"));
        damage(&mut bytes);
        fs::write(folder.database(), &bytes).unwrap();

        let (server, new) = works(&folder.config(), &folder.database()).await;
        server.logs.line("THE DATABASE IS DAMAGED. It was set aside").await;
        let unknown = server.http.ask("tasks/get", &task(&id)).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        assert_eq!(server.http.get(&new).await["status"], "completed");
        let names = fs::read_dir(folder.path("")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let aside: Vec<String> = names.filter(|name| name.contains(".damaged-")).collect();
        let runs = aside.iter().find(|name| name.ends_with(".runs")).expect("the runs");
        let database = runs.trim_end_matches(".runs");
        assert!(fs::read(folder.path(database)).unwrap() == bytes, "{database} was changed");
        assert!(folder.path(&format!("{runs}/{gate}.1/lock")).exists());
        assert!(processes.iter().all(|pid| alive(*pid)), "what runs goes on");
        let mut check = abide(["db", "check", "--store"]);
        check.arg(format!("sqlite:{}", folder.path(database).display()));
        let output = check.output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}");
        folder.write("gate", "");
        server.stop().await.well();
        // It starts quietly from now on.
        let (server, _) = works(&folder.config(), &folder.database()).await;
        assert_eq!(server.http.get(&new).await["status"], "completed");
        assert!(!server.stop().await.logs.contains("DAMAGED"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_made_under_load_can_be_restored() {
    let folder = Folder::new("", TOOLS);
    let (server, first) = works(&folder.config(), &folder.database()).await;
    let copy = folder.path("copy.db");
    let over = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (http, over) = (server.http.clone(), over.clone());
        async move {
            let mut ids = Vec::new();
            while !over.load(Ordering::Relaxed) {
                ids.push(handle(&http.call(Declares::Tasks, "hello", &json!({})).await));
            }
            ids
        }
    });
    let db = |arguments: &[&str]| {
        let mut command = abide(["db"]);
        command.args(arguments).arg("--config").arg(folder.config());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, said, words) = db(&["backup", copy.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{words}");
    assert!(said.contains("tasks, "), "{said}");
    let (code, said, words) = db(&["check"]);
    assert_eq!(code, Some(0), "{words}");
    assert!(said.ends_with("no damage found\n") && said.contains(" completed"), "{said}");
    over.store(true, Ordering::Relaxed);
    load.await.unwrap();
    let (code, _, words) = db(&["backup", copy.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("is there already"), "{words}");
    let bytes = server.http.get_text(&first).await;
    server.kill().await;

    for name in ["abide.db", "abide.db-wal", "abide.db-shm"] {
        let _ = fs::remove_file(folder.path(name));
    }
    let (code, _, words) = db(&["check"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("there is no database"), "{words}");
    fs::rename(&copy, folder.database()).unwrap();
    let (server, _) = works(&folder.config(), &folder.database()).await;
    assert_eq!(server.http.get_text(&first).await, bytes);
    server.stop().await.well();
}

/// Runs `abide db` and takes its exit code, its output and what it said.
fn db(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = abide(["db"].iter().chain(arguments)).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The one database that was set aside in a folder.
fn set_aside(folder: &Folder) -> PathBuf {
    let entries = fs::read_dir(folder.database().parent().unwrap()).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| {
        let path = path.to_str().unwrap();
        path.contains("abide.db.damaged-") && path.ends_with('Z')
    };
    paths.find(named).expect("a database was set aside")
}

fn spoil(path: &Path, page: usize) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xa5; 4096], (page * 4096) as u64).unwrap();
}

/// The whole story: a backup while a server runs, damage, a start without the old tasks, and the
/// restored backup with all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_database_is_set_aside_and_a_backup_brings_it_back() {
    let folder = Folder::new("", TOOLS);
    folder.gate();
    let (server, done) = works(&folder.config(), &folder.database()).await;
    let running = handle(&server.http.call(Declares::Tasks, "gate", &json!({})).await);
    until("the command runs", || folder.read("pids").lines().count() == 2).await;
    let bytes = server.http.get_text(&done).await;

    let (database, copy) = (folder.database(), folder.path("copy.db"));
    let (database, copy) = (database.to_str().unwrap(), copy.to_str().unwrap());
    let config = folder.config();
    let (code, out, err) = db(&["backup", copy, "--config", config.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with(&format!("{copy}: 2 tasks, ")), "{out}");
    let by_name = |path: &str| format!("sqlite:{path}");
    let (code, out, _) = db(&["check", "--store", &by_name(database)]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.starts_with(&format!("{database}: 1 completed, 1 working, ")), "{out}");
    server.stop().await.well();

    let pages = fs::metadata(database).unwrap().len() as usize / 4096;
    spoil(&folder.database(), pages - 1);
    let damaged = fs::read(database).unwrap();
    // Twice: the second start finds nothing damaged, and still says what lies there.
    for start in 0..2 {
        let (server, _) = works(&folder.config(), &folder.database()).await;
        let aside = set_aside(&folder);
        assert!(fs::read(&aside).unwrap() == damaged);
        let said = server.logs.text();
        let loud: Vec<_> = said.lines().filter(|line| line.contains("\"ERROR\"")).collect();
        match start {
            0 => assert_eq!(loud.len(), 1, "{said}"),
            _ => assert!(loud.is_empty() && said.contains("\"WARN\""), "{said}"),
        }
        for line in loud {
            assert!(line.contains("DAMAGED") && line.contains("restore a backup"), "{line}");
            assert!(
                line.contains(&format!("abide db check --store sqlite:{}", aside.display())),
                "{line}"
            );
        }
        assert!(said.contains(database) && said.contains(aside.to_str().unwrap()), "{said}");
        let answer = server.http.ask("tasks/get", &task(&done)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        server.stop().await.well();
        assert!(folder.read("pids").lines().all(|pid| alive(pid.parse().unwrap())));
    }
    let aside = set_aside(&folder);
    let aside = aside.to_str().unwrap();
    let (code, out, err) = db(&["check", "--store", &by_name(aside)]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("\ndamaged: ") && err.contains("hint: stop abide"), "{out}{err}");
    let none = folder.path("x.db");
    let (code, _, err) = db(&["backup", none.to_str().unwrap(), "--store", &by_name(aside)]);
    assert!(code == Some(1) && err.contains("abide db check"), "{err}");
    assert!(!none.exists());

    // As docs/operations.md says.
    fs::remove_file(database).unwrap();
    fs::remove_dir_all(format!("{database}.runs")).unwrap();
    fs::rename(copy, database).unwrap();
    fs::rename(format!("{aside}.runs"), format!("{database}.runs")).unwrap();
    folder.write("gate", "");
    let server = Server::start(&folder.config()).await;
    assert_eq!(server.http.get_text(&done).await, bytes);
    assert_eq!(text(&server.http.end_of(&running).await["result"]), "through\n");
    server.stop().await.well();
}

/// Damage that shows while the server runs is an error and a matter of health; nothing is moved.
#[tokio::test(flavor = "multi_thread")]
async fn damage_while_the_server_runs() {
    let folder = Folder::new("", TOOLS);
    let (server, id) = works(&folder.config(), &folder.database()).await;
    server.stop().await.well();
    let server = Server::start(&folder.config()).await;
    assert_eq!(server.http.health().await, (200, json!({ "status": "ok" })));
    let root: u32 = rusqlite::Connection::open(folder.database())
        .unwrap()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'tasks'", [], |row| row.get(0))
        .unwrap();
    spoil(&folder.database(), root as usize - 1);
    let answer = server.http.ask("tasks/get", &task(&id)).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let problem = "the database is damaged; restore a backup";
    let failing = json!({ "status": "failing", "problem": problem });
    assert_eq!(server.http.health().await, (503, failing));
    assert!(server.logs.text().contains("look at it with `abide db check`"));
    assert!(
        fs::read_dir(folder.database().parent().unwrap())
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_str().unwrap().contains("damaged") })
    );
    server.kill().await;
}

/// Reading goes beside a server, writing does not, and a server does not start beside it.
#[tokio::test(flavor = "multi_thread")]
async fn sql_beside_a_server() {
    let folder = Folder::new("", TOOLS);
    let (server, id) = works(&folder.config(), &folder.database()).await;
    let database = folder.database();
    let store = format!("sqlite:{}", database.display());
    let shell = |arguments: &[&str], sql: &str| {
        let mut command = abide(["db", "shell", "--store", &store]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = shell(&[], "SELECT id FROM tasks;");
    if err.contains("the program `sqlite3` was not found") {
        say("\n*** sql_beside_a_server DID NOT RUN: sqlite3 is not installed here ***");
        return;
    }
    assert_eq!((code, out), (Some(0), format!("{id}\n")), "{err}");
    let (code, _, err) = shell(&[], "DELETE FROM tasks;");
    assert!(code == Some(1) && err.contains("readonly"), "{err}");
    let (code, _, err) = shell(&["--writable"], "DELETE FROM tasks;");
    assert!(code == Some(1) && err.contains("is in use by another abide"), "{err}");
    assert_eq!(server.http.get(&id).await["status"], "completed");
    server.stop().await.well();

    // While it may write it has the lock.
    let mut command = abide(["db", "shell", "--writable", "--store", &store]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"SELECT 1;\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    let Ended { logs, .. } = refused(&folder.config(), &database).await;
    let holder = format!("is in use by another abide (process {})", child.id());
    assert!(logs.contains(&holder), "{logs}");
    input.write_all(b"DELETE FROM tasks;\n").unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    let server = Server::start(&folder.config()).await;
    let answer = server.http.ask("tasks/get", &task(&id)).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_kept_out_by_name_and_disturbs_nobody() {
    let folder = Folder::new("", TOOLS);
    let (first, id) = works(&folder.config(), &folder.database()).await;
    let Ended { logs, .. } = refused(&folder.config(), &folder.database()).await;
    let holder = format!("is in use by another abide (process {})", first.pid());
    assert!(logs.contains(&holder), "{logs}");
    assert_eq!(first.http.get(&id).await["status"], "completed");
    let answer = first.http.call(Declares::Nothing, "hello", &json!({})).await;
    assert_eq!(text(plain(&answer)), "hello\n");
    first.stop().await.well();
    let (second, _) = works(&folder.config(), &folder.database()).await;
    assert_eq!(second.http.get(&id).await["status"], "completed");
    second.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_can_only_be_read() {
    let test = "database::a_database_that_can_only_be_read";
    on_a_small_disk(test, "4m", async |disk| {
        let folder = Folder::new("", TOOLS);
        let database = disk.join("abide.db");
        let (server, id) = works(&folder.config(), &database).await;
        server.stop().await.well();
        assert!(mount(&["-o", "remount,ro"], &disk));
        for name in ["abide.db", "new.db"] {
            let Ended { logs, .. } = refused(&folder.config(), &disk.join(name)).await;
            assert!(logs.contains("is read-only; abide must be able to write"), "{logs}");
        }
        assert!(mount(&["-o", "remount,rw"], &disk));
        let (server, _) = works(&folder.config(), &database).await;
        assert_eq!(server.http.get(&id).await["status"], "completed");
        server.stop().await.well();
    })
    .await;
}

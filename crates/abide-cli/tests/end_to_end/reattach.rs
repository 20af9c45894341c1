//! Commands run on without their server, and the next server takes them up.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Declares, Ended, Folder, Server, abide, alive, ended, eventually, handle, pids_in,
    signal_process, text, until,
};

const TOOLS: &str = r#"
[tools.gate]
description = "Waits for the file `gate`"
command = ["./gate.sh"]
inline = "0s"
kill_grace = "500ms"

[tools.again]
description = "The same, and may be done again"
command = ["./gate.sh"]
inline = "0s"
on_restart = "rerun"
max_attempts = 2
kill_grace = "500ms"

[tools.timed]
description = "The same, for a short time"
command = ["./gate.sh"]
inline = "0s"
timeout = "1s"
kill_grace = "500ms"

[tools.plain]
description = "The same, without a task"
command = ["./gate.sh"]
task = "never"
kill_grace = "500ms"

[tools.deploy]
description = "d"
command = ["echo", "{env}"]
inline = "0s"
input_schema = { type = "object", properties = { env = { type = "string" } } }
"#;

fn folder() -> Folder {
    let folder = Folder::new("", TOOLS);
    folder.gate();
    folder
}

/// The process ids of the commands, once so many run.
async fn commands(folder: &Folder, count: usize) -> Vec<u32> {
    pids_in(&folder.path("pids"), 2 * count).await
}

async fn create(server: &Server, tool: &str) -> String {
    handle(&server.http.call(Declares::Tasks, tool, &json!({})).await)
}

fn runs(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path("abide.db.runs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The runner of a task's only attempt.
fn runner(folder: &Folder, id: &str) -> u32 {
    let lock = fs::read_to_string(folder.path(&format!("abide.db.runs/{id}.1/lock"))).unwrap();
    let line = lock.lines().find_map(|line| line.strip_prefix("runner ")).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_does_not_stop_the_work() {
    let folder = folder();
    let mut server = Server::start(&folder.config()).await;
    let id = create(&server, "gate").await;
    let processes = commands(&folder, 1).await;
    for _ in 0..3 {
        server.kill().await;
        assert!(processes.iter().all(|pid| alive(*pid)));
        server = Server::start(&folder.config()).await;
        let task = server.http.get(&id).await;
        assert_eq!(task["status"], "working", "{task}");
    }
    folder.write("gate", "");
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), "through\n", "{task}");
    assert_eq!(commands(&folder, 1).await, processes, "it was begun once");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_ends_without_a_server_has_its_result() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = create(&server, "gate").await;
    let processes = commands(&folder, 1).await;
    server.stop().await.well();
    folder.write("gate", "");
    until("the command ends", || !processes.iter().any(|pid| alive(*pid))).await;
    let server = Server::start(&folder.config()).await;
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), "through\n", "{task}");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_stops_what_an_earlier_one_began() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = create(&server, "gate").await;
    let timed = create(&server, "timed").await;
    let processes = commands(&folder, 2).await;
    server.kill().await;
    let server = Server::start(&folder.config()).await;
    server.http.ask("tasks/cancel", &crate::common::task(&id)).await;
    let task = server.http.end_of(&id).await;
    assert_eq!(task["status"], "cancelled", "{task}");
    let task = server.http.end_of(&timed).await;
    assert_eq!(task["error"]["data"]["reason"], "timeout", "{task}");
    assert!(!processes.iter().any(|pid| alive(*pid)), "what has ended does not run");
    server.stop().await.well();
}

/// A cancel is durable before it is acknowledged, so a kill right after it changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_outlives_the_server_that_took_it() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = create(&server, "gate").await;
    let processes = commands(&folder, 1).await;
    server.http.ask("tasks/cancel", &crate::common::task(&id)).await;
    server.kill().await;
    let server = Server::start(&folder.config()).await;
    let task = server.http.end_of(&id).await;
    assert_eq!(task["status"], "cancelled", "{task}");
    assert!(!processes.iter().any(|pid| alive(*pid)));
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_runner_fails_its_task_or_runs_it_again() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let once = create(&server, "gate").await;
    let first = commands(&folder, 1).await;
    signal_process(runner(&folder, &once), Signal::KILL);
    let task = server.http.end_of(&once).await;
    assert_eq!(task["error"]["data"]["reason"], "interrupted", "{task}");
    let message = task["error"]["message"].as_str().unwrap();
    assert!(message.contains("Check its effects"), "{message}");
    assert!(!first.iter().any(|pid| alive(*pid)), "what was left of it was stopped");

    let again = create(&server, "again").await;
    let both = commands(&folder, 2).await;
    signal_process(runner(&folder, &again), Signal::KILL);
    let all = commands(&folder, 3).await;
    assert!(!both.iter().any(|pid| alive(*pid)));
    folder.write("gate", "");
    let task = server.http.end_of(&again).await;
    assert_eq!(text(&task["result"]), "through\n", "{task}");
    assert_eq!(commands(&folder, 3).await, all);
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_server_goes_on_where_it_was() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = create(&server, "gate").await;
    let processes = commands(&folder, 1).await;
    server.signal(Signal::STOP);
    folder.write("gate", "");
    until("the command ends", || !processes.iter().any(|pid| alive(*pid))).await;
    server.signal(Signal::CONT);
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), "through\n", "{task}");
    server.stop().await.well();
}

/// Nobody can ever ask for the result of a plain call whose server is gone.
#[tokio::test(flavor = "multi_thread")]
async fn plain_calls_of_a_killed_server_are_stopped_by_the_next() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let waiting = server.http.start_call(Declares::Nothing, "plain", &json!({}));
    let processes = commands(&folder, 1).await;
    server.kill().await;
    assert!(waiting.await.unwrap().is_err());
    assert!(processes.iter().all(|pid| alive(*pid)));
    let server = Server::start(&folder.config()).await;
    until("the command is stopped", || !processes.iter().any(|pid| alive(*pid))).await;
    until("its run is removed", || runs(&folder).is_empty()).await;
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_call_leaves_nothing() {
    let folder = folder();
    folder.write("gate", "");
    let server = Server::start(&folder.config()).await;
    let answer = server.http.call(Declares::Nothing, "plain", &json!({})).await;
    assert_eq!(text(&answer["result"]), "through\n", "{answer}");
    until("its run is removed", || runs(&folder).is_empty()).await;
    server.stop().await.well();
}

/// A tool that the config no longer has can't be waited for; its command must not run for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_tool_that_is_gone_is_stopped() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = create(&server, "gate").await;
    let processes = commands(&folder, 1).await;
    server.kill().await;
    let config = fs::read_to_string(folder.config()).unwrap();
    folder.write("abide.toml", &config.replace("[tools.gate]", "[tools.other]"));
    let server = Server::start(&folder.config()).await;
    let task = server.http.get(&id).await;
    assert_eq!(task["error"]["data"]["reason"], "tool_gone", "{task}");
    until("the command is stopped", || !processes.iter().any(|pid| alive(*pid))).await;
    server.stop().await.well();
}

/// A new program in the place of the old one, as a package manager puts it there, on a database
/// that a version before the last one has made.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_takes_up_older_rows_and_running_commands() {
    let folder = folder();
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../abide-store/tests/fixtures/v1.sql");
    let older = Connection::open(folder.database()).unwrap();
    older.execute_batch(&fs::read_to_string(fixture).unwrap()).unwrap();
    // The caller is this machine's user, and nothing has expired.
    older
        .execute_batch("UPDATE tasks SET owner = 'local', expires_at = NULL, ttl_ms = NULL, keep_ms = NULL WHERE tool = 'deploy'; DELETE FROM tasks WHERE tool <> 'deploy';")
        .unwrap();
    let ids = |state: &str| -> Vec<String> {
        let mut rows = older.prepare("SELECT id FROM tasks WHERE state = ?1").unwrap();
        rows.query_map([state], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let (queued, working, done) = (ids("queued"), ids("working"), ids("completed"));
    assert!(!queued.is_empty() && !working.is_empty() && !done.is_empty());
    older.close().unwrap();

    let program = folder.path("abide");
    fs::copy(env!("CARGO_BIN_EXE_abide"), &program).unwrap();
    let server = Server::start_copy(&program, &folder.config()).await;
    for id in &queued {
        let task: Value = server.http.end_of(id).await;
        assert_eq!(text(&task["result"]).lines().next(), Some("staging"), "{task}");
    }
    for id in &working {
        let task = server.http.get(id).await;
        assert_eq!(task["error"]["data"]["reason"], "interrupted", "{task}");
    }
    let terminal = server.http.get_text(&done[0]).await;
    assert!(terminal.contains("\"status\":\"completed\""), "{terminal}");

    let id = create(&server, "gate").await;
    let processes = commands(&folder, 1).await;
    // The old program is deleted while its runner runs.
    fs::remove_file(&program).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_abide"), &program).unwrap();
    server.kill().await;
    let server = Server::start_copy(&program, &folder.config()).await;
    assert_eq!(server.http.get_text(&done[0]).await, terminal);
    assert_eq!(server.http.get(&id).await["status"], "working");
    // A server whose program is deleted can still start commands.
    fs::remove_file(&program).unwrap();
    let after = create(&server, "gate").await;
    commands(&folder, 2).await;
    folder.write("gate", "");
    for id in [&id, &after] {
        let task = server.http.end_of(id).await;
        assert_eq!(text(&task["result"]), "through\n", "{task}");
    }
    assert!(!processes.iter().any(|pid| alive(*pid)));
    server.stop().await.well();
}

/// A database that is moved away must not take the commands of its tasks with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_ends_no_command() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = create(&server, "gate").await;
    let processes = commands(&folder, 1).await;
    server.stop().await.well();
    fs::rename(folder.database(), folder.path("moved.db")).unwrap();
    let mut command = abide(["serve"]);
    command.arg(folder.config());
    let Ended { status, logs } = ended(command).await;
    assert_eq!(status.code(), Some(1), "{logs}");
    assert!(logs.contains("put the database back"), "{logs}");
    assert!(processes.iter().all(|pid| alive(*pid)));
    fs::rename(folder.path("moved.db"), folder.database()).unwrap();
    let server = Server::start(&folder.config()).await;
    folder.write("gate", "");
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), "through\n", "{task}");
    server.stop().await.well();
}

/// What is deleted after its time leaves nothing in the spool.
#[tokio::test(flavor = "multi_thread")]
async fn the_run_goes_with_its_task() {
    let folder = Folder::new(
        "",
        "[tools.short]\ndescription = \"d\"\ncommand = [\"echo\", \"hello\"]\ninline = \"0s\"\nkeep = \"1ms\"\ntimeout = \"1s\"\n",
    );
    let server = Server::start(&folder.config()).await;
    let id = create(&server, "short").await;
    eventually("its time is over", async || {
        let answer = server.http.ask("tasks/get", &crate::common::task(&id)).await;
        answer.get("error").is_some().then_some(())
    })
    .await;
    assert_eq!(runs(&folder), [format!("{id}.1")]);
    server.kill().await;
    let server = Server::start(&folder.config()).await;
    until("its run is removed", || runs(&folder).is_empty()).await;
    server.stop().await.well();
}

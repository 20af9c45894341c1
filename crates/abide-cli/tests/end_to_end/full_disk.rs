//! A disk without space: at the start a clear word; while the server runs, answers go on, nothing
//! acknowledged is lost, and all is well again when there is space.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{
    Declares, Folder, Server, abide, ended, eventually, handle, on_a_small_disk, text, until,
};

const TOOLS: &str = r#"
[tools.keep]
description = "Its arguments take space in the database"
command = ["printf", "--", "%.10s", "{pad}"]
inline = "0s"
input_schema = { type = "object", properties = { pad = { type = "string" } } }

[tools.gate]
description = "Writes much, and ends once the gate is open"
command = ["sh", "-c", 'head -c 600000 /dev/zero | tr "\0" y; until [ -e gate ]; do sleep 0.05; done']
inline = "0s"

[tools.late]
description = "Writes much once the gate is open"
command = ["sh", "-c", 'echo early; until [ -e gate ]; do sleep 0.05; done; head -c 600000 /dev/zero; echo end; touch written']
inline = "0s"

[tools.small]
description = "d"
command = ["echo", "hello"]
"#;

/// What clients are told while writes fail.
const PLAIN_WORDS: &str = "The server can't reach its database right now; try again.";

/// Fills what is left of the disk.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![b'b'; size]).is_ok() {}
    }
}

/// Waits until all that the tool `gate` prints is kept.
async fn printed(disk: &Path, id: &str) {
    let log = disk.join(format!("abide.db.runs/{id}.1/log"));
    until("its output is kept", || fs::metadata(&log).is_ok_and(|log| log.len() == 600_000)).await;
}

/// Starts a call that becomes a task.
async fn create(server: &Server, number: usize) -> Result<String, Value> {
    let pad = format!("{number:010}{}", "p".repeat(20_000));
    let answer = server.http.call(Declares::Tasks, "keep", &json!({ "pad": pad })).await;
    if answer.get("error").is_some() { Err(answer) } else { Ok(handle(&answer)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_while_the_server_runs() {
    let test = "full_disk::a_disk_that_fills_up_while_the_server_runs";
    on_a_small_disk(test, "24m", async |disk| fill_up_and_go_on(&disk).await).await;
}

async fn fill_up_and_go_on(disk: &Path) {
    let folder = Folder::new("", TOOLS);
    let store = format!("sqlite:{}", disk.join("abide.db").display());
    let start = async || Server::start_with(&folder.config(), &["--store", &store]).await;
    let server = start().await;
    let http = &server.http;
    let gate = handle(&http.call(Declares::Tasks, "gate", &json!({})).await);
    let late = handle(&http.call(Declares::Tasks, "late", &json!({})).await);
    printed(disk, &gate).await;

    assert_eq!(http.health().await, (200, json!({ "status": "ok" })));

    // Terminal tasks, with their bytes, and others, before and while it gets tight.
    let mut number = 0;
    let mut acknowledged = BTreeMap::new();
    for _ in 0..20 {
        let id = create(&server, number).await.expect("there is space");
        http.end_of(&id).await;
        acknowledged.insert(id.clone(), (number, Some(http.get_text(&id).await)));
        number += 1;
    }
    let ballast = disk.join("ballast");
    fill(&ballast);
    let refused = loop {
        match create(&server, number).await {
            Ok(id) => drop(acknowledged.insert(id, (number, None))),
            Err(refused) => break refused,
        }
        number += 1;
        assert!(number < 10_000, "the disk is never full");
    };
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    assert_eq!(refused["error"]["message"], PLAIN_WORDS);

    // It keeps answering: reads, plain calls, and the same words for what can't be written.
    for (id, (_, terminal)) in &acknowledged {
        match terminal {
            Some(bytes) => assert_eq!(&http.get_text(id).await, bytes),
            None => drop(http.get(id).await),
        }
    }
    let answer = http.call(Declares::Nothing, "small", &json!({})).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(text(&answer["result"]).contains("its output could not be kept"), "{answer}");
    let answer = http.ask("tools/list", &json!({ "_meta": Declares::Tasks.meta() })).await;
    assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(4));

    let (status, said) = http.health().await;
    assert_eq!((status, &said["status"]), (503, &json!("failing")), "{said}");
    assert_eq!(said["problem"], "the disk is full");

    // A result that has no space: the task does not claim it, the log is loud, and health says so,
    // also when smaller writes find space.
    folder.write("gate", "");
    server.logs.line("could not be written; it is tried again").await;
    eventually("health tells of results that wait", async || {
        let (status, said) = http.health().await;
        let waits = said["problem"].as_str().is_some_and(|problem| problem.contains("in memory"));
        assert_eq!(status, 503, "{said}");
        waits.then_some(())
    })
    .await;
    assert_eq!(http.get(&gate).await["status"], "working");
    until("the late output is written", || folder.path("written").exists()).await;

    fs::remove_file(&ballast).unwrap();
    let ended = http.end_of(&gate).await;
    assert_eq!(ended["status"], "completed");
    assert_eq!(text(&ended["result"]), "y".repeat(600_000));
    // What found no room is missing, and the result says so.
    let ended = http.end_of(&late).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(text(&ended["result"]).starts_with("early\n"), "{ended}");
    let said = ended["result"]["content"][1]["text"].as_str().unwrap_or_default();
    assert!(said.contains("bytes of the output are missing"), "{ended}");
    // Without a restart.
    let id =
        eventually("the database takes tasks again", async || create(&server, number).await.ok())
            .await;
    acknowledged.insert(id, (number, None));
    for (id, (number, _)) in &acknowledged {
        let task = http.end_of(id).await;
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(text(&task["result"]), format!("{number:010}"));
    }
    eventually("health comes back by itself", async || {
        (http.health().await == (200, json!({ "status": "ok" }))).then_some(())
    })
    .await;
    let gate_bytes = http.get_text(&gate).await;
    server.kill().await;

    let server = start().await;
    assert_eq!(server.http.get_text(&gate).await, gate_bytes);
    for (id, (number, terminal)) in &acknowledged {
        let now = server.http.get_text(id).await;
        let task: Value = serde_json::from_str(&now).unwrap();
        assert_eq!(text(&task["result"]["result"]), format!("{number:010}"));
        assert!(terminal.as_ref().is_none_or(|bytes| *bytes == now), "{now}");
    }
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_at_the_start() {
    let test = "full_disk::a_disk_that_is_full_at_the_start";
    on_a_small_disk(test, "4m", async |disk| {
        let folder = Folder::new("", TOOLS);
        let old = format!("sqlite:{}", disk.join("old.db").display());
        let server = Server::start_with(&folder.config(), &["--store", &old]).await;
        let id = create(&server, 1).await.expect("there is space");
        server.http.end_of(&id).await;
        let bytes = server.http.get_text(&id).await;
        server.stop().await.well();
        fill(&disk.join("ballast"));
        for name in ["old.db", "new.db"] {
            let mut command = abide(["serve"]);
            let store = format!("sqlite:{}", disk.join(name).display());
            command.arg(folder.config()).args(["--store", &store]);
            let ended = ended(command).await;
            assert_eq!(ended.status.code(), Some(1), "{}", ended.logs);
            let words = format!("the disk that holds {} is full", disk.join(name).display());
            assert!(ended.logs.contains(&words), "{}", ended.logs);
        }
        fs::remove_file(disk.join("ballast")).unwrap();
        let server = Server::start_with(&folder.config(), &["--store", &old]).await;
        assert_eq!(server.http.get_text(&id).await, bytes);
        server.stop().await.well();
    })
    .await;
}

/// Cancels are acknowledged only when they are on disk, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_can_not_be_written_is_not_acknowledged() {
    let test = "full_disk::a_cancel_that_can_not_be_written_is_not_acknowledged";
    on_a_small_disk(test, "8m", async |disk| {
        let folder = Folder::new("", TOOLS);
        let store = format!("sqlite:{}", disk.join("abide.db").display());
        let server = Server::start_with(&folder.config(), &["--store", &store]).await;
        let gate = handle(&server.http.call(Declares::Tasks, "gate", &json!({})).await);
        printed(&disk, &gate).await;
        fill(&disk.join("ballast"));
        // A write of one row may still find space in the log; those before it take that.
        let mut number = 0;
        until_full(&server, &mut number).await;
        let params = crate::common::task(&gate);
        let answer = server.http.ask("tasks/cancel", &params).await;
        let acknowledged = answer.get("result").is_some();
        if !acknowledged {
            assert_eq!(answer["error"]["code"], -32603, "{answer}");
            assert_eq!(answer["error"]["message"], PLAIN_WORDS);
        }
        fs::remove_file(disk.join("ballast")).unwrap();
        eventually("the cancel is taken", async || {
            let answer = server.http.ask("tasks/cancel", &params).await;
            answer.get("result").is_some().then_some(())
        })
        .await;
        let task = server.http.end_of(&gate).await;
        assert_eq!(task["status"], "cancelled", "{task}");
        let pid = server.pid();
        server.stop().await.well();
        until("the server is gone", || !crate::common::alive(pid)).await;
    })
    .await;
}

async fn until_full(server: &Server, number: &mut usize) {
    while create(server, *number).await.is_ok() {
        *number += 1;
        assert!(*number < 10_000, "the disk is never full");
    }
}

//! Stopping gracefully: tasks of tools that reattach go on; of other work, what ends in time is
//! kept, and what does not is stopped and told honestly.

use rustix::process::Signal;
use serde_json::json;

use crate::common::{Declares, Folder, Server, alive, handle, pids_in, plain, text, until};

const TOOLS: &str = r#"
[tools.gate]
description = "Waits for the file `gate`"
command = ["./gate.sh"]
inline = "0s"
on_restart = "fail"
kill_grace = "500ms"

[tools.again]
description = "The same, and may be done again"
command = ["./gate.sh"]
inline = "0s"
on_restart = "rerun"
max_attempts = 2
kill_grace = "500ms"

[tools.stubborn]
description = "Does not listen to SIGTERM, nor do those it starts"
command = ["sh", "-c", 'trap "" TERM; exec ./gate.sh']
inline = "0s"
on_restart = "fail"
kill_grace = "300ms"

[tools.single]
description = "One at a time"
command = ["./gate.sh"]
inline = "0s"
concurrency = 1
kill_grace = "500ms"
"#;

const STOPPED: &str = "The server was stopped while the work was running, and the work was \
                       stopped with it. Call the tool again if it is safe to repeat.";

/// A folder with the tools.
fn folder(server: &str) -> Folder {
    let folder = Folder::new(server, TOOLS);
    folder.gate();
    folder
}

/// The process ids of the tools' groups, once so many run.
async fn groups(folder: &Folder, count: usize) -> Vec<u32> {
    pids_in(&folder.path("pids"), 2 * count).await
}

fn none_alive(processes: &[u32]) -> bool {
    !processes.iter().any(|pid| alive(*pid))
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_ends_within_the_grace_is_stored() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = folder("shutdown_grace = \"1m\"");
        let server = Server::start(&folder.config()).await;
        let id = handle(&server.http.call(Declares::Tasks, "gate", &json!({})).await);
        let processes = groups(&folder, 1).await;
        server.signal(signal);
        server.logs.line("finishing what is under way").await;
        assert!(processes.iter().all(|pid| alive(*pid)));
        folder.write("gate", "");
        server.ended().await.well();
        assert!(none_alive(&processes), "the group outlives the server");

        let server = Server::start(&folder.config()).await;
        let task = server.http.get(&id).await;
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(text(&task["result"]), "through\n");
        server.stop().await.well();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_beyond_the_grace_is_stopped_and_failed_honestly() {
    for tool in ["gate", "stubborn"] {
        let folder = folder("shutdown_grace = \"200ms\"");
        let server = Server::start(&folder.config()).await;
        let id = handle(&server.http.call(Declares::Tasks, tool, &json!({})).await);
        let processes = groups(&folder, 1).await;
        server.stop().await.well();
        assert!(none_alive(&processes), "the group outlives the server");

        let server = Server::start(&folder.config()).await;
        let task = server.http.get(&id).await;
        assert_eq!(task["status"], "failed", "{task}");
        assert_eq!(task["error"]["data"]["reason"], "interrupted", "{task}");
        assert_eq!(task["error"]["message"], STOPPED, "{task}");
        assert_eq!(task["statusMessage"], STOPPED, "{task}");
        server.stop().await.well();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_may_be_done_again_is_stopped_and_done_again() {
    let folder = folder("shutdown_grace = \"200ms\"");
    let server = Server::start(&folder.config()).await;
    let id = handle(&server.http.call(Declares::Tasks, "again", &json!({})).await);
    let first = groups(&folder, 1).await;
    server.stop().await.well();
    assert!(none_alive(&first), "the group outlives the server");

    let server = Server::start(&folder.config()).await;
    let both = groups(&folder, 2).await;
    // The second attempt is the last that is allowed.
    server.kill().await;
    assert!(both[2..].iter().all(|pid| alive(*pid)));
    let server = Server::start(&folder.config()).await;
    let task = server.http.end_of(&id).await;
    assert_eq!(task["error"]["data"]["reason"], "interrupted", "{task}");
    assert!(none_alive(&both), "work whose task has failed goes on");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_hurries() {
    // Longer than any test waits.
    let folder = folder("shutdown_grace = \"1h\"");
    let server = Server::start(&folder.config()).await;
    let id = handle(&server.http.call(Declares::Tasks, "gate", &json!({})).await);
    let waiting = server.http.start_call(Declares::Nothing, "stubborn", &json!({}));
    let processes = groups(&folder, 2).await;
    server.signal(Signal::TERM);
    server.logs.line("finishing what is under way").await;
    server.signal(Signal::TERM);
    server.ended().await.well();
    assert!(none_alive(&processes), "the group outlives the server");
    let answer = waiting.await.unwrap().expect("an answer").json();
    assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}");

    let server = Server::start(&folder.config()).await;
    let task = server.http.get(&id).await;
    assert_eq!(task["error"]["data"]["reason"], "interrupted", "{task}");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_calls_under_way_get_their_answer() {
    let folder = folder("shutdown_grace = \"1m\"");
    let server = Server::start(&folder.config()).await;
    let waiting = server.http.start_call(Declares::Nothing, "gate", &json!({}));
    groups(&folder, 1).await;
    server.signal(Signal::TERM);
    server.logs.line("finishing what is under way").await;
    folder.write("gate", "");
    let answer = waiting.await.unwrap().expect("an answer").json();
    assert_eq!(text(plain(&answer)), "through\n");
    server.ended().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_calls_beyond_the_grace_are_told_so() {
    let folder = folder("shutdown_grace = \"200ms\"");
    let server = Server::start(&folder.config()).await;
    let waiting = server.http.start_call(Declares::Nothing, "stubborn", &json!({}));
    let processes = groups(&folder, 1).await;
    server.stop().await.well();
    let answer = waiting.await.unwrap().expect("an answer").json();
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}");
    assert!(none_alive(&processes));
}

/// What waits for its turn was promised too: it waits for the next server.
#[tokio::test(flavor = "multi_thread")]
async fn queued_tasks_stay_queued_and_run_after_the_restart() {
    let folder = folder("shutdown_grace = \"200ms\"");
    let server = Server::start(&folder.config()).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(handle(&server.http.call(Declares::Tasks, "single", &json!({})).await));
    }
    groups(&folder, 1).await;
    let waits = server.http.get(&ids[3]).await;
    let message = waits["statusMessage"].as_str().unwrap_or_default();
    assert!(message.starts_with("Queued"), "{waits}");
    server.stop().await.well();
    folder.write("gate", "");

    let server = Server::start(&folder.config()).await;
    for id in &ids {
        let task = server.http.end_of(id).await;
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(text(&task["result"]), "through\n");
    }
    let pid = server.pid();
    server.stop().await.well();
    until("the server is gone", || !alive(pid)).await;
}

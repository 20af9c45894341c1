//! `abide serve FILE --stdio` as the child of a client.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Declares, Folder, Server, Stdio, alive, handle, pids_in, plain, task, text, until,
};

const TOOLS: &str = r#"
[tools.hello]
description = "d"
command = ["echo", "hello"]

[tools.gate]
description = "Waits for the file `gate`"
command = ["./gate.sh"]
inline = "0s"
kill_grace = "500ms"
"#;

fn meta() -> Value {
    json!({ "_meta": Declares::Tasks.meta() })
}

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

async fn gone(processes: &[u32]) {
    until("nothing is left running", || !processes.iter().any(|pid| alive(*pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_from_discovery_to_the_result_of_a_task() {
    let folder = folder("");
    let mut session = Stdio::start(&folder.config());
    let answer = session.ask("server/discover", &meta()).await;
    let result = &answer["result"];
    assert!(result["capabilities"]["extensions"][crate::common::TASKS].is_object(), "{answer}");
    let versions = result["supportedVersions"].as_array().expect("versions");
    assert!(versions.contains(&json!(crate::common::VERSION)), "{answer}");

    let answer = session.ask("tools/list", &meta()).await;
    let tools = answer["result"]["tools"].as_array().expect("tools");
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hello", "gate"]);

    let answer = session.call(Declares::Tasks, "hello", &json!({})).await;
    assert_eq!(text(plain(&answer)), "hello\n");
    let id = handle(&session.call(Declares::Tasks, "gate", &json!({})).await);
    let answer = session.ask("tasks/get", &task(&id)).await;
    assert_eq!(answer["result"]["status"], "working", "{answer}");
    let processes = groups(&folder, 1).await;
    folder.write("gate", "");
    let done = session.end_of(&id).await;
    assert_eq!(text(&done["result"]), "through\n", "{done}");

    let unknown = session.ask("tasks/list", &meta()).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    session.end_input();
    let (ended, rest) = session.ended().await;
    ended.well();
    assert!(rest.is_empty(), "{rest:?}");
    gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_of_input_what_is_under_way_is_answered_first() {
    let folder = folder("");
    let mut session = Stdio::start(&folder.config());
    let calls: Vec<u64> = (0..3)
        .map(|_| session.send("tools/call", &Declares::Nothing.call("gate", &json!({}))))
        .collect();
    let listed = session.send("tools/list", &meta());
    session.answer(listed).await;
    let processes = groups(&folder, 3).await;
    session.end_input();
    assert!(alive(session.pid()) && processes.iter().all(|pid| alive(*pid)));
    folder.write("gate", "");
    let (ended, rest) = session.ended().await;
    ended.well();
    let mut answered: Vec<u64> = rest.iter().filter_map(|answer| answer["id"].as_u64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, calls, "{rest:?}");
    for answer in &rest {
        assert_eq!(text(plain(answer)), "through\n");
    }
    gone(&processes).await;
}

/// A task was promised, so its work goes on without the client, and the next one finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_outlives_the_end_of_input() {
    let folder = folder("shutdown_grace = \"1h\"");
    let mut session = Stdio::start(&folder.config());
    let id = handle(&session.call(Declares::Tasks, "gate", &json!({})).await);
    let processes = groups(&folder, 1).await;
    session.end_input();
    let (ended, _) = session.ended().await;
    ended.well();
    assert!(processes.iter().all(|pid| alive(*pid)));
    let server = Server::start(&folder.config()).await;
    assert_eq!(server.http.get(&id).await["status"], "working");
    folder.write("gate", "");
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), "through\n", "{task}");
    gone(&processes).await;
    server.stop().await.well();
}

/// Nobody can ever see the result of a plain call, so its work does not go on.
#[tokio::test(flavor = "multi_thread")]
async fn plain_work_that_outlasts_the_end_of_input_is_stopped() {
    let folder = folder("shutdown_grace = \"300ms\"");
    let mut session = Stdio::start(&folder.config());
    session.send("tools/call", &Declares::Nothing.call("gate", &json!({})));
    let processes = groups(&folder, 1).await;
    session.end_input();
    session.ended().await.0.well();
    gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_though_the_input_stays_open() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = folder("shutdown_grace = \"300ms\"");
        let mut session = Stdio::start(&folder.config());
        session.send("tools/call", &Declares::Nothing.call("gate", &json!({})));
        let processes = groups(&folder, 1).await;
        session.signal(signal);
        let (ended, _) = session.ended().await;
        ended.well();
        gone(&processes).await;
    }
}

/// A client that kills its server leaves no server behind, and what was acknowledged is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_leaves_its_tasks() {
    let folder = folder("");
    let mut session = Stdio::start(&folder.config());
    let id = handle(&session.call(Declares::Tasks, "gate", &json!({})).await);
    let processes = groups(&folder, 1).await;
    session.signal(Signal::KILL);
    let (ended, _) = session.ended().await;
    assert_eq!(ended.status.code(), None);
    assert!(processes.iter().all(|pid| alive(*pid)));
    let mut session = Stdio::start(&folder.config());
    let answer = session.ask("tasks/get", &task(&id)).await;
    assert_eq!(answer["result"]["status"], "working", "{answer}");
    folder.write("gate", "");
    let done = session.end_of(&id).await;
    assert_eq!(text(&done["result"]), "through\n", "{done}");
    gone(&processes).await;
    session.end_input();
    session.ended().await.0.well();
}

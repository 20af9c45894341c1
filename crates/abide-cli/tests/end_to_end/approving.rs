//! Work that begins only when somebody has approved it.

use serde_json::{Value, json};

use crate::common::{
    Declares, Folder, Server, Stdio, alive, eventually, handle, pids_in, task, text,
};

const TOOLS: &str = r#"
[tools.deploy]
description = "d"
command = ["sh", "-c", 'echo $$ >> begun; echo "deployed $1"', "--", "{env}"]
inline = "1m"
concurrency = 1
on_restart = "fail"
input = { env = { type = "string" } }
approve = { message = "Deploy {{now}} to {env}?" }

[tools.gate]
description = "d"
command = ["./gate.sh"]
concurrency = 1
kill_grace = "500ms"
approve = { message = "Sure?", on_decline = "cancel" }
"#;

fn folder() -> Folder {
    let folder = Folder::new("shutdown_grace = \"300ms\"", TOOLS);
    folder.gate();
    folder
}

async fn create(server: &Server, tool: &str) -> String {
    let arguments = if tool == "deploy" { json!({ "env": "prod" }) } else { json!({}) };
    handle(&server.http.call(Declares::Tasks, tool, &arguments).await)
}

/// The task, once it asks.
async fn asked(server: &Server, id: &str) -> Value {
    eventually("it asks", async || {
        let task = server.http.get(id).await;
        (task["status"] == "input_required").then_some(task)
    })
    .await
}

async fn answer(server: &Server, id: &str, response: Value) -> Value {
    let mut params = task(id);
    params["inputResponses"] = json!({ "approve": response });
    server.http.ask("tasks/update", &params).await
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "approve": true } })
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_explicit_yes_goes_on() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let no = json!({ "action": "accept", "content": { "approve": false } });
    for (response, goes_on) in [
        (yes(), true),
        (no, false),
        (json!({ "action": "decline" }), false),
        (json!({ "action": "cancel" }), false),
    ] {
        let id = create(&server, "deploy").await;
        let asked = asked(&server, &id).await;
        let params = &asked["inputRequests"]["approve"]["params"];
        assert_eq!(params["message"], "Deploy {now} to prod?", "{asked}");
        for unclear in [json!({ "action": "accept" }), json!({ "action": "yes" }), json!(true)] {
            let refused = answer(&server, &id, unclear).await;
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
        }
        answer(&server, &id, response).await;
        let done = server.http.end_of(&id).await;
        assert_eq!(done["status"], "completed", "{done}");
        assert_eq!(done["result"]["isError"] == true, !goes_on, "{done}");
        let wanted = if goes_on { "deployed prod\n" } else { "Declined: the work was not begun." };
        assert_eq!(text(&done["result"]), wanted);
    }
    assert_eq!(folder.read("begun").lines().count(), 1);

    let id = create(&server, "gate").await;
    asked(&server, &id).await;
    answer(&server, &id, json!({ "action": "decline" })).await;
    let done = server.http.end_of(&id).await;
    assert_eq!(done["status"], "cancelled", "{done}");
    assert_eq!(folder.read("pids"), "");
    server.stop().await.well();
}

/// Whatever the tool says of its work: nothing of it has begun.
#[tokio::test(flavor = "multi_thread")]
async fn the_question_outlives_servers_that_stop_and_that_are_killed() {
    let folder = folder();
    let mut server = Server::start(&folder.config()).await;
    let id = create(&server, "deploy").await;
    asked(&server, &id).await;
    for kill in [true, false, true] {
        if kill {
            server.kill().await;
        } else {
            server.stop().await.well();
        }
        server = Server::start(&folder.config()).await;
        let asked = server.http.get(&id).await;
        assert_eq!(asked["status"], "input_required", "{asked}");
    }
    answer(&server, &id, yes()).await;
    let done = server.http.end_of(&id).await;
    assert_eq!(text(&done["result"]), "deployed prod\n", "{done}");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_takes_no_slot_and_what_works_takes_one() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(create(&server, "gate").await);
    }
    for id in &ids {
        asked(&server, id).await;
    }
    for id in &ids[..3] {
        answer(&server, id, yes()).await;
    }
    // One of the three has the only slot.
    let processes = pids_in(&folder.path("pids"), 2).await;
    let waits = server.http.get(&ids[19]).await;
    assert_eq!(waits["status"], "input_required", "{waits}");
    server.http.ask("tasks/cancel", &task(&ids[19])).await;
    assert_eq!(server.http.end_of(&ids[19]).await["status"], "cancelled");
    server.kill().await;
    let server = Server::start(&folder.config()).await;
    assert!(processes.iter().all(|pid| alive(*pid)));
    assert_eq!(folder.read("pids").lines().count(), 2, "no more than one works");
    folder.write("gate", "");
    for id in &ids[..3] {
        let done = server.http.end_of(id).await;
        assert_eq!(text(&done["result"]), "through\n", "{done}");
    }
    assert_eq!(folder.read("pids").lines().count(), 6);
    server.stop().await.well();
}

/// The time of work begins with it, however long it has waited for its turn.
#[tokio::test(flavor = "multi_thread")]
async fn approved_work_that_waits_for_its_turn_takes_no_time() {
    let folder = Folder::new(
        "",
        &TOOLS.replace("kill_grace = \"500ms\"", "kill_grace = \"500ms\"\ntimeout = \"3s\""),
    );
    folder
        .script("gate.sh", "echo $$ >> pids; until [ -e gate ]; do sleep 0.02; done; echo through");
    let server = Server::start(&folder.config()).await;
    let (first, second) = (create(&server, "gate").await, create(&server, "gate").await);
    for id in [&first, &second] {
        asked(&server, id).await;
        answer(&server, id, yes()).await;
    }
    // The first one's time is over, and so would the second one's be.
    let (done, other) = tokio::select! {
        done = server.http.end_of(&first) => (done, &second),
        done = server.http.end_of(&second) => (done, &first),
    };
    assert_eq!(done["error"]["data"]["reason"], "timeout", "{done}");
    pids_in(&folder.path("pids"), 2).await;
    folder.write("gate", "");
    let done = server.http.end_of(other).await;
    assert_eq!(text(&done["result"]), "through\n", "{done}");
    server.stop().await.well();
}

/// Who can't follow a task can't be asked through one, and nothing runs unasked.
#[tokio::test(flavor = "multi_thread")]
async fn who_can_not_be_asked_is_refused() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let answer = server.http.call(Declares::Nothing, "deploy", &json!({ "env": "prod" })).await;
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
    server.stop().await.well();
    let mut session = Stdio::start(&folder.config());
    let answer = session.call(Declares::Nothing, "deploy", &json!({ "env": "prod" })).await;
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
    session.end_input();
    session.ended().await.0.well();
    assert_eq!(folder.read("begun"), "");
}

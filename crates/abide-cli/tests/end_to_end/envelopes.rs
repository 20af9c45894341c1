//! Both envelopes, over both transports.

use serde_json::{Value, json};

use crate::common::{Declares, Folder, Server, Stdio, eventually, task, text, without_log};

const TOOLS: &str = r#"
[tools.hello]
description = "d"
command = ["echo", "hello"]
inline = "0s"
"#;

/// What a task always has.
const MEMBERS: [&str; 6] =
    ["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"];

/// Takes the task out of an answer, and asserts that it is in the right place and no other.
#[track_caller]
fn task_in(envelope: &str, answer: &Value, result_type: &str) -> Value {
    let result = &answer["result"];
    assert_eq!(result["resultType"], result_type, "{answer}");
    let (inside, outside) = match envelope {
        "nested" => (&result["task"], Some(result)),
        _ => (result, None),
    };
    for member in MEMBERS {
        assert!(inside.get(member).is_some(), "no {member}: {answer}");
        assert!(outside.is_none_or(|outside| outside.get(member).is_none()), "{member}: {answer}");
    }
    assert!(outside.is_some() || result.get("task").is_none(), "{answer}");
    inside.clone()
}

fn is_done(task: &Value) -> bool {
    let done = task["status"] == "completed";
    assert_eq!(done, task.get("result").is_some(), "{task}");
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_where_the_config_says() {
    for envelope in ["flat", "nested"] {
        let folder = Folder::new(&format!("envelope = \"{envelope}\""), TOOLS);
        let server = Server::start(&folder.config()).await;
        let answer = server.http.call(Declares::Tasks, "hello", &json!({})).await;
        let id = task_in(envelope, &answer, "task")["taskId"].as_str().unwrap().to_owned();
        let done = eventually("the task ends", async || {
            let answer = server.http.ask("tasks/get", &task(&id)).await;
            Some(task_in(envelope, &answer, "complete")).filter(is_done)
        })
        .await;
        assert_eq!(text(&done["result"]), "hello\n");
        let ack = server.http.ask("tasks/cancel", &task(&id)).await;
        assert_eq!(ack["result"], json!({ "resultType": "complete" }));
        let plain = server.http.call(Declares::Nothing, "hello", &json!({})).await;
        assert_eq!(plain["result"], without_log(&done["result"]), "a plain result has no envelope");
        server.stop().await.well();

        let mut session = Stdio::start(&folder.config());
        let answer = session.ask("tasks/get", &task(&id)).await;
        assert_eq!(task_in(envelope, &answer, "complete"), done);
        let answer = session.call(Declares::Tasks, "hello", &json!({})).await;
        task_in(envelope, &answer, "task");
        session.end_input();
        session.ended().await.0.well();
    }
}

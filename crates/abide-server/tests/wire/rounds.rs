//! Questions before a task: the protocol's own rounds, resolved before any handle goes out
//! (`sep-2663-mrtr-synchronous-before-task-creation`).

use serde_json::{Value, json};

use crate::common::*;

#[tokio::test]
async fn questions_come_before_the_handle() {
    let server = Fixture::new().start().await;
    let mut stdio = server.stdio();
    let mut meta = declared();
    let elicitation = json!({ "elicitation": { "form": {} }, "extensions": { TASKS: {} } });
    meta["io.modelcontextprotocol/clientCapabilities"] = elicitation;
    let first = call(meta.clone(), "asks_first", json!({}));
    let over_http = server.http.ask("tools/call", &first).await.json();
    assert_eq!(over_http["result"]["resultType"], "input_required", "{over_http:#}");
    assert_eq!(over_http["result"]["inputRequests"]["who"]["method"], "elicitation/create");
    assert_eq!(over_http["result"]["requestState"], "round 1");
    assert_eq!(stdio.ask("tools/call", &first).await["result"], over_http["result"]);
    assert_eq!(server.rows(), 0, "nothing began");

    let answered = |meta: Value, state: &str| {
        let mut params = call(meta, "asks_first", json!({}));
        params["inputResponses"] =
            json!({ "who": { "action": "accept", "content": { "name": "Ада" } } });
        params["requestState"] = json!(state);
        params
    };
    let wrong = server.http.ask("tools/call", &answered(meta.clone(), "forged")).await.json();
    assert_eq!(error_code(&wrong), -32602, "{wrong:#}");
    assert_eq!(server.rows(), 0);

    let second = answered(meta.clone(), "round 1");
    let over_stdio = stdio.ask("tools/call", &second).await;
    let created = server.http.ask("tools/call", &second).await.json();
    for handle in [over_stdio, created] {
        fits("CreateTaskResult", &handle["result"]);
        let id = handle["result"]["taskId"].as_str().expect("a handle");
        let done = server.until_status(id, "completed").await;
        assert_eq!(done["result"]["structuredContent"]["who"]["content"]["name"], "Ада");
    }
}

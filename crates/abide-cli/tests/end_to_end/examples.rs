//! The examples, as they are: each of their tools really runs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Declares, Folder, Server, example, handle, plain, text};

/// Serves an example with a database elsewhere.
async fn serve(name: &str, folder: &Folder) -> Server {
    let store = format!("sqlite:{}", folder.database().display());
    let arguments = ["--listen", "127.0.0.1:0", "--store", &store];
    Server::start_with(&example(name), &arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart() {
    let folder = Folder::new("", "");
    let server = serve("quickstart.toml", &folder).await;
    let http = &server.http;
    let listed = http.ask("tools/list", &json!({ "_meta": Declares::Tasks.meta() })).await;
    let schema = listed["result"]["tools"]
        .as_array()
        .and_then(|tools| tools.iter().find(|tool| tool["name"] == "report"))
        .map(|tool| tool["outputSchema"].clone())
        .expect("the report has an output schema");

    let text_of = json!({ "text": "--three  words\nhere" });
    let answer = http.call(Declares::Tasks, "word_count", &text_of).await;
    assert_eq!(text(plain(&answer)).trim(), "3");

    // All at once, since each takes seconds.
    let good = handle(&http.call(Declares::Tasks, "report", &json!({ "quarter": 2 })).await);
    let failing = json!({ "quarter": 3, "fail": true });
    let failing = handle(&http.call(Declares::Tasks, "report", &failing).await);
    let counting = handle(&http.call(Declares::Tasks, "countdown", &json!({ "seconds": 4 })).await);
    let refused = http.call(Declares::Nothing, "report", &json!({ "quarter": 1 })).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let waited = http.call(Declares::Nothing, "countdown", &json!({ "seconds": 1 })).await;
    assert_eq!(text(plain(&waited)), "1\nLift-off!\n");

    let counted = http.end_of(&counting).await;
    assert_eq!(text(&counted["result"]), "4\n3\n2\n1\nLift-off!\n", "{counted}");
    let failed = http.end_of(&failing).await;
    assert_eq!(failed["status"], "completed", "{failed}");
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert!(text(&failed["result"]).contains("can't be read, as you wished"), "{failed}");
    assert!(text(&failed["result"]).contains("exit code 3"), "{failed}");
    assert!(failed["result"].get("structuredContent").is_none(), "{failed}");

    let report = http.end_of(&good).await;
    let structured = &report["result"]["structuredContent"];
    let expected = json!({ "quarter": 2, "orders": 240, "revenue": "9422.50" });
    assert_eq!(structured, &expected, "{report}");
    assert!(jsonschema::is_valid(&schema, structured));
    let printed: Value = serde_json::from_str(&text(&report["result"])).unwrap();
    assert_eq!(printed, expected);
    server.stop().await.well();
}

/// This repository's own check, as a task.
#[tokio::test(flavor = "multi_thread")]
async fn tidy_as_a_task() {
    let folder = Folder::new("", "");
    let server = serve("ci.toml", &folder).await;
    let id = handle(&server.http.call(Declares::Tasks, "tidy", &json!({})).await);
    // On a cold checkout it builds first.
    let built = tokio::time::timeout(Duration::from_secs(220), async {
        while server.http.get(&id).await["status"] == "working" {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    built.await.expect("tidy ends");
    let task = server.http.end_of(&id).await;
    assert_eq!(task["status"], "completed", "{task}");
    let said = text(&task["result"]);
    assert!(task["result"].get("isError").is_none(), "{said}");
    assert!(said.contains("the house rules hold"), "{said}");
    server.stop().await.well();
}

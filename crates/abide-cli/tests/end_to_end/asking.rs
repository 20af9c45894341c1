//! A script asks and tells in the middle of its work, whoever dies in between.

use serde_json::{Value, json};

use crate::common::{Declares, Folder, Server, eventually, handle, task, text};

const TOOLS: &str = r#"
[tools.release]
description = "Asks twice, tells how far it is, and says what it was told"
command = ["./release.sh"]
inline = "0s"
timeout = "1m"

[tools.kinds]
description = "Asks what it is told to ask"
command = ["./kinds.sh"]
inline = "0s"
"#;

const RELEASE: &str = r#"
set -e
abide say "Compiling 3/10" --percent 30
where=$(abide ask "Where to?" --choice staging,prod --key where)
if abide ask "Deploy to $where?" --confirm --key sure > /dev/null; then sure=yes; else sure=$?; fi
echo "$where $sure"
"#;

const KINDS: &str = r#"
say() { echo "$1: $(cat out) ($2)"; }
ask() { name=$1; shift; abide ask "$@" --key "$name" > out 2> err; say "$name" $?; }
ask text "Your name?" --text --min 2 --max 10
ask integer "How many?" --integer --min 1
ask number "How much?" --number
ask declined "Really?" --confirm
ask dismissed "Really?" --confirm
ask no "Really?" --confirm
ask page "Look here" --url https://example.com/approve
echo '{"method":"roots/list","params":{}}' > roots.json
ask roots --request roots.json
echo '{"type":"object","properties":{"a":{"type":"string","title":"Ä"}}}' > schema.json
ask schema "Fill in" --schema schema.json
ask text "Your name?" --text --min 2 --max 10
ask text "Another question?" --text
abide ask "Anybody?" --text --timeout 10ms --default nobody
abide ask "Anybody?" --text --timeout 10ms; echo "timeout $?"
env | grep -c "$ABIDE_TOKEN"; env | grep ^ABIDE_TOKEN
"#;

fn folder() -> Folder {
    let folder = Folder::new("", TOOLS);
    folder.script("release.sh", RELEASE);
    folder.script("kinds.sh", KINDS);
    folder
}

/// The open question under this key.
async fn question(server: &Server, id: &str, key: &str) -> Value {
    eventually("it asks", async || {
        let task = server.http.get(id).await;
        assert!(task["status"] == "working" || task["status"] == "input_required", "{task}");
        task["inputRequests"].get(key).cloned()
    })
    .await
}

async fn answer(server: &Server, id: &str, key: &str, response: Value) -> Value {
    let mut params = task(id);
    params["inputResponses"] = json!({ key: response });
    server.http.ask("tasks/update", &params).await
}

fn accept(value: impl Into<Value>) -> Value {
    json!({ "action": "accept", "content": { "answer": value.into() } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_asks_and_the_servers_die_in_between() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = handle(&server.http.call(Declares::Tasks, "release", &json!({})).await);
    let asked = question(&server, &id, "where").await;
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["message"], "Where to?", "{asked}");
    let field = &asked["params"]["requestedSchema"]["properties"]["answer"];
    assert_eq!(field["enum"], json!(["staging", "prod"]), "{asked}");
    assert_eq!(server.http.get(&id).await["statusMessage"], "Compiling 3/10");

    // Between the question and the answer.
    server.kill().await;
    let server = Server::start(&folder.config()).await;
    assert_eq!(question(&server, &id, "where").await, asked);
    let wrong = answer(&server, &id, "where", accept("mars")).await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    answer(&server, &id, "where", accept("prod")).await;
    // Between the answer and its delivery, perhaps.
    server.kill().await;
    let server = Server::start(&folder.config()).await;
    let asked = question(&server, &id, "sure").await;
    assert_eq!(asked["params"]["message"], "Deploy to prod?", "{asked}");
    answer(&server, &id, "sure", accept(true)).await;
    let done = server.http.end_of(&id).await;
    assert_eq!(text(&done["result"]), "prod yes\n", "{done}");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_question_and_answer() {
    let folder = folder();
    let server = Server::start(&folder.config()).await;
    let id = handle(&server.http.call(Declares::Tasks, "kinds", &json!({})).await);
    let odd = "ü🦀\"\n$(x)";
    for (key, response) in [
        ("text", accept(odd)),
        ("integer", accept(12_345_678_901_234_567_u64)),
        ("number", accept(1.5)),
        ("declined", json!({ "action": "decline" })),
        ("dismissed", json!({ "action": "cancel" })),
        ("no", accept(false)),
        ("page", json!({ "action": "accept" })),
        ("roots", json!({ "roots": [] })),
        ("schema", json!({ "action": "accept", "content": { "a": "b" } })),
    ] {
        let asked = question(&server, &id, key).await;
        if key == "page" {
            assert_eq!(asked["params"]["mode"], "url", "{asked}");
            assert_eq!(asked["params"]["url"], "https://example.com/approve", "{asked}");
        }
        if key == "text" {
            let short = answer(&server, &id, key, accept("x")).await;
            assert_eq!(short["error"]["code"], -32602, "{short}");
        }
        let ack = answer(&server, &id, key, response).await;
        assert_eq!(ack["result"], json!({ "resultType": "complete" }), "{key}: {ack}");
    }
    let done = server.http.end_of(&id).await;
    let printed = text(&done["result"]);
    let printed = printed.trim_end();
    assert_eq!(
        printed,
        format!(
            "text: {odd} (0)\ninteger: 12345678901234567 (0)\nnumber: 1.5 (0)\ndeclined:  (3)\n\
             dismissed:  (4)\nno: false (3)\npage:  (0)\nroots: {{\"roots\":[]}} (0)\n\
             schema: {{\"a\":\"b\"}} (0)\ntext: {odd} (0)\ntext:  (1)\nnobody\ntimeout 5\n1\n\
             ABIDE_TOKEN=[redacted ABIDE_TOKEN]"
        ),
        "{done}"
    );
    let log = folder.read("err");
    assert!(log.contains("refused"), "{log}");
    server.stop().await.well();
}

/// Who waits for an answer when the work is stopped is stopped with it: the script does not go on
/// without an answer, to an end of its own that would count as the result.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_when_the_work_is_stopped_is_stopped_with_it() {
    const TASKS: usize = 12;
    let tools = "[tools.patient]\ndescription = \"d\"\ncommand = [\"./patient.sh\"]\n\
                 on_restart = \"rerun\"\ninline = \"0s\"\nconcurrency = 12";
    let folder = Folder::new("shutdown_grace = \"100ms\"", tools);
    folder.script("patient.sh", "abide ask 'Well?' --text || exit 9");
    let server = Server::start(&folder.config()).await;
    let mut ids = Vec::new();
    for _ in 0..TASKS {
        ids.push(handle(&server.http.call(Declares::Tasks, "patient", &json!({})).await));
    }
    let all_ask = async |server: &Server| {
        for id in &ids {
            eventually("it asks", async || {
                let task = server.http.get(id).await;
                let status = task["status"].as_str().expect("a status");
                assert!(status == "working" || status == "input_required", "{task}");
                (status == "input_required").then_some(())
            })
            .await;
        }
    };
    all_ask(&server).await;
    server.stop().await.well();
    let server = Server::start(&folder.config()).await;
    // Begun again, each of them.
    all_ask(&server).await;
    for id in &ids {
        server.http.ask("tasks/cancel", &task(id)).await;
    }
    for id in &ids {
        let end = server.http.end_of(id).await;
        assert_eq!(end["status"], "cancelled", "{end}");
    }
    server.stop().await.well();
}

/// Outside of a command there is nobody to ask.
#[tokio::test(flavor = "multi_thread")]
async fn outside_of_a_command_it_says_so() {
    for arguments in [&["ask", "Well?", "--text"] as &[&str], &["say", "Well."]] {
        let output = crate::common::abide(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("inside a command that `abide serve` has started"), "{words}");
    }
}

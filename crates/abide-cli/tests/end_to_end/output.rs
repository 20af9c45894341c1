//! What a command prints: in the result, and in the log that the result links to.

use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::{
    Declares, Ended, Folder, Reply, Request, Server, abide, ended, eventually, handle, plain, text,
};

const TOOLS: &str = r#"
[tools.json]
description = "d"
command = ["printf", "%s", "{what}"]
output = "json"
inline = "0s"
input = { what = { type = "string" } }

[tools.gate]
description = "Prints a line, waits for the file `gate`, prints another"
command = ["sh", "-c", 'echo "first: ü🦀"; until [ -e gate ]; do sleep 0.02; done; echo second >&2; exit 3']
inline = "0s"
input = {}

[tools.both]
description = "Prints to both, and ends well"
command = ["sh", "-c", "echo out; echo err >&2"]
inline = "0s"

[tools.much]
description = "Prints more than is read at a time"
command = ["sh", "-c", "yes 0123456789abcde | head -c 3000000"]
inline = "0s"
max_output = "1KiB"
max_log = "2000000"
"#;

async fn read(server: &Server, uri: &str) -> Reply {
    let params = json!({ "_meta": Declares::Tasks.meta(), "uri": uri });
    server.http.send(Request::new("resources/read", &params)).await
}

/// The text of a log, and where it lies in the whole.
async fn log(server: &Server, uri: &str) -> (String, Value) {
    let answer = read(server, uri).await.json();
    let contents = answer["result"]["contents"].as_array().unwrap_or_else(|| panic!("{answer}"));
    assert_eq!((contents.len(), contents[0]["uri"].as_str()), (1, Some(uri)), "{answer}");
    assert_eq!(contents[0]["mimeType"], "text/plain");
    assert_eq!(answer["result"]["cacheScope"], "private", "{answer}");
    (contents[0]["text"].as_str().unwrap().to_owned(), contents[0]["_meta"]["abide/part"].clone())
}

/// The link of a result, which is its last content block.
fn link(result: &Value) -> &Value {
    let link = result["content"].as_array().and_then(|blocks| blocks.last()).expect("content");
    assert_eq!(link["type"], "resource_link", "{result}");
    link
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_commands_come_back_unchanged() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    for value in [
        "18446744073709551616",
        "[-9223372036854775808,1.10,-0.0,1e-400,100000000000000000000.5]",
        r#"{"z":1,"a":2,"10":3,"":{"":[]},"__proto__":1}"#,
        "\"\u{2028}🦀👩\u{200d}👧 e\u{301}\u{ffff}\u{feff}\u{202e}\"",
        r#""\u0000\u001f\b\t\"\\/ data: x""#,
    ] {
        let arguments = json!({ "what": value });
        let wanted = format!("\"structuredContent\":{value}");
        let params = Declares::Nothing.call("json", &arguments);
        let plainly = server.http.send(Request::new("tools/call", &params)).await.text;
        assert!(plainly.contains(&wanted), "{plainly}");
        assert!(!plainly.contains("resource_link"), "a plain call has no task to read: {plainly}");
        let id = handle(&server.http.call(Declares::Tasks, "json", &arguments).await);
        server.http.end_of(&id).await;
        let task = server.http.get_text(&id).await;
        assert!(task.contains(&wanted), "{task}");
    }
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_while_it_grows_and_after_a_crash() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    let id = handle(&server.http.call(Declares::Tasks, "gate", &json!({})).await);
    let uri = format!("abide://tasks/{id}/log");
    let first = "first: ü🦀\n";
    let (text_so_far, part) = eventually("the first line is there", async || {
        let answer = read(&server, &uri).await.json();
        answer["result"]["contents"][0]["text"]
            .as_str()
            .is_some_and(|text| text == first)
            .then_some(())?;
        Some(log(&server, &uri).await)
    })
    .await;
    assert_eq!(text_so_far, first);
    assert_eq!(part, json!({ "from": 0, "next": 14, "size": 14, "ended": false }));
    server.kill().await;

    let server = Server::start(&folder.config()).await;
    assert_eq!(log(&server, &uri).await.0, first);
    folder.write("gate", "");
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), format!("{first}\nsecond\n\nexit code 3"), "{task}");
    assert!(!task.to_string().contains("resource_link"), "the result has all of it: {task}");
    let (whole, part) = log(&server, &uri).await;
    assert_eq!(whole, format!("{first}second\n"));
    assert_eq!(part, json!({ "from": 0, "next": 21, "size": 21, "ended": true }));
    // Ranges; one that ends within a character ends before it.
    let range = async |query: &str| log(&server, &format!("{uri}?{query}")).await;
    assert_eq!(range("from=14").await.0, "second\n");
    assert_eq!(range("from=-4").await.0, "ond\n");
    assert_eq!(
        range("from=7&max=4").await,
        ("ü".to_owned(), json!({ "from": 7, "next": 9, "size": 21, "ended": true }))
    );
    assert_eq!(range("from=99").await.0, "");
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_read_in_parts_and_its_cut_is_marked() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    let id = handle(&server.http.call(Declares::Tasks, "both", &json!({})).await);
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), "out\n", "{task}");
    let uri = link(&task["result"])["uri"].as_str().unwrap().to_owned();
    assert_eq!(log(&server, &uri).await.0.len(), "out\nerr\n".len());

    let id = handle(&server.http.call(Declares::Tasks, "much", &json!({})).await);
    let task = server.http.end_of(&id).await;
    assert!(text(&task["result"]).contains("[… 2998976 bytes left out …]"), "{task}");
    let uri = link(&task["result"])["uri"].as_str().unwrap().to_owned();
    assert_eq!(uri, format!("abide://tasks/{id}/log"));
    assert!(link(&task["result"])["size"].as_u64() > Some(2_000_000), "{task}");
    let (begin, part) = log(&server, &uri).await;
    let next = part["next"].as_u64().unwrap();
    assert_eq!(next, 1024 * 1024);
    let more = format!("more bytes; the next are {uri}?from={next} …]\n");
    assert!(begin.ends_with(&more), "{}", &begin[begin.len() - 200..]);
    let (rest, part) = log(&server, &format!("{uri}?from={next}")).await;
    assert_eq!(part["next"], part["size"]);
    assert!(
        rest.ends_with(
            "[… the log ends here, at its limit of 2000000 bytes; the command went on …]\n"
        ),
        "{}",
        &rest[rest.len() - 200..]
    );
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_log_is_unknown() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    let unknown = format!("abide://tasks/{}/log", "0".repeat(39));
    let long = format!("abide://tasks/{}/log", "x".repeat(100_000));
    let traversal = "abide://tasks/../../etc/passwd/log";
    for uri in [&unknown, &long, traversal, "abide://tasks/log", "file:///etc/passwd", ""] {
        let answer = read(&server, uri).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let answer = server
        .http
        .ask("resources/templates/list", &json!({ "_meta": Declares::Tasks.meta() }))
        .await;
    let templates = answer["result"]["resourceTemplates"].as_array().expect("templates");
    assert_eq!(templates.len(), 1, "{answer}");
    assert_eq!(templates[0]["uriTemplate"], "abide://tasks/{id}/log{?from,max}", "{answer}");
    let answer = server.http.call(Declares::Nothing, "json", &json!({ "what": "1" })).await;
    assert_eq!(plain(&answer)["structuredContent"], 1);
    server.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_command_reads_beside_the_server_and_without_it() {
    let folder = Folder::new("", TOOLS);
    let server = Server::start(&folder.config()).await;
    let id = handle(&server.http.call(Declares::Tasks, "gate", &json!({})).await);
    let log = |arguments: &[&str]| {
        let mut command = abide(["log"]);
        command.args(arguments).arg("--config").arg(folder.config());
        command
    };
    let first = "first: ü🦀\n";
    eventually("the first line is there", async || {
        (log(&[&id]).output().unwrap().stdout == first.as_bytes()).then_some(())
    })
    .await;
    let mut following = log(&[&id[..12], "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut followed = following.stdout.take().unwrap();
    let mut begin = vec![0; first.len()];
    followed.read_exact(&mut begin).unwrap();
    assert_eq!(begin, first.as_bytes());
    // A server that is gone stops neither the work nor whoever reads.
    server.kill().await;
    assert!(following.try_wait().unwrap().is_none());
    folder.write("gate", "");
    let mut rest = String::new();
    followed.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
    assert!(following.wait().unwrap().success());

    let output = log(&[&id, "--tail", "4"]).output().unwrap();
    assert_eq!(output.stdout, b"ond\n");
    for (arguments, code, said) in [
        (&["zzz"] as &[&str], 1, "no command of the task \"zzz\""),
        (&[&id, "--attempt", "2"], 1, "in attempt 2"),
        (&[&id, "--store", "sqlite:none.db"], 1, "there are no logs"),
    ] {
        let output = log(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}");
        assert!(output.stdout.is_empty() && words.contains(said), "{words}");
    }
}

/// The values of secrets come from the server's environment, reach the command, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_reach_the_command_and_no_disk() {
    const VALUE: &str = "hunter2-correct-horse";
    let tools = "[tools.tell]\ndescription = \"d\"\ninline = \"0s\"\nsecrets = [\"DEPLOY_TOKEN\"]\n\
                 command = [\"sh\", \"-c\", 'echo \"it is $DEPLOY_TOKEN\"']\n";
    let folder = Folder::new("", tools);
    let mut command = abide(["serve"]);
    command.arg(folder.config());
    let Ended { status, logs } = ended(command).await;
    assert_eq!(status.code(), Some(1), "{logs}");
    assert!(logs.contains("the tool tell needs the environment variable DEPLOY_TOKEN"), "{logs}");

    let server = Server::start_in(&folder.config(), &[("DEPLOY_TOKEN", VALUE)]).await;
    let id = handle(&server.http.call(Declares::Tasks, "tell", &json!({})).await);
    let task = server.http.end_of(&id).await;
    assert_eq!(text(&task["result"]), "it is [redacted DEPLOY_TOKEN]\n", "{task}");
    let uri = format!("abide://tasks/{id}/log");
    assert_eq!(log(&server, &uri).await.0, "it is [redacted DEPLOY_TOKEN]\n");
    let logs = server.stop().await.logs;
    assert!(!logs.contains(VALUE), "{logs}");
    let mut folders = vec![folder.path("")];
    let mut files = 0;
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                let found = bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes());
                assert!(!found, "{} has it", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 5, "the database and the run are there");
}

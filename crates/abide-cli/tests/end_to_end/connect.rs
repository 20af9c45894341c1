//! `abide connect`: what it prints starts a server that works.

use std::process::{Command, Stdio as Pipe};

use serde_json::{Value, json};

use crate::common::{Declares, Folder, Stdio, abide, plain, text};

const TOOLS: &str = "[tools.hello]\ndescription = \"d\"\ncommand = [\"echo\", \"hello\"]\n";

/// A client's way to start a server: a program with arguments, without a shell.
#[expect(clippy::disallowed_methods, reason = "this test stands for a client")]
fn client(server: &Value) -> Command {
    let mut command = Command::new(server["command"].as_str().expect("a program"));
    let arguments = server["args"].as_array().expect("arguments");
    command.args(arguments.iter().map(|argument| argument.as_str().expect("text")));
    // Clients start servers from anywhere.
    command.current_dir("/");
    command
}

async fn says_hello(command: Command) {
    let mut session = Stdio::run(command);
    let answer = session.call(Declares::Tasks, "hello", &json!({})).await;
    assert_eq!(text(plain(&answer)), "hello\n");
    session.end_input();
    session.ended().await.0.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snippet_of_every_client_starts_a_server() {
    let folder = Folder::new("name = \"it's mine\"", TOOLS);
    for client_name in ["claude-code", "claude-desktop", "cursor", "vscode", "json"] {
        let mut command = abide(["connect", "--client", client_name]);
        let output = command.arg(folder.config()).stderr(Pipe::piped()).output().unwrap();
        assert!(output.status.success());
        let snippet: Value = serde_json::from_slice(&output.stdout).unwrap();
        let table = snippet.as_object().unwrap().values().next().unwrap();
        says_hello(client(&table["it's mine"])).await;
        // The same as a line for a shell, which `claude mcp add` would run.
        if client_name == "claude-code" {
            let said = String::from_utf8(output.stderr).unwrap();
            let line = said.lines().find_map(|line| line.strip_prefix("hint: or run: "));
            let words = line.and_then(|line| line.split_once(" -- ")).expect("a line").1;
            let shell = json!({ "command": "sh", "args": ["-c", format!("exec {words}")] });
            says_hello(client(&shell)).await;
        }
    }
}

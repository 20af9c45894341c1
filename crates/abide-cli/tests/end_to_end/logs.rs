//! Logs that nobody reads: the server works on.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Declares, Folder, Http, Server, abide, handle, signal_process, text, until};

const TOOLS: &str =
    "[tools.hello]\ndescription = \"d\"\ncommand = [\"echo\", \"hello\"]\ninline = \"0s\"\n";
/// Enough that their log is larger than a pipe.
const TASKS: usize = 60;
/// Bytes that a full pipe has at least, of the 64 KiB it may hold (pipe(7)): a line that does not
/// fit as a whole waits.
const FULL_PIPE: usize = 56 * 1024;

/// A server whose log a test reads or does not read. Dropped, it is killed.
struct Logged(Child);

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_gone_or_stuck_holds_up_nothing() {
    for gone in [true, false] {
        let folder = Folder::new("", TOOLS);
        let mut command = abide(["serve"]);
        // Everything is logged, so that little work makes much log.
        command.arg(folder.config()).args(["--log-format", "json"]);
        command.args(["--log", "trace,hyper=trace,rmcp=trace"]);
        let mut server = Logged(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut logs = BufReader::new(server.0.stderr.take().unwrap());
        let mut line = String::new();
        let url = loop {
            line.clear();
            assert_ne!(logs.read_line(&mut line).unwrap(), 0, "ended before it served");
            let line: Value = serde_json::from_str(&line).unwrap();
            // Other parts say that they are serving too, at this level.
            if let (Some("serving"), Some(url)) = (line["message"].as_str(), line["url"].as_str()) {
                break url.to_owned();
            }
        };
        let http = Http::new(&url);
        let logs = if gone { None } else { Some(logs) };

        let mut ids = Vec::new();
        for _ in 0..TASKS {
            ids.push(handle(&http.call(Declares::Tasks, "hello", &json!({})).await));
        }
        for id in ids {
            assert_eq!(text(&http.end_of(&id).await["result"]), "hello\n", "gone: {gone}");
        }
        signal_process(server.0.id(), Signal::TERM);
        until("the server ends", || server.0.try_wait().unwrap().is_some()).await;
        assert_eq!(server.0.wait().unwrap().code(), Some(0), "gone: {gone}");
        if let Some(mut logs) = logs {
            let mut left = Vec::new();
            logs.read_to_end(&mut left).unwrap();
            assert!(left.len() >= FULL_PIPE, "the pipe was not full: {} bytes", left.len());
        }
    }
}

/// Not even a log of everything has arguments, results or status messages in it.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_shows_what_was_sent_and_what_came_back() {
    let tools = "[tools.say]\ndescription = \"d\"\ncommand = [\"echo\", \"--\", \"{what}\"]\n\
                 [tools.say.input]\nwhat = { type = \"string\" }\n";
    for level in ["debug", "trace"] {
        let folder = Folder::new("", tools);
        let server = Server::start_with(&folder.config(), &["--log", level]).await;
        let sent = json!({ "what": "canary-in-the-coal-mine" });
        let answer = server.http.call(Declares::Nothing, "say", &sent).await;
        assert!(text(&answer["result"]).contains("canary-in-the-coal-mine"), "{answer}");
        let stopped = server.stop().await;
        assert!(stopped.logs.contains("serving"), "{}", stopped.logs);
        assert!(!stopped.logs.contains("canary"), "{level}: {}", stopped.logs);
    }
}

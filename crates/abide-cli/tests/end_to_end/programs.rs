//! Programs that go wrong: each gets its answer, the same plainly and as a task, and the server
//! goes on.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Declares, Folder, Server, handle, plain, text, without_log};

/// A tool's command, and the result it has to have: whether it is an error, and text in it.
struct Case {
    name: &'static str,
    command: &'static str,
    is_error: bool,
    says: &'static [&'static str],
}

const fn good(name: &'static str, command: &'static str, says: &'static [&'static str]) -> Case {
    Case { name, command, is_error: false, says }
}

const fn bad(name: &'static str, command: &'static str, says: &'static [&'static str]) -> Case {
    Case { name, command, is_error: true, says }
}

const CASES: &[Case] = &[
    bad("none_in_cwd", r#"["./none"]"#, &["`./none` was not found", "operator"]),
    bad("none_on_path", r#"["no-such-program"]"#, &["`no-such-program` was not found"]),
    bad("not_executable", r#"["./plain.txt"]"#, &["permission denied", "chmod +x"]),
    bad("no_interpreter", r#"["./lost.sh"]"#, &["interpreter"]),
    bad("a_folder", r#"["./folder"]"#, &["permission denied"]),
    bad("signal", r#"["sh", "-c", "echo before; kill -SEGV $$"]"#, &["before", "SIGSEGV"]),
    bad("killed", r#"["sh", "-c", "kill -KILL $$"]"#, &["SIGKILL"]),
    bad(
        "exit",
        r#"["sh", "-c", "echo out; echo err >&2; exit 3"]"#,
        &["out", "err", "exit code 3"],
    ),
    good("nothing", r#"["true"]"#, &["(no output)"]),
    good("bad_utf8", r#"["printf", 'a\377\376b']"#, &["a\u{fffd}\u{fffd}b"]),
    good(
        "split_utf8",
        r#"["sh", "-c", 'printf "\360\237"; sleep 0.1; printf "\232"; sleep 0.1; printf "\200."']"#,
        &["🚀."],
    ),
    good("half_utf8_at_the_end", r#"["printf", 'a\303']"#, &["a\u{fffd}"]),
    good("nul", r#"["printf", 'a\0b']"#, &["a\0b"]),
    good("crlf", r#"["printf", 'a\r\nb\r\n']"#, &["a\r\nb\r\n"]),
    bad("not_json", r#"["echo", "NaN"]"#, &["not exactly one JSON value", "NaN"]),
    bad("nothing_as_json", r#"["true"]"#, &["printed nothing"]),
];

fn tools() -> String {
    let of = |Case { name, command, .. }: &Case| {
        let output = if name.contains("json") { "json" } else { "text" };
        format!(
            "[tools.{name}]\ndescription = \"d\"\ncommand = {command}\ninline = \"0s\"\n\
             output = \"{output}\"\n"
        )
    };
    CASES.iter().map(of).collect()
}

/// Asserts that a good call works.
async fn still_well(server: &Server) {
    let answer = server.http.call(Declares::Nothing, "exit", &json!({})).await;
    assert_eq!(text(plain(&answer)), "out\n\nerr\n\nexit code 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_goes_wrong_is_told_of() {
    let folder = Folder::new("", &tools());
    folder.write("plain.txt", "#!/bin/sh\necho no\n");
    fs::create_dir(folder.path("folder")).unwrap();
    folder.script("lost.sh", "");
    folder.write("lost.sh", "#!/no/such/interpreter\n");
    let server = Server::start(&folder.config()).await;
    for Case { name, is_error, says, .. } in CASES {
        let answer = server.http.call(Declares::Nothing, name, &json!({})).await;
        let result = plain(&answer);
        assert_eq!(result["isError"] == true, *is_error, "{name}: {result}");
        for part in *says {
            assert!(text(result).contains(part), "{name}: {part:?} is not in {result}");
        }
        let id = handle(&server.http.call(Declares::Tasks, name, &json!({})).await);
        let task = server.http.end_of(&id).await;
        assert_eq!(task["status"], "completed", "{name}: {task}");
        assert_eq!(&without_log(&task["result"]), result, "{name}: plain and as a task");
        still_well(&server).await;
    }
    server.stop().await.well();
}

/// The most memory that the process has had, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_writes_a_gigabyte_is_cut_and_costs_no_memory() {
    let folder = Folder::new(
        "",
        r#"
        [tools.gigabyte]
        description = "d"
        command = ["sh", "-c", 'echo begin; head -c 1073741824 /dev/zero; echo end; echo talk >&2']
        inline = "0s"
        [tools.gigabyte_of_talk]
        description = "d"
        command = ["sh", "-c", 'head -c 1073741824 /dev/zero >&2; echo done']
        inline = "0s"
        [tools.exit]
        description = "d"
        command = ["sh", "-c", "echo out; echo err >&2; exit 3"]
        "#,
    );
    let server = Server::start(&folder.config()).await;
    let mut ids = Vec::new();
    for tool in ["gigabyte", "gigabyte_of_talk"] {
        ids.push(handle(&server.http.call(Declares::Tasks, tool, &json!({})).await));
    }
    // While they write, others are served.
    still_well(&server).await;
    let mut results: Vec<Value> = Vec::new();
    for id in &ids {
        results.push(server.http.end_of(id).await["result"].clone());
    }
    let cut = text(&results[0]);
    assert!(cut.starts_with("begin\n\0") && cut.ends_with("\0end\n"), "{} bytes", cut.len());
    assert!(cut.contains("bytes left out"), "{} bytes", cut.len());
    assert!(cut.len() <= 1024 * 1024 + 100, "{} bytes", cut.len());
    assert_eq!(text(&results[1]), "done\n");
    still_well(&server).await;
    let peak = peak_memory(server.pid());
    assert!(peak < 256 * 1024 * 1024, "the server has had {peak} bytes");
    server.stop().await.well();
}

//! The real program: exit codes, what goes to standard output and what to standard error, and
//! whether the checked-in references are what it prints.
#![expect(clippy::disallowed_methods, reason = "these tests start the program itself")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

fn abide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ABIDE_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    told(&abide(arguments).output().unwrap())
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn example(name: &str) -> String {
    repository().join("examples").join(name).to_str().unwrap().to_owned()
}

/// A config file with one tool in a folder of its own.
fn config(extra: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    let text = format!("{extra}\n[tools.t]\ndescription = \"d\"\ncommand = [\"true\"]\n");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (folder, file)
}

#[test]
fn a_good_config_is_ok_on_standard_output() {
    let (code, out, err) = run(&["config", "check", &example("quickstart.toml")]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "ok: 3 tools (countdown, word_count, report)\n", "")
    );
}

#[test]
fn a_typo_is_told_on_standard_error_with_its_place() {
    let (_folder, file) = config("[server]\nlisen = \"127.0.0.1:1\"");
    for arguments in [
        vec!["config", "check", &file],
        vec!["serve", &file],
        vec!["connect", "--client", "json", &file],
    ] {
        let (code, out, err) = run(&arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        let expected = format!(
            "error: {file}:2:1: unknown key `lisen` in [server]; did you mean `listen`?\nhint: "
        );
        assert!(err.starts_with(&expected), "{err}");
    }
}

#[test]
fn what_is_not_there_now_is_a_warning() {
    let (folder, file) = config("");
    let text = "[tools.a]\ndescription = \"d\"\ncommand = [\"no-such-program\"]\n\
                [tools.b]\ndescription = \"d\"\ncommand = [\"./none.sh\"]\n\
                [tools.c]\ndescription = \"d\"\ncommand = [\"./x.toml\"]\n\
                [tools.d]\ndescription = \"d\"\ncommand = [\"true\"]\ncwd = \"none\"\n";
    std::fs::write(&file, text).unwrap();
    let (code, out, err) = run(&["config", "check", &file]);
    assert_eq!((code, out.as_str()), (0, "ok: 4 tools (a, b, c, d)\n"));
    let expected = format!(
        "warning: tool `a`: no program `no-such-program` is on PATH\n\
         warning: tool `b`: there is no program ./none.sh\n\
         warning: tool `c`: ./x.toml is not executable; run chmod +x on it\n\
         warning: tool `d`: there is no folder {}/none\n",
        folder.path().display()
    );
    assert_eq!(err, expected);
}

#[test]
fn exit_codes_tell_misuse_from_failure() {
    let (_folder, file) = config("");
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    for (arguments, code, part) in [
        (vec!["--version"], 0, ""),
        (vec!["config", "check", "/none.toml"], 2, "error: can't read /none.toml: No such file"),
        (vec!["sevre"], 2, "unrecognized subcommand"),
        (vec!["serve"], 2, "<FILE>"),
        (vec!["serve", &file, "--listen", "here"], 2, "it is \"here\"; it must be an IP address"),
        (vec!["serve", &file, "--store", "postgres://x"], 2, "not supported yet"),
        (vec!["serve", &file, "--log", "a=b=c"], 2, "the log filter \"a=b=c\" can't be used"),
        (vec!["serve", &file, "--listen", &address], 1, "the port is in use\nhint: "),
        (
            vec!["connect", "--client", "claude-desktop", "--http", &file],
            2,
            "hint: leave --http out",
        ),
    ] {
        let (given, _, err) = run(&arguments);
        assert_eq!(given, code, "{arguments:?}: {err}");
        assert!(err.contains(part), "{arguments:?}: {err}");
    }
}

#[test]
fn a_database_is_named_by_itself_or_by_a_config() {
    let (folder, file) = config("[server]\nstore = \"sqlite:mine.db\"");
    let place = |name: &str| folder.path().canonicalize().unwrap().join(name);
    std::fs::write(place("mine.db"), "").unwrap();
    let mine = place("mine.db").to_str().unwrap().to_owned();
    let store = format!("sqlite:{mine}");
    for name in [["--store", &store], ["--config", &file]] {
        let (code, out, err) = run(&["db", "check", name[0], name[1]]);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("mine.db: no tasks, ") && out.ends_with("no damage found\n"), "{out}");
    }
    let none = format!("sqlite:{}", place("none.db").display());
    std::fs::write(place("notes"), "notes ".repeat(100)).unwrap();
    let notes = place("notes").to_str().unwrap().to_owned();
    let not_one = format!("sqlite:{notes}");
    for (arguments, code, part) in [
        (vec!["db", "check", "--store", &none], 1, "there is no database"),
        (vec!["db", "check", "--store", &not_one], 1, "is not a SQLite database"),
        (vec!["db", "backup", &notes, "--store", &store], 2, "is there already"),
        (vec!["db", "backup", "--store", &store], 2, "<TO>"),
        (vec!["db", "shell", "--store", &none], 1, "hint: name the database"),
    ] {
        let (given, out, err) = run(&arguments);
        assert_eq!((given, out.as_str()), (code, ""), "{arguments:?}: {err}");
        assert!(err.contains(part), "{arguments:?}: {err}");
    }
    let output =
        abide(&["db", "shell", "--store", &store]).env("PATH", folder.path()).output().unwrap();
    let (code, _, err) = told(&output);
    assert_eq!(code, 1);
    assert!(err.contains("`sqlite3` was not found\nhint: install"), "{err}");
}

#[test]
fn the_environment_overrides_the_file_and_flags_override_both() {
    let (_folder, file) = config("[server]\nlisten = \"127.0.0.1:0\"");
    let busy: Vec<TcpListener> =
        (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |at: usize| busy[at].local_addr().unwrap().to_string();
    let output = abide(&["serve", &file]).env("ABIDE_LISTEN", address(0)).output().unwrap();
    let (code, _, err) = told(&output);
    assert!(code == 1 && err.contains(&address(0)), "{err}");
    let output = abide(&["serve", &file, "--listen", &address(1)])
        .env("ABIDE_LISTEN", address(0))
        .output()
        .unwrap();
    let (code, _, err) = told(&output);
    assert!(code == 1 && err.contains(&address(1)), "{err}");
}

#[test]
fn connect_prints_json_alone_and_absolute_paths() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(example("ci.toml"), folder.path().join("it's mine.toml")).unwrap();
    let file = folder.path().canonicalize().unwrap().join("it's mine.toml");
    for (client, table) in [
        ("claude-code", "mcpServers"),
        ("claude-desktop", "mcpServers"),
        ("cursor", "mcpServers"),
        ("vscode", "servers"),
        ("json", "mcpServers"),
    ] {
        let output = abide(&["connect", "--client", client, "it's mine.toml"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let (code, out, err) = told(&output);
        assert_eq!(code, 0, "{err}");
        let json: Json = serde_json::from_str(&out).unwrap();
        let server = &json[table]["abide-ci"];
        assert!(Path::new(server["command"].as_str().unwrap()).is_absolute(), "{out}");
        assert_eq!(server["args"][0], "serve");
        assert_eq!(server["args"][1], file.to_str().unwrap());
        assert_eq!(server["args"][2], "--stdio");
        assert!(err.contains("put this"), "{err}");
    }
    let (code, out, err) = run(&["connect", "--client", "vscode", "--http", &example("ci.toml")]);
    assert_eq!(code, 0, "{err}");
    let json: Json = serde_json::from_str(&out).unwrap();
    assert_eq!(json["servers"]["abide-ci"]["url"], "http://127.0.0.1:8720/mcp");
}

#[test]
fn the_checked_in_references_are_current() {
    for (arguments, file) in [
        (vec!["config", "schema"], "docs/config.schema.json"),
        (vec!["config", "reference"], "docs/config.md"),
        (vec!["help-markdown"], "docs/cli.md"),
    ] {
        let (code, out, err) = run(&arguments);
        assert_eq!(code, 0, "{err}");
        let kept = std::fs::read_to_string(repository().join(file)).unwrap();
        assert!(kept == out, "{file} is stale; run: abide {} > {file}", arguments.join(" "));
    }
}

#[test]
fn a_closed_pipe_is_no_reason_to_complain() {
    let mut child =
        abide(&["config", "schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (_, _, err) = told(&child.wait_with_output().unwrap());
    assert_eq!(err, "");
}

/// Starts `abide demo` and reads its guide up to the last line of the kill -9 part.
fn demo(arguments: &[&str], folder: &Path) -> (Child, String) {
    let mut child = abide(arguments)
        .env("TMPDIR", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut guide = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        guide.push_str(&line);
        guide.push('\n');
        if line.contains("claude-desktop") {
            break;
        }
    }
    (child, guide)
}

fn stop(child: Child) -> (i32, String, String) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    told(&child.wait_with_output().unwrap())
}

#[test]
fn the_demo_says_where_everything_is_and_can_be_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let (child, guide) = demo(&["demo", "--listen", &address], folder.path());
    let database = guide
        .lines()
        .find_map(|line| line.strip_prefix("Tasks in    "))
        .unwrap_or_else(|| panic!("{guide}"))
        .to_owned();
    assert!(Path::new(&database).starts_with(folder.path()), "{database}");
    assert!(Path::new(&database).with_file_name("quickstart.toml").is_file());
    for part in ["Mcp-Name: countdown", "Mcp-Name: $TASK", "claude mcp add", ".vscode/mcp.json"] {
        assert!(guide.contains(part), "{part} is not in\n{guide}");
    }
    let (code, _, err) = stop(child);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains(&format!("{address} is in use, so the demo takes a free port")), "{err}");

    let (child, guide) =
        demo(&["demo", "--listen", "127.0.0.1:0", "--db", &database], folder.path());
    assert!(guide.contains(&format!("Tasks in    {database}\n")), "{guide}");
    let (code, _, err) = stop(child);
    assert_eq!(code, 0, "{err}");
}

//! Config files as data: what each is read as, and the exact words about what is wrong.

use std::path::Path;
use std::time::Duration;

use abide_backends::command::{DEFAULT_KILL_GRACE, DEFAULT_MAX_OUTPUT_BYTES, OutputMode};
use abide_cli::config::{Config, Envelope, StoreLocation, load, parse, schema};
use abide_engine::{Schema, TaskSupport};
use serde_json::{Value as Json, json};

/// A tool that is right, for files whose problem is elsewhere.
const TOOL: &str = "[tools.t]\ndescription = \"d\"\ncommand = [\"true\"]\n";

fn config(text: &str) -> Config {
    let loaded = parse(text, Path::new("x.toml"), Path::new("/etc/abide"))
        .unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    assert_eq!(loaded.warnings, [], "{text}");
    loaded.config
}

/// Checks that `text` has exactly these problems, without the name of the file.
fn check(text: &str, expected: &[&str]) {
    let problems = match parse(text, Path::new("x.toml"), Path::new("/etc/abide")) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    };
    let expected: Vec<String> = expected.iter().map(|line| format!("x.toml:{line}")).collect();
    assert_eq!(problems, expected, "{text}");
}

#[test]
fn what_is_not_written_has_its_default() {
    let Config { server, tools } = config(TOOL);
    assert_eq!(server.listen, "127.0.0.1:8720".parse().unwrap());
    assert_eq!(server.store, StoreLocation::Sqlite("/etc/abide/abide.db".into()));
    assert_eq!(server.envelope, Envelope::Flat);
    assert_eq!(server.name, "abide");
    assert_eq!(server.instructions, None);
    assert!(server.allowed_hosts.is_empty() && server.allowed_origins.is_empty());
    assert!(!server.lenient_headers);
    assert_eq!(server.shutdown_grace, Duration::from_secs(10));
    assert_eq!(server.max_body, 4 << 20);

    let [tool] = &tools[..] else { panic!("{tools:?}") };
    assert_eq!(tool.name.as_str(), "t");
    assert_eq!(tool.title, None);
    assert_eq!(tool.command, ["true"]);
    assert_eq!(tool.cwd, Path::new("/etc/abide"));
    assert!(tool.env.is_empty());
    assert_eq!(tool.task, TaskSupport::Auto);
    assert_eq!(tool.inline, Duration::from_secs(2));
    assert_eq!(tool.timeout, Some(Duration::from_secs(3600)));
    assert_eq!(tool.keep, Some(Duration::from_secs(86_400)));
    assert_eq!(tool.poll, Duration::from_secs(5));
    assert_eq!((tool.concurrency, tool.queue), (4, 100));
    assert_eq!(tool.output, OutputMode::Text);
    assert_eq!(tool.max_output, DEFAULT_MAX_OUTPUT_BYTES);
    assert_eq!(tool.kill_grace, DEFAULT_KILL_GRACE);
    assert_eq!(tool.annotations, Default::default());
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    assert_eq!(tool.input_schema, nothing);
}

#[test]
fn what_is_written_is_read() {
    let text = r#"
[server]
listen = "[::1]:0"
store = "sqlite:../tasks.db"
envelope = "nested"
allowed_hosts = ["abide.example.com"]
lenient_headers = true
shutdown_grace = "0s"
max_body = 65536

[tools.z]
description = "listed first"
command = ["./run.sh", "{env}", "--n={n}"]
cwd = "/srv"
env = { CI = "1" }
task = "required"
inline = "0s"
timeout = "none"
keep = "forever"
poll = "250ms"
queue = 0
output = "json"
output_schema = { type = "object" }
max_output = "64KiB"
annotations = { destructive = true, read_only = false }

[tools.z.input]
n = { type = "integer", minimum = 12345678901234567890123, default = 12345678901234567890124 }
env = { type = "string", enum = ["b", "a"], header = "Region" }
note = { type = "string", required = false }

[tools.a]
description = "listed second"
command = ["true"]
input_schema = { type = "object", properties = { a = { const = 1.10 } } }
"#;
    let Config { server, tools } = config(text);
    assert_eq!(server.listen, "[::1]:0".parse().unwrap());
    assert_eq!(server.store, StoreLocation::Sqlite("/etc/abide/../tasks.db".into()));
    assert_eq!(server.envelope, Envelope::Nested);
    assert_eq!(server.allowed_hosts, ["abide.example.com"]);
    assert!(server.lenient_headers);
    assert_eq!((server.shutdown_grace, server.max_body), (Duration::ZERO, 65536));

    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
    let z = &tools[0];
    assert_eq!(z.cwd, Path::new("/srv"));
    assert_eq!(z.env.iter().collect::<Vec<_>>(), [(&"CI".to_owned(), &"1".to_owned())]);
    assert_eq!((z.task, z.inline), (TaskSupport::Required, Duration::ZERO));
    assert_eq!((z.timeout, z.keep, z.poll), (None, None, Duration::from_millis(250)));
    assert_eq!((z.output, z.queue, z.max_output), (OutputMode::Json, 0, 65536));
    assert_eq!(z.annotations.destructive, Some(true));
    assert_eq!(z.annotations.read_only, Some(false));
    assert_eq!(z.annotations.idempotent, None);
    assert_eq!(
        z.input_schema.to_string(),
        r#"{"type":"object","properties":{"n":{"type":"integer","minimum":12345678901234567890123,"default":12345678901234567890124},"env":{"type":"string","enum":["b","a"],"x-mcp-header":"Region"},"note":{"type":"string"}},"required":["env"],"additionalProperties":false}"#
    );
    assert_eq!(
        tools[1].input_schema.to_string(),
        r#"{"type":"object","properties":{"a":{"const":1.10}}}"#
    );
}

#[test]
fn problems_name_the_place_and_what_would_be_right() {
    let server = |line: &str| format!("[server]\n{line}\n{TOOL}");
    let tool = |line: &str| format!("{TOOL}{line}\n");
    for (text, expected) in [
        // Not TOML at all.
        ("a = \n".to_owned(), "1:5: not TOML: string values must be quoted, expected literal string"),
        (tool("title = \"a\"\ntitle = \"b\""), "5:1: not TOML: duplicate key"),
        // The file as a whole.
        (String::new(), "1:1: the file has no `tools`: add a table [tools.NAME]"),
        ("[tools]".to_owned(), "1:2: [tools] is empty: add a table [tools.NAME]"),
        (format!("[tool.t]\n{TOOL}"), "1:2: unknown key `tool` in the file; did you mean `tools`?"),
        (format!("listen = \"127.0.0.1:1\"\n{TOOL}"), "1:1: unknown key `listen` in the file; it belongs in [server]"),
        ("tools = 3".to_owned(), "1:9: `tools` in the file is 3; it must be a table of tables"),
        ("[tools]\nt = 3".to_owned(), "2:1: [tools.t] is a number; it must be a table"),
        // Keys.
        (tool("tiemout = \"2h\""), "4:1: unknown key `tiemout` in [tools.t]; did you mean `timeout`?"),
        (tool("output-schema = {}"), "4:1: unknown key `output-schema` in [tools.t]; did you mean `output_schema`?"),
        (tool("read_only = true"), "4:1: unknown key `read_only` in [tools.t]; it belongs in [tools.t.annotations]"),
        (tool("annotations = { colour = 1 }"), "4:17: unknown key `colour` in [tools.t.annotations]; it may have read_only, destructive, idempotent, open_world"),
        ("[tools.\"a b\"]\ndescription = \"d\"".to_owned(), "1:8: [tools.\"a b\"] has no `command`; it must be a list of texts with at least one in it"),
        // Values.
        (server("listen = \"localhost:80\""), "2:10: `listen` in [server] is \"localhost:80\"; it must be an IP address and a port, such as \"127.0.0.1:80\""),
        (server("listen = \":80\""), "2:10: `listen` in [server] is \":80\"; it must be an IP address and a port, such as \"0.0.0.0:80\""),
        (server("listen = 80"), "2:10: `listen` in [server] is 80; it must be an IP address and a port in quotes, such as \"127.0.0.1:8720\""),
        (server("store = \"postgres://me:secret@db/x\""), "2:9: `store` in [server] names a PostgreSQL database, which is not supported yet; use \"sqlite:\" and the path of a file"),
        (server("store = \"abide.db\""), "2:9: `store` in [server] is \"abide.db\"; it must be \"sqlite:\" and the path of a file, such as \"sqlite:abide.db\""),
        (server("envelope = \"round\""), "2:12: `envelope` in [server] is \"round\"; it must be \"flat\" or \"nested\""),
        (server("max_body = \"4MB\""), "2:12: `max_body` in [server] is \"4MB\"; it must be a number of bytes, or text such as \"64KiB\" or \"4MiB\""),
        (server("max_body = \"1GiB\""), "2:12: `max_body` in [server] is 1024MiB; it must be from 1KiB to 64MiB"),
        (server("allowed_hosts = [\"a\", 1]"), "2:17: `allowed_hosts` in [server] must be a list of texts in quotes; its element 2 is 1"),
        (
            server("allowed_hosts = [\"https://a\"]"),
            "2:1: `allowed_hosts` in [server]: \"https://a\" is not a host name such as \"example.com\"",
        ),
        (
            server("allowed_origins = [\"https://a/\"]"),
            "2:1: `allowed_origins` in [server]: \"https://a/\" is not an origin such as \"https://example.com\", without a path",
        ),
        (tool("title = \"\""), "4:9: `title` in [tools.t] is empty"),
        (tool("poll = \"0s\""), "4:8: `poll` in [tools.t] is zero; it must be longer"),
        (tool("timeout = 3600"), "4:11: `timeout` in [tools.t] is 3600; it must be a duration in quotes, such as \"90s\" or \"2h30m\", or \"none\""),
        (tool("timeout = \"1 month\""), "4:11: `timeout` in [tools.t] is \"1 month\", but months and years have no fixed length; use days"),
        (tool("timeout = \"-1s\""), "4:11: `timeout` in [tools.t] is \"-1s\", which is negative; it must be a duration"),
        (tool("inline = \"soon\""), "4:10: `inline` in [tools.t] is \"soon\"; it must be a duration in quotes, such as \"500ms\", \"90s\" or \"2h30m\""),
        (tool("concurrency = 0"), "4:15: `concurrency` in [tools.t] is 0; it must be a whole number from 1 to 1024"),
        (tool("env = { A = 1 }"), "4:7: `env` in [tools.t] must be a table of texts in quotes; `A` is a number"),
        (tool("env = { \"A=B\" = \"\" }"), "4:1: [tools.t]: the variable name `A=B` must not be empty or have `=` in it"),
        (tool("max_output = 10"), "4:14: `max_output` in [tools.t] is 10 bytes; it must be from 1KiB to 4MiB"),
        // Commands.
        ("[tools.t]\ndescription = \"d\"\ncommand = [\"echo\", \"{nmae}\"]\ninput = { name = { type = \"string\" } }".to_owned(), "3:1: [tools.t]: element 1 of the command, `{nmae}`: there is no input named `nmae`; did you mean `name`?"),
        ("[tools.t]\ndescription = \"d\"\ncommand = [\"awk\", \"{print}\"]".to_owned(), "3:1: [tools.t]: element 1 of the command, `{print}`: there is no input named `print`; for literal braces, write `{{` and `}}`"),
        // Input and output.
        (tool("input = {}\ninput_schema = { type = \"object\" }"), "5:1: `input_schema` and `input` in [tools.t] exclude each other"),
        (tool("input_schema = { type = \"array\" }"), "4:1: `input_schema` in [tools.t]: must have `type` \"object\", since arguments have names"),
        (tool("input_schema = { type = \"object\", default = 2020-01-01 }"), "4:16: `input_schema` in [tools.t] has 2020-01-01 in it, but JSON has no dates; put it in quotes"),
        (tool("input_schema_file = \"none.json\""), "4:1: `input_schema_file` in [tools.t]: can't read /etc/abide/none.json: No such file or directory (os error 2)"),
        (tool("output_schema = { type = \"object\" }"), "4:1: `output_schema` in [tools.t] needs `output = \"json\"`"),
        (tool("input.a = { type = \"text\" }"), "4:20: `type` in [tools.t.input.a] is \"text\"; it must be \"string\", \"integer\", \"number\", \"boolean\" or \"array\""),
        (tool("input.a = { type = \"string\", minimum = 1 }"), "4:30: `minimum` in [tools.t.input.a] says nothing about type \"string\", only about integer and number"),
        (tool("input.a = { type = \"string\", enum = [\"a\"], default = \"b\" }"), "4:44: `default` in [tools.t.input.a] does not fit: \"b\" is not one of \"a\""),
        (tool("input.a = { type = \"string\", default = \"b\", required = true }"), "4:45: `required` in [tools.t.input.a] is true, but there is a `default`, which makes it optional"),
        (tool("input.a = { type = \"string\", pattern = \"(\" }"), "4:7: [tools.t.input.a]: not a usable JSON Schema (2020-12) at \"/pattern\": \"(\" is not a \"regex\""),
        (tool("input.a = { type = \"number\", header = \"A\" }"), "4:30: `header` in [tools.t.input.a] is \"A\": only strings, integers and booleans can be sent as a header"),
        (tool("input.a = { type = \"string\", header = \"Re gion\" }"), "4:30: `header` in [tools.t.input.a] is \"Re gion\": a header name has only letters, digits and !#$%&'*+-.^_`|~"),
        (tool("input.a = { type = \"string\", header = \"X\" }\ninput.b = { type = \"string\", header = \"x\" }"), "5:30: `header` in [tools.t.input.b] is \"x\", as that of `a` is"),
        (tool("input_schema = { type = \"object\", properties = { a = { type = \"array\", items = { type = \"string\", \"x-mcp-header\" = \"A\" } } } }"), "4:1: `input_schema` in [tools.t]: `x-mcp-header` of `a.items`: it can be reached only through `properties`"),
    ] {
        check(&text, &[expected]);
    }
}

#[test]
fn nothing_is_fetched() {
    for reference in ["https://example.com/s.json", "file:///etc/passwd"] {
        let text =
            format!("{TOOL}input_schema = {{ type = \"object\", \"$ref\" = {reference:?} }}");
        let problems = parse(&text, Path::new("x.toml"), Path::new("/")).unwrap_err().to_string();
        let start = "x.toml:4:1: `input_schema` in [tools.t]: not a usable JSON Schema (2020-12)";
        assert!(problems.starts_with(start) && problems.contains(reference), "{problems}");
    }
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    check(
        "[tools.b]\ncommand = []\n[server]\nlisten = \"x\"\n[tools.a]\ndescription = 1\ncommand = [\"true\"]\nkepe = \"1h\"\n",
        &[
            "1:8: [tools.b] has no `description`; it must be text in quotes",
            "2:11: `command` in [tools.b] is an empty list; it must be a list of texts with at least one in it",
            "4:10: `listen` in [server] is \"x\"; it must be an IP address and a port, such as \"127.0.0.1:8720\"",
            "6:15: `description` in [tools.a] is 1; it must be text in quotes",
            "8:1: unknown key `kepe` in [tools.a]; did you mean `keep`?",
        ],
    );
}

#[test]
fn problems_are_bounded() {
    let text: String = (0..1000).map(|n| format!("k{n} = 1\n")).collect();
    let problems = parse(&text, Path::new("x.toml"), Path::new("/")).unwrap_err().0;
    assert_eq!(problems.len(), 50);
    assert!(
        problems[49].message.ends_with("(and 951 more problems after this one)"),
        "{}",
        problems[49]
    );
}

#[test]
fn an_unusual_name_is_a_warning_and_a_bad_one_an_error() {
    let text = TOOL.replace("[tools.t]", "[tools.\"größe 1\"]");
    let loaded = parse(&text, Path::new("x.toml"), Path::new("/")).unwrap();
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "x.toml:1:8: [tools.\"größe 1\"]: not all clients understand this name; use 1 to 128 letters, digits, `_`, `-` and `.`"
        ]
    );
    check(
        &TOOL.replace("[tools.t]", "[tools.\"a\\nb\"]"),
        &["1:8: [tools.\"a\\nb\"]: a tool name must have 1 to 256 bytes and no control characters"],
    );
}

#[test]
fn schema_files_lie_beside_the_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    let schema = r#"{"type":"object","properties":{"n":{"maximum":1e400}}}"#;
    std::fs::write(folder.path().join("in.json"), schema).unwrap();
    std::fs::write(&file, format!("{TOOL}input_schema_file = \"in.json\"\n")).unwrap();
    let tool = load(&file).unwrap().config.tools.remove(0);
    assert_eq!(tool.input_schema, serde_json::from_str::<Json>(schema).unwrap());

    for (text, expected) in
        [("{", "in.json is not JSON: EOF while parsing"), ("true", "must be an object")]
    {
        std::fs::write(folder.path().join("in.json"), text).unwrap();
        let error = load(&file).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_file_that_is_no_config_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    for (bytes, expected) in [
        (vec![b'#'; 2 << 20], "it is larger than 1MiB"),
        (b"\n\xff".to_vec(), "it is not UTF-8 (line 2)"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let error = load(&file).unwrap_err().to_string();
        assert_eq!(error, format!("can't read {}: {expected}", file.display()));
    }
    assert!(load(folder.path()).unwrap_err().to_string().contains("Is a directory"));
    assert!(load(&folder.path().join("none")).unwrap_err().to_string().contains("No such file"));
}

#[test]
fn too_many_tools_are_refused() {
    let text: String = (0..501)
        .map(|n| format!("[tools.t{n}]\ndescription = \"d\"\ncommand = [\"true\"]\n"))
        .collect();
    check(&text, &["1:2: there are 501 tools; at most 500 can be"]);
}

/// The schema for editors accepts what the reader accepts.
#[test]
fn the_examples_fit_the_schema_and_the_reader() {
    let schema = Schema::compile(&schema::schema()).unwrap();
    for name in ["quickstart.toml", "ci.toml"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        assert_eq!(load(&file).unwrap().warnings, []);
        let text = std::fs::read_to_string(&file).unwrap();
        let value: Json = toml::from_str(&text).unwrap();
        assert_eq!(schema.problems(&value), [""; 0], "{name}");
    }
    let typo: Json = toml::from_str(&format!("{TOOL}tiemout = \"2h\"\n")).unwrap();
    assert_eq!(schema.problems(&typo).len(), 1);
}

//! Every key of the config file. The reader, the defaults, the JSON Schema and the reference page
//! all come from this list.

use super::key::{Key, Kind, Presence, Table};
use super::limits;

/// Shorthands for the many [`Kind::Duration`]s.
const DURATION: Kind = Kind::Duration { zero: false, unbounded: None };
const DURATION_OR_ZERO: Kind = Kind::Duration { zero: true, unbounded: None };

/// The file itself.
pub(super) static ROOT: Table = Table {
    heading: "The file",
    doc: "",
    keys: &[
        Key {
            name: "server",
            kind: Kind::Table(&SERVER),
            presence: Presence::Default("{}"),
            doc: "The server as a whole.",
            example: "",
        },
        Key {
            name: "tools",
            kind: Kind::Tables(&TOOL),
            presence: Presence::Required,
            doc: "The tools by name. Their order in the file is their order in `tools/list`.",
            example: "",
        },
    ],
    exclusive: &[],
};

/// `[server]`.
pub(super) static SERVER: Table = Table {
    heading: "[server]",
    doc: "The server as a whole. Everything in it has a default.",
    keys: &[
        Key {
            name: "listen",
            kind: Kind::Address,
            presence: Presence::Default("\"127.0.0.1:8720\""),
            doc: "Where HTTP is served, on the path `/mcp`. Port 0 takes any free port. \
                  Not used with `--stdio`.",
            example: "\"127.0.0.1:8720\"",
        },
        Key {
            name: "store",
            kind: Kind::Store,
            presence: Presence::Default("\"sqlite:abide.db\""),
            doc: "Where tasks are stored. A relative path starts at the config file's folder.",
            example: "\"sqlite:/var/lib/abide/tasks.db\"",
        },
        Key {
            name: "envelope",
            kind: Kind::OneOf(&["flat", "nested"]),
            presence: Presence::Default("\"flat\""),
            doc: "How a created task is wrapped in the answer to `tools/call`: `flat` as the \
                  Tasks extension's schema has it, `nested` (under `task`) for clients that \
                  expect that.",
            example: "\"nested\"",
        },
        Key {
            name: "name",
            kind: Kind::Text,
            presence: Presence::Default("\"abide\""),
            doc: "The server's name as clients see it.",
            example: "\"deployments\"",
        },
        Key {
            name: "instructions",
            kind: Kind::Text,
            presence: Presence::Optional,
            doc: "What a model should know about the server as a whole.",
            example: "\"Deploy to staging before prod.\"",
        },
        Key {
            name: "allowed_hosts",
            kind: Kind::Texts { min: 0 },
            presence: Presence::Default("[]"),
            doc: "Host names that requests may be addressed to (the `Host` header), besides those \
                  of the machine itself (`localhost`, `127.0.0.1`, `::1`). With a port, only that \
                  port.",
            example: "[\"abide.example.com\"]",
        },
        Key {
            name: "allowed_origins",
            kind: Kind::Texts { min: 0 },
            presence: Presence::Default("[]"),
            doc: "Web pages that may call from a browser (the `Origin` header), besides those of \
                  the machine itself; with the port, if it has one. Requests without an `Origin` \
                  pass.",
            example: "[\"https://app.example.com\"]",
        },
        Key {
            name: "lenient_headers",
            kind: Kind::Flag,
            presence: Presence::Default("false"),
            doc: "Whether clients may leave out the headers `Mcp-Method`, `Mcp-Name` and \
                  `MCP-Protocol-Version`. Those that are there must still agree with the body.",
            example: "true",
        },
        Key {
            name: "shutdown_grace",
            kind: DURATION_OR_ZERO,
            presence: Presence::Default("\"10s\""),
            doc: "How long a stopping server lets open requests and running work end.",
            example: "\"30s\"",
        },
        Key {
            name: "max_body",
            kind: Kind::Size { min: limits::MIN_BODY_BYTES, max: limits::MAX_BODY_BYTES },
            presence: Presence::Default("\"4MiB\""),
            doc: "The largest request body that is read.",
            example: "\"1MiB\"",
        },
    ],
    exclusive: &[],
};

/// `[tools.NAME]`.
pub(super) static TOOL: Table = Table {
    heading: "[tools.NAME]",
    doc: "One tool. `NAME` is what clients call; letters, digits, `_`, `-` and `.` are understood \
          by all of them.\n\nIts input is described by at most one of `input`, `input_schema` and \
          `input_schema_file`; without any, the tool takes no arguments.",
    keys: &[
        Key {
            name: "title",
            kind: Kind::Text,
            presence: Presence::Optional,
            doc: "A name for people.",
            example: "\"Deploy\"",
        },
        Key {
            name: "description",
            kind: Kind::Text,
            presence: Presence::Required,
            doc: "What the tool does: what a model reads to decide whether to call it.",
            example: "\"Deploy a build to an environment\"",
        },
        Key {
            name: "command",
            kind: Kind::Texts { min: 1 },
            presence: Presence::Required,
            doc: "The program and its arguments. No shell reads them. `{name}` stands for an \
                  argument of the call, as a whole element or as a part of one; `{{` and `}}` are \
                  braces. An element whose arguments are all absent is left out. A value that \
                  starts with `-` is refused where a program could read it as an option: write \
                  `--build={build}`, or an element `--` before it. A program with a slash in it \
                  starts at `cwd`; without one it is looked up on `PATH`.",
            example: "[\"./deploy.sh\", \"{env}\", \"--build={build}\"]",
        },
        Key {
            name: "cwd",
            kind: Kind::Text,
            presence: Presence::Default("\".\""),
            doc: "The folder the command runs in. A relative path starts at the config file's \
                  folder.",
            example: "\"../app\"",
        },
        Key {
            name: "env",
            kind: Kind::TextMap,
            presence: Presence::Default("{}"),
            doc: "Environment variables. The command gets these, `secrets`, `PATH`, `HOME` and \
                  `LANG` of the server, `ABIDE_TASK_ID`, `ABIDE_RUN`, what `abide ask` and `abide \
                  say` need, and nothing else. `PATH` has abide's own folder at its end.",
            example: "{ CI = \"1\" }",
        },
        Key {
            name: "secrets",
            kind: Kind::Texts { min: 0 },
            presence: Presence::Default("[]"),
            doc: "Environment variables of the server that the command gets too, and whose values \
                  are replaced by `[redacted NAME]` wherever its output is kept. The server does \
                  not start without them. They are nowhere on disk.",
            example: "[\"DEPLOY_TOKEN\"]",
        },
        Key {
            name: "task",
            kind: Kind::OneOf(&["auto", "required", "never"]),
            presence: Presence::Default("\"auto\""),
            doc: "Whether a call becomes a task. `auto`: when the client can follow tasks and the \
                  work outlasts `inline`; other clients wait for the result. `required`: always; \
                  clients that can't follow tasks are refused. `never`: the client always waits.",
            example: "\"required\"",
        },
        Key {
            name: "inline",
            kind: DURATION_OR_ZERO,
            presence: Presence::Default("\"2s\""),
            doc: "Work that ends within this time is answered plainly and leaves no task.",
            example: "\"0s\"",
        },
        Key {
            name: "timeout",
            kind: Kind::Duration { zero: false, unbounded: Some("none") },
            presence: Presence::Default("\"1h\""),
            doc: "How long the work may take before it is stopped and fails. Time in the queue \
                  and time spent waiting for input don't count. `none` for no bound.",
            example: "\"2h\"",
        },
        Key {
            name: "keep",
            kind: Kind::Duration { zero: false, unbounded: Some("forever") },
            presence: Presence::Default("\"24h\""),
            doc: "How long a finished task can still be fetched. `forever` for no bound.",
            example: "\"7d\"",
        },
        Key {
            name: "poll",
            kind: DURATION,
            presence: Presence::Default("\"5s\""),
            doc: "How long clients are asked to wait between two polls.",
            example: "\"30s\"",
        },
        Key {
            name: "on_restart",
            kind: Kind::OneOf(&["reattach", "rerun", "fail"]),
            presence: Presence::Default("\"reattach\""),
            doc: "What becomes of a task whose server stops or crashes while the work runs. \
                  `reattach`: the command runs on, and the next server takes it up, running or \
                  finished. `rerun`: it is stopped and run again, for work that is safe to repeat. \
                  `fail`: it is stopped, and the task fails.",
            example: "\"rerun\"",
        },
        Key {
            name: "max_attempts",
            kind: Kind::Count { min: 1, max: limits::MAX_ATTEMPTS },
            presence: Presence::Default("3"),
            doc: "How often the work is begun at most, with `on_restart = \"rerun\"`. An \
                  interruption of the last attempt fails the task.",
            example: "5",
        },
        Key {
            name: "concurrency",
            kind: Kind::Count { min: 1, max: limits::MAX_CONCURRENCY },
            presence: Presence::Default("4"),
            doc: "How many calls of this tool run at the same time. More of them queue.",
            example: "1",
        },
        Key {
            name: "queue",
            kind: Kind::Count { min: 0, max: limits::MAX_QUEUE },
            presence: Presence::Default("100"),
            doc: "How many calls may wait for their turn. Beyond it, calls are refused as busy.",
            example: "20",
        },
        Key {
            name: "output",
            kind: Kind::OneOf(&["text", "json"]),
            presence: Presence::Default("\"text\""),
            doc: "What the command writes to its standard output: `text`, or one `json` value, \
                  which clients get as `structuredContent`.",
            example: "\"json\"",
        },
        Key {
            name: "output_schema",
            kind: Kind::JsonObject,
            presence: Presence::Optional,
            doc: "A JSON Schema (2020-12) that the output has to fit. Needs `output = \"json\"`.",
            example: "{ type = \"object\", required = [\"url\"] }",
        },
        Key {
            name: "output_schema_file",
            kind: Kind::Text,
            presence: Presence::Optional,
            doc: "The same in a JSON file. A relative path starts at the config file's folder.",
            example: "\"deploy.output.json\"",
        },
        Key {
            name: "max_output",
            kind: Kind::Size { min: limits::MIN_OUTPUT_BYTES, max: limits::MAX_OUTPUT_BYTES },
            presence: Presence::Default("\"1MiB\""),
            doc: "How much of the command's output is kept. The rest is read and dropped, and the \
                  result says so.",
            example: "\"64KiB\"",
        },
        Key {
            name: "max_log",
            kind: Kind::Size { min: 0, max: limits::MAX_LOG_BYTES },
            presence: Presence::Default("\"16MiB\""),
            doc: "How much of the command's log is kept: standard output and standard error \
                  together, as they came. It lies on disk as long as the task does.",
            example: "\"256MiB\"",
        },
        Key {
            name: "kill_grace",
            kind: DURATION_OR_ZERO,
            presence: Presence::Default("\"10s\""),
            doc: "How long a command that is told to stop (SIGTERM) may take before it is killed \
                  (SIGKILL), with everything that it has started.",
            example: "\"30s\"",
        },
        Key {
            name: "approve",
            kind: Kind::Table(&APPROVE),
            presence: Presence::Optional,
            doc: "Asks before the work begins. Every call is then a task, and clients that can't \
                  follow tasks are refused.",
            example: "{ message = \"Deploy build {build} to {env}?\" }",
        },
        Key {
            name: "annotations",
            kind: Kind::Table(&ANNOTATIONS),
            presence: Presence::Default("{}"),
            doc: "What clients are told about the tool's effects.",
            example: "{ read_only = true }",
        },
        Key {
            name: "input",
            kind: Kind::Tables(&PROPERTY),
            presence: Presence::Optional,
            doc: "The arguments by name, in the short form below. No others are accepted.",
            example: "{ env = { type = \"string\", enum = [\"staging\", \"prod\"] } }",
        },
        Key {
            name: "input_schema",
            kind: Kind::JsonObject,
            presence: Presence::Optional,
            doc: "The arguments as a full JSON Schema (2020-12), whose `type` is `object`.",
            example: "{ type = \"object\", properties = { env = { type = \"string\" } } }",
        },
        Key {
            name: "input_schema_file",
            kind: Kind::Text,
            presence: Presence::Optional,
            doc: "The same in a JSON file. A relative path starts at the config file's folder.",
            example: "\"deploy.input.json\"",
        },
    ],
    exclusive: &[
        &["input", "input_schema", "input_schema_file"],
        &["output_schema", "output_schema_file"],
    ],
};

/// `[tools.NAME.approve]`.
pub(super) static APPROVE: Table = Table {
    heading: "[tools.NAME.approve]",
    doc: "A question to whoever called the tool, before the work begins: the task is \
          `input_required`, with the input request `approve`, until it is answered. That may take \
          days; it takes no slot and no time of `timeout`, and a restart of the server changes \
          nothing. Only an explicit yes goes on.",
    keys: &[
        Key {
            name: "message",
            kind: Kind::Text,
            presence: Presence::Required,
            doc: "What is asked. `{name}` is replaced by the call's input of that name; `{{` and \
                  `}}` are braces.",
            example: "\"Deploy build {build} to {env}?\"",
        },
        Key {
            name: "on_decline",
            kind: Kind::OneOf(&["error", "cancel"]),
            presence: Presence::Default("\"error\""),
            doc: "What a task is whose work nobody wants: `error`: completed, with a result that \
                  says so (`isError`). `cancel`: cancelled.",
            example: "\"cancel\"",
        },
    ],
    exclusive: &[],
};

/// `[tools.NAME.annotations]`.
pub(super) static ANNOTATIONS: Table = Table {
    heading: "[tools.NAME.annotations]",
    doc: "Hints for clients, which decide for themselves what to make of them. What is not given \
          is not sent.",
    keys: &[
        hint("read_only", "The tool changes nothing (`readOnlyHint`)."),
        hint("destructive", "It may delete or overwrite (`destructiveHint`)."),
        hint("idempotent", "Calling it twice is as good as once (`idempotentHint`)."),
        hint("open_world", "It reaches things outside, such as the web (`openWorldHint`)."),
    ],
    exclusive: &[],
};

/// A hint of [`ANNOTATIONS`].
const fn hint(name: &'static str, doc: &'static str) -> Key {
    Key { name, kind: Kind::Flag, presence: Presence::Optional, doc, example: "true" }
}

/// The kinds of argument that the short form knows.
pub(super) const PROPERTY_TYPES: &[&str] = &["string", "integer", "number", "boolean", "array"];

/// `[tools.NAME.input.ARGUMENT]`. A key that is not named in [`PROPERTY_OWN`] is the JSON Schema
/// keyword of the same name.
pub(super) static PROPERTY: Table = Table {
    heading: "[tools.NAME.input]",
    doc: "One argument a line: its name, and what it takes. Keys that JSON Schema has too mean \
          what they mean there.",
    keys: &[
        Key {
            name: "type",
            kind: Kind::OneOf(PROPERTY_TYPES),
            presence: Presence::Required,
            doc: "What the argument is.",
            example: "\"string\"",
        },
        keyword("title", Kind::Text, "A name for people.", "\"Environment\""),
        keyword("description", Kind::Text, "What a model should know.", "\"Where to deploy\""),
        Key {
            name: "required",
            kind: Kind::Flag,
            presence: Presence::Optional,
            doc: "Whether the argument has to be given. True, unless there is a `default`.",
            example: "false",
        },
        keyword("default", Kind::Json, "What counts when it is not given.", "\"staging\""),
        keyword("enum", Kind::JsonList, "The values it may have.", "[\"staging\", \"prod\"]"),
        keyword("minimum", Kind::Number, "The smallest number.", "1"),
        keyword("maximum", Kind::Number, "The largest number.", "100"),
        keyword("exclusiveMinimum", Kind::Number, "A number it has to be above.", "0"),
        keyword("exclusiveMaximum", Kind::Number, "A number it has to be below.", "1.0"),
        keyword("multipleOf", Kind::Number, "It has to be a multiple of this.", "5"),
        keyword("minLength", LENGTH, "How many characters it has at least.", "1"),
        keyword("maxLength", LENGTH, "How many characters it has at most.", "64"),
        keyword("pattern", Kind::Text, "A regular expression it has to match.", "'^[a-z]+$'"),
        keyword("format", Kind::Text, "A format of JSON Schema, for people and models.", "\"uri\""),
        keyword(
            "items",
            Kind::JsonObject,
            "A JSON Schema for each item of an array.",
            "{ type = \"string\" }",
        ),
        keyword("minItems", LENGTH, "How many items an array has at least.", "1"),
        keyword("maxItems", LENGTH, "How many items an array has at most.", "10"),
        keyword("uniqueItems", Kind::Flag, "Whether an array's items all differ.", "true"),
        Key {
            name: "header",
            kind: Kind::Text,
            presence: Presence::Optional,
            doc: "Clients send the value as the HTTP header `Mcp-Param-…` of this name too, for \
                  proxies to route by (`x-mcp-header`). For strings, integers and booleans.",
            example: "\"Region\"",
        },
    ],
    exclusive: &[],
};

/// The keys of [`PROPERTY`] that are not JSON Schema keywords of a property.
pub(super) const PROPERTY_OWN: &[&str] = &["required", "header"];

/// Which types a keyword of [`PROPERTY`] says something about; it would be void on others.
pub(super) const KEYWORD_TYPES: &[(&str, &[&str])] = &[
    ("minimum", NUMERIC),
    ("maximum", NUMERIC),
    ("exclusiveMinimum", NUMERIC),
    ("exclusiveMaximum", NUMERIC),
    ("multipleOf", NUMERIC),
    ("minLength", &["string"]),
    ("maxLength", &["string"]),
    ("pattern", &["string"]),
    ("format", &["string"]),
    ("items", &["array"]),
    ("minItems", &["array"]),
    ("maxItems", &["array"]),
    ("uniqueItems", &["array"]),
];
const NUMERIC: &[&str] = &["integer", "number"];
const LENGTH: Kind = Kind::Count { min: 0, max: limits::MAX_LENGTH_KEYWORD };

/// An optional JSON Schema keyword of [`PROPERTY`].
const fn keyword(name: &'static str, kind: Kind, doc: &'static str, example: &'static str) -> Key {
    Key { name, kind, presence: Presence::Optional, doc, example }
}

#[cfg(test)]
mod tests {
    use super::super::value::read;
    use super::*;
    use toml::de::DeValue;

    #[test]
    fn every_default_and_every_example_fits_its_key() {
        for table in [&ROOT, &SERVER, &TOOL, &APPROVE, &ANNOTATIONS, &PROPERTY] {
            for key in table.keys {
                if matches!(key.kind, Kind::Table(_) | Kind::Tables(_)) {
                    continue;
                }
                let mut values = vec![key.example];
                if let Presence::Default(default) = key.presence {
                    values.push(default);
                }
                for text in values {
                    let value = DeValue::parse(text).unwrap_or_else(|error| {
                        panic!("{} of {}: {text} is not TOML: {error}", key.name, table.heading)
                    });
                    let read = read(&key.kind, value.get_ref());
                    assert!(read.is_ok(), "{} of {}: {read:?}", key.name, table.heading);
                }
            }
        }
    }

    #[test]
    fn keywords_are_keys_of_the_short_form() {
        let keywords = KEYWORD_TYPES.iter().map(|(keyword, _)| *keyword);
        for name in keywords.chain(PROPERTY_OWN.iter().copied()) {
            assert!(PROPERTY.key(name).is_some(), "{name}");
        }
    }
}

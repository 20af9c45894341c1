//! `[tools.NAME]` as values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use abide_backends::approval::{Message, OnDecline};
use abide_backends::command::{self, CommandSpec, OutputMode, SpecError};
use abide_core::{OnRestart, ToolName};
use abide_engine::TaskSupport;
use serde_json::{Value as Json, json};

use super::problem::Collector;
use super::reader::Fields;
use super::value::join;
use super::{headers, input, limits, read_text, schema_check};

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolConfig {
    /// What clients call.
    pub name: ToolName,
    /// A name for people.
    pub title: Option<String>,
    /// What a model reads to decide whether to call it.
    pub description: String,
    /// The program and its arguments, as templates that the backend has checked.
    pub command: Vec<String>,
    /// The folder the command runs in; absolute.
    pub cwd: PathBuf,
    /// What the command gets besides `PATH`, `HOME` and `LANG`.
    pub env: BTreeMap<String, String>,
    /// Variables of the server's own environment that the command gets too, by name.
    pub secrets: Vec<String>,
    /// Whether a call becomes a task.
    pub task: TaskSupport,
    /// Work that ends within this time leaves no task.
    pub inline: Duration,
    /// How long the work may take; none for no bound.
    pub timeout: Option<Duration>,
    /// How long a finished task can be fetched; none for ever.
    pub keep: Option<Duration>,
    /// The suggested time between two polls; above zero.
    pub poll: Duration,
    /// What becomes of work whose server is gone.
    pub on_restart: OnRestart,
    /// Calls that run at the same time; at least 1.
    pub concurrency: u32,
    /// Calls that may wait for their turn.
    pub queue: u32,
    /// What the command writes.
    pub output: OutputMode,
    /// What its JSON output has to fit; a valid JSON Schema.
    pub output_schema: Option<Json>,
    /// Bytes of output that are kept.
    pub max_output: usize,
    /// Bytes of the log that are kept.
    pub max_log: u64,
    /// The time between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// What is asked before the work begins.
    pub approve: Option<Approve>,
    /// Hints for clients.
    pub annotations: Annotations,
    /// What the arguments have to fit; a valid JSON Schema of type `object`.
    pub input_schema: Json,
}

impl ToolConfig {
    /// What the backend has to know, with the values of `secrets`.
    #[must_use]
    pub fn command_spec(&self, secrets: BTreeMap<String, String>) -> CommandSpec {
        CommandSpec {
            argv: self.command.clone(),
            cwd: Some(self.cwd.clone()),
            env: self.env.clone(),
            secrets,
            output: self.output,
            output_schema: self.output_schema.clone(),
            max_output_bytes: self.max_output,
            max_log_bytes: self.max_log,
            kill_grace: self.kill_grace,
        }
    }
}

/// A question before the work begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approve {
    /// What is asked.
    pub message: Message,
    /// What becomes of a task that is declined.
    pub on_decline: OnDecline,
}

/// What stands for the value of a secret while a config is checked.
const SOME_SECRET: &str = "its value";

/// What clients are told about a tool's effects; what is none is not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may delete or overwrite.
    pub destructive: Option<bool>,
    /// Calling it twice is as good as once.
    pub idempotent: Option<bool>,
    /// It reaches things outside.
    pub open_world: Option<bool>,
}

/// Puts the table together; none when something in it didn't fit, which has been reported.
pub(super) fn assemble(
    name: &str,
    fields: &Fields,
    folder: &Path,
    problems: &mut Collector<'_>,
) -> Option<ToolConfig> {
    let name = tool_name(name, fields, problems);
    let input_schema = input_schema(fields, folder, problems);
    let output = fields.get::<String>("output").map(|output| match output.as_str() {
        "json" => OutputMode::Json,
        _ => OutputMode::Text,
    });
    let output_schema = output_schema(fields, output, folder, problems);
    let annotations: Fields = fields.get("annotations")?;
    let approve = match fields.get::<Fields>("approve") {
        Some(approve) => Some(approval(&approve, fields, input_schema.as_ref()?, problems)?),
        None => None,
    };
    let tool = ToolConfig {
        name: name?,
        title: fields.get("title"),
        description: fields.get("description")?,
        command: fields.get("command")?,
        cwd: join(folder, fields.get::<String>("cwd")?),
        env: fields.get::<Vec<(String, String)>>("env")?.into_iter().collect(),
        secrets: fields.get("secrets")?,
        task: match fields.get::<String>("task")?.as_str() {
            "required" => TaskSupport::Required,
            "never" => TaskSupport::Never,
            _ => TaskSupport::Auto,
        },
        inline: fields.get("inline")?,
        timeout: fields.get("timeout")?,
        keep: fields.get("keep")?,
        poll: fields.get("poll")?,
        on_restart: match fields.get::<String>("on_restart")?.as_str() {
            "rerun" => OnRestart::Rerun { max_attempts: count(fields, "max_attempts")? },
            "fail" => OnRestart::Fail,
            _ => OnRestart::Reattach,
        },
        concurrency: count(fields, "concurrency")?,
        queue: count(fields, "queue")?,
        output: output?,
        output_schema: output_schema?,
        max_output: count(fields, "max_output")?,
        max_log: fields.get("max_log")?,
        kill_grace: fields.get("kill_grace")?,
        approve,
        annotations: Annotations {
            read_only: annotations.get("read_only"),
            destructive: annotations.get("destructive"),
            idempotent: annotations.get("idempotent"),
            open_world: annotations.get("open_world"),
        },
        input_schema: input_schema?,
    };
    // Their values are known only where the server runs.
    let secrets = tool.secrets.iter().map(|name| (name.clone(), SOME_SECRET.to_owned())).collect();
    if let Err(error) = command::check(&tool.command_spec(secrets), &tool.input_schema) {
        let key = match error {
            SpecError::SecretAndPlain { .. } => "secrets",
            SpecError::BadVariable { ref name } | SpecError::ReservedVariable { ref name }
                if tool.secrets.contains(name) =>
            {
                "secrets"
            }
            SpecError::BadVariable { .. } | SpecError::ReservedVariable { .. } => "env",
            SpecError::OutputLimit { .. } => "max_output",
            SpecError::SchemaForText => "output",
            _ => "command",
        };
        let mut message = format!("{}: {error}", fields.path).replace('\n', "\\n");
        if matches!(error, SpecError::UnknownPlaceholder { nearest: None, .. }) {
            message.push_str("; for literal braces, write `{{` and `}}`");
        }
        problems.error(fields.at(key), message);
        return None;
    }
    Some(tool)
}

/// The question before the work begins. It needs a task to ask through.
fn approval(
    fields: &Fields,
    tool: &Fields,
    input_schema: &Json,
    problems: &mut Collector<'_>,
) -> Option<Approve> {
    if tool.get::<String>("task").as_deref() == Some("never") {
        let message =
            format!("{} needs tasks to ask through, and `task` is \"never\"", fields.path);
        problems.error(fields.at, message);
        return None;
    }
    let message = fields.get::<String>("message")?;
    let message = match Message::parse(&message, input_schema) {
        Ok(message) => message,
        Err(error) => {
            problems.error(fields.at("message"), format!("`message` in {}: {error}", fields.path));
            return None;
        }
    };
    let on_decline = match fields.get::<String>("on_decline")?.as_str() {
        "cancel" => OnDecline::Cancel,
        _ => OnDecline::Error,
    };
    Some(Approve { message, on_decline })
}

fn count<T: TryFrom<u64>>(fields: &Fields, name: &str) -> Option<T> {
    T::try_from(fields.get::<u64>(name)?).ok()
}

/// Checks the name. The specification's form ("Tool Names") is a SHOULD, so it is a warning.
fn tool_name(name: &str, fields: &Fields, problems: &mut Collector<'_>) -> Option<ToolName> {
    let well_formed = name.chars().count() <= limits::MAX_TOOL_NAME_CHARS
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    match ToolName::new(name) {
        Err(error) => {
            problems.error(fields.at, format!("{}: {error}", fields.path));
            None
        }
        Ok(name) => {
            if !well_formed {
                problems.warn(
                    fields.at,
                    format!(
                        "{}: not all clients understand this name; use 1 to {} letters, digits, \
                         `_`, `-` and `.`",
                        fields.path,
                        limits::MAX_TOOL_NAME_CHARS
                    ),
                );
            }
            Some(name)
        }
    }
}

fn input_schema(fields: &Fields, folder: &Path, problems: &mut Collector<'_>) -> Option<Json> {
    if let Some(properties) = fields.get::<Vec<(String, Fields)>>("input") {
        return input::schema(&properties, problems);
    }
    let given = given_schema(fields, "input_schema", "input_schema_file", folder, problems);
    let (key, schema) = match given {
        Given::Nothing => {
            return Some(
                json!({"type": "object", "properties": {}, "additionalProperties": false}),
            );
        }
        Given::Unusable => return None,
        Given::Schema { key, schema } => (key, schema),
    };
    let wrong = if schema.get("type").and_then(Json::as_str) == Some("object") {
        headers::check(&schema).err()
    } else {
        Some("must have `type` \"object\", since arguments have names".to_owned())
    };
    if let Some(wrong) = wrong {
        problems.error(fields.at(key), format!("`{key}` in {}: {wrong}", fields.path));
        return None;
    }
    Some(schema)
}

fn output_schema(
    fields: &Fields,
    output: Option<OutputMode>,
    folder: &Path,
    problems: &mut Collector<'_>,
) -> Option<Option<Json>> {
    let given = given_schema(fields, "output_schema", "output_schema_file", folder, problems);
    match given {
        Given::Nothing => Some(None),
        Given::Unusable => None,
        Given::Schema { key, schema } => {
            if output == Some(OutputMode::Text) {
                let message = format!("`{key}` in {} needs `output = \"json\"`", fields.path);
                problems.error(fields.at(key), message);
                return None;
            }
            Some(Some(schema))
        }
    }
}

/// A schema that is given inline or in a file.
enum Given {
    Nothing,
    /// It has been reported.
    Unusable,
    Schema {
        key: &'static str,
        schema: Json,
    },
}

fn given_schema(
    fields: &Fields,
    inline_key: &'static str,
    file_key: &'static str,
    folder: &Path,
    problems: &mut Collector<'_>,
) -> Given {
    let (key, read) = match (fields.get::<Json>(inline_key), fields.get::<String>(file_key)) {
        (Some(schema), _) => (inline_key, Ok(schema)),
        (None, Some(file)) => (file_key, read_schema(&join(folder, &file))),
        (None, None) => return Given::Nothing,
    };
    let checked = read.and_then(|schema| {
        if !schema.is_object() {
            return Err("must be an object, as tools are listed with it".to_owned());
        }
        schema_check::check(&schema).map(|()| schema)
    });
    match checked {
        Ok(schema) => Given::Schema { key, schema },
        Err(reason) => {
            problems.error(fields.at(key), format!("`{key}` in {}: {reason}", fields.path));
            Given::Unusable
        }
    }
}

fn read_schema(path: &Path) -> Result<Json, String> {
    let text = read_text(path, limits::MAX_SCHEMA_FILE_BYTES)
        .map_err(|reason| format!("can't read {}: {reason}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))
}

//! `abide ask`: a question in the middle of a command's work.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use abide_backends::desk::{Action, Client, ClientError, Reply};
use abide_core::{RawJson, limits};
use anyhow::Context as _;
use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};

use super::serve::flag;
use super::waited::Waited;
use crate::config::parse_flag_duration;
use crate::failure::Failure;
use crate::terminal;

/// Exit code when the question was declined, or a confirmation was answered with no.
const DECLINED: u8 = 3;
/// When it was dismissed without an answer.
const DISMISSED: u8 = 4;
/// When nobody answered in time.
const TIMED_OUT: u8 = 5;

/// The member of the answer's content that a simple question asks for.
const FIELD: &str = "answer";
/// Between two attempts to reach a server that is not there: the first and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(2);
/// How long a server that is there may not know the run that this belongs to.
const NOT_HERE_PATIENCE: Duration = Duration::from_secs(120);
/// How long SIGTERM may take to come to a command whose task is being stopped.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// Ask whoever called the tool, and wait for the answer; for use inside a command tool
///
/// The task is `input_required` meanwhile, and its timeout stands still. Prints the answer. A server
/// that is stopped or killed in between changes nothing: the question waits for the next one.
///
/// Exit codes: 0 answered, 1 something failed, 2 wrong usage, 3 declined (also a --confirm that was
/// answered with no), 4 dismissed without an answer, 5 nobody answered within --timeout.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("kind").required(true)))]
pub struct AskArgs {
    /// What to ask
    #[arg(required_unless_present = "request")]
    message: Option<String>,
    /// Ask for yes or no; no is exit code 3
    #[arg(long, group = "kind")]
    confirm: bool,
    /// Ask for one of these
    #[arg(long, group = "kind", value_name = "A,B,…", value_delimiter = ',')]
    choice: Vec<String>,
    /// Ask for text
    #[arg(long, group = "kind")]
    text: bool,
    /// Ask for a whole number
    #[arg(long, group = "kind")]
    integer: bool,
    /// Ask for a number
    #[arg(long, group = "kind")]
    number: bool,
    /// Ask for what a JSON Schema of the protocol's elicitation subset says; prints a JSON object
    #[arg(long, group = "kind", value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Ask to visit a page, for what must not go through the client
    #[arg(long, group = "kind", value_name = "HTTPS-URL")]
    url: Option<String>,
    /// Send any request that the protocol allows here, a JSON object with `method` and `params`;
    /// prints the response as JSON
    #[arg(long, group = "kind", value_name = "FILE")]
    request: Option<PathBuf>,
    /// The smallest number, or the fewest characters of a text
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    min: Option<i64>,
    /// The largest number, or the most characters of a text
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    max: Option<i64>,
    /// The name of the question. Asked again under the same name, the same question has the same
    /// answer at once; another question is refused. Without it, each is a question of its own
    #[arg(long)]
    key: Option<String>,
    /// How long to wait for an answer
    #[arg(long, value_parser = flag(parse_flag_duration))]
    timeout: Option<Duration>,
    /// What to print, with exit code 0, when nobody answered within --timeout
    #[arg(long, requires = "timeout")]
    default: Option<String>,
}

/// Runs `abide ask`.
///
/// # Errors
/// [`Failure`] when the question can't be asked.
pub fn run(args: &AskArgs) -> Result<ExitCode, Failure> {
    let request = request(args)?;
    let client = Client::from_env().map_err(|error| Failure::usage(error.to_string()))?;
    let key = args.key.clone().map_or_else(any_key, Ok)?;
    let action = Action::Ask { key: key.clone(), request };
    match wait(&client, &action, args.timeout)? {
        Some(response) => print(args, &response),
        None => {
            // What nobody waits for must not keep the task waiting. It may be answered in this
            // very moment, and then that is too late.
            let _ = client.send(&Action::Withdraw { key }, Some(RETRY_LONGEST));
            match &args.default {
                Some(default) => {
                    terminal::data(default)?;
                    Ok(ExitCode::SUCCESS)
                }
                None => {
                    terminal::say("nobody answered in time");
                    Ok(ExitCode::from(TIMED_OUT))
                }
            }
        }
    }
}

/// Asks until there is a response; none when the time is over.
fn wait(
    client: &Client,
    action: &Action,
    patience: Option<Duration>,
) -> Result<Option<RawJson>, Failure> {
    let waited = Waited::begin();
    let mut pause = RETRY_FIRST;
    let mut not_here_since = None;
    loop {
        let left = patience.map(|patience| patience.saturating_sub(waited.so_far()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        match client.send(action, left) {
            Ok(Reply::Answer(response)) => return Ok(Some(response)),
            Ok(Reply::Stopping) => {
                // SIGTERM is on its way to the whole command. If this came back before it, the
                // script could end by itself, and that would be taken for its result.
                std::thread::sleep(STOP_PATIENCE);
                return Err(Failure::failed("the task is being stopped"));
            }
            Ok(Reply::Refused(problem)) => {
                return Err(Failure::failed(format!("the question was refused: {problem}")));
            }
            // A server that has just started takes its commands up one after the other.
            Ok(Reply::NotHere | Reply::Done) => {
                let since = *not_here_since.get_or_insert_with(Waited::begin);
                if since.so_far() > NOT_HERE_PATIENCE {
                    return Err(Failure::failed("the server does not know this task any more"));
                }
            }
            Err(ClientError::Gone(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It may be started again.
            Err(ClientError::Gone(_)) => not_here_since = None,
            Err(error @ ClientError::NotInside(_)) => {
                return Err(Failure::usage(error.to_string()));
            }
        }
        std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        pause = (pause * 2).min(RETRY_LONGEST);
    }
}

/// The request that the arguments describe.
fn request(args: &AskArgs) -> Result<RawJson, Failure> {
    if let Some(file) = &args.request {
        let request: Value = read_json(file)?;
        if !request["method"].is_string() {
            return Err(Failure::usage(format!("{} has no `method`", file.display())));
        }
        return raw(&request);
    }
    let message = args.message.as_deref().unwrap_or_default();
    if let Some(url) = &args.url {
        if !url.starts_with("https://") {
            return Err(Failure::usage("--url takes an address that begins with https://"));
        }
        let id = any_key()?;
        return raw(&json!({
            "method": "elicitation/create",
            "params": { "mode": "url", "message": message, "url": url, "elicitationId": id },
        }));
    }
    let schema = match &args.schema {
        Some(file) => read_json(file)?,
        None => {
            let mut field = Map::new();
            let (kind, bounds) = if args.confirm {
                ("boolean", None)
            } else if args.integer {
                ("integer", Some(("minimum", "maximum")))
            } else if args.number {
                ("number", Some(("minimum", "maximum")))
            } else {
                ("string", Some(("minLength", "maxLength")))
            };
            field.insert("type".to_owned(), json!(kind));
            if !args.choice.is_empty() {
                field.insert("enum".to_owned(), json!(args.choice));
            }
            let limits = bounds
                .map_or([("", None), ("", None)], |(min, max)| [(min, args.min), (max, args.max)]);
            for (name, limit) in limits {
                if let Some(limit) = limit {
                    field.insert(name.to_owned(), json!(limit));
                }
            }
            json!({ "type": "object", "properties": { FIELD: field }, "required": [FIELD] })
        }
    };
    raw(&json!({
        "method": "elicitation/create",
        "params": { "mode": "form", "message": message, "requestedSchema": schema },
    }))
}

fn read_json(file: &PathBuf) -> Result<Value, Failure> {
    let text =
        fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{} is not JSON: {error}", file.display())))
}

fn raw(request: &Value) -> Result<RawJson, Failure> {
    let request = RawJson::from_value(request).map_err(anyhow::Error::from)?;
    if request.len() > limits::MAX_INPUT_BYTES {
        return Err(Failure::usage(format!(
            "the question has {} bytes, more than the {} that are allowed",
            request.len(),
            limits::MAX_INPUT_BYTES
        )));
    }
    Ok(request)
}

/// A key that no other question has.
fn any_key() -> Result<String, Failure> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(format!("ask-{:016x}", u64::from_be_bytes(bytes)))
}

/// Prints the answer, and says by the exit code what it was.
fn print(args: &AskArgs, response: &RawJson) -> Result<ExitCode, Failure> {
    if args.request.is_some() {
        terminal::data(response.as_str())?;
        return Ok(ExitCode::SUCCESS);
    }
    let response: Value = response.to().map_err(anyhow::Error::from)?;
    match response["action"].as_str() {
        Some("accept") => {}
        Some("decline") => return Ok(ExitCode::from(DECLINED)),
        _ => return Ok(ExitCode::from(DISMISSED)),
    }
    let content = &response["content"];
    if args.url.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    if args.schema.is_some() {
        terminal::data(content)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &content[FIELD] {
        Value::String(text) => terminal::data(text)?,
        other => terminal::data(other)?,
    }
    let no = args.confirm && content[FIELD] != true;
    Ok(if no { ExitCode::from(DECLINED) } else { ExitCode::SUCCESS })
}

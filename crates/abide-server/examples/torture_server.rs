//! What the torture run needs and a config file can't say: a handler that asks for input, and two
//! engines on one store, so that one of them can be taken over while it is still at work.
//!
//! `torture_server DATABASE MARKS ENGINES`: serves on a free port, and writes what its handlers do
//! into files in the folder MARKS, named by task.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    Backend, InputKey, OnRestart, Outcome, Policy, RawJson, RpcError, TaskId, ToolName, Work,
};
use abide_engine::{Engine, Options, Schema, SystemClock, TaskContext, TaskSupport, Tool, handler};
use abide_server::{Server, Settings, ToolDefinition, serve_http};
use abide_store::sqlite::{Options as StoreOptions, SqliteStore};
use serde_json::{Value, json};
use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;

/// Short, so that a claim that is not renewed is soon taken over.
const LEASE: Duration = Duration::from_millis(240);
/// How long work may go on once the server was told to stop.
const GRACE: Duration = Duration::from_millis(300);
/// More than a run ever needs.
const MAX_ATTEMPTS: u32 = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter("info,rmcp=error")
        .init();
    let mut arguments = std::env::args_os().skip(1);
    let mut next = || arguments.next().ok_or("usage: torture_server DATABASE MARKS ENGINES");
    let (database, marks) = (PathBuf::from(next()?), PathBuf::from(next()?));
    let engines: usize = next()?.to_string_lossy().parse()?;

    let store = Arc::new(SqliteStore::open(&database, StoreOptions::default())?);
    let mut started = Vec::new();
    for _ in 0..engines.max(1) {
        let options = Options { lease: LEASE, ..Options::default() };
        let clock = Arc::new(SystemClock);
        started.push(Engine::start(store.clone(), clock, tools(&marks)?, options).await?);
    }
    let definitions = tools(&marks)?.into_iter().map(|tool| ToolDefinition {
        name: tool.name.to_string(),
        description: "A tool of the torture run".to_owned(),
        input_schema: serde_json::Map::from_iter([("type".to_owned(), json!("object"))]),
        ..ToolDefinition::default()
    });
    let settings = Settings { shutdown_grace: GRACE, ..Settings::default() };
    let server = Server::new(started[0].clone(), definitions.collect(), settings);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    announce(&format!("listening on http://{}/mcp", listener.local_addr()?));
    let stopping = CancellationToken::new();
    let mut terminate = tokio::signal::unix::signal(SignalKind::terminate())?;
    let told = stopping.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        told.cancel();
    });
    serve_http(server, listener, stopping).await?;
    // All of them, before the first one closes their store.
    for engine in &started {
        engine.drain(GRACE).await;
    }
    for engine in &started {
        engine.close().await;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "whoever started the server waits for this line")]
fn announce(line: &str) {
    println!("{line}");
}

fn tools(marks: &Path) -> Result<Vec<Tool>, Box<dyn std::error::Error>> {
    let asks = marks.to_owned();
    let works = marks.to_owned();
    Ok(vec![
        tool("asks", handler(move |work, context| ask(asks.clone(), work, context)))?,
        tool("works", handler(move |work, _| work_for_a_while(works.clone(), work)))?,
    ])
}

fn tool(name: &str, backend: impl Backend) -> Result<Tool, Box<dyn std::error::Error>> {
    Ok(Tool {
        name: ToolName::new(name)?,
        input: Schema::compile(&json!({ "type": "object" }))?,
        task: TaskSupport::Required,
        inline: Duration::ZERO,
        policy: Policy {
            timeout_ms: None,
            keep_ms: None,
            poll_interval_ms: 50,
            on_restart: OnRestart::Rerun { max_attempts: MAX_ATTEMPTS },
        },
        concurrency: 32,
        queue: 1000,
        backend: Arc::new(backend),
    })
}

/// Writes a line about a task, so that it survives this process.
fn mark(marks: &Path, task: &TaskId, line: &str) {
    let file = OpenOptions::new().append(true).create(true).open(marks.join(task.as_str()));
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        tracing::error!(%task, %error, "a mark was not written");
    }
}

fn completed(result: &Value) -> Outcome {
    let text = json!({ "type": "text", "text": result.to_string() });
    let result = json!({ "content": [text], "structuredContent": result });
    match RawJson::from_value(&result) {
        Ok(result) => Outcome::Completed(result),
        Err(error) => Outcome::Failed(RpcError::internal("json", error.to_string())),
    }
}

/// Asks a question, and says in the result what was answered to which attempt.
async fn ask(marks: PathBuf, work: Work, context: TaskContext) -> Outcome {
    let Work { task_id, attempt, .. } = work;
    mark(&marks, &task_id, &format!("start {attempt}"));
    let request = json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Which number?",
            "requestedSchema": {
                "type": "object",
                "properties": { "number": { "type": "integer" } },
                "required": ["number"]
            }
        }
    });
    let ask = async |key: &str| {
        let key = InputKey::new(key).map_err(|error| error.to_string())?;
        let request = RawJson::from_value(&request).map_err(|error| error.to_string())?;
        context.ask(key, request).await.map_err(|error| error.to_string())
    };
    // What an earlier attempt was answered counts for all that follow. A question that was open
    // when the server died was taken back, and its key with it.
    let (mut key, mut answer) = (String::new(), Err("there is no attempt".to_owned()));
    for asked_by in 1..=attempt {
        key = format!("number-{asked_by}");
        answer = ask(&key).await;
        if answer.is_ok() {
            break;
        }
    }
    let answer = match answer.map(|answer| answer.to::<Value>()) {
        Ok(Ok(answer)) => answer["content"]["number"].clone(),
        other => return Outcome::Failed(RpcError::internal("ask", format!("{other:?}"))),
    };
    mark(&marks, &task_id, &format!("answer {attempt} {key} {answer}"));
    completed(&json!({ "attempt": attempt, "key": key, "number": answer }))
}

/// Takes as many milliseconds as the arguments say.
async fn work_for_a_while(marks: PathBuf, work: Work) -> Outcome {
    let Work { task_id, attempt, .. } = work;
    mark(&marks, &task_id, &format!("start {attempt}"));
    let millis = work.arguments.to::<Value>().ok().and_then(|arguments| arguments["ms"].as_u64());
    tokio::time::sleep(Duration::from_millis(millis.unwrap_or_default())).await;
    mark(&marks, &task_id, &format!("done {attempt}"));
    completed(&json!({ "attempt": attempt }))
}

//! The fixture that the official conformance suite runs against: the suite's tools, written with
//! nothing but abide's public parts.

mod content;
mod rounds;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use abide_core::{Backend, OnRestart, Policy, ToolName};
use abide_engine::{Engine, Options, Schema, SystemClock, TaskSupport, Tool};
use abide_server::{Server, Settings, ToolDefinition, serve_http};
use abide_store::sqlite::{Options as StoreOptions, SqliteStore};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A tool of the fixture.
pub(crate) struct Fixture {
    name: &'static str,
    schema: Value,
    task: TaskSupport,
    backend: Arc<dyn Backend>,
}

impl Fixture {
    pub(crate) fn new(
        name: &'static str,
        schema: Value,
        task: TaskSupport,
        backend: impl Backend,
    ) -> Self {
        Self { name, schema, task, backend: Arc::new(backend) }
    }
}

/// The schema of a tool without arguments.
pub(crate) fn no_arguments() -> Value {
    json!({ "type": "object" })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(std::env::var("ABIDE_LOG").unwrap_or_else(|_| "info,rmcp=warn".to_owned()))
        .init();

    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(&folder.path().join("fixture.db"), StoreOptions::default())?;
    // The suite calls the first listed tool without arguments, so that one comes first.
    let fixtures: Vec<_> =
        content::tools().into_iter().chain(tasks::tools()).chain(rounds::tools()?).collect();
    let mut tools = Vec::new();
    let mut definitions = Vec::new();
    for fixture in fixtures {
        let Value::Object(schema) = fixture.schema.clone() else { continue };
        tools.push(Tool {
            name: ToolName::new(fixture.name)?,
            input: Schema::compile(&fixture.schema)?,
            task: fixture.task,
            // The suite wants its tasks at once.
            inline: Duration::ZERO,
            policy: Policy {
                timeout_ms: Some(300_000),
                keep_ms: Some(300_000),
                poll_interval_ms: 200,
                on_restart: OnRestart::Fail,
            },
            concurrency: 16,
            queue: 16,
            backend: fixture.backend,
        });
        definitions.push(ToolDefinition {
            name: fixture.name.to_owned(),
            description: format!("The conformance suite's {}.", fixture.name),
            input_schema: schema,
            ..ToolDefinition::default()
        });
    }

    let engine =
        Engine::start(Arc::new(store), Arc::new(SystemClock), tools, Options::default()).await?;
    let server = Server::new(engine.clone(), definitions, Settings::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    announce(&format!("listening on http://{}/mcp", listener.local_addr()?));
    let stop = CancellationToken::new();
    let ended = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        ended.cancel();
    });
    serve_http(server, listener, stop).await?;
    engine.shutdown(Duration::ZERO).await;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "whoever started the fixture waits for this line")]
fn announce(line: &str) {
    println!("{line}");
}

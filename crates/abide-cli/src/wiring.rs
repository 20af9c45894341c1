//! Puts the rooms together: a checked config becomes a store, an engine and a server.

use std::sync::Arc;
use std::time::Duration;

use abide_backends::command::CommandBackend;
use abide_core::{OnRestart, Policy, Store};
use abide_engine::{Engine, Options, Schema, SystemClock, Tool};
use abide_server::{AllowLists, Server, Settings, ToolDefinition};
use abide_store::sqlite::{Options as SqliteOptions, SqliteStore};
use anyhow::Context as _;
use serde_json::{Map, Value as Json};

use crate::config::{Annotations, Config, Envelope, ServerConfig, StoreLocation, ToolConfig};
use crate::failure::Failure;

/// Opens the store, settles what a former process left in it, and puts a server before it.
///
/// # Errors
/// [`Failure`] that says which part can't be used, and why.
pub(crate) async fn assemble(config: &Config) -> Result<Server, Failure> {
    let tools = config.tools.iter().map(tool).collect::<Result<Vec<_>, _>>()?;
    let definitions = config.tools.iter().map(definition).collect();
    let store = open(&config.server.store)?;
    let engine =
        Engine::start(store, Arc::new(SystemClock), tools, Options::default()).await.with_context(
            || format!("what a former process left in {} can't be settled", config.server.store),
        )?;
    Ok(Server::new(engine, definitions, settings(&config.server)))
}

fn open(location: &StoreLocation) -> Result<Arc<dyn Store>, Failure> {
    let StoreLocation::Sqlite(path) = location;
    let store = SqliteStore::open(path, SqliteOptions::default()).map_err(anyhow::Error::from)?;
    Ok(Arc::new(store))
}

fn tool(config: &ToolConfig) -> Result<Tool, Failure> {
    let backend = CommandBackend::new(config.command_spec(), &config.input_schema)
        .with_context(|| format!("the tool {}", config.name))?;
    let input = Schema::compile(&config.input_schema)
        .with_context(|| format!("the input schema of the tool {}", config.name))?;
    Ok(Tool {
        name: config.name.clone(),
        input,
        task: config.task,
        inline: config.inline,
        policy: Policy {
            timeout_ms: config.timeout.map(millis),
            keep_ms: config.keep.map(millis),
            poll_interval_ms: millis(config.poll),
            // Nothing of a command can be taken up again by another process yet.
            on_restart: OnRestart::Fail,
        },
        concurrency: config.concurrency,
        queue: config.queue,
        backend: Arc::new(backend),
    })
}

fn definition(config: &ToolConfig) -> ToolDefinition {
    ToolDefinition {
        name: config.name.to_string(),
        title: config.title.clone(),
        description: config.description.clone(),
        input_schema: object(&config.input_schema),
        output_schema: config.output_schema.as_ref().map(object),
        annotations: annotations(&config.annotations),
    }
}

/// A schema's members; the config lets only objects through.
fn object(schema: &Json) -> Map<String, Json> {
    schema.as_object().cloned().unwrap_or_default()
}

/// The hints that are given, under their names in the protocol (`ToolAnnotations`).
fn annotations(hints: &Annotations) -> Option<Map<String, Json>> {
    let Annotations { read_only, destructive, idempotent, open_world } = *hints;
    let given: Map<String, Json> = [
        ("readOnlyHint", read_only),
        ("destructiveHint", destructive),
        ("idempotentHint", idempotent),
        ("openWorldHint", open_world),
    ]
    .into_iter()
    .filter_map(|(name, hint)| Some((name.to_owned(), Json::Bool(hint?))))
    .collect();
    (!given.is_empty()).then_some(given)
}

fn settings(config: &ServerConfig) -> Settings {
    let mut allow = AllowLists::loopback();
    allow.hosts.extend(config.allowed_hosts.iter().cloned());
    allow.origins.extend(config.allowed_origins.iter().cloned());
    Settings {
        name: config.name.clone(),
        instructions: config.instructions.clone(),
        envelope: match config.envelope {
            Envelope::Flat => abide_server::Envelope::Flat,
            Envelope::Nested => abide_server::Envelope::Nested,
        },
        lenient_headers: config.lenient_headers,
        max_body_bytes: config.max_body,
        shutdown_grace: config.shutdown_grace,
        allow,
        ..Settings::default()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

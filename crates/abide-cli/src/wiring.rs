//! Puts the rooms together: a checked config becomes a store, an engine and a server.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_backends::approval::Approved;
use abide_backends::command::CommandBackend;
use abide_backends::desk::Desk;
use abide_backends::runner::{Found, Program, RunName, Spool};
use abide_core::{Clock as _, Policy, Store, StoreError, TaskId};
use abide_engine::{Engine, Options, Schema, SystemClock, Tool};
use abide_server::{AllowLists, Server, Settings, ToolDefinition};
use abide_store::sqlite::{Options as SqliteOptions, SetAside, SqliteStore};
use anyhow::Context as _;
use serde_json::{Map, Value as Json};

use crate::config::{
    Annotations, Approve, Config, Envelope, ServerConfig, StoreLocation, ToolConfig,
};
use crate::failure::Failure;

/// The argument with which `abide` is a runner.
pub(crate) const RUNNER: &str = "runner";
/// What is behind a database's name in that of the folder of its runs.
const RUNS: &str = ".runs";
/// The same in that of the socket where commands ask and tell.
const DESK: &str = ".desk";
/// Tasks that are looked at in one go.
const BATCH: u32 = 1000;

/// Opens the store, settles what a former process left in it, and puts a server before it.
///
/// # Errors
/// [`Failure`] that says which part can't be used, and why.
pub(crate) async fn assemble(config: &Config) -> Result<Server, Failure> {
    let secrets = config.tools.iter().map(secrets).collect::<Result<Vec<_>, _>>()?;
    let store = open(&config.server.store)?;
    // Not before the store: its lock proves that no other process uses the spool.
    let spool = open_spool(&config.server.store)?;
    let desk = open_desk(&config.server.store)?;
    let tools = config.tools.iter().zip(secrets);
    let tools = tools.map(|(config, secrets)| tool(config, secrets, spool.clone(), desk.clone()));
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    let definitions = config.tools.iter().map(definition).collect();
    let recovering =
        || format!("what a former process left in {} can't be settled", config.server.store);
    let engine = Engine::start(store.clone(), Arc::new(SystemClock), tools, Options::default())
        .await
        .with_context(recovering)?;
    clear_spool(&spool, &*store).await.with_context(recovering)?;
    Ok(Server::new(engine, definitions, settings(&config.server)))
}

fn open(location: &StoreLocation) -> Result<Arc<dyn Store>, Failure> {
    let StoreLocation::Sqlite(path) = location;
    refuse_lost_database(path, location)?;
    // What is still at work goes on in the folder that was set aside.
    let damaged = SetAside { now: SystemClock.now(), companions: &[RUNS] };
    let opened = SqliteStore::open_or_set_aside(path, SqliteOptions::default(), damaged);
    Ok(Arc::new(opened.map_err(anyhow::Error::from)?))
}

/// A database that is gone while its runs are there was moved or deleted by mistake, or is to be
/// restored: a new one in its place would know none of them, and end them all.
fn refuse_lost_database(path: &Path, location: &StoreLocation) -> Result<(), Failure> {
    let runs = spool_root(location);
    let any = std::fs::read_dir(&runs).is_ok_and(|mut entries| entries.next().is_some());
    if path.exists() || !any {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "there is no database {}, but {} has commands of its tasks",
        path.display(),
        runs.display()
    ))
    .hint("put the database back, or a backup of it; to begin anew, move that folder away"))
}

/// The folder of the runs, beside the database.
pub(crate) fn spool_root(location: &StoreLocation) -> PathBuf {
    beside(location, RUNS)
}

/// What belongs to the database, by what is behind its name.
fn beside(location: &StoreLocation, suffix: &str) -> PathBuf {
    let StoreLocation::Sqlite(path) = location;
    // The same place by whichever link the database is named.
    let path = path.canonicalize().unwrap_or_else(|_| path.clone());
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn open_desk(location: &StoreLocation) -> Result<Desk, Failure> {
    let address = beside(location, DESK);
    let desk = Desk::open(&address);
    Ok(desk.with_context(|| format!("can't listen to commands at {}", address.display()))?)
}

fn open_spool(location: &StoreLocation) -> Result<Spool, Failure> {
    let root = spool_root(location);
    let program = Program::this([RUNNER]).context("can't find out where abide itself lies")?;
    let spool = Spool::open(&root, program);
    Ok(spool.with_context(|| format!("can't use {}, the folder of the runs", root.display()))?)
}

/// Stops what belongs to no task that is at work, such as plain calls whose server was killed, and
/// removes what belongs to no task at all.
async fn clear_spool(spool: &Spool, store: &dyn Store) -> anyhow::Result<()> {
    // New calls are taken only after this, so what is not at work now never will be.
    let runs = spool.list()?;
    let at_work = at_work(store).await?;
    let ids: HashSet<TaskId> = runs.iter().map(|run| run.task).collect();
    let existing: HashSet<TaskId> =
        store.existing(ids.into_iter().collect()).await?.into_iter().collect();
    let spool = spool.clone();
    // There may be very many that only are kept, and looking at each takes a moment.
    tokio::task::spawn_blocking(move || {
        for run in runs.into_iter().filter(|run| !at_work.contains(&run.task)) {
            let spool = spool.clone();
            let keep = existing.contains(&run.task);
            match spool.find(&run) {
                // What is left of a lost one was stopped when its task ended.
                Ok(Found::Finished(_) | Found::Lost(_) | Found::Absent) if keep => {}
                found => drop(tokio::spawn(clear(spool, run, found, keep))),
            }
        }
    });
    Ok(())
}

/// Stops a run that belongs to no task at work, and removes it unless it is to be kept. Stopping may
/// take as long as a grace.
async fn clear(spool: Spool, name: RunName, found: std::io::Result<Found>, keep: bool) {
    let cleared = async {
        match found? {
            Found::Live(run) => {
                tracing::warn!(run = %name, "stopping a command that belongs to no task at work");
                run.stop().await?;
                run.wait().await?;
            }
            Found::Lost(lost) => drop(lost.stop_leftovers().await?),
            Found::Finished(_) | Found::Absent => {}
        }
        if keep { Ok(()) } else { spool.remove(&name) }
    };
    let cleared: std::io::Result<()> = cleared.await;
    if let Err(error) = cleared {
        tracing::error!(run = %name, %error, "a run that belongs to no task at work is left");
    }
}

async fn at_work(store: &dyn Store) -> Result<HashSet<TaskId>, StoreError> {
    let mut ids = HashSet::new();
    let mut after = None;
    loop {
        let tasks = store.unfinished(after, BATCH).await?;
        let Some(last) = tasks.last() else { return Ok(ids) };
        after = Some(*last.id());
        ids.extend(tasks.iter().map(|task| *task.id()));
    }
}

/// The values of a tool's secrets, from our own environment.
fn secrets(config: &ToolConfig) -> Result<BTreeMap<String, String>, Failure> {
    let read = |name: &String| match std::env::var(name) {
        Ok(value) => Ok((name.clone(), value)),
        Err(error) => {
            let problem = match error {
                std::env::VarError::NotPresent => "is not set",
                std::env::VarError::NotUnicode(_) => "is not valid UTF-8",
            };
            Err(Failure::failed(format!(
                "the tool {} needs the environment variable {name}, which {problem}",
                config.name
            ))
            .hint("set it where abide is started, or take it out of the tool's `secrets`"))
        }
    };
    config.secrets.iter().map(read).collect()
}

fn tool(
    config: &ToolConfig,
    secrets: BTreeMap<String, String>,
    spool: Spool,
    desk: Desk,
) -> Result<Tool, Failure> {
    let spec = config.command_spec(secrets);
    let backend = CommandBackend::new(spec, &config.input_schema, spool, Some(desk))
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
            on_restart: config.on_restart,
        },
        concurrency: config.concurrency,
        queue: config.queue,
        backend: match &config.approve {
            Some(Approve { message, on_decline }) => {
                Arc::new(Approved::new(backend, message.clone(), *on_decline))
            }
            None => Arc::new(backend),
        },
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

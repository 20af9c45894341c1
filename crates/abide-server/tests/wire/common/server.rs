//! A server for one test: a real engine over a real SQLite file, on both transports.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_core::{Clock, Policy, ToolName};
use abide_engine::{Engine, Options, Schema, SystemClock, Tool};
use abide_server::{Envelope, Server, Settings, ToolDefinition, serve_http};
use abide_store::sqlite::{OpenError, Options as StoreOptions, SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::tools::ToolSpec;
use super::{Gates, Http, Stdio, declared, task, tools, within};

/// A server that is about to start.
pub(crate) struct Fixture {
    folder: Arc<TempDir>,
    settings: Settings,
    tools: Vec<ToolSpec>,
    gates: Gates,
    clock: Arc<dyn Clock>,
}

/// A server that runs, until this is dropped.
pub(crate) struct Running {
    pub(crate) folder: Arc<TempDir>,
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) http: Http,
    pub(crate) gates: Gates,
    stop: CancellationToken,
    serving: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
}

impl Fixture {
    /// The tools of [`tools`], on a fresh database.
    pub(crate) fn new() -> Self {
        let gates = Gates::new();
        Self {
            folder: Arc::new(TempDir::new().expect("a folder")),
            // Tests end servers in the middle of calls.
            settings: Settings { shutdown_grace: Duration::from_secs(5), ..Settings::default() },
            tools: tools(&gates),
            gates,
            clock: Arc::new(SystemClock),
        }
    }

    /// The same tools on a database that was used before.
    pub(crate) fn on(folder: &Arc<TempDir>) -> Self {
        Self { folder: folder.clone(), ..Self::new() }
    }

    pub(crate) fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn envelope(self, envelope: Envelope) -> Self {
        self.settings(|settings| settings.envelope = envelope)
    }

    pub(crate) fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Changes the settings of one tool.
    pub(crate) fn tool(mut self, name: &str, change: impl FnOnce(&mut ToolSpec)) -> Self {
        change(self.tools.iter_mut().find(|tool| tool.name == name).expect("the tool"));
        self
    }

    pub(crate) async fn start(self) -> Running {
        let store = open(&self.folder.path().join("abide.db")).await;
        let mut running = Vec::new();
        let mut definitions = Vec::new();
        for tool in self.tools {
            let Value::Object(schema) = tool.schema.clone() else { panic!("a schema") };
            running.push(Tool {
                name: ToolName::new(tool.name).expect("a name"),
                input: Schema::compile(&tool.schema).expect("compiles"),
                task: tool.task,
                inline: tool.inline,
                policy: Policy {
                    timeout_ms: tool.timeout_ms,
                    keep_ms: tool.keep_ms,
                    poll_interval_ms: 250,
                    on_restart: abide_core::OnRestart::Fail,
                },
                concurrency: tool.concurrency,
                queue: tool.queue,
                backend: tool.backend,
            });
            definitions.push(ToolDefinition {
                name: tool.name.to_owned(),
                description: format!("The tests' {}.", tool.name),
                input_schema: schema,
                ..ToolDefinition::default()
            });
        }
        let engine = Engine::start(Arc::new(store), self.clock, running, Options::default())
            .await
            .expect("the engine starts");
        let server = Server::new(engine.clone(), definitions, self.settings);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let http = Http::new(listener.local_addr().expect("an address"));
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve_http(server.clone(), listener, stop.clone()));
        Running {
            folder: self.folder,
            engine,
            server,
            http,
            gates: self.gates,
            stop,
            serving: Some(serving),
        }
    }
}

impl Running {
    /// A new session over standard input and output.
    pub(crate) fn stdio(&self) -> Stdio {
        Stdio::start(self.server.clone())
    }

    /// Calls a tool whose calls become tasks; gives the handle.
    pub(crate) async fn create(&self, tool: &str, arguments: Value) -> String {
        let reply = self.http.ask("tools/call", &super::call(declared(), tool, arguments)).await;
        let json = reply.json();
        assert_eq!(json["result"]["resultType"], "task", "{json:#}");
        let result = &json["result"];
        let id = result["taskId"].as_str().or_else(|| result["task"]["taskId"].as_str());
        id.expect("a handle").to_owned()
    }

    /// The result of `tasks/get`.
    pub(crate) async fn get(&self, id: &str) -> Value {
        let json = self.http.ask("tasks/get", &task(declared(), id)).await.json();
        assert!(json.get("result").is_some(), "{json:#}");
        json["result"].clone()
    }

    /// Polls until the task is as wanted.
    pub(crate) async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        within(&format!("task {id}"), async {
            loop {
                let got = self.get(id).await;
                if wanted(&got) {
                    return got;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Polls until the task has this status.
    pub(crate) async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(id, |got| got["status"] == status || got["task"]["status"] == status).await
    }

    /// How many tasks lie in the database.
    pub(crate) fn rows(&self) -> i64 {
        let path: PathBuf = self.folder.path().join("abide.db");
        let database = rusqlite::Connection::open(path).expect("opens");
        database.query_row("SELECT count(*) FROM tasks", [], |row| row.get(0)).expect("counts")
    }

    /// Ends the HTTP side and then the engine; work that is running is stopped.
    pub(crate) async fn shut_down(mut self) {
        self.stop.cancel();
        let serving = self.serving.take().expect("still served");
        within("the server ends", serving).await.expect("no panic").expect("no error");
        self.engine.shutdown(Duration::ZERO).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// Opens the database, as soon as a former server in this process has let go of it.
async fn open(path: &Path) -> SqliteStore {
    for _ in 0..1_000 {
        match SqliteStore::open(path, StoreOptions::default()) {
            Err(OpenError::Locked { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
            opened => return opened.expect("the database opens"),
        }
    }
    panic!("the database stays in use");
}

/// The code of a JSON-RPC error.
#[track_caller]
pub(crate) fn error_code(json: &Value) -> i64 {
    assert!(json.get("result").is_none(), "{json:#}");
    assert_eq!(json["jsonrpc"], json!("2.0"));
    json["error"]["code"].as_i64().unwrap_or_else(|| panic!("no code: {json:#}"))
}

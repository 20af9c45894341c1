//! What a server is made of.

use std::sync::Arc;
use std::time::Duration;

use abide_core::Owner;
use abide_engine::Engine;

use crate::limits;
use crate::mcp::edge::AllowLists;
use crate::mcp::handler::{Handler, ToolDefinition};
use crate::mcp::surface::Surface;
use crate::mcp::wire::Envelope;

/// How a server presents itself and what it lets in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name that clients are shown.
    pub name: String,
    /// The version that clients are shown.
    pub version: String,
    /// What a model should know about the server as a whole.
    pub instructions: Option<String>,
    /// How tasks are wrapped on the wire.
    pub envelope: Envelope,
    /// Whether to fill in `Mcp-Method`, `Mcp-Name` and `MCP-Protocol-Version` from the body for
    /// clients that forget them. Headers that are there must still agree with the body.
    pub lenient_headers: bool,
    /// Bytes of one request.
    pub max_body_bytes: usize,
    /// How long answers under way may take once the server is told to stop.
    pub shutdown_grace: Duration,
    /// Which `Host` and `Origin` headers are let in.
    pub allow: AllowLists,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "abide".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
            envelope: Envelope::Flat,
            lenient_headers: false,
            max_body_bytes: limits::DEFAULT_MAX_BODY_BYTES,
            shutdown_grace: limits::DEFAULT_SHUTDOWN_GRACE,
            allow: AllowLists::loopback(),
        }
    }
}

/// An MCP server over an engine. Cheap to clone; serve it over HTTP, stdio or both.
#[derive(Clone)]
pub struct Server {
    pub(crate) settings: Arc<Settings>,
    pub(crate) surface: Surface,
    pub(crate) handler: Handler,
    pub(crate) engine: Engine,
}

impl Server {
    /// Puts a server together. `tools` are listed in the order given; each is called by its name
    /// in the engine.
    #[must_use]
    pub fn new(engine: Engine, tools: Vec<ToolDefinition>, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        Self {
            surface: Surface::new(engine.clone()),
            handler: Handler::new(engine.clone(), tools, &settings),
            engine,
            settings,
        }
    }

    /// The owner of everything while no identities are configured.
    pub(crate) fn caller(&self) -> Owner {
        Owner::local()
    }

    /// The engine behind the server.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

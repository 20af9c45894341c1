//! Everything that rmcp carries: discovery, the list of tools, calls, older clients.

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::{Owner, Progress, RawJson};
use abide_engine::{Call, CallError, Engine};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, CustomRequest, CustomResult,
    ErrorCode, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListResourceTemplatesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, TASKS_EXTENSION_ID, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use tokio::sync::watch;

use crate::limits;
use crate::mcp::convert::{self, ProgressSender};
use crate::mcp::log;
use crate::mcp::reply::{PROTOCOL_VERSION, shown};
use crate::server::Settings;

/// Methods that rmcp knows and this server has. A request of one of them that it can't read comes
/// to us as one of a method that it doesn't know.
const READ_BY_RMCP: [&str; 8] = [
    "server/discover",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/templates/list",
];

/// What clients are told about a tool.
#[derive(Debug, Clone, Default)]
pub struct ToolDefinition {
    /// The name it is called by.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does, for models.
    pub description: String,
    /// JSON Schema of its arguments, shown as it is.
    pub input_schema: serde_json::Map<String, serde_json::Value>,
    /// JSON Schema of its structured result.
    pub output_schema: Option<serde_json::Map<String, serde_json::Value>>,
    /// Hints about what it does to the world, as the protocol's `ToolAnnotations`.
    pub annotations: Option<serde_json::Map<String, serde_json::Value>>,
}

/// abide's side of rmcp.
#[derive(Clone)]
pub(crate) struct Handler {
    engine: Engine,
    tools: Arc<Tools>,
    info: Arc<ServerConfig>,
}

struct Tools {
    listed: Vec<Tool>,
    by_name: HashMap<String, usize>,
}

/// Who sent a request; put into its extensions by the transport.
#[derive(Debug, Clone)]
pub(crate) struct Caller(pub(crate) Owner);

impl Handler {
    pub(crate) fn new(engine: Engine, tools: Vec<ToolDefinition>, settings: &Settings) -> Self {
        let listed: Vec<_> = tools.into_iter().map(listed).collect();
        let by_name =
            listed.iter().enumerate().map(|(at, tool)| (tool.name.to_string(), at)).collect();
        Self { engine, tools: Arc::new(Tools { listed, by_name }), info: Arc::new(info(settings)) }
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        cx: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.into_owned();
        // This request's declaration, never an earlier one's: `cx.client_capabilities()` would
        // fall back to the session's.
        let capabilities = cx.meta.client_capabilities();
        // A request of an older revision has no such declaration, whatever lies in its `_meta`.
        let speaks_tasks =
            cx.meta.protocol_version().is_some_and(|version| version.as_str() >= PROTOCOL_VERSION);
        let may_be_task = speaks_tasks && capabilities.as_ref().is_some_and(declares_tasks);
        let (progress, watched) = cx
            .meta
            .get_progress_token()
            .map(|token| {
                let (sender, receiver) = watch::channel(Progress::default());
                (sender, Signs::new(token, receiver))
            })
            .unzip();
        let call = Call {
            owner: owner(cx),
            tool: name.clone(),
            arguments: raw(&request.arguments.unwrap_or_default())?,
            may_be_task,
            capabilities: raw(&capabilities
                .or_else(|| cx.client_capabilities())
                .unwrap_or_default())?,
            input_responses: request.input_responses.as_ref().map(raw).transpose()?,
            request_state: request.request_state,
            progress,
        };
        let answer = match watched {
            None => self.engine.call(call).await,
            Some(signs) => tell(&cx.peer, signs, self.engine.call(call)).await,
        };
        match answer {
            Ok(answer) => convert::response(answer),
            Err(error) => refuse(&name, error),
        }
    }
}

/// Who sent this request.
fn owner(cx: &RequestContext<RoleServer>) -> Owner {
    cx.extensions
        .get::<http::request::Parts>()
        .and_then(|parts| parts.extensions.get::<Caller>())
        .map_or_else(Owner::local, |caller| caller.0.clone())
}

/// Waits for an answer and meanwhile tells the caller how far the work is, and that it goes on.
/// A notification is either not begun or sent whole before the answer, so none comes after it.
async fn tell<T>(peer: &Peer<RoleServer>, mut signs: Signs, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    loop {
        let params = tokio::select! {
            biased;
            answer = &mut answer => return answer,
            params = signs.next() => params,
        };
        let Some(params) = params else { return answer.await };
        if peer.notify_progress(params).await.is_err() {
            return answer.await;
        }
    }
}

/// Signs of life of one call.
struct Signs {
    sender: ProgressSender,
    progress: watch::Receiver<Progress>,
    alive: tokio::time::Interval,
    beats: u32,
}

impl Signs {
    fn new(token: ProgressToken, progress: watch::Receiver<Progress>) -> Self {
        let first = tokio::time::Instant::now() + limits::HEARTBEAT;
        Self {
            sender: ProgressSender::new(token),
            progress,
            alive: tokio::time::interval_at(first, limits::HEARTBEAT),
            beats: 0,
        }
    }

    /// The next sign; none once nobody says anything any more.
    async fn next(&mut self) -> Option<ProgressNotificationParam> {
        tokio::select! {
            changed = self.progress.changed() => {
                changed.ok()?;
                Some(self.sender.said(self.progress.borrow_and_update().clone()))
            }
            _ = self.alive.tick() => {
                self.beats += 1;
                Some(self.sender.alive(limits::HEARTBEAT * self.beats))
            }
        }
    }
}

/// What the caller of a refused call is told. What a model can mend comes as a tool result
/// (core specification, tools, "Error Handling"); what it can't is a protocol error.
fn refuse(name: &str, error: CallError) -> Result<CallToolResponse, ErrorData> {
    match error {
        CallError::UnknownTool => {
            Err(ErrorData::invalid_params(format!("Unknown tool: {}", shown(name)), None))
        }
        CallError::NeedsTask => Err(convert::needs_task()),
        CallError::Arguments(problems) => Ok(convert::tool_error(format!(
            "The arguments do not fit the tool's input schema, and nothing was run:\n- {}",
            problems.join("\n- ")
        ))),
        CallError::Busy { queued } => Ok(convert::tool_error(format!(
            "Busy: every slot of this tool is taken and {queued} calls wait already, which is \
             its limit. Nothing was run; try again later."
        ))),
        CallError::Closing => Err(convert::internal("The server is stopping; try again later.")),
        CallError::Rpc(error) => Err(convert::rpc_error(error)),
        CallError::Store(error) => {
            tracing::error!(%error, tool = name, "the store failed a call");
            Err(convert::internal("The server can't reach its database right now; try again."))
        }
    }
}

fn raw(value: &impl serde::Serialize) -> Result<RawJson, ErrorData> {
    RawJson::from_value(value).map_err(|error| {
        tracing::error!(%error, "a request can't be written as JSON");
        convert::internal("The request could not be read.")
    })
}

fn declares_tasks(capabilities: &ClientCapabilities) -> bool {
    capabilities
        .extensions
        .as_ref()
        .is_some_and(|extensions| extensions.contains_key(TASKS_EXTENSION_ID))
}

fn listed(definition: ToolDefinition) -> Tool {
    let mut tool =
        Tool::new(definition.name, definition.description, Arc::new(definition.input_schema));
    tool.title = definition.title;
    tool.output_schema = definition.output_schema.map(Arc::new);
    tool.annotations = definition
        .annotations
        .and_then(|hints| serde_json::from_value(serde_json::Value::Object(hints)).ok());
    tool
}

/// Resources are the logs of tasks, which are found by their URIs. Prompts are declared, and their
/// list is empty: hosts ask for them whatever a server declares, and an empty list is a better
/// answer than an error.
fn info(settings: &Settings) -> ServerConfig {
    let capabilities = ServerCapabilities::builder()
        .enable_tools()
        .enable_prompts()
        .enable_resources()
        .enable_tasks()
        .build();
    let mut info = ServerConfig::new(capabilities);
    info.server_info = Implementation::new(settings.name.clone(), settings.version.clone());
    info.instructions.clone_from(&settings.instructions);
    info
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        (*self.info).clone()
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.by_name.get(name).map(|at| self.tools.listed[*at].clone())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = ListToolsResult::with_all_items(self.tools.listed.clone());
        list.ttl_ms = u64::try_from(limits::TOOLS_TTL.as_millis()).ok();
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut list = ListResourceTemplatesResult::with_all_items(vec![log::template()]);
        list.ttl_ms = u64::try_from(limits::TOOLS_TTL.as_millis()).ok();
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(log::read(&self.engine, &owner(&cx), &request.uri).await?.into())
    }

    /// There are no prompts to get: -32602 that names the prompt (core specification, prompts).
    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Err(ErrorData::invalid_params(format!("Unknown prompt: {}", shown(&request.name)), None))
    }

    /// Every method that is not rmcp's, and every request of rmcp's whose params it can't read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _cx: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if READ_BY_RMCP.contains(&request.method.as_str()) {
            let message = format!("The params of {} are missing or malformed.", request.method);
            return Err(ErrorData::invalid_params(message, None));
        }
        let message = format!("Method not found: {}", shown(&request.method));
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let gone = cx.ct.clone();
        tokio::select! {
            biased;
            response = self.call(request, &cx) => response,
            // The caller closed the stream or cancelled the request. A task it has a handle of
            // goes on; anything else stops with this future.
            () = gone.cancelled() => Err(convert::internal("The request was cancelled.")),
        }
    }
}

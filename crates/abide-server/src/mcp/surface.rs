//! The tasks surface: `tasks/get`, `tasks/update`, `tasks/cancel`, from raw JSON to stored bytes.

use abide_core::{InputKey, Owner, RawJson, TaskId};
use abide_engine::{Engine, EngineError};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::envelope::Message;
use crate::mcp::headers;
use crate::mcp::members::Members;
use crate::mcp::reply::{self, Fault, PROTOCOL_VERSION, TASKS_EXTENSION, shown};
use crate::mcp::wire;

/// The acknowledgement of `tasks/update` and `tasks/cancel`
/// (`sep-2663-update-ack-empty-result`, `sep-2663-cancel-ack-empty-result`).
const ACK: &str = r#"{"resultType":"complete"}"#;

/// Answers `tasks/*`, for every transport.
#[derive(Clone)]
pub(crate) struct Surface {
    engine: Engine,
}

/// An answer, and how HTTP says it.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

/// How a request came.
#[derive(Clone, Copy)]
pub(crate) enum Via<'a> {
    /// With these headers.
    Http(&'a HeaderMap),
    /// As a line.
    Stdio {
        /// Whether the session was opened by `initialize`, as older revisions do.
        older: bool,
    },
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "inputResponses")]
    input_responses: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Capabilities<'a> {
    #[serde(borrow, default)]
    extensions: Option<&'a RawValue>,
}

impl Surface {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Whether a method belongs to this lane.
    pub(crate) fn takes(method: &str) -> bool {
        method.starts_with("tasks/")
    }

    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        message: &Message<'_>,
        owner: &Owner,
        via: Via<'_>,
    ) -> Answered {
        let id = message.id.unwrap_or("null");
        match self.result(message, owner, via).await {
            Ok(result) => Answered { status: StatusCode::OK, message: reply::result(id, &result) },
            Err(fault) => Answered { status: fault.status, message: fault.to_json(id) },
        }
    }

    async fn result(
        &self,
        message: &Message<'_>,
        owner: &Owner,
        via: Via<'_>,
    ) -> Result<String, Fault> {
        let method = message.method.as_deref().unwrap_or_default();
        let (headers, version_header) = match via {
            Via::Http(headers) => (Some(headers), Some(headers::version(headers)?)),
            Via::Stdio { .. } => (None, None),
        };
        let older = match via {
            Via::Http(_) => version_header.is_some_and(|version| version < PROTOCOL_VERSION),
            Via::Stdio { older } => older,
        };
        let params: Params<'_> = serde_json::from_str(message.params.map_or("{}", RawValue::get))
            .map_err(|error| {
            Fault::malformed_meta(format!("The params are malformed: {error}"))
        })?;
        let task_id = params.task_id.map(|raw| serde_json::from_str::<String>(raw.get()));
        let known = matches!(method, "tasks/get" | "tasks/update" | "tasks/cancel");
        if let Some(headers) = headers {
            let name = task_id.as_ref().and_then(|id| id.as_deref().ok());
            headers::check(headers, method, name.filter(|_| known))?;
        }
        let declared = check_meta(params.meta, version_header, older)?;
        if !known {
            return Err(Fault::method_not_found(method));
        }
        if !declared {
            return Err(Fault::missing_capability());
        }
        let Some(Ok(task_id)) = task_id else {
            return Err(Fault::invalid_params("The params must have a string \"taskId\"."));
        };
        let task_id: TaskId = task_id.parse().map_err(|_| Fault::unknown_task())?;
        match method {
            "tasks/get" => {
                let task = self.engine.get(owner, task_id).await.map_err(fault)?;
                Ok(wire::get_result(&*task.ok_or_else(Fault::unknown_task)?))
            }
            "tasks/update" => {
                let responses = read_responses(params.input_responses)?;
                self.engine.answer(owner, task_id, responses).await.map_err(fault)?;
                Ok(ACK.to_owned())
            }
            _ => {
                self.engine.cancel(owner, task_id).await.map_err(fault)?;
                Ok(ACK.to_owned())
            }
        }
    }
}

/// Checks the request's `_meta`; says whether it declares the Tasks extension. What earlier
/// requests declared counts for nothing, nor does the legacy `tasks` capability
/// (`sep-2663-legacy-capability-treated-as-non-declaring`).
fn check_meta(
    meta: Option<&RawValue>,
    version_header: Option<&str>,
    older: bool,
) -> Result<bool, Fault> {
    let meta = meta.and_then(|raw| serde_json::from_str::<Meta<'_>>(raw.get()).ok());
    let version = meta
        .as_ref()
        .and_then(|meta| meta.version)
        .and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let capabilities = meta
        .as_ref()
        .and_then(|meta| meta.capabilities)
        .and_then(|raw| serde_json::from_str::<Capabilities<'_>>(raw.get()).ok());
    let (Some(version), Some(capabilities)) = (version, capabilities) else {
        // A client of an older revision has no such fields, and can't declare the extension.
        if older {
            return Ok(false);
        }
        return Err(Fault::malformed_meta(
            "The request's _meta must have io.modelcontextprotocol/protocolVersion and \
             io.modelcontextprotocol/clientCapabilities.",
        ));
    };
    if let Some(header) = version_header
        && header != version
    {
        return Err(Fault::header_mismatch(format!(
            "The header MCP-Protocol-Version is {:?}, the version in _meta {:?}.",
            shown(header),
            shown(&version)
        )));
    }
    if version != PROTOCOL_VERSION {
        return Err(Fault::unsupported_version(&version));
    }
    let extensions =
        capabilities.extensions.and_then(|raw| serde_json::from_str::<Members<'_>>(raw.get()).ok());
    Ok(extensions.is_some_and(|Members(extensions)| {
        extensions.iter().any(|(name, value)| name == TASKS_EXTENSION && value.get() != "null")
    }))
}

/// Reads `inputResponses`. Keys that no request can have are left out: they are not open.
fn read_responses(raw: Option<&RawValue>) -> Result<Vec<(InputKey, RawJson)>, Fault> {
    let malformed = || Fault::invalid_params("The params must have an object \"inputResponses\".");
    let raw = raw.ok_or_else(malformed)?;
    let Members(members) = serde_json::from_str(raw.get()).map_err(|_| malformed())?;
    let mut responses = Vec::new();
    for (key, value) in members {
        if let Ok(key) = InputKey::new(&key) {
            let value =
                RawJson::parse(value.get()).map_err(|error| Fault::parse(error.to_string()))?;
            responses.push((key, value));
        }
    }
    Ok(responses)
}

fn fault(error: EngineError) -> Fault {
    match error {
        EngineError::UnknownTask => Fault::unknown_task(),
        EngineError::InvalidInput(invalid) => Fault::invalid_params(format!(
            "The response to {:?} does not fit its request, and nothing was changed: {}",
            invalid.key, invalid.problem
        )),
        EngineError::Store(error) => {
            tracing::error!(%error, "the store failed a tasks request");
            Fault::internal("The server can't reach its database right now; try again.")
        }
    }
}

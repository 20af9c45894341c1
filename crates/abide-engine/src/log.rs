//! What the work of a task has printed, as a resource of its own.

use abide_core::{LogPart, LogRange, Owner, RawJson, RpcError, StoreError, TaskId, ToolName};
use serde_json::json;

use crate::engine::{Engine, Inner};
use crate::outcome;

/// The URI of a task's log.
#[must_use]
pub fn log_uri(task: &TaskId) -> String {
    format!("abide://tasks/{task}/log")
}

/// Why there is no log to read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// No such task, or somebody else's, or one without a log.
    #[error("no such log")]
    Unknown,
    /// What does the work can't show it.
    #[error("{}", .0.message)]
    Backend(RpcError),
    /// Our fault; details are for the log of the server.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for LogError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::Unknown,
            other => Self::Store(other),
        }
    }
}

impl Engine {
    /// A part of the log of the caller's task, running or ended: of its newest attempt.
    ///
    /// # Errors
    /// A [`LogError`].
    pub async fn log(
        &self,
        owner: &Owner,
        id: TaskId,
        range: LogRange,
    ) -> Result<LogPart, LogError> {
        let task = self.0.store.get(id, owner.clone()).await?;
        let task = task.filter(|task| !task.is_expired(self.0.clock.now()));
        let task = task.ok_or(LogError::Unknown)?;
        let state = self.0.tools.get(task.tool()).ok_or(LogError::Unknown)?;
        let part = state.tool.backend.log(id, task.attempts(), range).await;
        part.map_err(LogError::Backend)?.ok_or(LogError::Unknown)
    }
}

impl Inner {
    /// The result with a link to the task's log, if the log says more than the result does.
    pub(crate) async fn with_log(
        &self,
        tool: &ToolName,
        task: TaskId,
        attempt: u32,
        result: RawJson,
    ) -> RawJson {
        let Some(state) = self.tools.get(tool) else { return result };
        let nothing = LogRange { from: 0, max: 0 };
        let size = match state.tool.backend.log(task, attempt, nothing).await {
            Ok(log) => log.filter(|log| !log.in_result).map_or(0, |log| log.size),
            Err(error) => {
                tracing::warn!(%task, code = error.code, "the log can't be linked");
                0
            }
        };
        if size == 0 {
            return result;
        }
        let link = RawJson::from_value(&json!({
            "type": "resource_link",
            "uri": log_uri(&task),
            "name": "log",
            "title": "Log",
            "description": "Everything that the work has printed, in the order in which it came",
            "mimeType": "text/plain",
            "size": size,
        }));
        match link {
            Ok(link) => outcome::with_block(result, &link),
            Err(_) => result,
        }
    }
}

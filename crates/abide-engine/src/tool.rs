//! A tool as the engine sees it: settings, schema, and who does the work.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{Backend, Policy, ToolName};

use crate::schema::Schema;

/// Whether a call of a tool may, must or must not become a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskSupport {
    /// A task if the caller can take one and the work outlasts the inline window.
    Auto,
    /// Always a task; callers that can't take one are refused.
    Required,
    /// Never a task.
    Never,
}

/// A tool.
#[derive(Clone)]
pub struct Tool {
    /// Its name.
    pub name: ToolName,
    /// What its arguments must fit.
    pub input: Schema,
    /// Whether its calls become tasks.
    pub task: TaskSupport,
    /// Work that ends within this window is answered plainly and leaves no task.
    pub inline: Duration,
    /// How long tasks may take, stay, and suggest to wait between polls.
    pub policy: Policy,
    /// How many calls are worked on at once, at least 1.
    pub concurrency: u32,
    /// How many more may wait for a slot.
    pub queue: u32,
    /// Who does the work.
    pub backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).field("task", &self.task).finish()
    }
}

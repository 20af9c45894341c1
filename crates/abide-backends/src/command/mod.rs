//! Runs one command per call.
//!
//! # The command line
//! There is no shell. Each element of [`CommandSpec::argv`] becomes at most one argument of the
//! program. `{name}` stands for the call's argument `name`, alone in an element or as part of one
//! (`--build={build}`, `{env}-{build}`); `{{` and `}}` are literal braces. Strings go in as they
//! are, numbers as their JSON text, booleans as `true` and `false`, arrays and objects as compact
//! JSON. An argument that is absent or null is empty text, and an element whose placeholders are
//! all absent is left out. So an optional argument belongs into one element with its flag
//! (`--env={env}`): in `"--env", "{env}"` the flag would stay behind alone.
//!
//! A value that starts with `-` is refused where an option could be read: in an element that
//! begins with a placeholder, with no literal `--` before it.
//!
//! # The process
//! Each command runs under a [runner](crate::runner), so it goes on when the server stops, and the
//! next server takes it up again, running or finished. It gets `PATH`, `HOME` and `LANG` of the
//! server, the spec's own variables, [`TASK_ID_VARIABLE`],
//! [`RUN_VARIABLE`](crate::runner::RUN_VARIABLE) and what it needs to speak to the
//! [desk](crate::desk); nothing else. Standard input is empty. There is
//! no terminal, so that nothing in it can wait for a password. A relative program with a `/` in it
//! is looked up in the working directory.
//!
//! To stop it, it and everything that it has started, wherever that has moved to, gets SIGTERM,
//! and SIGKILL when something is left after [`CommandSpec::kill_grace`]. The work is what the
//! command does: what it leaves behind when it exits is stopped in the same way, before its result
//! is returned. A call that is stopped ends when nothing of it runs any more. A command that has
//! exited before it could be stopped has its result.
//!
//! # The result
//! | exit | `output` | content | |
//! |---|---|---|---|
//! | 0 | text | standard output; if that is empty, standard error; if both are, `(no output)`, because some hosts refuse empty text | |
//! | 0 | json | the JSON as text | `structuredContent` |
//! | else | either | standard output, standard error, `exit code 3`; a text block each, empty ones left out | `isError` |
//!
//! A program that can't be started and a value that can't be passed are `isError` too: the model
//! reads what is wrong, and can correct its own part. Secrets are replaced before anything of the
//! output is kept.

mod job;
mod json_output;
mod output;
mod result;
mod signal_name;
mod spec;
mod template;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    Backend, BoxFuture, LogPart, LogRange, Outcome, RpcError, TaskId, Work, WorkContext,
};
use serde_json::Value;

use crate::desk::Desk;
use crate::runner::{RunName, Spool};
use json_output::Schema;
use template::Template;

pub use spec::{
    CommandSpec, DEFAULT_KILL_GRACE, DEFAULT_MAX_OUTPUT_BYTES, LARGEST_MAX_OUTPUT_BYTES,
    OutputMode, SMALLEST_MAX_OUTPUT_BYTES, SpecError, TASK_ID_VARIABLE,
};
pub use template::{MAX_ARGUMENT_BYTES, MAX_ARGV_BYTES};

/// A [`Backend`] that runs one command per call.
#[derive(Debug, Clone)]
pub struct CommandBackend(Arc<Tool>);

/// One tool's checked settings, shared by its calls.
#[derive(Debug)]
struct Tool {
    spec: CommandSpec,
    template: Template,
    schema: Option<Schema>,
    spool: Spool,
    desk: Option<Desk>,
}

/// Checks `spec` against the tool's `input_schema`, whose `properties` are the names that
/// placeholders may have.
///
/// # Errors
/// [`SpecError`], which says what in the spec is wrong.
pub fn check(spec: &CommandSpec, input_schema: &Value) -> Result<(), SpecError> {
    compile(spec, input_schema).map(drop)
}

fn compile(
    spec: &CommandSpec,
    input_schema: &Value,
) -> Result<(Template, Option<Schema>), SpecError> {
    spec.check()?;
    let template = Template::parse(&spec.argv, input_schema)?;
    let schema = spec.output_schema.as_ref().map(Schema::compile).transpose()?;
    Ok((template, schema))
}

impl CommandBackend {
    /// A tool whose commands run in `spool`, and ask and tell at `desk` if there is one. The spec is
    /// checked as [`check`] does.
    ///
    /// # Errors
    /// [`SpecError`], which says what in the spec is wrong.
    pub fn new(
        spec: CommandSpec,
        input_schema: &Value,
        spool: Spool,
        desk: Option<Desk>,
    ) -> Result<Self, SpecError> {
        let (template, schema) = compile(&spec, input_schema)?;
        Ok(Self(Arc::new(Tool { spec, template, schema, spool, desk })))
    }
}

impl Backend for CommandBackend {
    fn run(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        let tool = Arc::clone(&self.0);
        Box::pin(async move { tool.run(&work, context).await })
    }

    fn grace(&self) -> Duration {
        self.0.spec.kill_grace
    }

    fn outlives(&self) -> bool {
        true
    }

    fn begun(&self, work: &Work) -> bool {
        self.0.begun(work)
    }

    fn resume(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        let tool = Arc::clone(&self.0);
        Box::pin(async move { tool.resume(&work, context).await })
    }

    fn discard(&self, work: Work) -> BoxFuture<'static, Option<Outcome>> {
        let tool = Arc::clone(&self.0);
        Box::pin(async move { tool.discard(&work).await })
    }

    fn log(
        &self,
        task: TaskId,
        attempt: u32,
        range: LogRange,
    ) -> BoxFuture<'static, Result<Option<LogPart>, RpcError>> {
        let tool = Arc::clone(&self.0);
        let read = move || tool.read_log(&RunName { task, attempt }, range);
        Box::pin(async move {
            let part = tokio::task::spawn_blocking(read).await;
            part.map_err(io::Error::other).flatten().map_err(|error| {
                tracing::error!(%task, %error, "a log can't be read");
                RpcError::internal("log_unreadable", "The log can't be read; try again later.")
            })
        })
    }

    fn forget(&self, tasks: Vec<TaskId>) {
        let spool = self.0.spool.clone();
        // Removing files takes a while; what a crash leaves of it is removed at the next start.
        tokio::task::spawn_blocking(move || {
            let problems = spool.remove_tasks(&tasks);
            if let Err(error) = problems {
                tracing::warn!(%error, "the output of a task that is no more could not be removed");
            }
        });
    }
}

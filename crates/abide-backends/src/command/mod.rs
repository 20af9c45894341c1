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
//! It gets `PATH`, `HOME` and `LANG` of the server, the spec's own variables and
//! [`TASK_ID_VARIABLE`]; nothing else. Standard input is empty. It is the leader of a session and
//! a process group of its own, without a terminal, so that nothing in it can wait for a password.
//! A relative program with a `/` in it is looked up in the working directory.
//!
//! To stop it, its whole group gets SIGTERM, and SIGKILL when it is not empty after
//! [`CommandSpec::kill_grace`]. The work is what the command does: what it leaves behind in its
//! group when it exits is stopped in the same way, before its result is returned. A process that moves to another group or
//! session is out of reach. A call that is stopped ends when nothing in the group runs any more,
//! however long that takes.
//!
//! # The result
//! | exit | `output` | content | |
//! |---|---|---|---|
//! | 0 | text | standard output; if that is empty, standard error; if both are, `(no output)`, because some hosts refuse empty text | |
//! | 0 | json | the JSON as text | `structuredContent` |
//! | else | either | standard output, standard error, `exit code 3`; a text block each, empty ones left out | `isError` |
//!
//! A program that can't be started and a value that can't be passed are `isError` too: the model
//! reads what is wrong, and can correct its own part.

mod group;
mod json_output;
mod output;
mod process;
mod result;
mod signal_name;
mod spec;
mod template;

use std::sync::Arc;
use std::time::Duration;

use abide_core::{Backend, BoxFuture, Outcome, RpcError, Work, WorkContext};
use serde_json::Value;

use json_output::Schema;
use process::{End, Job};
use template::Template;

pub use process::{PIPES_AFTER_EXIT, TASK_ID_VARIABLE};
pub use spec::{
    CommandSpec, DEFAULT_KILL_GRACE, DEFAULT_MAX_OUTPUT_BYTES, LARGEST_MAX_OUTPUT_BYTES,
    OutputMode, SMALLEST_MAX_OUTPUT_BYTES, SpecError,
};
pub use template::{MAX_ARGUMENT_BYTES, MAX_ARGV_BYTES};

/// A [`Backend`] that runs one command per call.
#[derive(Debug)]
pub struct CommandBackend(Arc<Tool>);

/// One tool's checked settings, shared by its calls.
#[derive(Debug)]
struct Tool {
    spec: CommandSpec,
    template: Template,
    schema: Option<Schema>,
}

impl CommandBackend {
    /// Checks `spec` against the tool's `input_schema`, whose `properties` are the names that
    /// placeholders may have.
    ///
    /// # Errors
    /// [`SpecError`], which says what in the spec is wrong.
    pub fn new(spec: CommandSpec, input_schema: &Value) -> Result<Self, SpecError> {
        spec.check()?;
        let template = Template::parse(&spec.argv, input_schema)?;
        let schema = spec.output_schema.as_ref().map(Schema::compile).transpose()?;
        Ok(Self(Arc::new(Tool { spec, template, schema })))
    }
}

impl Backend for CommandBackend {
    fn grace(&self) -> Duration {
        self.0.spec.kill_grace
    }

    fn run(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        let tool = Arc::clone(&self.0);
        Box::pin(async move { tool.run(&work, &*context).await })
    }
}

impl Tool {
    async fn run(&self, work: &Work, context: &dyn WorkContext) -> Outcome {
        let Work { task_id, tool, .. } = work;
        let argv = match self.template.render(&work.arguments) {
            Ok(argv) => argv,
            Err(refusal) => {
                tracing::info!(task = %task_id, %tool, argument = refusal.argument(), "arguments refused");
                return Outcome::Completed(result::error(&refusal.to_string()));
            }
        };

        let mut stopped = context.stopped();
        // Nothing is started only to be stopped at once.
        tokio::select! {
            biased;
            reason = &mut stopped => {
                tracing::info!(task = %task_id, %tool, ?reason, "stopped before the command started");
                return Outcome::Stopped;
            }
            () = std::future::ready(()) => {}
        }

        let job = match Job::start(&self.spec, &argv, task_id) {
            Ok(job) => job,
            Err(problem) => {
                let program = &self.spec.argv[0];
                tracing::error!(task = %task_id, %tool, program, %problem, "command not started");
                return Outcome::Completed(result::error(&problem.to_string()));
            }
        };
        match job.run(&self.spec, stopped).await {
            End::Exited { status, stdout, stderr } => {
                tracing::info!(
                    task = %task_id, %tool, %status,
                    stdout_bytes = stdout.total, stderr_bytes = stderr.total,
                    "command ended"
                );
                Outcome::Completed(match (self.spec.output, status.success()) {
                    (OutputMode::Json, true) => {
                        let value = json_output::read(&stdout, self.schema.as_ref());
                        result::json(value, stderr.into_text())
                    }
                    (_, true) => result::success(stdout.into_text(), stderr.into_text()),
                    (_, false) => {
                        let end = signal_name::describe(status);
                        result::failure(stdout.into_text(), stderr.into_text(), &end)
                    }
                })
            }
            End::Stopped(reason) => {
                tracing::info!(task = %task_id, %tool, ?reason, "command stopped");
                Outcome::Stopped
            }
            End::Lost(error) => {
                tracing::error!(task = %task_id, %tool, %error, "how the command ended is unknown");
                Outcome::Failed(RpcError::internal(
                    "exit_status_lost",
                    "The command ran, but the server could not learn how it ended. Ask the \
                     server's operator; the server's log says more.",
                ))
            }
        }
    }
}

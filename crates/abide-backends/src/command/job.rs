//! The life of one command: begun or found in the spool, waited for or stopped, and read.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use abide_core::{BoxFuture, LogPart, LogRange, Outcome, RpcError, StopReason, Work, WorkContext};

use super::output::Captured;
use super::result::Streams;
use super::spec::TASK_ID_VARIABLE;
use super::{OutputMode, Tool, json_output, result, signal_name};
use crate::desk::{Entered, TOKEN_VARIABLE};
use crate::runner::{
    Ended, Found, JobSpec, Lost, Output, Run, RunName, RunOutcome, StartError, StreamSizes,
};

/// The first and the longest pause between two looks into the spool that fail.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// What a command inherits of our environment.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

impl Tool {
    pub(super) async fn run(&self, work: &Work, context: Arc<dyn WorkContext>) -> Outcome {
        let argv = match self.template.render(&work.arguments) {
            Ok(argv) => argv,
            Err(refusal) => {
                tracing::info!(
                    task = %work.task_id, tool = %work.tool, argument = refusal.argument(),
                    "arguments refused"
                );
                return Outcome::Completed(result::error(&refusal.to_string()));
            }
        };
        let mut stopped = context.stopped();
        if let Some(reason) = now(&mut stopped).await {
            tracing::info!(
                task = %work.task_id, tool = %work.tool, ?reason,
                "stopped before the command started"
            );
            return Outcome::Stopped;
        }
        // Before the command could ask anything.
        let _entered = self.enter(work, &context);
        match self.spool.start(&name(work), &self.job(argv), &self.environment(work)).await {
            Ok(run) => self.follow(work, run, stopped).await,
            // It has begun all the same, as when a database is older than its runs.
            Err(StartError::Exists(_)) => match self.find(work).await {
                Ok(found) => self.take_up(work, found, stopped).await,
                Err(error) => unreadable(work, &error),
            },
            Err(problem) => {
                let program = &self.spec.argv[0];
                tracing::error!(
                    task = %work.task_id, tool = %work.tool, program, %problem,
                    "command not started"
                );
                Outcome::Completed(result::error(&problem.to_string()))
            }
        }
    }

    /// Goes on with what an earlier server has begun.
    pub(super) async fn resume(&self, work: &Work, context: Arc<dyn WorkContext>) -> Outcome {
        let _entered = self.enter(work, &context);
        match self.find(work).await {
            // The claim was on disk, and the server died before it started anything.
            Ok(Found::Absent) => self.run(work, context).await,
            Ok(Found::Lost(lost)) if !lost.may_have_run() => match self.spool.remove(lost.name()) {
                Ok(()) => self.run(work, context).await,
                Err(error) => unreadable(work, &error),
            },
            Ok(found) => self.take_up(work, found, context.stopped()).await,
            Err(error) => unreadable(work, &error),
        }
    }

    /// What there is of the run, however long the system is short of what it takes to look.
    async fn find(&self, work: &Work) -> io::Result<Found> {
        let mut pause = RETRY_FIRST;
        loop {
            match self.spool.find(&name(work)) {
                Err(error) if may_pass(&error) => {
                    tracing::error!(
                        task = %work.task_id, tool = %work.tool, %error,
                        "what became of the command can't be looked up; it is tried again"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                found => return found,
            }
        }
    }

    /// Goes on with a run that is there.
    async fn take_up(
        &self,
        work: &Work,
        found: Found,
        mut stopped: BoxFuture<'static, StopReason>,
    ) -> Outcome {
        match found {
            Found::Live(run) => {
                tracing::info!(task = %work.task_id, tool = %work.tool, "the command still runs");
                self.follow(work, run, stopped).await
            }
            Found::Absent => unreadable(work, &io::ErrorKind::NotFound.into()),
            Found::Lost(lost) => self.lost(work, lost).await,
            Found::Finished(outcome) => {
                tracing::info!(
                    task = %work.task_id, tool = %work.tool,
                    "the command has ended while no server was there"
                );
                let told = now(&mut stopped).await;
                self.finished(work, outcome, told).await
            }
        }
    }

    /// Whether the command of an earlier server may have run.
    pub(super) fn begun(&self, work: &Work) -> bool {
        match self.spool.find(&name(work)) {
            Ok(Found::Absent) => false,
            Ok(Found::Lost(lost)) => lost.may_have_run(),
            // What can't be read is for who takes it up to tell.
            Ok(Found::Live(_) | Found::Finished(_)) | Err(_) => true,
        }
    }

    /// Takes what the command asks and tells, as long as the guard lives.
    fn enter(&self, work: &Work, context: &Arc<dyn WorkContext>) -> Option<Entered> {
        Some(self.desk.as_ref()?.enter(name(work), Arc::clone(context)))
    }

    /// Stops what an earlier server has begun; what had ended by itself has its outcome.
    pub(super) async fn discard(&self, work: &Work) -> Option<Outcome> {
        let run = match self.find(work).await {
            Ok(Found::Absent) => return None,
            Ok(Found::Live(run)) => run,
            Ok(Found::Finished(outcome)) => {
                return Some(self.finished(work, outcome, None).await);
            }
            Ok(Found::Lost(lost)) if !lost.may_have_run() => return None,
            Ok(Found::Lost(lost)) => return Some(self.lost(work, lost).await),
            Err(error) => return Some(unreadable(work, &error)),
        };
        match self.follow(work, run, Box::pin(async { StopReason::Shutdown })).await {
            Outcome::Stopped => None,
            outcome => Some(outcome),
        }
    }

    /// Waits until the command has ended, or stops it.
    async fn follow(
        &self,
        work: &Work,
        mut run: Run,
        mut stopped: BoxFuture<'static, StopReason>,
    ) -> Outcome {
        let mut told = None;
        let ended = loop {
            match self.follow_once(work, &run, &mut stopped, &mut told).await {
                Err(error) if may_pass(&error) => match self.find(work).await {
                    Ok(Found::Live(found)) => run = found,
                    Ok(Found::Finished(outcome)) => break Ok(Ended::Finished(outcome)),
                    Ok(Found::Lost(lost)) => break Ok(Ended::Lost(lost)),
                    Ok(Found::Absent) | Err(_) => break Err(error),
                },
                ended => break ended,
            }
        };
        match ended {
            Ok(Ended::Finished(outcome)) => self.finished(work, outcome, told).await,
            Ok(Ended::Lost(lost)) => self.lost(work, lost).await,
            Err(error) => unreadable(work, &error),
        }
    }

    /// The same until the first error.
    async fn follow_once(
        &self,
        work: &Work,
        run: &Run,
        stopped: &mut BoxFuture<'static, StopReason>,
        told: &mut Option<StopReason>,
    ) -> io::Result<Ended> {
        if told.is_some() {
            run.stop().await?;
            return run.wait().await;
        }
        let ending = run.wait();
        tokio::pin!(ending);
        tokio::select! {
            biased;
            ended = &mut ending => ended,
            reason = stopped => {
                *told = Some(reason);
                if let Err(error) = run.stop().await {
                    tracing::error!(
                        task = %work.task_id, tool = %work.tool, %error,
                        "the command could not be told to stop; waiting until it ends by itself"
                    );
                }
                ending.await
            }
        }
    }

    /// The outcome of a command that has ended; `told` if it was told to stop.
    async fn finished(&self, work: &Work, ended: RunOutcome, told: Option<StopReason>) -> Outcome {
        if ended.left_behind > 0 {
            tracing::info!(
                task = %work.task_id, tool = %work.tool, processes = ended.left_behind,
                "the command has left processes behind, which were stopped"
            );
        }
        if ended.unkillable > 0 {
            tracing::error!(
                task = %work.task_id, tool = %work.tool, processes = ended.unkillable,
                "processes of the command can't be killed: they hang in the kernel or belong to \
                 another user; look for them with `ps`"
            );
        }
        if let Some(problem) = &ended.spool_error {
            tracing::error!(
                task = %work.task_id, tool = %work.tool, problem,
                "not all of the command's output could be kept"
            );
        }
        let exit = match (ended.stopped, told, ended.exit) {
            (Some(_), Some(reason), _) | (None, Some(reason), None) => {
                tracing::info!(task = %work.task_id, tool = %work.tool, ?reason, "command stopped");
                return Outcome::Stopped;
            }
            (Some(_), None, _) | (None, None, None) => {
                tracing::error!(
                    task = %work.task_id, tool = %work.tool,
                    "the command was stopped by somebody else: its runner got SIGTERM"
                );
                return Outcome::Lost(RpcError::internal(
                    "interrupted",
                    "The command was stopped from outside, as when its machine is shut down, so \
                     its work may be unfinished. Check its effects before you call the tool again.",
                ));
            }
            (None, _, Some(exit)) => exit.status(),
        };
        let Output { stdout, stderr } = match self.output(work).await {
            Ok(output) => output,
            Err(error) => return unreadable(work, &error),
        };
        tracing::info!(
            task = %work.task_id, tool = %work.tool, status = %exit,
            stdout_bytes = stdout.total, stderr_bytes = stderr.total, "command ended"
        );
        let lost = stdout.lost + stderr.lost;
        let (stdout, stderr) = (Captured::from(stdout), Captured::from(stderr));
        Outcome::Completed(match (self.spec.output, exit.success()) {
            (OutputMode::Json, true) => {
                let value = json_output::read(&stdout, self.schema.as_ref());
                result::json(value, stderr.into_text())
            }
            (_, true) => result::success(Streams {
                stdout: stdout.into_text(),
                stderr: stderr.into_text(),
                lost,
            }),
            (_, false) => {
                let streams =
                    Streams { stdout: stdout.into_text(), stderr: stderr.into_text(), lost };
                result::failure(streams, &signal_name::describe(exit))
            }
        })
    }

    /// What is kept of its output, however long the system is short of what it takes to read it.
    async fn output(&self, work: &Work) -> io::Result<Output> {
        let mut pause = RETRY_FIRST;
        loop {
            let (spool, run) = (self.spool.clone(), name(work));
            let read = tokio::task::spawn_blocking(move || spool.output(&run)).await;
            match read.map_err(io::Error::other)? {
                Err(error) if may_pass(&error) => {
                    tracing::error!(
                        task = %work.task_id, tool = %work.tool, %error,
                        "the command's output can't be read; it is tried again"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                output => return output,
            }
        }
    }

    /// The outcome of a command of which nobody knows how it ended.
    async fn lost(&self, work: &Work, lost: Lost) -> Outcome {
        match lost.stop_leftovers().await {
            Ok(left) if left.unkillable == 0 => tracing::error!(
                task = %work.task_id, tool = %work.tool, rebooted = lost.rebooted(),
                processes = left.found,
                "the command's runner is gone; what was left of the command was stopped"
            ),
            Ok(left) => tracing::error!(
                task = %work.task_id, tool = %work.tool, processes = left.unkillable,
                "the command's runner is gone, and processes of the command can't be killed; look \
                 for them with `ps`"
            ),
            Err(error) => tracing::error!(
                task = %work.task_id, tool = %work.tool, %error,
                "the command's runner is gone, and it can't be seen what is left of the command"
            ),
        }
        Outcome::Lost(RpcError::internal(
            "interrupted",
            if lost.rebooted() {
                "The machine was restarted while the command was running, so its work may be \
                 unfinished. Check its effects before you call the tool again."
            } else {
                "The process that watched over the command was killed, and the rest of the command \
                 was stopped, so its work may be unfinished. Check its effects before you call the \
                 tool again."
            },
        ))
    }

    /// A part of a command's log.
    pub(super) fn read_log(&self, name: &RunName, range: LogRange) -> io::Result<Option<LogPart>> {
        let Some(mut part) = self.spool.read_log(name, range)? else { return Ok(None) };
        if let Found::Finished(ended) = self.spool.find(name)? {
            part.in_result = self.shows_all(&ended);
        }
        Ok(Some(part))
    }

    /// Whether the result of a command that has ended has all that it printed.
    fn shows_all(&self, ended: &RunOutcome) -> bool {
        let (stdout, stderr) = (ended.stdout, ended.stderr);
        let whole = |stream: StreamSizes| {
            stream.lost == 0 && stream.total <= self.spec.max_output_bytes as u64
        };
        let one = stdout.total == 0 || stderr.total == 0;
        // A good end shows standard error only if there is nothing else.
        let both = ended.exit.is_some_and(|exit| !exit.status().success());
        whole(stdout) && whole(stderr) && (one || both)
    }

    fn job(&self, argv: Vec<String>) -> JobSpec {
        let spec = &self.spec;
        let token = self.desk.as_ref().map(|_| TOKEN_VARIABLE.to_owned());
        JobSpec {
            argv,
            cwd: spec.cwd.clone(),
            kill_grace: spec.kill_grace,
            max_output_bytes: spec.max_output_bytes,
            max_log_bytes: spec.max_log_bytes,
            secrets: spec.secrets.keys().cloned().chain(token).collect(),
        }
    }

    /// The command's whole environment, but for what the runner adds.
    fn environment(&self, work: &Work) -> BTreeMap<String, String> {
        let inherited = INHERITED.iter().filter_map(|name| {
            // What is not UTF-8 in these is of no use to anybody.
            Some(((*name).to_owned(), std::env::var(name).ok()?))
        });
        let own = self.spec.env.iter().chain(&self.spec.secrets);
        let own = own.map(|(name, value)| (name.clone(), value.clone()));
        let task = (TASK_ID_VARIABLE.to_owned(), work.task_id.to_string());
        let desk = self.desk.iter().flat_map(|desk| desk.variables(&name(work)));
        let mut all: BTreeMap<_, _> = inherited.chain(own).chain([task]).chain(desk).collect();
        // So that a script finds `abide ask`, whatever else it finds first.
        if let (Some(_), Some(folder), Some(path)) =
            (&self.desk, self.spool.program_folder(), all.get_mut("PATH"))
            && let Some(folder) = folder.to_str()
            && !path.split(':').any(|known| known == folder)
        {
            path.push(':');
            path.push_str(folder);
        }
        all
    }
}

/// Whether looking again may help: the system is short of something, or the disk is. What a file
/// says, or that there is none, stays.
fn may_pass(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound)
}

fn name(work: &Work) -> RunName {
    RunName { task: work.task_id, attempt: work.attempt }
}

/// The value of a future that has one already.
async fn now<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = std::future::ready(()) => None,
    }
}

/// The outcome when the spool does not say what became of a command.
fn unreadable(work: &Work, error: &io::Error) -> Outcome {
    tracing::error!(
        task = %work.task_id, tool = %work.tool, %error, "how the command ended can't be found out"
    );
    Outcome::Lost(RpcError::internal(
        "exit_status_lost",
        "The command ran, but the server could not learn how it ended. Ask the server's operator; \
         the server's log says more.",
    ))
}

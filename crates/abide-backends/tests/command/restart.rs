//! A command goes on without its server, and the next one takes it up.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_backends::command::CommandSpec;
use abide_core::{Backend as _, Outcome, TaskId, Work};

use crate::harness::{
    Context, Place, finished, is_alive, pid_in, script, task_id, until, within, work,
};

/// A place for runs, a folder for the command, and one call.
struct Call {
    place: Place,
    folder: tempfile::TempDir,
    spec: CommandSpec,
    task: TaskId,
}

impl Call {
    /// A call of a script that is never killed by impatience.
    fn of(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut spec = script(text);
        spec.cwd = Some(folder.path().to_owned());
        spec.kill_grace = Duration::from_secs(3600);
        Self { place: Place::new(), folder, spec, task: task_id() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn work(&self) -> Work {
        work(self.task, "{}")
    }

    /// Begins the call, and is gone as soon as the command has written its process id.
    async fn begin_and_leave(&self) -> i32 {
        let server = self.place.backend(self.spec.clone());
        let running = tokio::spawn(server.run(self.work(), Context::new()));
        let pid = pid_in(&self.file("pid")).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        pid
    }

    /// Takes the call up as the next server does.
    async fn resume(&self, context: &Arc<Context>) -> Outcome {
        let server = self.place.backend(self.spec.clone());
        within(server.resume(self.work(), Arc::<Context>::clone(context))).await
    }

    async fn discard(&self) -> Option<Outcome> {
        within(self.place.backend(self.spec.clone()).discard(self.work())).await
    }

    fn folders(&self) -> usize {
        self.place.spool().list().unwrap().len()
    }
}

/// Writes its id, waits for the word to go on, and counts that it has done its work.
const PATIENT: &str = "echo before; echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; echo once >> done; echo after; exit 3";

fn lines(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn a_running_command_is_taken_up() {
    let call = Call::of(PATIENT);
    let pid = call.begin_and_leave().await;
    assert!(is_alive(pid));
    let context = Context::new();
    let (outcome, ()) = tokio::join!(call.resume(&context), async {
        fs::write(call.file("go"), "").unwrap();
    });
    let finished = finished(outcome);
    assert!(finished.is_error());
    assert_eq!(finished.texts(), ["before\nafter\n", "exit code 3"]);
    assert_eq!(lines(&call.file("done")), 1);
}

#[tokio::test]
async fn a_command_that_has_ended_meanwhile_is_taken_up() {
    let call = Call::of(PATIENT);
    let pid = call.begin_and_leave().await;
    fs::write(call.file("go"), "").unwrap();
    until(|| (!is_alive(pid)).then_some(())).await;
    let finished = finished(call.resume(&Context::new()).await);
    assert_eq!(finished.texts(), ["before\nafter\n", "exit code 3"]);
    assert_eq!(lines(&call.file("done")), 1);
}

#[tokio::test]
async fn a_command_that_was_never_begun_is_begun() {
    let call = Call::of("echo out");
    assert_eq!(finished(call.resume(&Context::new()).await).text(), "out\n");
}

#[tokio::test]
async fn the_next_server_can_stop_it() {
    let call = Call::of(PATIENT);
    let pid = call.begin_and_leave().await;
    let context = Context::new();
    context.stop();
    assert_eq!(call.resume(&context).await, Outcome::Stopped);
    assert!(!is_alive(pid) && !call.file("done").exists());
    // Once more, as after a crash before that was written down.
    assert_eq!(call.resume(&context).await, Outcome::Stopped);
}

#[tokio::test]
async fn what_is_discarded_is_stopped_and_what_had_ended_is_not_lost() {
    let call = Call::of(PATIENT);
    let pid = call.begin_and_leave().await;
    assert_eq!(call.discard().await, None);
    assert!(!is_alive(pid) && !call.file("done").exists());

    let call = Call::of(PATIENT);
    let pid = call.begin_and_leave().await;
    fs::write(call.file("go"), "").unwrap();
    until(|| (!is_alive(pid)).then_some(())).await;
    let outcome = call.discard().await.expect("it had ended");
    assert_eq!(finished(outcome).texts(), ["before\nafter\n", "exit code 3"]);

    assert_eq!(Call::of("true").discard().await, None);
}

#[tokio::test]
async fn a_killed_runner_is_told_and_nothing_stays_behind() {
    let call = Call::of(&format!("sleep 1000 & echo $! > child; {PATIENT}"));
    let pid = call.begin_and_leave().await;
    let child = pid_in(&call.file("child")).await;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let runner: i32 = stat.rsplit(')').next().unwrap().split(' ').nth(2).unwrap().parse().unwrap();
    let context = Context::new();
    let resumed = tokio::spawn({
        let server = call.place.backend(call.spec.clone());
        server.resume(call.work(), context)
    });
    let runner = rustix::process::Pid::from_raw(runner).unwrap();
    rustix::process::kill_process(runner, rustix::process::Signal::KILL).unwrap();
    let Outcome::Lost(error) = within(resumed).await.unwrap() else { panic!("not lost") };
    assert!(error.message.contains("watched over the command was killed"), "{error:?}");
    assert!(!is_alive(pid) && !is_alive(child));
    // The next one to look is told the same.
    assert!(matches!(call.resume(&Context::new()).await, Outcome::Lost(_)));
}

#[tokio::test]
async fn somebody_else_who_stops_a_command_is_named() {
    let call = Call::of(PATIENT);
    call.begin_and_leave().await;
    let spool = call.place.spool();
    let run = spool.list().unwrap()[0];
    let abide_backends::runner::Found::Live(run) = spool.find(&run).unwrap() else { panic!() };
    run.stop().await.unwrap();
    let Outcome::Lost(error) = call.resume(&Context::new()).await else { panic!("not lost") };
    assert!(error.message.contains("stopped from outside"), "{error:?}");
}

#[tokio::test]
async fn what_is_forgotten_is_removed() {
    let call = Call::of("echo out");
    let other = Call { task: task_id(), ..Call::of("true") };
    finished(call.resume(&Context::new()).await);
    let server = call.place.backend(call.spec.clone());
    finished(within(server.run(work(other.task, "{}"), Context::new())).await);
    assert_eq!(call.folders(), 2);
    server.forget(vec![call.task]);
    until(|| (call.folders() == 1).then_some(())).await;
    assert_eq!(call.place.spool().list().unwrap()[0].task, other.task);
}

#[tokio::test]
async fn a_secret_is_in_no_result() {
    let mut call = Call::of("echo \"$TOKEN\"; printf '%s' \"$TOKEN\" >&2; exit 1");
    call.spec.secrets.insert("TOKEN".to_owned(), "hunter2hunter2".to_owned());
    let finished = finished(call.resume(&Context::new()).await);
    assert_eq!(finished.texts(), ["[redacted TOKEN]\n", "[redacted TOKEN]", "exit code 1"]);
}

//! Stopping takes the whole group; nothing that a command leaves behind holds up its result.

use std::time::Duration;

use abide_backends::command::CommandSpec;
use abide_core::Outcome;

use crate::harness::{Context, call, finished, is_alive, pid_in, script, start, until, within};

/// A script that runs in a fresh directory, where it can leave process ids.
fn script_in(directory: &tempfile::TempDir, text: &str) -> CommandSpec {
    let mut spec = script(text);
    spec.cwd = Some(directory.path().to_owned());
    spec
}

/// Starts a script that writes `pid`, stops the call, and sees that the process is gone.
async fn stops(text: &str, grace: Duration) {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = script_in(&directory, text);
    spec.kill_grace = grace;
    let context = Context::new();
    let running = tokio::spawn(start(spec, "{}", &context));
    let pid = pid_in(&directory.path().join("pid")).await;
    assert!(is_alive(pid));
    context.stop();
    assert_eq!(within(running).await.unwrap(), Outcome::Stopped);
    assert!(!is_alive(pid), "still there: {text}");
}

/// Longer than any test waits: only SIGTERM can end it in time.
const NEVER_KILL: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn sigterm_reaches_command_and_grandchildren() {
    for text in [
        "echo $$ > pid; exec sleep 1000",
        "sleep 1000 & echo $! > pid; wait",
        "sh -c 'sleep 1000 & echo $! > pid; wait'; true",
        // The launcher is gone before the stop, its child keeps the pipe.
        "(sleep 1000 & echo $! > pid); sleep 1000",
        // A pipe that nobody else would empty.
        "echo $$ > pid; exec yes",
        "yes & echo $! > pid; wait",
    ] {
        stops(text, NEVER_KILL).await;
    }
}

#[tokio::test]
async fn a_suspended_process_is_stopped_by_sigterm_too() {
    stops("echo $$ > pid; kill -STOP $$", NEVER_KILL).await;
}

#[tokio::test]
async fn who_ignores_sigterm_is_killed_after_the_grace() {
    for text in [
        "trap '' TERM; echo $$ > pid; while :; do sleep 1; done",
        // The leader goes at once, a grandchild ignores the signal.
        "(trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 1; done') & wait",
    ] {
        stops(text, Duration::from_millis(50)).await;
        stops(text, Duration::ZERO).await;
    }
}

#[tokio::test]
async fn sigterm_leaves_time_to_clean_up() {
    let directory = tempfile::tempdir().unwrap();
    // Cleaning up prints more than a pipe holds.
    let text = "trap 'head -c 300000 /dev/zero; echo done > clean; exit 0' TERM; echo $$ > pid; \
                while :; do sleep 0.01; done";
    let mut spec = script_in(&directory, text);
    spec.kill_grace = NEVER_KILL;
    let context = Context::new();
    let running = tokio::spawn(start(spec, "{}", &context));
    pid_in(&directory.path().join("pid")).await;
    context.stop();
    assert_eq!(within(running).await.unwrap(), Outcome::Stopped);
    assert!(directory.path().join("clean").exists());
}

#[tokio::test]
async fn a_call_that_is_stopped_already_starts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let context = Context::new();
    context.stop();
    let outcome = within(start(script_in(&directory, "echo > started"), "{}", &context)).await;
    assert_eq!(outcome, Outcome::Stopped);
    assert!(!directory.path().join("started").exists());
}

#[tokio::test]
async fn what_is_left_behind_does_not_hold_up_the_result() {
    for text in [
        "sleep 1000 & echo $! > pid; echo out",
        "yes >&2 & echo $! > pid; echo out",
        "sleep 1000 >/dev/null 2>&1 & echo $! > pid; echo out",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let finished = call(script_in(&directory, text), "{}").await;
        assert_eq!(finished.text(), "out\n");
        let pid = pid_in(&directory.path().join("pid")).await;
        assert!(!is_alive(pid), "still there: {text}");
    }
}

#[tokio::test]
async fn what_has_moved_to_another_session_is_stopped_too() {
    let directory = tempfile::tempdir().unwrap();
    let text = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while ! [ -s pid ]; do sleep 0.01; \
                done; echo out";
    let finished = call(script_in(&directory, text), "{}").await;
    assert_eq!(finished.text(), "out\n");
    let pid = pid_in(&directory.path().join("pid")).await;
    assert!(!is_alive(pid), "still there");
}

#[tokio::test]
async fn a_command_that_exits_first_has_its_result() {
    let directory = tempfile::tempdir().unwrap();
    // It is told to stop while what it has left behind takes its time.
    let text = "(trap 'echo > told; while ! [ -e go ]; do sleep 0.01; done; exit' TERM; echo $$ > \
                pid; while :; do sleep 0.01; done) & while ! [ -s pid ]; do sleep 0.01; done; echo \
                out";
    let mut spec = script_in(&directory, text);
    spec.kill_grace = NEVER_KILL;
    let context = Context::new();
    let running = tokio::spawn(start(spec, "{}", &context));
    until(|| directory.path().join("told").exists().then_some(())).await;
    context.stop();
    std::fs::write(directory.path().join("go"), "").unwrap();
    assert_eq!(finished(within(running).await.unwrap()).text(), "out\n");
}

#[tokio::test]
async fn a_hundred_calls_at_once_all_stop() {
    let context = Context::new();
    let directory = tempfile::tempdir().unwrap();
    let running: Vec<_> = (0..100)
        .map(|number| {
            let text = format!("sleep 1000 & echo $! > pid{number}; wait");
            tokio::spawn(start(script_in(&directory, &text), "{}", &context))
        })
        .collect();
    let mut pids = Vec::new();
    for number in 0..100 {
        pids.push(pid_in(&directory.path().join(format!("pid{number}"))).await);
    }
    context.stop();
    for call in running {
        assert_eq!(within(call).await.unwrap(), Outcome::Stopped);
    }
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

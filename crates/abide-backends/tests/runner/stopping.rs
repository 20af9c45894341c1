//! Stopping takes the whole tree, wherever its processes have gone.

use std::time::Duration;

use abide_backends::runner::{Exit, Stopped};

use tokio::task::JoinSet;

use crate::harness::{NEVER, Place, finished, is_alive, script, until};

/// A process that has left its group, its session and its parent, as daemons do.
pub(crate) const DAEMON: &str =
    "setsid sh -c '(sleep 1000 >/dev/null 2>&1 & echo $! > pid)' </dev/null &";

/// Starts a script that writes `pid`, stops the run, and sees that the process is gone.
async fn stops(text: &str, grace: Duration, killed: bool) {
    for place in Place::both() {
        let mut job = script(text);
        job.kill_grace = grace;
        let run = place.start(job).await;
        let pid = place.pid("pid").await;
        assert!(is_alive(pid));
        run.stop().await.unwrap();
        let outcome = finished(&run).await;
        assert!(!is_alive(pid), "still there: {text}");
        assert_eq!(outcome.stopped, Some(Stopped { killed }), "{text}");
        assert!(outcome.exit.is_some() && outcome.unkillable == 0);
    }
}

pub(crate) async fn sigterm_reaches_the_whole_tree() {
    for text in [
        "echo $$ > pid; exec sleep 1000",
        "sleep 1000 & echo $! > pid; wait",
        "(sleep 1000 & echo $! > pid); sleep 1000",
        // A pipe that somebody has to empty.
        "yes & echo $! > pid; wait",
        "echo $$ > pid; kill -STOP $$",
    ] {
        stops(text, NEVER, false).await;
    }
}

pub(crate) async fn a_detached_process_is_stopped_with_the_tree() {
    stops(&format!("{DAEMON} wait; sleep 1000"), NEVER, false).await;
    // One that knows nothing of its run any more.
    stops(&format!("env -i {DAEMON} wait; sleep 1000"), NEVER, false).await;
}

pub(crate) async fn what_a_job_leaves_behind_is_stopped() {
    let daemon = format!("{DAEMON} until [ -s pid ]; do sleep 0.01; done; echo out; exit 4");
    let texts = [
        "sleep 1000 & echo $! > pid; echo out; exit 4",
        "yes >&2 & echo $! > pid; echo out; exit 4",
        &daemon,
    ];
    // All at once, since the runner waits for a while for those that could still write.
    let mut checks = JoinSet::new();
    for (text, place) in texts.into_iter().flat_map(|text| Place::both().map(|place| (text, place)))
    {
        let text = text.to_owned();
        checks.spawn(async move {
            let (outcome, output) = place.run(script(&text)).await;
            assert_eq!((outcome.exit, outcome.stopped), (Some(Exit::Code(4)), None), "{text}");
            assert_eq!((outcome.left_behind, outcome.unkillable), (1, 0), "{text}");
            assert_eq!(output.stdout.head, b"out\n");
            assert!(!is_alive(place.pid("pid").await), "still there: {text}");
        });
    }
    checks.join_all().await;
}

pub(crate) async fn who_ignores_sigterm_is_killed_after_the_grace() {
    for text in [
        "trap '' TERM; echo $$ > pid; while :; do sleep 1; done",
        "(trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 1; done') & wait",
        &format!("trap '' TERM; {DAEMON} wait; while :; do sleep 1; done"),
    ] {
        stops(text, Duration::from_millis(50), true).await;
        stops(text, Duration::ZERO, true).await;
    }
    // Left behind, it does not hold up the result either.
    for place in Place::both() {
        let mut job =
            script("(trap '' TERM; echo > ready; sleep 1000) & until [ -e ready ]; do :; done");
        job.kill_grace = Duration::from_millis(50);
        let (outcome, _) = place.run(job).await;
        assert_eq!((outcome.exit, outcome.stopped), (Some(Exit::Code(0)), None));
        assert!(outcome.left_behind >= 1 && outcome.unkillable == 0);
    }
}

pub(crate) async fn sigterm_leaves_time_to_clean_up() {
    let place = Place::new();
    // Cleaning up prints more than a pipe holds, with processes that are started for it.
    let text = "trap 'head -c 300000 /dev/zero; echo done > clean; exit 7' TERM; echo $$ > pid; \
                while :; do sleep 0.01; done";
    let run = place.start(script(text)).await;
    place.pid("pid").await;
    run.stop().await.unwrap();
    let outcome = finished(&run).await;
    assert_eq!(outcome.stopped, Some(Stopped { killed: false }));
    assert_eq!((outcome.exit, outcome.stdout.total), (Some(Exit::Code(7)), 300_000));
    assert!(place.file("clean").exists());
}

pub(crate) async fn a_job_that_exits_first_was_not_stopped() {
    let place = Place::new();
    // The child keeps the pipe open, so that the runner waits for its output.
    let run = place.start(script("sleep 1000 & echo $$ > pid; exit 3")).await;
    let job = place.pid("pid").await;
    // Reaped, not only ended.
    until(|| std::fs::metadata(format!("/proc/{job}")).err()).await;
    run.stop().await.unwrap();
    let outcome = finished(&run).await;
    assert_eq!((outcome.exit, outcome.stopped), (Some(Exit::Code(3)), None));
}

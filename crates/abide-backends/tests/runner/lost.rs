//! Runs of which nobody knows how they ended.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use abide_backends::runner::{Ended, Found};
use rustix::process::Signal;

use crate::harness::{
    Place, finished, is_alive, live, lost, pid_in, script, signal, until, within,
};
use crate::stopping::DAEMON;

pub(crate) async fn what_a_killed_runner_leaves_is_stopped() {
    for place in Place::both() {
        // The job, a child that ignores SIGTERM, and one that has detached itself.
        let text = format!(
            "(trap '' TERM; sh -c 'echo $$ > deaf; while :; do sleep 1; done') & {DAEMON} \
             echo $$ > job; sleep 1000"
        );
        let mut job = script(&text);
        job.kill_grace = Duration::from_millis(50);
        let run = place.start(job).await;
        let mut pids = Vec::new();
        for file in ["deaf", "pid", "job"] {
            pids.push(pid_in(&place.file(file)).await);
        }
        let cgroup = fs::read_to_string(place.in_run(&place.name, "lock")).unwrap();
        let cgroup =
            cgroup.lines().find_map(|line| line.strip_prefix("cgroup ").map(str::to_owned));
        signal(place.runner(&place.name), Signal::KILL);
        let Ended::Lost(ended) = within(run.wait()).await.unwrap() else { panic!("no outcome") };
        assert!(ended.may_have_run() && !ended.rebooted(), "{ended:?}");
        assert!(pids.iter().all(|pid| is_alive(*pid)), "there is nothing to stop");

        // As somebody else finds it.
        let left = within(lost(&place.spool, &place.name).stop_leftovers()).await.unwrap();
        assert!(left.found >= 3 && left.unkillable == 0, "{left:?}");
        assert!(!pids.iter().any(|pid| is_alive(*pid)), "still there");
        assert!(cgroup.is_none_or(|dir| !fs::exists(dir).unwrap()), "the cgroup is still there");
        let again = ended.stop_leftovers().await.unwrap();
        assert_eq!((again.found, again.unkillable), (0, 0));
        place.spool.remove(&place.name).unwrap();
    }
}

/// Its word that the job runs may be missing, and the job runs all the same.
pub(crate) async fn a_runner_that_dies_with_its_word_has_started_the_job() {
    for _ in 0..20 {
        let place = Place::new();
        let run = place.start(script("kill -KILL $PPID; echo $$ > pid; sleep 1000")).await;
        let job = place.pid("pid").await;
        let Ended::Lost(ended) = within(run.wait()).await.unwrap() else { panic!("no outcome") };
        assert!(ended.may_have_run() && is_alive(job));
        assert_eq!(ended.stop_leftovers().await.unwrap().unkillable, 0);
        assert!(!is_alive(job), "still there");
    }
}

pub(crate) async fn a_reboot_is_told_apart() {
    let place = Place::new();
    let run = place.start(script("echo $$ > pid; sleep 1000")).await;
    let job = place.pid("pid").await;
    signal(place.runner(&place.name), Signal::KILL);
    within(run.wait()).await.unwrap();
    let file = place.in_run(&place.name, "job.json");
    let written = fs::read_to_string(&file).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(written.contains(boot.trim()));
    for of_another_boot in [
        written.replace(boot.trim(), "00000000-0000-0000-0000-000000000000"),
        // The power went before it was on the disk.
        String::new(),
    ] {
        fs::write(&file, of_another_boot).unwrap();
        let rebooted = lost(&place.spool, &place.name);
        assert!(rebooted.rebooted() && rebooted.may_have_run());
        // What has these numbers now has nothing to do with it.
        assert_eq!(rebooted.stop_leftovers().await.unwrap().found, 0);
        assert!(is_alive(job));
    }
    fs::write(&file, written).unwrap();
    assert!(lost(&place.spool, &place.name).stop_leftovers().await.unwrap().found >= 1);
    until(|| (!is_alive(job)).then_some(())).await;
}

pub(crate) async fn a_run_that_never_started_says_so() {
    let place = Place::new();
    let run = place.start(script("true")).await;
    within(run.wait()).await.unwrap();
    fs::remove_file(place.in_run(&place.name, "outcome.json")).unwrap();
    assert!(lost(&place.spool, &place.name).may_have_run());
    // As the lock is while the runner prepares; what has this process id now is not its job.
    let own = std::process::id();
    let mut file = fs::File::create(place.in_run(&place.name, "lock")).unwrap();
    writeln!(file, "runner {own} 1").unwrap();
    let never = lost(&place.spool, &place.name);
    assert!(!never.may_have_run() && !never.rebooted());
    writeln!(file, "starting\njob {own} 1").unwrap();
    let perhaps = lost(&place.spool, &place.name);
    assert!(perhaps.may_have_run());
    assert_eq!(perhaps.stop_leftovers().await.unwrap().found, 0);
    assert!(matches!(place.spool.find(&place.name).unwrap(), Found::Lost(_)));
}

pub(crate) async fn a_runner_out_of_sight_is_waited_for_but_not_stopped() {
    let place = Place::new();
    let run = place.start(script("until [ -e go ]; do sleep 0.01; done; echo out")).await;
    let lock = place.in_run(&place.name, "lock");
    let written = fs::read_to_string(&lock).unwrap();
    // As if the numbers were those of another container.
    fs::write(&lock, "runner 1 1\nstarting\njob 1 1\n").unwrap();
    let unseen = live(&place.spool, &place.name);
    let error = unseen.stop().await.unwrap_err();
    assert!(error.to_string().contains("can be seen here"), "{error}");
    let waiting = tokio::spawn(async move { finished(&unseen).await });
    fs::write(&lock, written).unwrap();
    fs::write(place.file("go"), "").unwrap();
    assert_eq!(waiting.await.unwrap(), finished(&run).await);
}

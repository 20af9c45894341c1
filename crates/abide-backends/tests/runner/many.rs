//! Many runs at once.

use std::fs;
use std::time::Duration;

use abide_backends::runner::RunName;
use tokio::task::JoinSet;

use crate::alone::is_alone;
use crate::harness::{Place, env, finished, memory, script, within};

const RUNS: u32 = 200;

/// Processor time that a process has used, in clock ticks.
fn ticks(pid: i32) -> u64 {
    // pid (name) state … and utime, stime as fields 14 and 15.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

/// What a process has of the memory that it shares with others, and what it has for itself; in kB.
fn proportional(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let value = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    value.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[expect(clippy::print_stderr, reason = "the numbers are asked for")]
pub(crate) async fn two_hundred_runs_cost_nothing_while_they_sleep() {
    // Alone, since the processor time of other tests would count.
    if !is_alone("many::two_hundred_runs_cost_nothing_while_they_sleep", &[&["env"]]) {
        return;
    }
    let place = Place::new();
    let names = (1..=RUNS).map(|attempt| RunName { attempt, ..place.name });
    let mut starting = JoinSet::new();
    for run in names.clone() {
        let spool = place.spool.clone();
        starting.spawn(async move {
            within(spool.start(&run, &script("exec sleep 1000"), &env())).await.unwrap()
        });
    }
    let runs = starting.join_all().await;
    let mut waiting = JoinSet::new();
    for run in runs.clone() {
        waiting.spawn(async move { finished(&run).await });
    }
    let pids: Vec<i32> = names.map(|run| place.runner(&run)).collect();

    let own = i32::try_from(std::process::id()).unwrap();
    let used = || (ticks(own), pids.iter().map(|pid| ticks(*pid)).sum::<u64>());
    let before = used();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = used();
    let sum = |line| pids.iter().map(|pid| memory(*pid, line)).sum::<u64>();
    let largest = pids.iter().map(|pid| memory(*pid, "VmRSS")).max().unwrap();
    let (rss, anonymous) = (sum("VmRSS"), sum("RssAnon"));
    let pss: u64 = pids.iter().map(|pid| proportional(*pid)).sum();
    let each = |kb: u64| kb / u64::from(RUNS);
    eprintln!(
        "{RUNS} sleeping runs: VmRSS of a runner {} kB on average, {largest} kB at most; of these \
         {} kB its own; with shared memory counted once {} kB each, {pss} kB all; in one second \
         the server used {} ticks, all runners {}",
        each(rss),
        each(anonymous),
        each(pss),
        after.0 - before.0,
        after.1 - before.1,
    );
    assert!(largest < 8_000 && each(anonymous) < 1_000, "{largest} kB");
    // Reading the numbers takes some ticks itself.
    assert!(after.0 - before.0 <= 5 && after.1 - before.1 <= 2, "{before:?} {after:?}");

    for run in runs {
        run.stop().await.unwrap();
    }
    let outcomes = within(waiting.join_all()).await;
    assert!(outcomes.len() == pids.len() && outcomes.iter().all(|one| one.stopped.is_some()));
}

//! A server with nothing to do does nothing.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::common::{Declares, Folder, Server, handle, say, until};

/// Before the first look.
const SETTLE: Duration = Duration::from_millis(500);
/// Between the two looks.
const WINDOW: Duration = Duration::from_secs(3);
/// A thread that polls every 20 ms already reaches this.
const MAX_WAKE_UPS_PER_SECOND: u64 = 50;
/// Of one processor, in hundredths.
const MAX_PROCESSOR: u64 = 20;

/// How often the threads of a process have gone to sleep, and how long they ran, in clock ticks.
fn look(pid: u32) -> (u64, u64) {
    let mut switches = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches += line.unwrap().trim().parse::<u64>().unwrap();
    }
    // proc_pid_stat(5): utime and stime are the fields 14 and 15; the name may hold spaces.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    (switches, ticks)
}

async fn measure(what: &str, pid: u32) {
    // What a start or a call leaves to be done is done by then.
    tokio::time::sleep(SETTLE).await;
    let before = look(pid);
    tokio::time::sleep(WINDOW).await;
    let after = look(pid);
    let wake_ups = after.0 - before.0;
    // Linux counts a hundred ticks a second (`USER_HZ`) on all platforms in use.
    let ticks = after.1 - before.1;
    let seconds = WINDOW.as_secs();
    say(&format!(
        "idle, {what}: {wake_ups} wake-ups and {ticks}0 ms of processor time in {seconds} s"
    ));
    assert!(
        wake_ups < MAX_WAKE_UPS_PER_SECOND * seconds,
        "{what}: {wake_ups} wake-ups in {seconds} s"
    );
    assert!(ticks < MAX_PROCESSOR * seconds, "{what}: {ticks} ticks in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_sleeps() {
    let tools = "[tools.hello]\ndescription = \"d\"\ncommand = [\"echo\", \"hello\"]\n\
                 inline = \"0s\"\n\
                 [tools.long]\ndescription = \"d\"\ncommand = [\"sleep\", \"20\"]\n\
                 inline = \"0s\"\nkill_grace = \"1s\"\n";
    let folder = Folder::new("shutdown_grace = \"0s\"", tools);
    let server = Server::start(&folder.config()).await;
    measure("no tasks", server.pid()).await;
    let id = handle(&server.http.call(Declares::Tasks, "hello", &json!({})).await);
    server.http.end_of(&id).await;
    handle(&server.http.call(Declares::Tasks, "long", &json!({})).await);
    measure("one task at work", server.pid()).await;
    server.stop().await.well();
}

/// Memory that a process has for itself, in kB.
fn own_memory(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_tasks_at_work_cost_nothing() {
    let tools = "[tools.long]\ndescription = \"d\"\ncommand = [\"sleep\", \"600\"]\n\
                 inline = \"0s\"\nconcurrency = 200\nkill_grace = \"1s\"\n";
    let folder = Folder::new("", tools);
    let server = Server::start(&folder.config()).await;
    for _ in 0..200 {
        handle(&server.http.call(Declares::Tasks, "long", &json!({})).await);
    }
    let locks = || -> Vec<String> {
        let runs = fs::read_dir(folder.path("abide.db.runs")).unwrap();
        let locks = runs.map(|run| fs::read_to_string(run.unwrap().path().join("lock")));
        locks.filter_map(Result::ok).filter(|lock| lock.contains("\njob ")).collect()
    };
    until("all of them run", || locks().len() == 200).await;
    measure("200 tasks at work", server.pid()).await;
    let runners = locks();
    let pids = runners.iter().map(|lock| lock.split(' ').nth(1).expect("the runner's id"));
    let memory: Vec<u64> = pids.map(own_memory).collect();
    let (all, most) = (memory.iter().sum::<u64>(), memory.iter().max().unwrap());
    say(&format!("200 runners have {} kB each for themselves, {most} kB at most", all / 200));
    assert!(*most < 3_000, "{most} kB");
    server.stop().await.well();
}

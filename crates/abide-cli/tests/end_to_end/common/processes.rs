//! Processes by their number: whether they run, and signals to them.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;

/// The number as the system's calls take it.
fn to_pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process id")
}

/// Whether a process of this number runs. One that has ended and is not reaped yet does not.
pub(crate) fn alive(number: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{number}/stat")) else { return false };
    // proc_pid_stat(5): pid (name) state …; the name may hold anything.
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().next());
    !matches!(state, Some("Z" | "X" | "x") | None)
}

/// The process ids that scripts have written into a file, a line each, once there are so many.
pub(crate) async fn pids_in(file: &Path, count: usize) -> Vec<u32> {
    eventually("the tools run", async || {
        let text = std::fs::read_to_string(file).ok()?;
        let whole = &text[..text.rfind('\n')? + 1];
        let pids: Vec<u32> = whole.lines().map(|line| line.parse().expect("a number")).collect();
        (pids.len() >= count).then_some(pids)
    })
    .await
}

/// Sends a signal; that the process is gone is no failure.
pub(crate) fn signal_process(number: u32, signal: Signal) {
    let _ = kill_process(to_pid(number), signal);
}

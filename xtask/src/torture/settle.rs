//! What must be so once nobody kills any more: everything ends, is there, and leaves nothing over.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::chance::Chance;
use super::http::Http;
use super::load::{cancel, locked};
use super::server::{Programs, Server, command_line, processes, runs_with, send, variable};
use super::tools::kind_of;
use super::world::World;

/// How long everything may take to come to its end once nobody kills any more.
const RECOVERY: Duration = Duration::from_secs(90);
/// Between two looks at what has not ended.
const LOOK: Duration = Duration::from_millis(50);

impl World {
    /// Everything has to come to its end, and what has ended must not run.
    pub(super) fn settle(&mut self, programs: &Programs, chance: &mut Chance) -> Result<()> {
        let (mut server, http) = self.unhurt(programs)?;
        let began = Instant::now();
        loop {
            let open = locked(&self.ledger).open().to_vec();
            for id in &open {
                let answer = http.ask("tasks/get", id, json!({ "taskId": id }))?;
                let Some(task) = locked(&self.ledger).polled(id, &answer) else { continue };
                // What waits for somebody is not stuck; it is told to go.
                let waits = locked(&self.ledger).entry(id).is_some_and(|entry| {
                    !entry.cancel_acknowledged
                        && (entry.tool.is_endless() || task["status"] == "input_required")
                });
                if waits {
                    cancel(&http, &self.ledger, id);
                }
            }
            if locked(&self.ledger).open().is_empty() {
                break;
            }
            if began.elapsed() > RECOVERY {
                locked(&self.ledger).stuck(&server.tail());
                break;
            }
            thread::sleep(LOOK);
        }
        self.no_process_of_what_has_ended();
        self.look_again(&http, chance);
        server.kill();
        self.kills.servers += 1;
        Ok(())
    }

    /// The end of the run: every handle is looked at once more, and nothing is left over.
    pub(super) fn close(&mut self, programs: &Programs) -> Result<()> {
        let (server, http) = self.unhurt(programs)?;
        let ended = locked(&self.ledger).ended().to_vec();
        for id in ended {
            let answer = http.ask("tasks/get", &id, json!({ "taskId": id }))?;
            locked(&self.ledger).polled(&id, &answer);
        }
        // A start removes what belongs to no task; what expires later has time until the next one.
        let nobodys = self.runs_of_nobody(&http)?;
        self.stop(server);
        let (server, http) = self.unhurt(programs)?;
        let began = Instant::now();
        loop {
            self.cancel_unheard(&http);
            let runs: Vec<_> =
                nobodys.iter().filter(|run| self.spool().join(run).exists()).collect();
            let running = self.running();
            if runs.is_empty() && running.is_empty() || began.elapsed() > RECOVERY {
                let mut ledger = locked(&self.ledger);
                for name in runs {
                    let words = format!("expected no run without a task, seen {name}");
                    ledger.losses.add("left spools", words);
                }
                for pid in running {
                    let words =
                        format!("expected nothing to run, seen {pid}: {}", command_line(pid));
                    ledger.losses.add("left processes", words);
                }
                ledger.look_through_marks(kind_of);
                break;
            }
            thread::sleep(LOOK);
        }
        self.stop(server);
        Ok(())
    }

    fn stop(&self, mut server: Server) {
        server.signal(Signal::TERM);
        if !server.ends_within(RECOVERY) {
            let words = "expected the server to stop, seen it run on".to_owned();
            locked(&self.ledger).losses.add("left processes", words);
        }
    }

    /// Cancels tasks that are at work and of which nobody has heard, since their server died between
    /// the commit and its acknowledgement. It is right that they live, and some never end.
    fn cancel_unheard(&self, http: &Http) {
        for id in self.running().into_iter().filter_map(|pid| variable(pid, "ABIDE_TASK_ID")) {
            if !locked(&self.ledger).has_ended(&id) {
                cancel(http, &self.ledger, &id);
            }
        }
    }

    /// A server that nobody hurts.
    fn unhurt(&mut self, programs: &Programs) -> Result<(Server, Http)> {
        locked(&self.ledger).server_starts(false);
        let mut server = self.spawn(programs, "")?;
        let Some(http) = server.http()? else {
            bail!("a server did not start; {}", server.tail());
        };
        Ok((server, http))
    }

    fn no_process_of_what_has_ended(&self) {
        for pid in self.running() {
            let Some(id) = variable(pid, "ABIDE_TASK_ID") else { continue };
            let mut ledger = locked(&self.ledger);
            if ledger.has_ended(&id) {
                let words = format!(
                    "{id}: expected nothing to run once it has ended, seen {pid}: {}",
                    command_line(pid)
                );
                ledger.losses.add("left processes", words);
            }
        }
    }

    /// The processes of this world's jobs and runners.
    fn running(&self) -> Vec<u32> {
        let marks = format!("MARKS={}", self.path("marks"));
        let spool = self.spool().to_string_lossy().into_owned();
        let ours = |pid: &u32| runs_with(*pid, &marks) || command_line(*pid).contains(&spool);
        processes().into_iter().filter(ours).collect()
    }

    /// Runs that belong to no task that is there, whoever has heard of it.
    fn runs_of_nobody(&self, http: &Http) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for run in fs::read_dir(self.spool()).into_iter().flatten().flatten() {
            let name = run.file_name().to_string_lossy().into_owned();
            let id = name.split('.').next().unwrap_or_default().to_owned();
            let answer = http.ask("tasks/get", &id, json!({ "taskId": id }))?;
            if name.starts_with('.') || !answer.contains("\"result\"") {
                left.push(name);
            }
        }
        Ok(left)
    }
}

impl Drop for World {
    /// Whatever the run has found, nothing of it stays at work on this machine.
    fn drop(&mut self) {
        for pid in self.running() {
            send(Signal::KILL, pid);
        }
    }
}

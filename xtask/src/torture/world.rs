//! One database and everything around it: its server, its tools, its marks, its ledger.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use super::chance::Chance;
use super::http::Http;
use super::ledger::{Kind, Ledger};
use super::load::{self, Shared, Tool, locked};
use super::server::{Programs, Server, all_with, send};

const CLIENTS: u64 = 5;
/// How long a server lives at most.
const LIFE_MILLIS: u64 = 900;
/// Ended tasks that are looked at again in each life.
const SAMPLE: usize = 40;
/// How long everything may take to come to its end once nobody kills any more.
const RECOVERY: Duration = Duration::from_secs(90);
/// Between two looks at what has not ended.
const LOOK: Duration = Duration::from_millis(50);

/// What a command does: it leaves marks, works, and perhaps behaves badly.
const JOB: &str = r#"#!/bin/sh
echo "start $$" >> "$MARKS/$ABIDE_TASK_ID"
case "$2" in
    detach) setsid sleep 1000 & ;;
    deaf) trap '' TERM ;;
esac
sleep "$1"
echo "did the work of $ABIDE_TASK_ID"
echo done >> "$MARKS/$ABIDE_TASK_ID"
"#;

const fn command(
    name: &'static str,
    kind: Kind,
    how: &'static str,
    millis: u64,
    settings: &'static str,
) -> Tool {
    Tool { name, kind, settings, how, millis }
}

const COMMANDS: &[Tool] = &[
    command("quick", Kind::Reattach, "plain", 30, "concurrency = 6"),
    command("window", Kind::Reattach, "plain", 200, "inline = \"100ms\"\nconcurrency = 6"),
    command("long", Kind::Reattach, "plain", 900, "concurrency = 6"),
    command("single", Kind::Reattach, "plain", 60, "concurrency = 1\nqueue = 20"),
    command("detach", Kind::Reattach, "detach", 200, ""),
    command("deaf", Kind::Reattach, "deaf", 400, ""),
    command("fails", Kind::Fail, "plain", 400, "on_restart = \"fail\""),
    command("again", Kind::Rerun, "plain", 400, "on_restart = \"rerun\"\nmax_attempts = 4"),
    command("brief", Kind::Reattach, "plain", 50, "keep = \"500ms\"\ntimeout = \"6s\""),
    command("late", Kind::Late, "plain", 900, "timeout = \"150ms\""),
];

const ASKS: &[Tool] = &[command("asks", Kind::Asks, "", 0, "")];
const TAKEN_OVER: &[Tool] = &[command("works", Kind::TakenOver, "", 900, "")];

/// What a world is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Theme {
    /// `abide serve` with commands.
    Commands,
    /// A handler that asks.
    Asks,
    /// Two engines that take over from each other.
    TwoEngines,
}

/// How servers and what they run were hurt.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Kills {
    pub(super) servers: u64,
    pub(super) at_points: u64,
    pub(super) stopped: u64,
    pub(super) suspended: u64,
    pub(super) runners: u64,
    pub(super) jobs: u64,
}

pub(super) struct World {
    theme: Theme,
    folder: PathBuf,
    pub(super) ledger: Shared,
    pub(super) kills: Kills,
    lives: u64,
}

impl World {
    pub(super) fn new(theme: Theme, folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("{theme:?}").to_lowercase());
        let marks = folder.join("marks");
        fs::create_dir_all(&marks)?;
        fs::write(folder.join("job.sh"), JOB)?;
        let mut config =
            "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"300ms\"\n".to_owned();
        for Tool { name, settings, .. } in COMMANDS {
            let inline = if settings.contains("inline") { "" } else { "inline = \"0s\"\n" };
            config.push_str(&format!(
                "[tools.{name}]\ndescription = \"d\"\n{settings}\n{inline}kill_grace = \"200ms\"\n\
                 command = [\"sh\", \"./job.sh\", \"{{seconds}}\", \"{{how}}\"]\n\
                 env = {{ MARKS = {marks:?} }}\n\
                 input = {{ seconds = {{ type = \"string\" }}, how = {{ type = \"string\" }} }}\n"
            ));
        }
        fs::write(folder.join("abide.toml"), config)?;
        let ledger = Arc::new(Mutex::new(Ledger::new(marks)));
        Ok(Self { theme, folder, ledger, kills: Kills::default(), lives: 0 })
    }

    const fn tools(&self) -> &'static [Tool] {
        match self.theme {
            Theme::Commands => COMMANDS,
            Theme::Asks => ASKS,
            Theme::TwoEngines => TAKEN_OVER,
        }
    }

    fn spool(&self) -> PathBuf {
        self.folder.join("abide.db.runs")
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn spawn(&mut self, programs: &Programs, points: &str) -> Result<Server> {
        self.lives += 1;
        let log = self.folder.join(format!("server-{}.log", self.lives % 4));
        if self.theme == Theme::Commands {
            let arguments = ["serve", &self.path("abide.toml")];
            return Server::spawn(&programs.abide, &arguments, points, &log);
        }
        let engines = if self.theme == Theme::TwoEngines { "2" } else { "1" };
        let arguments = [&self.path("abide.db"), &self.path("marks"), engines];
        let arguments = arguments.map(|argument| argument as &str);
        Server::spawn(&programs.handlers, &arguments, points, &log)
    }

    /// One server's life: what former ones have acknowledged is looked at, then clients are at work
    /// until it is killed.
    pub(super) fn life(&mut self, programs: &Programs, chance: &mut Chance) -> Result<()> {
        let points = self.points(chance);
        locked(&self.ledger).server_starts(points.contains("runner-"));
        let mut server = self.spawn(programs, &points)?;
        if chance.below(20) == 0 {
            // In the middle of the start, of the recovery, or of the first queued work.
            thread::sleep(Duration::from_millis(chance.below(60)));
            self.ends(&mut server);
            return Ok(());
        }
        let Some(http) = server.http()? else {
            if points.is_empty() || self.theme == Theme::TwoEngines && !points.contains("store-") {
                bail!("a server did not start: {}", server.tail());
            }
            self.kills.at_points += 1;
            locked(&self.ledger).server_ends();
            return Ok(());
        };
        let over = Arc::new(AtomicBool::new(false));
        let clients = load::start(CLIENTS, &http, self.tools(), &self.ledger, &over, chance);
        self.look_again(&http, chance);

        let millis = chance.below(LIFE_MILLIS);
        let died = server.ends_within(Duration::from_millis(millis));
        if died && points.is_empty() {
            bail!("a server ended by itself: {}", server.tail());
        }
        if !died {
            self.hurt(&mut server, chance);
        }
        over.store(true, Ordering::Relaxed);
        self.ends(&mut server);
        for client in clients {
            if client.join().is_err() {
                bail!("a client has panicked");
            }
        }
        // Of what was acknowledged in the last moment too.
        locked(&self.ledger).server_ends();
        Ok(())
    }

    /// At which points the next server may die.
    fn points(&self, chance: &mut Chance) -> String {
        let lease = if self.theme == Theme::TwoEngines { "lease-renewal=0.4" } else { "" };
        let dies = match chance.below(24) {
            0 => "store-commit=0.01",
            1 => "store-committed=0.01",
            2 => "store-committed=0.05",
            3 => "engine-effects=0.01",
            4 => "engine-outcome=0.02",
            5 if self.theme == Theme::Commands => "runner-started=0.05,runner-outcome=0.05",
            6 if self.theme == Theme::Commands => "runner-written=0.2,engine-outcome=0.02",
            _ => "",
        };
        format!("{lease},{dies}").trim_matches(',').to_owned()
    }

    /// Kills the server, unless it has gone already.
    fn ends(&mut self, server: &mut Server) {
        locked(&self.ledger).server_ends();
        if server.has_ended() {
            self.kills.at_points += 1;
        } else {
            server.kill();
            self.kills.servers += 1;
        }
    }

    /// What happens to a server, or to what it runs, before it is killed.
    fn hurt(&mut self, server: &mut Server, chance: &mut Chance) {
        match chance.below(20) {
            0..=1 => {
                locked(&self.ledger).server_ends();
                server.signal("TERM");
                self.kills.stopped += 1;
                server.ends_within(Duration::from_millis(chance.below(1500)));
            }
            2..=3 => {
                server.signal("STOP");
                // For two engines longer than their lease.
                thread::sleep(Duration::from_millis(300 + chance.below(600)));
                server.signal("CONT");
                self.kills.suspended += 1;
                server.ends_within(Duration::from_millis(chance.below(400)));
            }
            4..=6 if self.theme == Theme::Commands => {
                if self.kill_somebody(chance, "runner ") {
                    self.kills.runners += 1;
                }
                server.ends_within(Duration::from_millis(chance.below(200)));
            }
            7..=8 if self.theme == Theme::Commands => {
                if self.kill_somebody(chance, "job ") {
                    self.kills.jobs += 1;
                }
                server.ends_within(Duration::from_millis(chance.below(200)));
            }
            _ => {}
        }
    }

    /// Kills a runner or a job of a run that has not ended, by what its lock says.
    fn kill_somebody(&self, chance: &mut Chance, who: &str) -> bool {
        let Ok(runs) = fs::read_dir(self.spool()) else { return false };
        let running: Vec<(String, u32)> = runs
            .flatten()
            .filter(|run| !run.path().join("outcome.json").exists())
            .filter_map(|run| {
                let lock = fs::read_to_string(run.path().join("lock")).ok()?;
                let pid = lock.lines().find_map(|line| line.strip_prefix(who)?.split(' ').next());
                let name = run.file_name().into_string().ok()?;
                Some((name.split_once('.')?.0.to_owned(), pid?.parse().ok()?))
            })
            .collect();
        let Some((task, pid)) = chance.pick(&running) else { return false };
        if let Some(entry) = locked(&self.ledger).entry_mut(task) {
            // Whoever is killed, the other may be what is found first.
            entry.runner_hurt |= who == "runner ";
            entry.job_hurt = true;
        }
        send("KILL", *pid);
        true
    }

    /// Looks at a few tasks that have ended.
    fn look_again(&self, http: &Http, chance: &mut Chance) {
        for _ in 0..SAMPLE {
            let id = chance.pick(locked(&self.ledger).ended()).cloned();
            let Some(id) = id else { return };
            let Ok(answer) = http.ask("tasks/get", &id, json!({ "taskId": id })) else { return };
            locked(&self.ledger).polled(&id, &answer);
        }
    }

    /// Nobody kills any more: everything has to come to its end, and to be there.
    pub(super) fn settle(&mut self, programs: &Programs, chance: &mut Chance) -> Result<()> {
        locked(&self.ledger).server_starts(false);
        let mut server = self.spawn(programs, "")?;
        let Some(http) = server.http()? else {
            bail!("a server did not start: {}", server.tail());
        };
        let began = Instant::now();
        loop {
            let open = locked(&self.ledger).open().to_vec();
            for id in &open {
                let answer = http.ask("tasks/get", id, json!({ "taskId": id }))?;
                let task = locked(&self.ledger).polled(id, &answer);
                // What still asks is not stuck; it is told to go.
                if task.is_some_and(|task| task["status"] == "input_required") {
                    if let Some(entry) = locked(&self.ledger).entry_mut(id) {
                        entry.cancel_sent = true;
                    }
                    http.ask("tasks/cancel", id, json!({ "taskId": id }))?;
                }
            }
            if locked(&self.ledger).open().is_empty() {
                break;
            }
            if began.elapsed() > RECOVERY {
                let log = server.tail();
                locked(&self.ledger).stuck(|id, entry| {
                    format!("{id} ({}) has not ended: {entry:?}; the server says {log}", entry.tool)
                });
                break;
            }
            thread::sleep(LOOK);
        }
        self.look_again(&http, chance);
        server.kill();
        self.kills.servers += 1;
        Ok(())
    }

    /// The end of the run: every handle is looked at once more, and nothing is left over.
    pub(super) fn close(&mut self, programs: &Programs) -> Result<()> {
        let mut server = self.spawn(programs, "")?;
        let Some(http) = server.http()? else {
            bail!("a server did not start: {}", server.tail());
        };
        let ended = locked(&self.ledger).ended().to_vec();
        for id in ended {
            let answer = http.ask("tasks/get", &id, json!({ "taskId": id }))?;
            locked(&self.ledger).polled(&id, &answer);
        }
        let began = Instant::now();
        loop {
            // A run belongs to a task that is there, whoever has heard of it.
            let mut left = Vec::new();
            for run in fs::read_dir(self.spool()).into_iter().flatten().flatten() {
                let name = run.file_name().to_string_lossy().into_owned();
                let id = name.split('.').next().unwrap_or_default().to_owned();
                let answer = http.ask("tasks/get", &id, json!({ "taskId": id }))?;
                if name.starts_with('.') || !answer.contains("\"result\"") {
                    left.push(name);
                }
            }
            let running = all_with(&format!("MARKS={}", self.path("marks")));
            if left.is_empty() && running.is_empty() || began.elapsed() > RECOVERY {
                let mut ledger = locked(&self.ledger);
                for name in left {
                    ledger.losses.add("left spools", name);
                }
                for pid in running {
                    let line =
                        fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    ledger.losses.add("left processes", format!("{pid}: {line:?}"));
                }
                break;
            }
            thread::sleep(LOOK);
        }
        server.signal("TERM");
        if !server.ends_within(RECOVERY) {
            locked(&self.ledger)
                .losses
                .add("left processes", "the server does not stop".to_owned());
        }
        Ok(())
    }
}

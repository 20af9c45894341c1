//! One database and everything around it: its server, its tools, its marks, its ledger; and the
//! lives of its servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::chance::Chance;
use super::http::Http;
use super::ledger::Ledger;
use super::load::{self, Shared, locked};
use super::server::{End, Programs, Server, command_line, runs_with, send};
use super::tools::{self, ASKS, COMMANDS, TAKEN_OVER, Tool};

const CLIENTS: u64 = 5;
/// Ended tasks that are looked at again in each life.
const SAMPLE: usize = 40;
/// Longer than the lease of `abide serve`.
const LONG_SLEEP: Duration = Duration::from_secs(16);

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

/// Where in the code a server, or its runners, may die.
#[derive(Debug, Default)]
struct Points {
    text: String,
    server: bool,
    runners: bool,
}

pub(super) struct World {
    theme: Theme,
    pub(super) folder: PathBuf,
    pub(super) ledger: Shared,
    pub(super) kills: Kills,
    lives: u64,
}

impl World {
    pub(super) fn new(theme: Theme, folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("{theme:?}").to_lowercase());
        let marks = folder.join("marks");
        fs::create_dir_all(&marks)?;
        // As the processes that are looked for will say it.
        let (folder, marks) = (folder.canonicalize()?, marks.canonicalize()?);
        fs::write(folder.join("job.sh"), tools::JOB)?;
        fs::write(folder.join("abide.toml"), tools::config(&marks))?;
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

    /// The folder of the runs.
    pub(super) fn spool(&self) -> PathBuf {
        self.folder.join("abide.db.runs")
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    pub(super) fn spawn(&mut self, programs: &Programs, points: &str) -> Result<Server> {
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
        locked(&self.ledger).server_starts(points.runners);
        let mut server = self.spawn(programs, &points.text)?;
        if chance.below(20) == 0 {
            // In the middle of the start, of the recovery, or of the first queued work.
            thread::sleep(Duration::from_millis(chance.below(60)));
            return self.ends(&mut server, &points, false);
        }
        let Some(http) = server.http()? else { return self.ends(&mut server, &points, false) };
        let over = Arc::new(AtomicBool::new(false));
        let clients = load::start(CLIENTS, &http, self.tools(), &self.ledger, &over, chance);
        self.look_again(&http, chance);

        // Long enough for a lease to run out, and for what was taken over then.
        let most = if self.theme == Theme::TwoEngines { 1500 } else { 900 };
        let died = server.ends_within(Duration::from_millis(chance.below(most)));
        let told = !died && self.hurt(&mut server, chance);
        over.store(true, Ordering::Relaxed);
        let ended = self.ends(&mut server, &points, told);
        for client in clients {
            if client.join().is_err() {
                bail!("a client has panicked");
            }
        }
        // Of what was acknowledged in the last moment too.
        locked(&self.ledger).server_ends();
        ended
    }

    /// At which points the next server may die.
    fn points(&self, chance: &mut Chance) -> Points {
        let commands = self.theme == Theme::Commands;
        let dies = match chance.below(24) {
            0 => "store-commit=0.01",
            1 => "store-committed=0.01",
            2 => "store-committed=0.05",
            3 => "engine-effects=0.01",
            4 => "engine-outcome=0.02",
            5 if commands => "runner-started=0.05,runner-outcome=0.05",
            6 if commands => "runner-written=0.2,engine-outcome=0.02",
            _ => "",
        };
        let lease = if self.theme == Theme::TwoEngines { ",lease-renewal=0.4" } else { "" };
        Points {
            text: format!("seed={}{lease},{dies}", chance.any()),
            server: dies.contains("store-") || dies.contains("engine-"),
            runners: dies.contains("runner-"),
        }
    }

    /// Kills the server, unless it has gone already in a way that was to be expected.
    fn ends(&mut self, server: &mut Server, points: &Points, told: bool) -> Result<()> {
        locked(&self.ledger).server_ends();
        match server.end()? {
            None => {
                server.kill();
                self.kills.servers += 1;
            }
            Some(End::Killed) if points.server => self.kills.at_points += 1,
            Some(End::Stopped) if told => self.kills.stopped += 1,
            Some(end) => bail!("a server has ended by itself, {end:?}; {}", server.tail()),
        }
        Ok(())
    }

    /// What happens to a server, or to what it runs, before it is killed. Says whether it was told
    /// to stop.
    fn hurt(&mut self, server: &mut Server, chance: &mut Chance) -> bool {
        let commands = self.theme == Theme::Commands;
        match chance.below(20) {
            0..=1 => {
                locked(&self.ledger).server_stops();
                server.signal(Signal::TERM);
                server.ends_within(Duration::from_millis(chance.below(1500)));
                return true;
            }
            2..=3 => {
                // The handlers' lease is shorter than the shortest of these.
                let short = Duration::from_millis(300 + chance.below(600));
                let long = commands && chance.below(20) == 0;
                server.signal(Signal::STOP);
                thread::sleep(if long { LONG_SLEEP } else { short });
                server.signal(Signal::CONT);
                self.kills.suspended += 1;
                server.ends_within(Duration::from_millis(chance.below(400)));
            }
            4..=6 if commands => {
                for _ in 0..=chance.below(3) {
                    self.kills.runners += u64::from(self.kill_somebody(chance, true));
                }
                server.ends_within(Duration::from_millis(chance.below(200)));
            }
            7..=8 if commands => {
                for _ in 0..=chance.below(3) {
                    self.kills.jobs += u64::from(self.kill_somebody(chance, false));
                }
                server.ends_within(Duration::from_millis(chance.below(200)));
            }
            _ => {}
        }
        false
    }

    /// Kills the runner or the job of a run that is at work, by what its lock says.
    fn kill_somebody(&self, chance: &mut Chance, runner: bool) -> bool {
        let who = if runner { "runner " } else { "job " };
        let spool = self.spool().to_string_lossy().into_owned();
        let Ok(runs) = fs::read_dir(self.spool()) else { return false };
        let running: Vec<(String, u32)> = runs
            .flatten()
            .filter(|run| !run.path().join("outcome.json").exists())
            .filter_map(|run| {
                let lock = fs::read_to_string(run.path().join("lock")).ok()?;
                let pid = lock.lines().find_map(|line| line.strip_prefix(who)?.split(' ').next());
                let pid: u32 = pid?.parse().ok()?;
                let name = run.file_name().into_string().ok()?;
                let task = name.split_once('.')?.0.to_owned();
                // The number may be another's by now.
                let is_it = command_line(pid).contains(&spool)
                    || runs_with(pid, &format!("ABIDE_TASK_ID={task}"));
                is_it.then_some((task, pid))
            })
            .collect();
        let Some((task, pid)) = chance.pick(&running) else { return false };
        locked(&self.ledger).hurts(task, runner);
        send(Signal::KILL, *pid);
        true
    }

    /// Looks at a few tasks that have ended.
    pub(super) fn look_again(&self, http: &Http, chance: &mut Chance) {
        for _ in 0..SAMPLE {
            let id = chance.pick(locked(&self.ledger).ended()).cloned();
            let Some(id) = id else { return };
            let Ok(answer) = http.ask("tasks/get", &id, json!({ "taskId": id })) else { return };
            locked(&self.ledger).polled(&id, &answer);
        }
    }
}

//! The torture run: servers under load are killed at any moment, and a ledger outside of them proves
//! that nothing that they have acknowledged was lost.
//!
//! The programs are built with points at which they kill themselves, and with a disk that forgets
//! what was not synced, so that every kill is a power cut to the database.

mod chance;
mod http;
mod ledger;
mod load;
mod losses;
mod marks;
mod server;
mod settle;
mod tools;
mod verify;
mod world;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use self::chance::Chance;
use self::ledger::Counts;
use self::load::locked;
use self::losses::{LOSSES, Losses};
use self::server::Broken;
use self::world::{Kills, Theme, World};

/// After so many rounds everything comes to its end, and is looked at.
const SETTLE_EVERY: u64 = 25;

/// Options of `cargo xtask torture`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many lives of a server to end.
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// Decides the load and the kills; without it, one that is different each time.
    #[arg(long)]
    seed: Option<u64>,
    /// Build a program that is wrong on purpose, and fail unless that is noticed.
    #[arg(long, value_enum)]
    broken: Option<Broken>,
}

impl Options {
    /// The short run of CI.
    pub(crate) const fn short() -> Self {
        Self { rounds: 20, seed: Some(20_261_201), broken: None }
    }
}

/// Runs it and prints the table.
///
/// # Errors
/// Something was lost, or a server behaved in a way that says nothing about losses.
pub(crate) fn run(options: &Options) -> Result<Vec<String>> {
    let programs = server::build(options.broken)?;
    let seed = options.seed.unwrap_or_else(any_seed);
    let folder = std::env::temp_dir().join(format!("abide-torture-{}", std::process::id()));
    println!("torture: {} rounds, seed {seed}, in {}", options.rounds, folder.display());
    let began = Instant::now();
    let mut run = Run::new(folder.clone())?;
    let done = run.rounds(&programs, options, seed);
    let table = run.table(seed, began.elapsed());
    println!("\n{}", table.join("\n"));
    let losses = run.losses();
    drop(run);
    for (what, words) in losses.described() {
        println!("\n{what}: {words}");
    }
    let kept = || format!("databases, marks and logs are kept in {}", folder.display());
    match options.broken {
        Some(broken) if noticed(broken, &losses) => {
            println!("\nthe broken build was noticed, by {}", broken.expected().join(" or "));
        }
        Some(broken) => {
            done.with_context(kept)?;
            bail!(
                "the build is broken on purpose, and nothing was seen of {}; {}",
                broken.expected().join(" or "),
                kept()
            );
        }
        None => {
            done.with_context(kept)?;
            if losses.any() {
                bail!("something was lost; {}", kept());
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(table)
}

/// Whether the losses are there that come of this.
fn noticed(broken: Broken, losses: &Losses) -> bool {
    broken.expected().iter().any(|what| losses.count(what) > 0)
}

/// A seed of its own for each run; the standard library has no other chance.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0_u8) >> 16
}

struct Run {
    worlds: Vec<World>,
    /// Rounds that were done.
    done: u64,
}

impl Run {
    fn new(folder: PathBuf) -> Result<Self> {
        let worlds = [Theme::Commands, Theme::Asks, Theme::TwoEngines]
            .into_iter()
            .map(|theme| World::new(theme, &folder))
            .collect::<Result<_>>()?;
        Ok(Self { worlds, done: 0 })
    }

    fn rounds(&mut self, programs: &server::Programs, options: &Options, seed: u64) -> Result<()> {
        let mut chance = Chance::new(seed);
        for round in 1..=options.rounds {
            // Most of what can break is in the way of a command.
            let which = match chance.below(10) {
                0..=4 => 0,
                5..=6 => 1,
                _ => 2,
            };
            self.worlds[which].life(programs, &mut chance)?;
            self.done = round;
            if round % SETTLE_EVERY == 0 || round == options.rounds {
                for world in &mut self.worlds {
                    world.settle(programs, &mut chance)?;
                }
                println!("{round} rounds: {}", self.summary());
                // What is broken on purpose need not be proven twice.
                if options.broken.is_some_and(|broken| noticed(broken, &self.losses())) {
                    return Ok(());
                }
            }
        }
        for world in &mut self.worlds {
            world.close(programs)?;
        }
        Ok(())
    }

    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        for world in &self.worlds {
            losses.merge(locked(&world.ledger).losses.clone());
        }
        losses
    }

    fn summary(&self) -> String {
        let counts = self.counts();
        let kills = self.kills();
        format!(
            "{} tasks, {} polls, {} kills",
            counts.tasks,
            counts.polls,
            kills.servers + kills.at_points + kills.runners + kills.jobs
        )
    }

    fn counts(&self) -> Counts {
        self.worlds.iter().fold(Counts::default(), |sum, world| {
            let counts = locked(&world.ledger).counts;
            Counts {
                tasks: sum.tasks + counts.tasks,
                polls: sum.polls + counts.polls,
                updates: sum.updates + counts.updates,
                cancels: sum.cancels + counts.cancels,
                expired: sum.expired + counts.expired,
                completed: sum.completed + counts.completed,
                failed: sum.failed + counts.failed,
                cancelled: sum.cancelled + counts.cancelled,
            }
        })
    }

    fn kills(&self) -> Kills {
        self.worlds.iter().fold(Kills::default(), |sum, World { kills, .. }| Kills {
            servers: sum.servers + kills.servers,
            at_points: sum.at_points + kills.at_points,
            stopped: sum.stopped + kills.stopped,
            suspended: sum.suspended + kills.suspended,
            runners: sum.runners + kills.runners,
            jobs: sum.jobs + kills.jobs,
        })
    }

    fn table(&self, seed: u64, took: Duration) -> Vec<String> {
        let (counts, kills) = (self.counts(), self.kills());
        let mut lines = vec![
            format!("torture: {} rounds, seed {seed}, {} s", self.done, took.as_secs()),
            format!(
                "killed: {} servers, {} at points in the code, {} runners, {} jobs; {} stopped, {} \
                 suspended",
                kills.servers,
                kills.at_points,
                kills.runners,
                kills.jobs,
                kills.stopped,
                kills.suspended
            ),
            format!(
                "acknowledged: {} tasks, {} updates, {} cancels; {} polls; {} completed, {} failed, \
                 {} cancelled, {} expired",
                counts.tasks,
                counts.updates,
                counts.cancels,
                counts.polls,
                counts.completed,
                counts.failed,
                counts.cancelled,
                counts.expired
            ),
        ];
        let sum = |what: &str| -> u64 {
            self.worlds.iter().map(|world| locked(&world.ledger).losses.count(what)).sum()
        };
        lines.extend(LOSSES.map(|what| format!("{what:<16} {:>6}", sum(what))));
        lines
    }
}

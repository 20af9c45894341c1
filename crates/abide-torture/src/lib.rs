//! Points at which a program that was built for the torture run dies, or does something wrong.
//!
//! Only crates that are built with their feature `torture` have such points in them. A point that
//! [`VARIABLE`] does not name does nothing.
//!
//! The crate `fail` has no action that kills, and each program would have to set it up and hand it
//! the chances; this is less than that would be.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

/// The variable that says how likely each point is, and what decides:
/// `seed=7,store-commit=0.01,lease-renewal=0.5`.
pub const VARIABLE: &str = "ABIDE_TORTURE";

/// How long something goes wrong, or right, that goes wrong for a while.
const SPELL: Duration = Duration::from_millis(500);

/// Kills this process here with SIGKILL, if chance will have it: without a word, without cleaning
/// up, and so that whoever waits for it can tell it from a crash.
pub fn point(name: &str) {
    if hit(name) {
        let _ = kill_process(getpid(), Signal::KILL);
        // Nobody comes this far.
        std::process::abort();
    }
}

/// Whether chance will have it.
#[must_use]
pub fn hit(name: &str) -> bool {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let plan = Plan::parse(&std::env::var(VARIABLE).unwrap_or_default());
        // The runners of a server read the same text, and must not all die alike. What tells them
        // apart is the last part of their last argument, the name of the run.
        let last = std::env::args_os().next_back().unwrap_or_default();
        let mut own = DefaultHasher::new();
        Path::new(&last).file_name().hash(&mut own);
        plan.state.fetch_xor(own.finish(), Ordering::Relaxed);
        plan
    });
    plan.chances.get(name).is_some_and(|chance| plan.draw() < *chance)
}

/// Whether chance will have it for `who` during the spell that it is now. A spell is half a second
/// long.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "spells pass by the real clock, whatever a test says"
)]
pub fn spell(name: &str, who: &str) -> bool {
    static SPELLS: Mutex<BTreeMap<String, (Instant, bool)>> = Mutex::new(BTreeMap::new());
    let mut spells = SPELLS.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let (since, has_it) = spells.entry(format!("{name} {who}")).or_insert_with(|| (now, hit(name)));
    if now.duration_since(*since) >= SPELL {
        (*since, *has_it) = (now, hit(name));
    }
    *has_it
}

/// How likely each point is, and the numbers that decide.
struct Plan {
    chances: HashMap<String, f64>,
    state: AtomicU64,
}

impl Plan {
    fn parse(text: &str) -> Self {
        let (mut chances, mut seed) = (HashMap::new(), 0);
        for (name, value) in text.split(',').filter_map(|entry| entry.split_once('=')) {
            if name == "seed" {
                seed = value.parse().unwrap_or_default();
            } else if let Ok(chance) = value.parse() {
                chances.insert(name.to_owned(), chance);
            }
        }
        Self { chances, state: AtomicU64::new(seed) }
    }

    /// A number from zero up to one, the same chance for each (splitmix64).
    fn draw(&self) -> f64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_read() {
        let plan = Plan::parse("seed=3,a=0.5,b=1,broken,c=x");
        assert_eq!(plan.chances.len(), 2);
        assert_eq!((plan.chances["a"], plan.chances["b"]), (0.5, 1.0));
        assert!(Plan::parse("").chances.is_empty());
    }

    #[test]
    fn chance_is_even_and_the_seed_decides() {
        let drawn = |text: &str| -> Vec<f64> {
            let plan = Plan::parse(text);
            (0..1000).map(|_| plan.draw()).collect()
        };
        let low = drawn("seed=1").into_iter().filter(|number| *number < 0.5).count();
        assert!((300..700).contains(&low), "{low}");
        assert_eq!(drawn("seed=1"), drawn("seed=1"));
        assert_ne!(drawn("seed=1"), drawn("seed=2"));
    }
}

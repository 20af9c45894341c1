//! Points at which a program that was built for the torture run dies, or does something wrong.
//!
//! Only crates that are built with their feature `torture` have such points in them. A point that
//! [`VARIABLE`] does not name does nothing.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The variable that says how likely each point is: `store-commit=0.01,lease-renewal=0.5`.
pub const VARIABLE: &str = "ABIDE_TORTURE";

/// How long something goes wrong, or right, that goes wrong for a while.
const SPELL: Duration = Duration::from_secs(1);

/// Dies here, without a word and without cleaning up, if chance will have it.
pub fn point(name: &str) {
    if hit(name) {
        std::process::abort();
    }
}

/// Whether chance will have it.
#[must_use]
pub fn hit(name: &str) -> bool {
    static CHANCES: OnceLock<HashMap<String, f64>> = OnceLock::new();
    let chances = CHANCES.get_or_init(|| parse(&std::env::var(VARIABLE).unwrap_or_default()));
    chances.get(name).is_some_and(|chance| draw() < *chance)
}

/// Whether chance will have it for `who` during the spell that it is now. A spell is a second long.
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

fn parse(text: &str) -> HashMap<String, f64> {
    let chance = |entry: &str| {
        let (name, chance) = entry.split_once('=')?;
        Some((name.to_owned(), chance.parse().ok()?))
    };
    text.split(',').filter_map(chance).collect()
}

/// A number from zero up to one, the same chance for each.
fn draw() -> f64 {
    // The only source of chance in the standard library.
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_read() {
        let chances = parse("a=0.5,b=1,broken,c=x");
        assert_eq!(chances.len(), 2);
        assert_eq!((chances["a"], chances["b"]), (0.5, 1.0));
        assert!(parse("").is_empty());
    }

    #[test]
    fn chance_is_even() {
        let low = (0..1000).filter(|_| draw() < 0.5).count();
        assert!((300..700).contains(&low), "{low}");
    }
}

//! What must never happen, counted, and a few of each in words.

use std::collections::BTreeMap;

/// Offenders of a kind that are described.
const DESCRIBED: usize = 3;

/// What must never happen, by name, in the order of the table.
pub(super) const LOSSES: [&str; 12] = [
    "lost handles",
    "lost updates",
    "doubled updates",
    "lost cancels",
    "doubled effects",
    "missing effects",
    "changed ends",
    "wrong ends",
    "stuck tasks",
    "stale writes",
    "left processes",
    "left spools",
];

/// Losses found so far: how many, and a few in words.
#[derive(Debug, Default, Clone)]
pub(super) struct Losses(BTreeMap<&'static str, (u64, Vec<String>)>);

impl Losses {
    pub(super) fn add(&mut self, what: &'static str, words: String) {
        debug_assert!(LOSSES.contains(&what), "{what} has no line in the table");
        let (count, described) = self.0.entry(what).or_default();
        *count += 1;
        if described.len() < DESCRIBED {
            described.push(words);
        }
    }

    pub(super) fn count(&self, what: &str) -> u64 {
        self.0.get(what).map_or(0, |(count, _)| *count)
    }

    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn described(&self) -> impl Iterator<Item = (&'static str, &String)> {
        self.0.iter().flat_map(|(what, (_, words))| words.iter().map(|words| (*what, words)))
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (what, (count, words)) in other.0 {
            let (all, described) = self.0.entry(what).or_default();
            *all += count;
            described.extend(words);
            described.truncate(DESCRIBED);
        }
    }
}

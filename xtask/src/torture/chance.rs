//! Chance that a seed decides.

/// A sequence of numbers (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(super) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is above zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }

    /// One of these; none of none.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let len = u64::try_from(of.len()).ok().filter(|len| *len > 0)?;
        of.get(usize::try_from(self.below(len)).ok()?)
    }

    /// A sequence of its own.
    pub(super) fn fork(&mut self) -> Self {
        Self(self.any())
    }
}

//! Random numbers that follow from a seed.

use crate::decide::Entropy;

/// A small generator of random numbers (SplitMix64). Its only state is one number, at first the seed of the run.
pub(super) struct SplitMix(pub(super) u64);

impl Entropy for SplitMix {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

pub(crate) fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

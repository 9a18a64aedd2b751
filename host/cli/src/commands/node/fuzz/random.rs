//! Random numbers that depend on a seed alone, in every version of this program.

/// The generator SplitMix64.
pub(super) struct Random(u64);

impl Random {
    /// Creates the generator of one round.
    pub(super) fn new(seed: u64, round: u64) -> Random {
        // The first number of one generator, so that rounds of neighbouring seeds have nothing in common.
        let mut of_seed = Random(seed);
        Random(of_seed.next() ^ round.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or_default()
    }

    /// Returns true in so many of 100 cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the items. Returns `None` if there are none.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_seed_and_round_alone() {
        let numbers = |seed, round| {
            let mut random = Random::new(seed, round);
            [random.next(), random.next()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
        // The numbers that SplitMix64 has in its paper's code.
        assert_eq!(Random(1_234_567).next(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn nothing_is_picked_from_nothing() {
        let mut random = Random::new(0, 0);
        assert_eq!(random.pick::<u8>(&[]), None);
        assert_eq!(random.below(0), 0);
        assert!((0..100).all(|_| random.below(3) < 3));
    }
}

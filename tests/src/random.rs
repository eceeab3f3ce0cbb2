//! Reproducible random numbers: SplitMix64 (Steele, Lea, Flood 2014), seeded by each test.

/// A source of numbers; the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// With this seed, or the one in `$SLABFS_TEST_SEED`.
    pub fn new(seed: u64) -> Random {
        Random(Random::seed(seed))
    }

    /// The seed itself, or the one in `$SLABFS_TEST_SEED`.
    pub fn seed(seed: u64) -> u64 {
        let given = std::env::var("SLABFS_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        given.unwrap_or(seed)
    }

    /// With this seed, ignoring the environment.
    pub fn exactly(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `from..to`; `from` if that is empty.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        if to <= from {
            from
        } else {
            from + self.number() % (to - from)
        }
    }

    /// True one time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.number().is_multiple_of(n)
    }

    /// A random element.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.range(0, from.len() as u64) as usize]
    }

    /// That many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

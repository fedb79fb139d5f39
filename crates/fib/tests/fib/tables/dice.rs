//! What is drawn, the same each time.

/// xorshift: repeatable and fast.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn roll(&mut self, below: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(below)) >> 32) as u32
    }
}

/// A hash that spreads routes over `n` values, so that neighbours rarely merge.
pub(crate) fn spread(key: u64, n: u32) -> u32 {
    let mixed = (key ^ (key >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 + (((mixed >> 32) * u64::from(n)) >> 32) as u32
}

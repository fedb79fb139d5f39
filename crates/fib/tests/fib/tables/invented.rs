//! Tables with the prefix lengths of the Internet's, more or less, of any size and always the same.

use raddle_fib::{Prefix4, Prefix6};

use crate::tables::Dice;

/// At most `n` IPv4 prefixes, ascending; some are drawn twice.
pub(crate) fn invented4(dice: &mut Dice, n: usize) -> Vec<Prefix4> {
    let mut all = Vec::new();
    while all.len() < n {
        let len = match dice.roll(100) {
            0..60 => 24,
            60..85 => 20 + dice.roll(4) as u8,
            _ => 12 + dice.roll(8) as u8,
        };
        let addr = 0x0100_0000 + dice.roll(0xdf00_0000);
        all.extend(Prefix4::new(addr, len));
    }
    all.sort();
    all.dedup();
    all
}

/// At most `n` IPv6 prefixes, ascending; some are drawn twice.
pub(crate) fn invented6(dice: &mut Dice, n: usize) -> Vec<Prefix6> {
    let mut all = Vec::new();
    while all.len() < n {
        let len = match dice.roll(100) {
            0..50 => 48,
            50..75 => 29 + dice.roll(4) as u8,
            _ => 32 + 4 * dice.roll(4) as u8,
        };
        let (a, b) = (0x2a00 + dice.roll(16), dice.roll(1 << 10) << 6);
        let addr = u128::from(a) << 112 | u128::from(b) << 96 | u128::from(dice.bits()) << 32;
        all.extend(Prefix6::new(addr, len));
    }
    all.sort();
    all.dedup();
    all
}

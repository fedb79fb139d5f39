//! Jenkins' lookup3, as far as policy 3 needs it.

/// `jhash_2words` of the kernel (`include/linux/jhash.h`): the final mix of lookup3 over two words.
///
/// Not keyed: whoever knows the words knows the result.
#[inline]
pub fn jhash_2words(a: u32, b: u32, initval: u32) -> u32 {
    /// lookup3's arbitrary start, and the length in bytes.
    const START: u32 = 0xdead_beef + (2 << 2);
    let start = initval.wrapping_add(START);
    let (mut a, mut b, mut c) = (a.wrapping_add(start), b.wrapping_add(start), start);
    let step = |to: &mut u32, from: u32, turn| {
        *to = (*to ^ from).wrapping_sub(from.rotate_left(turn));
    };
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    c
}

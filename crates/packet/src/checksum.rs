//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! Checksums are passed as the numbers that the header holds, in host byte order.

/// Ones' complement sum of big-endian 16-bit words, an odd last byte padded with zero; not yet
/// complemented.
///
/// `start` is a sum so far (0, or a pseudo header's), so that pieces of even length can be chained.
#[inline]
pub fn sum(bytes: &[u8], start: u16) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let mut total = u64::from(start);
    for word in words {
        total += u64::from(u16::from_be_bytes(*word));
    }
    if let [last] = rest {
        total += u64::from(u16::from_be_bytes([*last, 0]));
    }
    fold(total)
}

/// The checksum of `bytes`, whose checksum field is taken as it stands: zero it first, or use
/// [`is_valid`] to check one.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes, 0)
}

/// Whether a header's own checksum is right: all of it sums to 0xffff.
#[inline]
pub fn is_valid(header: &[u8]) -> bool {
    sum(header, 0) == 0xffff
}

/// The same for an IPv4 header without options, whose length is known.
#[inline]
pub fn is_valid_ipv4(header: &[u8; 20]) -> bool {
    // Byte order does not matter to a ones' complement sum, so whole words can be loaded as they
    // are.
    let (words, _) = header.as_chunks::<4>();
    let total: u64 = words
        .iter()
        .map(|w| u64::from(u32::from_ne_bytes(*w)))
        .sum();
    fold(total) == 0xffff
}

/// The checksum after one 16-bit word of what it covers changed from `old` to `new` (RFC 1624,
/// equation 3).
///
/// Valid where the checksum was; equal to a full computation over data that is not all zero.
#[inline]
pub fn update(check: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!check) + u64::from(!old) + u64::from(new))
}

/// An IPv4 header checksum after the TTL went down by one, with the result that the kernel's
/// `ip_decrease_ttl` leaves.
///
/// Adds 0x0100 with end-around carry and never leaves 0xffff: where RFC 1624 would leave the other
/// zero, the kernel leaves 0. A wrong checksum stays equally wrong.
#[inline]
pub fn decrease_ttl(check: u16) -> u16 {
    let sum = u32::from(check) + 0x0100;
    (sum + u32::from(sum >= 0xffff)) as u16
}

/// Folds carries until 16 bits are left.
#[inline]
fn fold(mut total: u64) -> u16 {
    total = (total >> 32) + (total & 0xffff_ffff);
    total = (total >> 16) + (total & 0xffff);
    total = (total >> 16) + (total & 0xffff);
    total = (total >> 16) + (total & 0xffff);
    total as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071, section 4.1, in words.
    fn slow_sum(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            if total > 0xffff {
                total -= 0xffff;
            }
        }
        total as u16
    }

    #[test]
    fn known_headers() {
        // The example of RFC 1071, section 3.
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0),
            0xddf2
        );
        // A header from a kernel vector.
        let header =
            *b"\x45\x00\x00\x20\x00\x00\x00\x00\x40\xc8\x73\x4a\x0b\xab\x3e\x41\xc6\x12\xf6\xcd";
        assert!(is_valid(&header) && is_valid_ipv4(&header));
    }

    /// The kernel works on the field as it lies in memory, as a little-endian machine loads it.
    #[test]
    fn decrease_ttl_is_the_kernels_for_every_checksum() {
        for check in 0..=0xffffu16 {
            let mut memory = u32::from(check.swap_bytes());
            memory += 0x0001; // htons(0x0100)
            memory += u32::from(memory >= 0xffff);
            assert_eq!(
                decrease_ttl(check),
                (memory as u16).swap_bytes(),
                "{check:#06x}"
            );
        }
    }

    proptest! {
        #[test]
        fn sum_is_the_rfcs(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(sum(&bytes, 0), slow_sum(&bytes));
        }

        #[test]
        fn pieces_chain(a in prop::collection::vec(any::<[u8; 2]>(), 0..20), b in prop::collection::vec(any::<u8>(), 0..40)) {
            let a = a.concat();
            let whole = [a.clone(), b.clone()].concat();
            prop_assert_eq!(sum(&b, sum(&a, 0)) % 0xffff, sum(&whole, 0) % 0xffff);
        }

        #[test]
        fn ipv4_shortcut_agrees(mut header in any::<[u8; 20]>(), fix in any::<bool>()) {
            if fix {
                header[10..12].fill(0);
                let check = checksum(&header);
                header[10..12].copy_from_slice(&check.to_be_bytes());
            }
            prop_assert_eq!(is_valid_ipv4(&header), is_valid(&header));
            prop_assert!(!fix || is_valid(&header));
        }

        #[test]
        fn update_equals_a_full_sum(mut header in any::<[u8; 20]>(), word in 0usize..10, new in any::<u16>()) {
            prop_assume!(word != 5);
            header[0] |= 0x40; // a header is never all zero
            header[10..12].fill(0);
            let before = checksum(&header);
            let place = word * 2..word * 2 + 2;
            let old = u16::from_be_bytes([header[place.start], header[place.start + 1]]);
            let new = if word == 0 { new | 0x4000 } else { new };
            header[place].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), checksum(&header));
        }

        #[test]
        fn decrease_ttl_stays_valid(mut header in any::<[u8; 20]>()) {
            header[0] = 0x45;
            header[8] = header[8].max(1);
            header[10..12].fill(0);
            let check = checksum(&header);
            header[8] -= 1;
            header[10..12].copy_from_slice(&decrease_ttl(check).to_be_bytes());
            prop_assert!(is_valid(&header));
        }
    }
}

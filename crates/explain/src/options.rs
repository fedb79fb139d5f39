//! What options in a packet's header make of it before it is forwarded.

/// What IPv4 options, or an IPv6 hop-by-hop header, do to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Options {
    /// There are none, or they only fill the header up.
    Nothing,
    /// They are malformed.
    Bad,
    /// There are more than the kernel takes.
    TooMany,
    /// One that the kernel does not know, and that wants such packets dropped.
    Discard,
    /// The same, and the sender is to be told.
    Refuse,
    /// The same, unless the packet was sent to many.
    RefuseOne,
    /// A source route: dropped, unless `accept_source_route` is set.
    SourceRoute,
    /// The kernel looks at them, and forwards the packet unless something is wrong with them.
    Others,
}

/// IPv4 options: what follows the first 20 bytes of a header (`ip_options_compile`).
///
/// 1. END ends them; NOP is one byte.
/// 2. Any other has a length of at least 2 that fits; else they are bad.
/// 3. A source route (131, 137) with a valid pointer is one.
/// 4. All others are looked at by the kernel.
pub(super) fn ipv4(mut options: &[u8]) -> Options {
    let mut found = Options::Nothing;
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => return found,
            1 => {
                options = rest;
                continue;
            }
            _ => {}
        }
        let Some(length) = rest.first().map(|length| usize::from(*length)) else {
            return Options::Bad;
        };
        if length < 2 || length > options.len() {
            return Options::Bad;
        }
        found = match kind {
            131 | 137 if found == Options::SourceRoute || length < 3 || options[2] < 4 => {
                return Options::Bad;
            }
            131 | 137 => Options::SourceRoute,
            _ if found == Options::SourceRoute => found,
            _ => Options::Others,
        };
        options = &options[length..];
    }
    found
}

/// The options of a hop-by-hop header behind its first two bytes (`ip6_parse_tlv`).
///
/// 1. Pad1, and PadN of zeros, fill up, by 7 bytes in a row at most; else they are bad.
/// 2. Any other has a length that fits; else they are bad.
/// 3. Router alert, IOAM, jumbo payload and CALIPSO are looked at by the kernel.
/// 4. Of all others the two upper bits of the number say what is done: passed over, dropped, dropped with an
///    ICMP error, or so unless sent to many (RFC 8200, section 4.2). The first that is not passed over decides.
/// 5. There are 8 at most that do not fill up (`max_hbh_opts_number`).
pub(super) fn hop_by_hop(mut options: &[u8]) -> Options {
    const MOST_PADDING: usize = 7;
    const MOST: usize = 8;
    let mut found = Options::Nothing;
    let (mut padding, mut count) = (0, 0);
    while let Some(&kind) = options.first() {
        let length = match kind {
            0 => 1,
            _ => match options.get(1) {
                Some(length) => 2 + usize::from(*length),
                None => return Options::Bad,
            },
        };
        let Some((this, rest)) = options.split_at_checked(length) else {
            return Options::Bad;
        };
        count += usize::from(kind > 1);
        if count > MOST {
            return Options::TooMany;
        }
        match kind {
            0 | 1 => {
                padding += length;
                let zeros = this.iter().skip(2).all(|byte| *byte == 0);
                if padding > MOST_PADDING || !zeros {
                    return Options::Bad;
                }
            }
            5 | 0x31 | 0xc2 | 0xc9 => {
                padding = 0;
                found = Options::Others;
            }
            _ => {
                padding = 0;
                match kind >> 6 {
                    0 => found = Options::Others,
                    1 => return Options::Discard,
                    2 => return Options::Refuse,
                    _ => return Options::RefuseOne,
                }
            }
        }
        options = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_what_the_kernel_takes_them_for() {
        for (options, what) in [
            (&[][..], Options::Nothing),
            (&[1, 1, 1, 0], Options::Nothing),
            (&[0, 9, 9, 9], Options::Nothing),
            (&[7, 7, 4, 0, 0, 0, 0, 0], Options::Others),
            (&[148, 4, 0, 0], Options::Others),
            (&[131, 7, 4, 10, 0, 0, 1, 0], Options::SourceRoute),
            (&[7, 9, 4, 0], Options::Bad),
            (&[1, 1, 1, 7], Options::Bad),
            (&[7, 1, 4, 0], Options::Bad),
        ] {
            assert_eq!(ipv4(options), what, "{options:?}");
        }
        for (options, what) in [
            (&[1, 4, 0, 0, 0, 0][..], Options::Nothing),
            (&[1, 4, 0, 0, 1, 0], Options::Bad),
            (&[1, 6, 0, 0, 0, 0, 0, 0], Options::Bad),
            (&[5, 2, 0, 0, 1, 0], Options::Others),
            (&[0x1e, 4, 0, 0, 1, 0], Options::Others),
            (&[0x1e, 0].repeat(8), Options::Others),
            (&[0x1e, 0].repeat(9), Options::TooMany),
            (&[[0x1e, 0, 1, 0]; 8].concat(), Options::Others),
            (&[0x42, 4, 0, 0, 1, 0], Options::Discard),
            (&[0x82, 4, 0, 0, 1, 0], Options::Refuse),
            (&[0xdf, 4, 0, 0, 1, 0], Options::RefuseOne),
            (&[5, 9, 0, 0, 1, 0], Options::Bad),
        ] {
            assert_eq!(hop_by_hop(options), what, "{options:?}");
        }
    }
}

//! Headers behind an IPv6 header (`ipv6_find_hdr`).

use raddle_packet::protocol;

/// Where a header was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset from the IPv6 header.
    pub offset: usize,
    /// Offset of the byte that names it: the next header of whatever stands in front of it.
    pub named_at: usize,
}

/// Finds the first header of this kind behind the IPv6 header of `l3`.
///
/// 1. Hop-by-hop, routing, fragment, authentication and destination options headers are walked over.
/// 2. With `skip_done` routing headers without segments left are walked over where a routing header is
///    looked for.
/// 3. A header of any other kind ends the walk: it is the wanted one or there is none. So does a
///    fragment that is not the first.
/// 4. A header that is cut short ends the walk, and there is none.
///
/// Costs a step for each header: at least 8 bytes each. That the bytes of what was found are there is
/// not looked at.
#[inline]
pub fn find(l3: &[u8], wanted: u8, skip_done: bool) -> Option<Found> {
    let mut found = Found {
        offset: 40,
        named_at: 6,
    };
    loop {
        let kind = *l3.get(found.named_at)?;
        if !matches!(
            kind,
            protocol::HOPOPTS
                | protocol::ROUTING
                | protocol::FRAGMENT
                | protocol::AH
                | protocol::DSTOPTS
        ) {
            return (kind == wanted).then_some(found);
        }
        let header = l3.get(found.offset..)?;
        let length = usize::from(*header.get(1)?);
        let length = match kind {
            protocol::ROUTING => {
                let left = *header.get(3)?;
                if wanted == protocol::ROUTING && !(skip_done && left == 0) {
                    return Some(found);
                }
                (length + 1) * 8
            }
            protocol::FRAGMENT => {
                let offset = u16::from_be_bytes([*header.get(2)?, *header.get(3)?]);
                if offset & !7 != 0 {
                    return None;
                }
                8
            }
            protocol::AH => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        found = Found {
            offset: found.offset + length,
            named_at: found.offset,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv6 header and extension headers of 8 bytes each, or as long as they say.
    fn chain(first: u8, headers: &[&[u8]]) -> Vec<u8> {
        let mut l3 = vec![0; 40];
        l3[6] = first;
        l3.extend(headers.concat());
        l3
    }

    #[test]
    fn walks_as_the_kernel_does() {
        let options = [43u8, 0, 0, 0, 0, 0, 0, 0];
        let done = [43u8, 0, 4, 0, 0, 0, 0, 0];
        let left = [41u8, 0, 4, 1, 0, 0, 0, 0];
        let l3 = chain(60, &[&options, &done, &left]);
        let at = |offset, named_at| Some(Found { offset, named_at });
        assert_eq!(find(&l3, 43, false), at(48, 40));
        assert_eq!(find(&l3, 43, true), at(56, 48));
        assert_eq!(find(&l3, 41, false), at(64, 56));
        assert_eq!(find(&l3, 4, false), None);
        // An authentication header counts in units of four bytes, without the first two.
        let ah = [41u8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(find(&chain(51, &[&ah]), 41, false), at(52, 40));
    }

    #[test]
    fn fragments_and_ends() {
        let first = [43u8, 0, 0, 1, 0, 0, 0, 0];
        let later = [43u8, 0, 0, 8, 0, 0, 0, 0];
        let srh = [41u8, 0, 4, 1];
        assert!(find(&chain(44, &[&first, &srh]), 43, true).is_some());
        assert!(find(&chain(44, &[&later, &srh]), 43, true).is_none());
        for cut in 0..4 {
            assert!(find(&chain(43, &[&srh[..cut]]), 43, true).is_none());
        }
        assert!(find(&chain(59, &[]), 43, true).is_none());
        assert!(find(&[0; 6], 43, true).is_none());
    }
}

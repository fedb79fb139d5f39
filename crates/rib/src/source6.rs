//! Which source address this machine takes for the outer header of what it encapsulates in IPv6.

use std::net::{IpAddr, Ipv6Addr};

use crate::event::Address;
use crate::state::State;

/// `IFA_F_*`.
mod flag {
    pub(super) const TEMPORARY: u32 = 0x01;
    pub(super) const OPTIMISTIC: u32 = 0x04;
    pub(super) const DEPRECATED: u32 = 0x20;
    pub(super) const TENTATIVE: u32 = 0x40;
}

/// Scopes of RFC 4291, section 2.7, as the kernel gives them to addresses.
mod scope {
    pub(super) const LINK: u8 = 2;
    pub(super) const SITE: u8 = 5;
    pub(super) const GLOBAL: u8 = 14;
}

/// How good an address is; the greater is the better. In the order of `ipv6_saddr_rule`.
type Score = (bool, i16, bool, bool, bool, bool, bool, u8);

/// The address that the kernel takes for packets to `dst` by link `index`, 0 for no link in particular
/// (`ipv6_dev_get_saddr` with `IPV6_PREFER_SRC_PUBLIC`, RFC 6724 section 5).
///
/// 1. Candidates are the addresses of all links in the same VRF, or in none, as `index`; for a
///    link-local `dst`, only those of `index`. Multicast, `::` and tentative addresses are none.
/// 2. The best is, one question after the other: `dst` itself; the least scope that reaches `dst`, or
///    else the widest; not deprecated; of link `index`; of the label of `dst`; not temporary; an ORCHID
///    where `dst` is one; the longest common prefix with `dst`, as far as the address's own goes.
/// 3. Of equals, the first, by links and in the order in which the kernel keeps a link's addresses.
///
/// Labels are the kernel's defaults; `ip addrlabel` is not heeded, nor is `use_oif_addrs_only`.
/// Cost: a walk over all addresses.
pub(crate) fn source_for(state: &State, index: u32, dst: Ipv6Addr) -> Option<Ipv6Addr> {
    let domain = domain_of(state, index);
    let only_link = index != 0 && scope_of(dst) <= scope::LINK;
    let is_candidate = |address: &&Address| match only_link {
        true => address.index == index,
        false => domain_of(state, address.index) == domain,
    };
    let mut best: Option<(Score, Ipv6Addr)> = None;
    let mut addresses: Vec<&Address> = state.addresses.iter().filter(is_candidate).collect();
    addresses.sort_by_key(|address| address.index);
    for address in addresses {
        let IpAddr::V6(ip) = address.local else {
            continue;
        };
        let tentative = address.flags & (flag::TENTATIVE | flag::OPTIMISTIC) == flag::TENTATIVE;
        if tentative || ip.is_multicast() || ip.is_unspecified() {
            continue;
        }
        let score = score(address, ip, index, dst);
        if best.is_none_or(|(known, _)| score > known) {
            best = Some((score, ip));
        }
    }
    best.map(|(_, ip)| ip)
}

/// Rule 2 of [`source_for`].
fn score(address: &Address, ip: Ipv6Addr, index: u32, dst: Ipv6Addr) -> Score {
    let own_scope = i16::from(scope_of(ip));
    let reaches = match own_scope >= i16::from(scope_of(dst)) {
        true => -own_scope,
        false => own_scope - 128,
    };
    let avoided = address.flags & (flag::DEPRECATED | flag::OPTIMISTIC) != 0;
    let common = (ip.to_bits() ^ dst.to_bits()).leading_zeros() as u8;
    (
        ip == dst,
        reaches,
        ip.is_loopback() || !avoided,
        index == 0 || address.index == index,
        label(ip) == label(dst),
        address.flags & flag::TEMPORARY == 0,
        is_orchid(ip) == is_orchid(dst),
        common.min(address.prefix_len),
    )
}

/// Where a new address of a link goes among its others: before the first of no wider scope
/// (`ipv6_link_dev_addr`).
pub(crate) fn comes_before(new: Ipv6Addr, known: Ipv6Addr) -> bool {
    scope_of(new) >= scope_of(known)
}

/// The VRF that a link belongs to; 0 for none.
fn domain_of(state: &State, index: u32) -> u32 {
    let is_vrf = |index: &u32| {
        let link = state.links.get(index);
        link.is_some_and(|link| link.kind.as_deref() == Some("vrf"))
    };
    let master = state.links.get(&index).and_then(|link| link.master);
    match master.filter(is_vrf) {
        Some(master) => master,
        None if is_vrf(&index) => index,
        None => 0,
    }
}

/// `__ipv6_addr_src_scope` of `__ipv6_addr_type`.
fn scope_of(ip: Ipv6Addr) -> u8 {
    let [first, second, ..] = ip.octets();
    match (first, second) {
        (0xff, second) => second & 0xf,
        (0xfe, 0x80..=0xbf) => scope::LINK,
        (0xfe, 0xc0..=0xff) => scope::SITE,
        _ if ip.is_loopback() => scope::LINK,
        _ => scope::GLOBAL,
    }
}

/// 2001:10::/28 (RFC 4843).
fn is_orchid(ip: Ipv6Addr) -> bool {
    ip.to_bits() >> 100 == 0x200_1001
}

/// The kernel's table of labels (`ip6addrlbl_init_table`), the longest prefix first.
fn label(ip: Ipv6Addr) -> u8 {
    let bits = ip.to_bits();
    let within = |prefix: u128, len: u32| bits >> (128 - len) == prefix >> (128 - len);
    let high = |bits: u32| u128::from(bits) << 96;
    if bits == 1 {
        0
    } else if within(0xffff << 32, 96) {
        4
    } else if within(0, 96) {
        3
    } else if within(high(0x2001_0000), 32) {
        6
    } else if within(high(0x2001_0010), 28) {
        7
    } else if within(high(0x3ffe_0000), 16) {
        12
    } else if within(high(0x2002_0000), 16) {
        2
    } else if within(high(0xfec0_0000), 10) {
        11
    } else if within(high(0xfc00_0000), 7) {
        5
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Link};

    fn state(addresses: &[(u32, &str, u32)]) -> State {
        let mut state = State::default();
        for index in 1..5 {
            state.apply(Event::Link(Link {
                index,
                name: format!("l{index}"),
                ..Link::default()
            }));
        }
        for (index, text, flags) in addresses {
            let (ip, len) = text.split_once('/').unwrap();
            state.apply(Event::Address(Address {
                flags: *flags,
                ..Address::new(*index, ip.parse().unwrap(), len.parse().unwrap())
            }));
        }
        state
    }

    fn chosen(state: &State, index: u32, dst: &str) -> String {
        let ip = source_for(state, index, dst.parse().unwrap());
        ip.map_or("none".into(), |ip| ip.to_string())
    }

    #[test]
    fn the_rules_in_their_order() {
        let all = state(&[
            (1, "::1/128", 0),
            (2, "fe80::2/64", 0),
            (2, "fd01:2::1/64", 0),
            (3, "fd01:3::1/64", 0),
            (3, "2001:db8:3::1/64", 0),
            (4, "fd01:4::9/64", flag::DEPRECATED),
        ]);
        // The link's own, though another has more bits in common.
        assert_eq!(chosen(&all, 3, "fd01:2::9"), "fd01:3::1");
        // Of the link's, the one of the same label.
        assert_eq!(chosen(&all, 3, "2001:db9::1"), "2001:db8:3::1");
        // A link without a good one takes another's, by the longest common prefix.
        assert_eq!(chosen(&all, 1, "fd01:2::9"), "fd01:2::1");
        // Deprecated comes before link: it is passed over.
        assert_eq!(chosen(&all, 4, "fd01:3::7"), "fd01:3::1");
        assert_eq!(chosen(&all, 2, "fe80::7"), "fe80::2");
        assert_eq!(chosen(&all, 3, "fe80::7"), "2001:db8:3::1");
        assert_eq!(chosen(&all, 0, "fd01:3::1"), "fd01:3::1");
        assert_eq!(chosen(&state(&[]), 2, "fd01::1"), "none");
        let tentative = state(&[(2, "fd01:2::1/64", flag::TENTATIVE)]);
        assert_eq!(chosen(&tentative, 2, "fd01::1"), "none");
    }

    #[test]
    fn of_equals_the_latest_comes_first() {
        let two = state(&[(2, "fd01:2::1/64", 0), (2, "fd01:2::2/64", 0)]);
        assert_eq!(chosen(&two, 2, "fd07::1"), "fd01:2::2");
    }

    #[test]
    fn labels_and_orchids() {
        let label = |ip: &str| label(ip.parse().unwrap());
        for (ip, expected) in [
            ("::1", 0),
            ("::2", 3),
            ("::ffff:1.2.3.4", 4),
            ("2001::1", 6),
            ("2001:10::1", 7),
            ("3ffe::", 12),
            ("2002::", 2),
            ("fec0::", 11),
            ("fdff::", 5),
            ("2001:db8::", 1),
        ] {
            assert_eq!(label(ip), expected, "{ip}");
        }
        assert!(is_orchid("2001:1f::".parse().unwrap()));
        assert!(!is_orchid("2001:20::".parse().unwrap()));
    }
}

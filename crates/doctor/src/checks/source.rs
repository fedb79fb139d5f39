//! This machine's own TCP connections, and how the network chooses for them.

use super::super::facts::{Facts, LOOPBACK, Need};
use super::super::finding::{Found, Severity};
use super::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "txrehash-anycast",
        title: "TCP changes flow labels on timeouts, on a machine with service addresses",
        source: "sk_rethink_txhash, tcp_write_timeout; net.core.txrehash (Linux 5.18)",
        needs: &[Need::Settings],
        run: txrehash_anycast,
    },
    Check {
        id: "plb-unheard",
        title: "PLB changes flow labels, but this machine's choices do not look at them",
        source: "tcp_plb_check_rehash (Linux 6.2), rt6_multipath_hash",
        needs: &[Need::Settings],
        run: plb_unheard,
    },
];

/// IPv6 addresses on loopback or dummy links that are for others: what anycast services, and loopbacks
/// of routers, look like.
fn service_addresses(facts: &Facts) -> Vec<String> {
    let is_service = |index: u32| {
        facts
            .links
            .get(&index)
            .is_some_and(|link| link.arp_type == LOOPBACK || link.kind.as_deref() == Some("dummy"))
    };
    let ours = facts.addresses.iter().filter(|address| {
        address.local.is_ipv6()
            && !address.local.is_loopback()
            && address.scope == 0
            && is_service(address.index)
    });
    ours.map(|a| format!("{}/{} dev {}", a.local, a.prefix_len, facts.name(a.index)))
        .collect()
}

/// A note where `net.core.txrehash` is on and there are IPv6 service addresses.
fn txrehash_anycast(facts: &Facts) -> Vec<Found> {
    let addresses = service_addresses(facts);
    if facts.tuning.txrehash != Some(true) || addresses.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        "TCP takes a new flow label when it times out, and there are IPv6 addresses that may be \
         anycast",
        "routers that hash the flow label (Linux with policy 0 does) then take another path, which is \
         good between two machines, but answers of an anycast service may leave by another way, and \
         clients that do the same may reach another server",
    );
    let found = found
        .evidence(["net.core.txrehash = 1"])
        .evidence(addresses);
    let found = found.fix("sysctl -w net.core.txrehash=0");
    vec![found.advice("or SO_TXREHASH on the sockets of the service alone")]
}

/// A note where PLB is on and IPv6 paths are chosen here without the flow label (policies 1 and 3
/// without it).
fn plb_unheard(facts: &Facts) -> Vec<Found> {
    let fields = facts.settings.hash_fields6;
    let label_counts = match facts.settings.hash_policy6 {
        0 | 2 => true,
        3 => fields & 0x8 != 0,
        _ => false,
    };
    if facts.tuning.plb != Some(true) || label_counts || facts.multipath_routes(6) == 0 {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        "PLB is on, but IPv6 paths are chosen here without the flow label",
        "a congested connection changes its flow label, and this machine's own choice of a path does \
         not change with it; routers behind it may do better",
    );
    let evidence = format!(
        "net.ipv4.tcp_plb_enabled = 1, net.ipv6.fib_multipath_hash_policy = {}",
        facts.settings.hash_policy6
    );
    vec![
        found
            .evidence([evidence])
            .fix("sysctl -w net.ipv6.fib_multipath_hash_policy=0"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use raddle_rib::event::{Address, Link};

    fn address(index: u32, local: &str) -> Address {
        Address::new(index, local.parse().unwrap(), 128)
    }

    #[test]
    fn service_addresses_and_rehashing_do_not_go_together() {
        let mut facts = multipath();
        facts.tuning.txrehash = Some(true);
        let lo = Link {
            index: 9,
            name: "lo".into(),
            arp_type: LOOPBACK,
            ..Link::default()
        };
        facts.links.insert(9, lo);
        facts.addresses = vec![
            address(9, "::1"),
            address(1, "2001:db8:1::1"),
            address(9, "192.0.2.1"),
        ];
        assert_clean("txrehash-anycast", &facts);
        facts.addresses.push(address(9, "2001:db8:a::1"));
        let said = ["2001:db8:a::1/128 dev lo", "txrehash=0"];
        assert_found("txrehash-anycast", &facts, Severity::Note, &said);
        facts.tuning.txrehash = Some(false);
        assert_clean("txrehash-anycast", &facts);
    }

    #[test]
    fn plb_wants_the_flow_label() {
        let mut facts = multipath();
        assert_clean("plb-unheard", &facts);
        facts.tuning.plb = Some(true);
        assert_found("plb-unheard", &facts, Severity::Note, &["hash_policy = 1"]);
        facts.settings.hash_policy6 = 0;
        assert_clean("plb-unheard", &facts);
        facts.settings.hash_policy6 = 3;
        assert_found("plb-unheard", &facts, Severity::Note, &[]);
        facts.settings.hash_fields6 = 0xf;
        assert_clean("plb-unheard", &facts);
    }
}

//! SRv6: SIDs that do not do what they say, segment lists that take one path only, settings that drop.

use std::collections::BTreeSet;
use std::net::IpAddr;

use raddle_image::flavours;
use raddle_rib::event::Link;
use raddle_rib::seg6::{Behaviour, Mode};

use super::super::facts::{Facts, Need};
use super::super::finding::{Found, Severity, count};
use super::super::srv6::{List, LocalSid};
use super::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "srv6-one-link",
        title: "segment lists whose first segment has several paths, of which the kernel takes one",
        source: "seg6_input_core, seg6_output_core (dst_cache)",
        needs: &[Need::Daemon],
        run: one_link,
    },
    Check {
        id: "srv6-dx4-connected",
        title: "End.DX4 to a neighbour on a connected prefix",
        source: "input_action_end_dx4, ip_route_input (the route has no gateway, so the inner destination is \
                 resolved)",
        needs: &[Need::Daemon],
        run: dx4_connected,
    },
    Check {
        id: "srv6-forwarding-off",
        title: "SIDs on links that do not forward IPv6",
        source: "ip6_forward",
        needs: &[Need::Daemon],
        run: forwarding_off,
    },
    Check {
        id: "srv6-csid-block",
        title: "NEXT-C-SID lengths that do not fit the SID's prefix",
        source: "end_next_csid_core, RFC 9800 section 4.1",
        needs: &[Need::Daemon],
        run: csid_block,
    },
    Check {
        id: "srv6-enabled-off",
        title: "packets with an SRH to addresses of this machine are dropped",
        source: "ipv6_srh_rcv (seg6_enabled of conf.all and of the link)",
        needs: &[Need::Settings],
        run: enabled_off,
    },
    Check {
        id: "srv6-hmac",
        title: "HMACs that nobody can make or check",
        source: "seg6_push_hmac, seg6_hmac_validate_skb",
        needs: &[Need::Segments, Need::Daemon],
        run: hmac,
    },
    Check {
        id: "srv6-source",
        title: "the source address of encapsulated packets is left to chance",
        source: "set_tun_src, ipv6_dev_get_saddr",
        needs: &[Need::Segments, Need::Daemon],
        run: source,
    },
    Check {
        id: "srv6-mtu",
        title: "links on which encapsulated packets of full size do not fit",
        source: "seg6_build_state (lwtunnel_headroom), RFC 8754 section 5.3",
        needs: &[Need::Daemon],
        run: mtu,
    },
    Check {
        id: "srv6-uncounted",
        title: "SIDs without counters",
        source: "seg6_local_update_counters (SEG6_LOCAL_COUNTERS)",
        needs: &[Need::Daemon],
        run: uncounted,
    },
    Check {
        id: "srv6-static",
        title: "SIDs and segment lists of raddle's own that cannot be carried out",
        source: "raddle run ([[sid]], [[encap]])",
        needs: &[Need::Daemon],
        run: own,
    },
];

/// A warning: lists to a first segment with several nexthops.
fn one_link(facts: &Facts) -> Vec<Found> {
    let lists = facts
        .srv6
        .lists
        .iter()
        .filter(|list| list.several && !list.own);
    let lines: Vec<String> = lists
        .map(|list| {
            let outs: Vec<String> = list.outs.iter().map(|out| facts.name(*out)).collect();
            format!(
                "{list}, the first segment is reached by {}",
                outs.join(", ")
            )
        })
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Warning,
        format!(
            "{} with several paths to the first segment",
            count(lines.len(), "segment list")
        ),
        "the kernel keeps the route of the first packet for each core (dst_cache), so all that one core \
         encapsulates takes one path until routes change",
    );
    let advice = "raddle run chooses by the flow for what it encapsulates itself; what it punts, and \
                  what this machine sends, stays as it is";
    vec![found.evidence(lines).advice(advice)]
}

/// Serious: the packets go nowhere, and are counted as forwarded.
fn dx4_connected(facts: &Facts) -> Vec<Found> {
    let wrong = facts
        .srv6
        .sids
        .iter()
        .filter(|sid| sid.nh4_connected && !sid.own);
    let mut lines = Vec::new();
    let mut neighbours = BTreeSet::new();
    for sid in wrong {
        if let Behaviour::Dx4 { nh4 } = sid.sid.behaviour {
            lines.push(format!("{sid} nh4 {nh4}"));
            neighbours.insert(nh4);
        }
    }
    if lines.is_empty() {
        return Vec::new();
    }
    let fix: Vec<String> = neighbours
        .iter()
        .filter_map(|nh4| {
            let link = facts.link_towards(IpAddr::V4(*nh4))?;
            let dev = facts.name(link);
            Some(format!(
                "ip route replace {nh4}/32 via {nh4} dev {dev} onlink"
            ))
        })
        .collect();
    let found = Found::new(
        Severity::Serious,
        format!(
            "{} of End.DX4 whose nh4 is on a connected prefix",
            count(lines.len(), "SID")
        ),
        "the kernel asks the link for the inner destination (ARP), and not for nh4: unless that answers \
         there itself, the packets go nowhere, while the counters say that they were forwarded",
    )
    .evidence(lines);
    let advice = "a route to nh4 that has a gateway makes the kernel ask for that";
    let found = if fix.len() == neighbours.len() {
        found.fix(fix.join(" && "))
    } else {
        found
    };
    vec![found.advice(advice)]
}

/// Serious: SIDs whose packets cannot be forwarded.
fn forwarding_off(facts: &Facts) -> Vec<Found> {
    let forwards = |sid: &&LocalSid| {
        let known = facts.links.contains_key(&sid.link);
        known && !facts.device(sid.link).forwarding6
    };
    let lines: Vec<String> = facts
        .srv6
        .sids
        .iter()
        .filter(forwards)
        .map(|sid| format!("{sid} dev {}", facts.name(sid.link)))
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Serious,
        format!(
            "{} on links that do not forward IPv6",
            count(lines.len(), "SID")
        ),
        "packets that a behaviour has changed are dropped like others that are not for this machine",
    );
    let fix = "sysctl -w net.ipv6.conf.all.forwarding=1";
    vec![found.evidence(lines).fix(fix)]
}

/// 1. A prefix longer than block and C-SID holds bits of what follows: serious, a packet with more C-SIDs
///    in its address does not match.
/// 2. A shorter one takes C-SIDs of others: a warning.
fn csid_block(facts: &Facts) -> Vec<Found> {
    let compressed = |sid: &&LocalSid| sid.sid.flavours & flavours::NEXT_CSID != 0;
    let mut longer = Vec::new();
    let mut shorter = Vec::new();
    for sid in facts.srv6.sids.iter().filter(compressed) {
        let (block, csid) = (sid.sid.block, sid.sid.csid);
        let line = format!("{sid} lblen {block} nflen {csid}");
        match sid.dst.prefix_len().cmp(&(block.saturating_add(csid))) {
            std::cmp::Ordering::Greater => longer.push(line),
            std::cmp::Ordering::Less => shorter.push(line),
            std::cmp::Ordering::Equal => {}
        }
    }
    let mut found = Vec::new();
    let advice =
        "the prefix of a NEXT-C-SID has the length of block and C-SID together: lblen + nflen";
    if !longer.is_empty() {
        let what = "have a prefix longer than their block and C-SID";
        let what = format!("{} with NEXT-C-SID {what}", count(longer.len(), "SID"));
        let effect = "packets with further C-SIDs in the destination do not match the route, and are \
                      not shifted";
        found.push(
            Found::new(Severity::Serious, what, effect)
                .evidence(longer)
                .advice(advice),
        );
    }
    if !shorter.is_empty() {
        let what = "have a prefix shorter than their block and C-SID";
        let what = format!("{} with NEXT-C-SID {what}", count(shorter.len(), "SID"));
        let effect = "the route matches C-SIDs of other nodes, too, and takes them for its own";
        found.push(
            Found::new(Severity::Warning, what, effect)
                .evidence(shorter)
                .advice(advice),
        );
    }
    found
}

/// A warning:
///
/// 1. `seg6_enabled` is on for a link and off for all, which is off.
/// 2. An address of this machine is a segment of a list of this machine, while it is off.
fn enabled_off(facts: &Facts) -> Vec<Found> {
    let srv6 = &facts.srv6;
    if srv6.enabled_all != Some(false) {
        return Vec::new();
    }
    let mut lines: Vec<String> = srv6
        .enabled
        .iter()
        .filter(|(_, enabled)| **enabled)
        .map(|(index, _)| format!("net.ipv6.conf.{}.seg6_enabled is 1", facts.name(*index)))
        .collect();
    let own = |address: &std::net::Ipv6Addr| {
        let mut own = facts.addresses.iter();
        own.any(|own| own.local == IpAddr::V6(*address))
    };
    lines.extend(srv6.lists.iter().filter_map(|list| {
        let segment = list.segments.iter().find(|segment| own(segment))?;
        Some(format!("{list}: {segment} is an address of this machine"))
    }));
    if lines.is_empty() {
        return Vec::new();
    }
    let lines = std::iter::once("net.ipv6.conf.all.seg6_enabled is 0".to_owned()).chain(lines);
    let found = Found::new(
        Severity::Warning,
        "seg6_enabled is off, and packets with an SRH may come to addresses of this machine",
        "such packets are dropped; SIDs (seg6local routes) do not depend on it",
    );
    let fix = "sysctl -w net.ipv6.conf.all.seg6_enabled=1";
    let advice = "it takes both conf.all and the link's own setting";
    vec![found.evidence(lines).fix(fix).advice(advice)]
}

/// 1. A list whose key is not there: serious, its packets go out with an HMAC of zeros or not at all.
/// 2. A link that wants HMACs while there is no key: serious, every packet with an SRH fails at its SIDs.
/// 3. A link that ignores them while there are keys: a note.
fn hmac(facts: &Facts) -> Vec<Found> {
    let srv6 = &facts.srv6;
    let Some(keys) = &srv6.hmac_keys else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let unknown = |list: &&List| list.hmac_key.is_some_and(|key| !keys.contains(&key));
    let lines: Vec<String> = srv6
        .lists
        .iter()
        .filter(unknown)
        .map(|list| format!("{list} hmac {:#x}", list.hmac_key.unwrap_or(0)))
        .collect();
    if !lines.is_empty() {
        let what = format!(
            "{} with an HMAC whose key is not there",
            count(lines.len(), "segment list")
        );
        let effect = "the packets cannot be signed, and whoever checks them drops them";
        let advice = "ip sr hmac set KEYID { sha1 | sha256 } sets a key";
        found.push(
            Found::new(Severity::Serious, what, effect)
                .evidence(lines)
                .advice(advice),
        );
    }
    let wanting = |value: i32| {
        let links = srv6.require_hmac.iter().filter(move |(_, v)| **v == value);
        links
            .map(|(index, _)| facts.name(*index))
            .collect::<Vec<_>>()
    };
    let (required, ignored) = (wanting(1), wanting(-1));
    if keys.is_empty() && !required.is_empty() && !srv6.sids.is_empty() {
        let what = format!("{} HMACs, and there is no key", wants(&required));
        let effect =
            "every packet with an SRH that comes in there fails at the SIDs of this machine";
        let fix: Vec<String> = required
            .iter()
            .map(|name| format!("sysctl -w net.ipv6.conf.{name}.seg6_require_hmac=0"))
            .collect();
        let advice = "or set keys: ip sr hmac set KEYID { sha1 | sha256 }";
        found.push(
            Found::new(Severity::Serious, what, effect)
                .fix(fix.join(" && "))
                .advice(advice),
        );
    }
    if !keys.is_empty() && !ignored.is_empty() && srv6.is_used() {
        let what = format!("HMACs are ignored on {}", ignored.join(", "));
        let effect = "packets with a wrong HMAC are carried out there although there are keys";
        found.push(Found::new(Severity::Note, what, effect));
    }
    found
}

fn wants(links: &[String]) -> String {
    match links {
        [link] => format!("{link} wants"),
        links => format!("{} want", links.join(", ")),
    }
}

/// A warning where `ip sr tunsrc` is not set, and the link of an encapsulating route has no address of
/// global scope, or several.
fn source(facts: &Facts) -> Vec<Found> {
    let srv6 = &facts.srv6;
    if srv6.tunsrc.is_none_or(|address| !address.is_unspecified()) {
        return Vec::new();
    }
    let encapsulates = |list: &&List| list.mode != Mode::Inline;
    let links: BTreeSet<u32> = srv6
        .lists
        .iter()
        .filter(encapsulates)
        .map(|l| l.link)
        .collect();
    let addresses = |link: u32| {
        let on = facts.addresses.iter().filter(move |a| a.index == link);
        on.filter(|a| a.local.is_ipv6() && a.scope == 0)
            .map(|a| a.local)
            .collect::<Vec<IpAddr>>()
    };
    let mut first = None;
    let mut lines = Vec::new();
    for link in links {
        let on = addresses(link);
        let name = facts.name(link);
        match on.as_slice() {
            [_] => {}
            [] => lines.push(format!(
                "{name} has no address: that of another link is taken"
            )),
            [one, ..] => {
                first.get_or_insert(*one);
                let on: Vec<String> = on.iter().map(ToString::to_string).collect();
                lines.push(format!("{name} has {}", on.join(", ")));
            }
        }
    }
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Warning,
        "ip sr tunsrc is not set, and the links of encapsulating routes have no single address",
        "the source of outer headers is chosen by rules that look at the route's link and the first \
         segment, and changes with addresses: filters and ICMP errors that go by it go astray",
    );
    let found = found.evidence(lines);
    vec![match first {
        Some(address) => found.fix(format!("ip sr tunsrc set {address}")),
        None => found.advice(
            "ip sr tunsrc set ADDRESS, with an address of this machine that is routed to it",
        ),
    }]
}

/// What IPv6 has to get through a link.
const LEAST_MTU: u32 = 1280;

/// 1. So little is left that IPv6 does not get through (1280): serious.
/// 2. Packets as large as other links that forward take do not fit: a note. Encapsulation has that nearly
///    everywhere; larger MTUs in the core avoid it.
fn mtu(facts: &Facts) -> Vec<Found> {
    let (mut dead, mut tight, mut full) = (Vec::new(), Vec::new(), 0);
    for list in &facts.srv6.lists {
        let out = list
            .outs
            .iter()
            .filter_map(|out| facts.links.get(out))
            .min_by_key(|link| link.mtu);
        let Some(out) = out else { continue };
        let from_elsewhere = |link: &&Link| !list.outs.contains(&link.index);
        let others = facts.in_links().filter(from_elsewhere);
        let largest = others.map(|link| link.mtu).max().unwrap_or(0);
        let left = out.mtu.saturating_sub(list.overhead);
        let line = format!(
            "{list}: {} bytes more, {left} are left of the {} of {}",
            list.overhead, out.mtu, out.name
        );
        if left < LEAST_MTU {
            dead.push(line);
        } else if left < largest {
            tight.push(line);
            full = largest.max(full);
        }
    }
    let mut found = Vec::new();
    if !dead.is_empty() {
        let what = format!(
            "{} leave less than {LEAST_MTU} bytes",
            count(dead.len(), "segment list")
        );
        let effect = "IPv6 packets of the size that every link has to take do not get through";
        let advice =
            "raise the MTU of the links of the core, or use fewer segments (reduced, compressed)";
        found.push(
            Found::new(Severity::Serious, what, effect)
                .evidence(dead)
                .advice(advice),
        );
    }
    if !tight.is_empty() {
        let what = format!(
            "packets of {full} bytes do not fit with {}",
            count(tight.len(), "segment list")
        );
        let effect = "they are answered with ICMP packet too big, or dropped where that is lost";
        let advice =
            "raise the MTU of the links of the core, or lower that of the routes (mtu, advmss)";
        found.push(
            Found::new(Severity::Note, what, effect)
                .evidence(tight)
                .advice(advice),
        );
    }
    found
}

/// A note.
fn uncounted(facts: &Facts) -> Vec<Found> {
    // Raddle's own count where the configuration says so.
    let silent = facts.srv6.sids.iter();
    let silent = silent.filter(|sid| !sid.sid.counters && !sid.own);
    let lines: Vec<String> = silent.map(ToString::to_string).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        format!("{} without counters", count(lines.len(), "SID")),
        "nobody can tell how many packets they have had, or how many they have dropped; counting costs \
         next to nothing",
    );
    let advice = "ip -6 route replace SID encap seg6local action ACTION ... count dev DEVICE";
    vec![found.evidence(lines).advice(advice)]
}

/// Serious: the daemon drops their packets, as the kernel does not know them either.
fn own(facts: &Facts) -> Vec<Found> {
    let lines = facts.srv6.not_ready.clone();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Serious,
        format!(
            "{} of raddle's own cannot be carried out",
            count(lines.len(), "SID or segment list")
        ),
        "all their packets are dropped until that is fixed: the kernel does not have them",
    );
    let advice = "image-full: raise sids in the configuration; segment-link: the link is down or not there; encap: \
                  there is no address for the outer header, which ip sr tunsrc set ADDRESS gives";
    vec![found.evidence(lines).advice(advice)]
}

#[cfg(test)]
#[path = "srv6_test.rs"]
mod tests;

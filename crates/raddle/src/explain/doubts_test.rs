//! What an answer depends on beyond what is modelled, and what is told to whom.

use raddle_packet::checksum;
use raddle_rib::Snapshot;
use raddle_rib::event::Link;

use super::Answer;
use super::confidence::Level;
use super::fate::What;
use super::tests::{IN0, Odd, answer_in, frame, with_ttl};

const UDP: &str = "03e8003500080000";

fn ask(packet: &str, change: impl FnOnce(&mut Snapshot)) -> Answer {
    answer_in(&format!("hex {packet} iif in0"), &Odd::default(), change)
}

fn level_and_fate(answer: &Answer) -> (Level, What, Option<(u8, u8)>) {
    let fate = answer.fate.as_ref().unwrap();
    let icmp = fate.icmp.map(|icmp| (icmp.kind, icmp.code));
    (answer.confidence.level, fate.what, icmp)
}

fn says(answer: &Answer, what: &str) -> bool {
    answer.confidence.why.iter().any(|why| why.contains(what))
}

/// An IPv4 packet of UDP with these addresses.
fn between(src: [u8; 4], dst: [u8; 4]) -> String {
    let mut bytes = [0; 28];
    bytes[..10].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
    bytes[12..16].copy_from_slice(&src);
    bytes[16..20].copy_from_slice(&dst);
    let sum = checksum::checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[25] = 8;
    hex(&bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An IPv6 packet with this hop-by-hop header, to a group or to one.
fn with_options(options: &[u8], group: bool) -> String {
    let mut bytes = vec![0x60, 0, 0, 0, 0, options.len() as u8 + 8, 0, 64];
    let dst = if group { "ff15::9" } else { "2001:db8:5::9" };
    for address in ["2001:db8:77::7", dst] {
        let address: std::net::Ipv6Addr = address.parse().unwrap();
        bytes.extend(address.octets());
    }
    bytes.extend(options);
    bytes.extend([3, 0xe8, 0, 0x35, 0, 8, 0, 0]);
    hex(&bytes)
}

#[test]
fn icmp_messages_are_answered_by_their_type() {
    for kind in 0..=19_u8 {
        let packet = with_ttl(1, 1, 0, &format!("{kind:02x}00000000000000"));
        let answer = ask(&packet, |_| ());
        let told = matches!(kind, 0 | 8 | 13..=18).then_some((11, 0));
        let (level, _, icmp) = level_and_fate(&answer);
        assert_eq!((level, icmp), (Level::Exact, told), "type {kind}");
    }
}

#[test]
fn unknown_options_are_told_of_to_whom_the_kernel_tells() {
    let to_all = |packet: &str| frame("333300000001", packet).replacen("08006", "86dd6", 1);
    for (option, group, many, told) in [
        (0x82, false, false, true),
        (0x82, true, false, true),
        (0x82, false, true, true),
        (0xdf, false, false, true),
        (0xdf, true, false, false),
        (0xdf, false, true, false),
    ] {
        let packet = with_options(&[17, 0, option, 4, 0, 0, 0, 0], group);
        let packet = if many { to_all(&packet) } else { packet };
        let answer = ask(&packet, |_| ());
        let (level, _, icmp) = level_and_fate(&answer);
        assert_eq!(
            (level, icmp),
            (Level::ExactUnless, told.then_some((4, 2))),
            "{option:x} {group} {many}"
        );
    }
}

#[test]
fn options_end_with_the_packet_and_are_eight_at_most() {
    let many = [&[17, 2][..], &[0x1e, 0].repeat(9), &[1, 2, 0, 0]].concat();
    let answer = ask(&with_options(&many, false), |_| ());
    assert_eq!(level_and_fate(&answer).1, What::Dropped);
    assert!(says(&answer, "max_hbh_opts_number"), "{answer:?}");
    // The header goes on in what pads the frame.
    let mut short = with_options(&[17, 1, 1, 4, 0, 0, 0, 0], false);
    short.replace_range(8..12, "0008");
    let framed = frame(IN0, &short).replacen("08006", "86dd6", 1);
    let answer = ask(&framed, |_| ());
    assert_eq!(level_and_fate(&answer), (Level::Exact, What::Dropped, None));
}

/// `ip_route_input_slow` and `ip_mc_validate_source` judge the source of what is for many.
#[test]
fn what_is_for_many_is_judged_by_its_source() {
    use What::{Delivered, Dropped, Multicast};
    let all = [255; 4];
    for (src, dst, what) in [
        ([0; 4], all, Delivered),
        ([0, 1, 2, 3], all, Delivered),
        ([0; 4], [0; 4], Delivered),
        ([0, 1, 2, 3], [0; 4], Dropped),
        ([10, 0, 0, 7], all, Delivered),
        ([10, 0, 0, 7], [239, 1, 1, 1], Multicast),
        ([10, 0, 1, 1], all, Dropped),
        ([10, 0, 1, 1], [239, 1, 1, 1], Dropped),
        ([0; 4], [224, 0, 0, 9], Multicast),
        ([0; 4], [239, 1, 1, 1], Dropped),
    ] {
        let packet = between(src, dst);
        let answer = ask(&packet, |_| ());
        assert_eq!(level_and_fate(&answer).1, what, "{src:?} {dst:?}");
        let filtered = ask(&packet, |snapshot| {
            for (_, device) in &mut snapshot.devices {
                device.rp_filter = 1;
            }
        });
        let looked_up = src[0] != 0 && what != Dropped;
        assert_eq!(says(&filtered, "rp_filter of in0"), looked_up, "{src:?}");
    }
    let accepting = ask(&between([10, 0, 1, 1], all), |snapshot| {
        for (_, device) in &mut snapshot.devices {
            device.accept_local = true;
        }
    });
    assert_eq!(level_and_fate(&accepting).1, Delivered);
}

#[test]
fn links_above_take_packets_before_ip() {
    let packet = with_ttl(64, 17, 0, UDP);
    let above = |kind: &str, enslaved: bool| {
        let kind = Some(kind.to_owned());
        ask(&packet, |snapshot: &mut Snapshot| {
            let upper = Link {
                kind,
                lower: (!enslaved).then_some(2),
                ..Link::ethernet(9, "top", [2; 6])
            };
            snapshot.links.push(upper);
            let lower = snapshot.links.iter_mut().find(|link| link.index == 2);
            lower.unwrap().master = enslaved.then_some(9);
        })
    };
    for (kind, enslaved, level) in [
        ("bridge", true, Level::Unknown),
        ("bond", true, Level::Unknown),
        ("macvlan", false, Level::ExactUnless),
        ("ipvlan", false, Level::ExactUnless),
        ("vlan", false, Level::Exact),
    ] {
        let answer = above(kind, enslaved);
        assert_eq!(answer.confidence.level, level, "{kind}: {answer:?}");
    }
}

/// While nobody knows where a route leads, nobody knows whether the TTL matters.
#[test]
fn a_route_that_is_unknown_has_unknown_ends() {
    for ttl in [1, 64] {
        let answer = ask(&with_ttl(ttl, 17, 0, UDP), |snapshot| {
            snapshot.clock = Some(1_000_000);
            for route in &mut snapshot.routes {
                route.expires = Some(1);
            }
        });
        assert_eq!(answer.confidence.level, Level::Unknown, "{ttl}: {answer:?}");
    }
}

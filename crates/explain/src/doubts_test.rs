//! What an answer depends on beyond what is modelled, and what is told to whom.

use raddle_packet::checksum;
use raddle_rib::Snapshot;
use raddle_rib::event::{Link, ROUTE_FPM, Route, RouteKind, RouteNexthop, RouteTarget};

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

/// Where a link takes no IPv6 at all, it delivers none either; the mirror knows only that it forwards none.
#[test]
fn ipv6_may_be_off() {
    let local = |snapshot: &mut Snapshot| {
        snapshot.routes.push(Route {
            dst: "fd00::1/128".parse().unwrap(),
            table: 255,
            kind: RouteKind::Local,
            protocol: 2,
            target: RouteTarget::Single(RouteNexthop {
                index: 2,
                ..RouteNexthop::default()
            }),
            ..Route::default()
        });
    };
    let off = |snapshot: &mut Snapshot| {
        local(snapshot);
        for (_, device) in &mut snapshot.devices {
            device.forwarding6 = false;
        }
    };
    let own = "600000000008113f20010db8007700000000000000000007fd000000000000000000000000000001";
    let packet = format!("{own}{UDP}");
    let answer = ask(&packet, local);
    assert_eq!(
        level_and_fate(&answer),
        (Level::Exact, What::Delivered, None)
    );
    let answer = ask(&packet, off);
    assert_eq!(level_and_fate(&answer).1, What::Delivered);
    assert!(says(&answer, "disable_ipv6"), "{answer:?}");
}

#[test]
fn path_mtus_that_were_learnt_are_doubts() {
    let four = |length: usize| {
        let body = format!(
            "03e80035{:04x}0000{}",
            length - 20,
            "00".repeat(length - 28)
        );
        says(&ask(&with_ttl(64, 17, 0, &body), |_| ()), "a path MTU")
    };
    assert_eq!((four(552), four(553)), (false, true));
    let six = |length: usize| {
        let address = "20010db8007700000000000000000007";
        let to = "20010db8000500000000000000000009";
        let (payload, rest) = (length - 40, "00".repeat(length - 48));
        let packet = format!("60000000{payload:04x}1140{address}{to}{UDP}{rest}");
        says(&ask(&packet, |_| ()), "a path MTU")
    };
    assert_eq!((six(1280), six(1281)), (false, true));
}

/// The kernel judges the source of what goes back while it looks up the route, before the TTL.
#[test]
fn a_source_is_judged_before_the_ttl() {
    let mut packet = between([10, 0, 0, 255], [10, 0, 0, 9]);
    packet.replace_range(16..18, "01");
    // The checksum makes up for the TTL: 0x40 became 0x01.
    let sum = u16::from_str_radix(&packet[20..24], 16).unwrap();
    let (sum, more) = sum.overflowing_add(0x3f00);
    packet.replace_range(20..24, &format!("{:04x}", sum + u16::from(more)));
    let fate = |send_redirects| {
        let answer = ask(&packet, |snapshot| {
            for (_, device) in &mut snapshot.devices {
                device.send_redirects = send_redirects;
            }
            snapshot.routes.push(Route {
                dst: "10.0.0.255/32".parse().unwrap(),
                table: 255,
                kind: RouteKind::Broadcast,
                protocol: 2,
                target: RouteTarget::Single(RouteNexthop {
                    index: 2,
                    ..RouteNexthop::default()
                }),
                ..Route::default()
            });
        });
        level_and_fate(&answer).1
    };
    assert_eq!((fate(true), fate(false)), (What::Dropped, What::Answered));
}

/// What engines leave to the kernel goes by the kernel's routes, which lack those by FPM.
#[test]
fn a_route_by_fpm_is_not_the_kernels() {
    for (ttl, level) in [(64, Level::Exact), (1, Level::Unknown)] {
        let packet = frame(IN0, &with_ttl(ttl, 17, 0, UDP));
        let answer = ask(&packet, |snapshot| {
            let route = "198.18.0.0/16".parse().unwrap();
            let told = snapshot.routes.iter_mut().filter(|r| r.dst == route);
            told.for_each(|route| route.flags |= ROUTE_FPM);
        });
        assert_eq!(answer.confidence.level, level, "TTL {ttl}: {answer:?}");
    }
}

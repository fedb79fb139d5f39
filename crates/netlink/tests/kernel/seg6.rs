//! SRv6: what the kernel was told, the mirror says.

use std::io::Write;
use std::net::Ipv6Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use raddle_image::{Capacity, Memory, Reason, flavours, segment_kind};
use raddle_netlink::Mirror;
use raddle_rib::event::{HmacAlgorithm, RouteTarget};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef};
use raddle_rib::{Ports, Rib};

use crate::support::{Follower, in_namespace, index_of, ip, links, sysctl, try_ip};

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn quiet(behaviour: Behaviour) -> Sid {
    Sid {
        counters: false,
        ..Sid::new(behaviour)
    }
}

/// What `ip -6 route add PREFIX ... dev v0` is given, and what it means.
fn cases(v1: u32) -> Vec<(&'static str, Seg6)> {
    let list = ["fc00:1::", "fc00:2::"].map(address);
    let encaps = |mode| Seg6::Encaps(Encaps::new(mode, &list).unwrap());
    let mut next = quiet(Behaviour::End);
    next.flavours = flavours::NEXT_CSID;
    (next.block, next.csid) = (48, 16);
    let mut psp = quiet(Behaviour::End);
    psp.flavours = flavours::PSP;
    let nh6 = address("2001:db8:1::9");
    vec![
        (
            "encap seg6local action End",
            Seg6::Sid(quiet(Behaviour::End)),
        ),
        (
            "encap seg6local action End count",
            Seg6::Sid(Sid::new(Behaviour::End)),
        ),
        ("encap seg6local action End flavors psp", Seg6::Sid(psp)),
        (
            "encap seg6local action End flavors next-csid lblen 48 nflen 16",
            Seg6::Sid(next),
        ),
        (
            "encap seg6local action End.X nh6 2001:db8:1::9 count",
            Seg6::Sid(Sid::new(Behaviour::X { nh6, oif: None })),
        ),
        (
            "encap seg6local action End.T table 100",
            Seg6::Sid(quiet(Behaviour::T { table: 100 })),
        ),
        (
            "encap seg6local action End.DX2 oif v1 count",
            Seg6::Sid(Sid::new(Behaviour::Dx2 { oif: v1 })),
        ),
        (
            "encap seg6local action End.DX6 nh6 2001:db8:1::9",
            Seg6::Sid(quiet(Behaviour::Dx6 { nh6 })),
        ),
        (
            "encap seg6local action End.DX4 nh4 10.0.1.9",
            Seg6::Sid(quiet(Behaviour::Dx4 {
                nh4: "10.0.1.9".parse().unwrap(),
            })),
        ),
        (
            "encap seg6local action End.DT6 table 100 count",
            Seg6::Sid(Sid::new(Behaviour::Dt6 {
                table: TableRef::Table(100),
            })),
        ),
        (
            "encap seg6local action End.B6 srh segs fc00:1::,fc00:2::",
            Seg6::Sid(quiet(Behaviour::b6(&list).unwrap())),
        ),
        (
            "encap seg6local action End.B6.Encaps srh segs fc00:1::,fc00:2::",
            Seg6::Sid(quiet(Behaviour::b6_encaps(&list, false).unwrap())),
        ),
        (
            "encap seg6 mode inline segs fc00:1::,fc00:2::",
            encaps(Mode::Inline),
        ),
        (
            "encap seg6 mode encap segs fc00:1::,fc00:2::",
            encaps(Mode::Encap),
        ),
        (
            "encap seg6 mode l2encap segs fc00:1::,fc00:2::",
            encaps(Mode::L2Encap),
        ),
        (
            "encap seg6 mode encap.red segs fc00:1::,fc00:2::",
            encaps(Mode::EncapRed),
        ),
        (
            "encap seg6 mode l2encap.red segs fc00:1::,fc00:2::",
            encaps(Mode::L2EncapRed),
        ),
    ]
}

#[test]
fn behaviours_and_encapsulations_are_what_was_asked_for() {
    in_namespace(
        "behaviours_and_encapsulations_are_what_was_asked_for",
        || {
            links(2);
            let mut follower = Follower::new();
            for (n, (words, meaning)) in cases(index_of("v1")).into_iter().enumerate() {
                let prefix = format!("fd99:{:x}::/64", n + 1);
                if !try_ip(&format!("-6 route add {prefix} {words} dev v0")) {
                    eprintln!("skipped: this kernel or ip has no {words}");
                    continue;
                }
                follower.until(words, |state| {
                    let route = state.routes6().find(|r| r.dst.to_string() == prefix);
                    let Some(RouteTarget::Single(hop)) = route.map(|route| &route.target) else {
                        return Err(format!("{route:?}"));
                    };
                    match Seg6::parse(hop.encap.as_ref().unwrap()) {
                        Ok(told) if told == meaning => Ok(()),
                        other => Err(format!("{other:?} instead of {meaning:?}")),
                    }
                });
            }
        },
    );
}

/// Gives a key to `ip sr hmac`, which reads its secret from the standard input without a terminal.
fn set_key(id: u32, algorithm: &str, secret: &str) {
    let mut child = Command::new("setsid")
        .args([
            "--wait",
            "ip",
            "sr",
            "hmac",
            "set",
            &id.to_string(),
            algorithm,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{secret}").unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_source_and_keys_are_followed() {
    in_namespace("the_source_and_keys_are_followed", || {
        links(1);
        if !try_ip("sr tunsrc show") {
            eprintln!("skipped: this kernel has no SRv6");
            return;
        }
        let mut follower = Follower::new();
        assert_eq!(follower.state.settings.tunsrc, None);
        assert!(follower.state.keys.is_empty());
        ip("sr tunsrc set fd07::7");
        set_key(42, "sha256", "what nobody knows");
        set_key(7, "sha1", "shorter");
        sysctl("ipv6/seg6_flowlabel", "1");
        follower.until("source and keys", |state| {
            let keys: Vec<_> = state
                .keys
                .iter()
                .map(|key| (key.id, key.algorithm, key.secret.as_slice()))
                .collect();
            let wanted = [
                (7, HmacAlgorithm::Sha1, &b"shorter"[..]),
                (42, HmacAlgorithm::Sha256, b"what nobody knows"),
            ];
            let settings = &state.settings;
            let label = settings.seg6_flowlabel;
            match settings.tunsrc == Some(address("fd07::7")) && label == 1 && keys == wanted {
                true => Ok(()),
                false => Err(format!("{settings:?} {:?}", state.keys)),
            }
        });
        ip("sr tunsrc set ::");
        follower.until("no source", |state| match state.settings.tunsrc {
            None => Ok(()),
            Some(source) => Err(source.to_string()),
        });
    });
}

/// The kernel is asked which source it takes, by the packets that it encapsulates.
#[test]
fn the_outer_source_is_the_kernels() {
    in_namespace("the_outer_source_is_the_kernels", || {
        links(3);
        ip("-6 addr add 2001:db8:1::77/64 dev v1 nodad");
        ip("-6 addr add fd00:1::5/64 dev v1 nodad");
        ip("-6 addr add 2001:db8:2::66/64 dev v2 nodad preferred_lft 0");
        let mut commands: Vec<String> = (0..3)
            .map(|n| {
                format!(
                    "-6 route add fc00::/16 via 2001:db8:{n}::9 dev v{n} metric {}",
                    n + 1
                )
            })
            .collect();
        commands.push("-6 route add 2001:db8:99::/64 via 2001:db8:1::9 dev v1".into());
        for (n, dev, sid) in [
            (0, "v0", "fc00:1::"),
            (1, "v1", "fc00:1::"),
            (2, "v2", "fc00:1::"),
            (3, "v1", "2001:db8:99::1"),
            (4, "v2", "2001:db8:2::5"),
        ] {
            commands.push(format!(
                "-6 route add fd99:{n}::/64 encap seg6 mode encap segs {sid} dev {dev}"
            ));
        }
        if !commands.iter().all(|command| try_ip(command)) {
            eprintln!("skipped: this kernel has no SRv6");
            return;
        }
        let capacity = Capacity {
            segments: 64,
            ..Capacity::default()
        };
        let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
        let all = ["v0", "v1", "v2"].map(index_of);
        rib.set_ports(Ports {
            enabled: all.into(),
            out: all.into(),
        });
        let mut mirror = Mirror::open().unwrap();
        mirror.initial(&mut |event| rib.apply(event)).unwrap();
        rib.commit();
        let mut compared = 0;
        for (number, what, segment) in rib.segments() {
            assert_eq!(segment.kind, segment_kind::ENCAPS, "{number}: {what:?}");
            assert_ne!(segment.reason, Reason::Encap as u8);
            let Seg6::Encaps(encaps) = &what.what else {
                panic!("{what:?}")
            };
            let word = |at| rib.memory().template_word(segment.template + at);
            let bytes = [word(1).to_ne_bytes(), word(2).to_ne_bytes()].concat();
            let ours = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap());
            // A local packet to the same address by the same link has its source chosen by the same
            // function (`ip6_dst_lookup_tail`).
            let link = rib.link(what.index).unwrap();
            let sid = encaps.segments()[0];
            let told = ip(&format!("-6 route get {sid} oif {}", link.name));
            let theirs = told.split_whitespace().skip_while(|w| *w != "src").nth(1);
            assert_eq!(
                theirs,
                Some(ours.to_string().as_str()),
                "{sid} by {}: {told}",
                link.name
            );
            compared += 1;
        }
        assert_eq!(compared, 5);
    });
}

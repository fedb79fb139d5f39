//! Tunnels: what the mirror knows of them is what they were set to, and FDBs of VXLANs are what `bridge` shows.

use std::process::Command;

use raddle_rib::event::{Tunnel, TunnelDf, TunnelKind};

use crate::state::State;
use crate::support::{Follower, in_namespace, index_of, ip, same, sysctl, try_ip};

/// Runs `bridge` in the calling thread's namespace.
fn bridge(arguments: &str) -> String {
    let words = arguments.split_whitespace();
    let output = Command::new("bridge").args(words).output().unwrap();
    assert!(output.status.success(), "bridge {arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The entries that lead to other machines, with what is kept of them.
fn fdb() -> Vec<String> {
    let text = bridge("fdb show");
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |word| {
            words
                .iter()
                .position(|w| *w == word)
                .map(|at| words[at + 1])
        };
        let to = after("dst").or(after("nhid").map(|_| "0.0.0.0"))?;
        let more = ["port", "vni", "via", "nhid", "src_vni"];
        let special = if more.iter().any(|word| words.contains(word)) {
            " special"
        } else {
            ""
        };
        Some(format!("{} dev {} dst {to}{special}", words[0], words[2]))
    };
    let mut lines: Vec<_> = text.lines().filter_map(line).collect();
    lines.sort();
    lines
}

fn agrees(follower: &mut Follower, what: &str) {
    follower.until(what, |state: &State| {
        same("FDBs", &state.tunnel_fdb_text(), &fdb())
    });
}

#[test]
fn entries_of_vxlans_are_followed() {
    let name = "entries_of_vxlans_are_followed";
    in_namespace(name, || {
        sysctl("ipv6/conf/default/disable_ipv6", "1");
        ip("link add v0 type veth peer name p0");
        for link in ["v0", "p0", "lo"] {
            ip(&format!("link set {link} up"));
        }
        ip("addr add 10.0.0.1/24 dev v0");
        if !try_ip("link add vx0 type vxlan id 7 local 10.0.0.1 dstport 4789 nolearning") {
            return eprintln!("{name}: this kernel lacks CONFIG_VXLAN");
        }
        ip("link add br0 type bridge");
        ip("link set vx0 master br0 up");
        ip("link add vx1 type vxlan id 8 local 10.0.0.1 remote 10.0.0.9 dev v0 dstport 4789");
        ip("link set vx1 up");
        let mut follower = Follower::new();
        agrees(&mut follower, "initial state");
        assert_eq!(fdb().len(), 1);
        let steps = "
            bridge fdb add 02:00:00:00:01:01 dev vx0 dst 10.0.0.2 self
            bridge fdb add 02:00:00:00:01:01 dev vx0 master static
            bridge fdb replace 02:00:00:00:01:01 dev vx0 dst 10.0.0.3 self
            bridge fdb append 00:00:00:00:00:00 dev vx0 dst 10.0.0.3 self
            bridge fdb append 00:00:00:00:00:00 dev vx0 dst 10.0.0.4 self
            bridge fdb append 01:00:5e:00:00:05 dev vx0 dst 10.0.0.4 self
            bridge fdb append 01:00:5e:00:00:05 dev vx0 dst 10.0.0.5 self
            bridge fdb add 02:00:00:00:01:02 dev vx0 dst 10.0.0.2 port 99 self
            bridge fdb add 02:00:00:00:01:03 dev vx0 dst 10.0.0.2 vni 99 self extern_learn
            bridge fdb add 02:00:00:00:01:05 dev vx0 dst 10.0.0.2 via v0 self dynamic
            ip nexthop add id 5 via 10.0.0.3 fdb
            ip nexthop add id 6 group 5 fdb
            bridge fdb add 02:00:00:00:01:04 dev vx0 nhid 6 self
            bridge fdb del 00:00:00:00:00:00 dev vx0 dst 10.0.0.3 self
            bridge fdb del 02:00:00:00:01:02 dev vx0 dst 10.0.0.2 port 99 self
            ip link set vx1 type vxlan remote 10.0.0.8 dev v0
            ip link set vx0 nomaster
            bridge fdb add 02:00:00:00:01:06 dev vx1 dst 10.0.0.6 self
            ip link set vx1 down
            ip link del vx1
            ip link del vx0";
        for step in steps.lines().map(str::trim).filter(|step| !step.is_empty()) {
            match step.split_once(' ') {
                Some(("bridge", arguments)) => drop(bridge(arguments)),
                Some((_, arguments)) => drop(ip(arguments)),
                None => panic!("{step}"),
            }
            agrees(&mut follower, step);
            // What a dump tells is the same.
            agrees(&mut Follower::new(), step);
        }
        assert!(fdb().is_empty());
        assert_eq!(follower.mirror.stats().malformed, 0);
    });
}

#[test]
fn tunnels_are_what_they_were_set_to() {
    let name = "tunnels_are_what_they_were_set_to";
    in_namespace(name, || {
        sysctl("ipv6/conf/default/disable_ipv6", "1");
        ip("link add v0 type veth peer name p0");
        let plain = Tunnel {
            kind: TunnelKind::Ipip,
            local: Some([10, 0, 0, 1].into()),
            remote: Some([10, 0, 0, 2].into()),
            ttl: 0,
            tos: 0,
            df: TunnelDf::Set,
            link: 0,
            is_special: false,
        };
        let sit = Tunnel {
            kind: TunnelKind::Sit,
            ..plain
        };
        let gre = |ikey, okey| Tunnel {
            kind: TunnelKind::Gre { ikey, okey },
            ..plain
        };
        let vxlan = TunnelKind::Vxlan {
            vni: 100,
            port: 4789,
            sports: (0, 0),
            learns: true,
            checksum: true,
            ttl_inner: false,
        };
        let vxlan = Tunnel {
            kind: vxlan,
            df: TunnelDf::Unset,
            ..plain
        };
        let special = |tunnel| Tunnel {
            is_special: true,
            ..tunnel
        };
        let link = index_of("v0");
        let ends = "local 10.0.0.1 remote 10.0.0.2";
        let set = [
            (format!("ipip {ends}"), plain),
            (
                format!("ipip {ends} ttl 64 tos 0x10 dev v0"),
                Tunnel {
                    ttl: 64,
                    tos: 0x10,
                    link,
                    ..plain
                },
            ),
            (
                format!("ipip {ends} tos inherit nopmtudisc"),
                Tunnel {
                    tos: 1,
                    df: TunnelDf::Inner,
                    ..plain
                },
            ),
            (
                "ipip local 10.0.0.1".into(),
                Tunnel {
                    remote: None,
                    ..plain
                },
            ),
            (format!("ipip {ends} mode any"), plain),
            (format!("ipip {ends} mode mplsip"), special(plain)),
            (format!("ipip {ends} fwmark 7"), special(plain)),
            (
                "ipip external".into(),
                Tunnel {
                    local: None,
                    remote: None,
                    ..special(plain)
                },
            ),
            (format!("sit {ends} ttl 9"), Tunnel { ttl: 9, ..sit }),
            (format!("sit {ends} mode ip4ip4"), special(sit)),
            (format!("gre {ends}"), gre(None, None)),
            (format!("gre {ends} key 7"), gre(Some(7), Some(7))),
            (format!("gre {ends} ikey 0 okey 9"), gre(Some(0), Some(9))),
            (format!("gre {ends} csum"), special(gre(None, None))),
            (format!("gre {ends} oseq"), special(gre(None, None))),
            (
                format!("gre {ends} nopmtudisc ignore-df"),
                Tunnel {
                    df: TunnelDf::Unset,
                    ..gre(None, None)
                },
            ),
            (format!("vxlan id 100 dstport 4789 {ends}"), vxlan),
            (
                format!("vxlan id 100 dstport 4790 {ends} nolearning srcport 100 200 noudpcsum"),
                Tunnel {
                    kind: TunnelKind::Vxlan {
                        vni: 100,
                        port: 4790,
                        sports: (100, 200),
                        learns: false,
                        checksum: false,
                        ttl_inner: false,
                    },
                    ..vxlan
                },
            ),
            (
                format!("vxlan id 100 dstport 4789 {ends} df set tos inherit ttl 5 dev v0"),
                Tunnel {
                    ttl: 5,
                    tos: 1,
                    df: TunnelDf::Set,
                    link,
                    ..vxlan
                },
            ),
            (
                format!("vxlan id 100 dstport 4789 {ends} df inherit"),
                special(Tunnel {
                    df: TunnelDf::Inner,
                    ..vxlan
                }),
            ),
            (
                format!("vxlan id 100 dstport 4789 {ends} gbp"),
                special(vxlan),
            ),
            (
                format!("vxlan id 100 dstport 4789 {ends} proxy"),
                special(vxlan),
            ),
            (
                "vxlan id 100 dstport 4789 group 239.1.1.1 dev v0 local 10.0.0.1".into(),
                special(Tunnel {
                    remote: Some([239, 1, 1, 1].into()),
                    link,
                    ..vxlan
                }),
            ),
        ];
        for (kind, wanted) in set {
            if !try_ip(&format!("link add t0 type {kind}")) {
                eprintln!("{name}: this kernel, or `ip`, has no {kind}");
                continue;
            }
            let state = Follower::new().state;
            let mut links = state.links.values();
            let link = links.find(|link| link.name == "t0").unwrap();
            assert_eq!(link.tunnel, Some(wanted), "{kind}");
            ip("link del t0");
        }
    });
}

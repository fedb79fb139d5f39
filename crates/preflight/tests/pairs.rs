//! Which pairs are free beside the rulesets that others install, asked of the kernel that holds them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod net;

use std::collections::BTreeMap;

use raddle_preflight::{Beneath, Known, Outer, Passed, Verdicts, Way, look};

use net::{command, index, namespace, run, try_run};

const LINKS: [&str; 4] = ["eth0", "eth1", "lan0", "guest0"];

/// The links of a router, as they are named.
fn links() -> BTreeMap<u32, String> {
    LINKS.iter().map(|l| (index(l), (*l).to_owned())).collect()
}

/// In which version pairs are free, without ranges: `eth0>eth1 ...`.
fn free(verdicts: &Verdicts, version: usize) -> Vec<String> {
    let guarded = [&verdicts.firewall.v4, &verdicts.firewall.v6][version];
    let mut free = Vec::new();
    for (a, from) in links() {
        for (b, to) in links() {
            if !guarded.pairs.contains(&(a, b)) {
                free.push(format!("{from}>{to}"));
            }
        }
    }
    free
}

/// The ranges of a version as `source > destination`.
fn ranges(verdicts: &Verdicts, version: usize) -> Vec<String> {
    let guarded = [&verdicts.firewall.v4, &verdicts.firewall.v6][version];
    let text = |r: (std::net::IpAddr, std::net::IpAddr)| format!("{}-{}", r.0, r.1);
    guarded
        .ranges
        .iter()
        .map(|r| format!("{} > {}", text(r.src), text(r.dst)))
        .collect()
}

/// What is expected of a ruleset.
struct Case {
    name: &'static str,
    /// How many of the 16 pairs are free, of IPv4 and of IPv6.
    free: [usize; 2],
    ranges: [&'static [&'static str]; 2],
    /// A rule that is named.
    named: &'static str,
    fragments: [bool; 2],
    icmp_errors: [bool; 2],
}

const ALL: &str = "0.0.0.0-255.255.255.255";

fn cases() -> Vec<Case> {
    // What is translated, and the other direction of such connections.
    let docker = &[
        "0.0.0.0-255.255.255.255 > 172.17.0.0-172.17.255.255",
        "172.17.0.0-172.17.255.255 > 0.0.0.0-255.255.255.255",
    ];
    let virbr0 = &[
        "0.0.0.0-255.255.255.255 > 192.168.122.0-192.168.122.255",
        "192.168.122.0-192.168.122.255 > 0.0.0.0-255.255.255.255",
    ];
    let vyos = &[
        "0.0.0.0-255.255.255.255 > 192.168.1.0-192.168.1.255",
        "192.168.1.0-192.168.1.255 > 0.0.0.0-255.255.255.255",
    ];
    let case = |name, free, ranges, named| Case {
        name,
        free,
        ranges,
        named,
        fragments: [true; 2],
        icmp_errors: [true, false],
    };
    assert!(docker[1].ends_with(ALL));
    vec![
        Case {
            fragments: [true, false],
            ..case("docker.iptables", [16, 16], [docker, &[]], "MASQUERADE")
        },
        Case {
            fragments: [true, false],
            ..case(
                "docker-drop.iptables",
                [0, 16],
                [&[], &[]],
                "FORWARD has policy ",
            )
        },
        Case {
            fragments: [true, false],
            ..case("docker.nft", [16, 16], [docker, &[]], "masquerade")
        },
        // Nothing but its own link.
        Case {
            fragments: [true, false],
            ..case("tailscale.iptables", [16, 16], [&[], &[]], "")
        },
        Case {
            fragments: [true, false],
            ..case("libvirt.iptables", [16, 16], [virbr0, &[]], "MASQUERADE")
        },
        // Translated where they leave by eth0.
        Case {
            fragments: [true, false],
            ..case("vyos.nft", [16, 16], [vyos, &[]], "masquerade")
        },
        // These judge whatever is forwarded, by its connection.
        Case {
            icmp_errors: [false; 2],
            ..case("firewalld.nft", [0, 0], [&[], &[]], "ct")
        },
        Case {
            fragments: [true, false],
            icmp_errors: [false; 2],
            ..case("ufw.iptables", [0, 16], [&[], &[]], "FORWARD has policy ")
        },
    ]
}

/// Puts a ruleset of `tests/rulesets` in force, by whichever iptables.
fn load(name: &str, iptables: &str) -> bool {
    let file = format!("{}/tests/rulesets/{name}", env!("CARGO_MANIFEST_DIR"));
    match name.rsplit_once('.').unwrap().1 {
        "nft" => try_run(&format!("nft -f {file}")),
        "iptables" => try_run(&format!("iptables-{iptables}-restore {file}")),
        "ip6tables" => try_run(&format!("ip6tables-{iptables}-restore {file}")),
        other => panic!("{other}"),
    }
}

#[test]
fn rulesets_that_others_install_leave_free_what_they_do_not_concern() {
    let mut wrong = Vec::new();
    for case in cases() {
        for iptables in ["nft", "legacy"] {
            if case.name.ends_with(".nft") && iptables == "legacy" {
                continue;
            }
            namespace(&format!("{}-{iptables}", case.name), |_| {
                for link in LINKS {
                    run(&format!(
                        "ip link add {link} type veth peer name {link}-far"
                    ));
                }
                if !load(case.name, iptables) {
                    eprintln!(
                        "skipped: this kernel does not take {} by {iptables}",
                        case.name
                    );
                    return;
                }
                let links = links();
                let verdicts = look(
                    Way::of(&links, &Beneath::new()),
                    Way::of(&links, &Beneath::new()),
                    &mut Known::default(),
                )
                .unwrap();
                let is = |version: usize| {
                    let guarded = [&verdicts.firewall.v4, &verdicts.firewall.v6][version];
                    (
                        free(&verdicts, version).len(),
                        ranges(&verdicts, version),
                        (guarded.fragments, guarded.icmp_errors),
                    )
                };
                for version in 0..2 {
                    let expected = (
                        case.free[version],
                        case.ranges[version]
                            .iter()
                            .map(|r| (*r).to_owned())
                            .collect(),
                        (case.fragments[version], case.icmp_errors[version]),
                    );
                    if is(version) != expected {
                        wrong.push(format!(
                            "{} by {iptables}, version {version}: {:?} instead of {expected:?}: {:#?}",
                            case.name,
                            is(version),
                            verdicts.why
                        ));
                    }
                }
                if !case.named.is_empty()
                    && !verdicts.why.iter().any(|w| w.rule.contains(case.named))
                {
                    wrong.push(format!("{}: {:#?}", case.name, verdicts.why));
                }
            });
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_second_look_is_cheap_and_sees_changes() {
    namespace("again", |_| {
        for link in LINKS {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        if !load("docker.iptables", "nft") {
            return;
        }
        let links = links();
        let mut known = Known::default();
        let first = look(
            Way::of(&links, &Beneath::new()),
            Way::of(&links, &Beneath::new()),
            &mut known,
        )
        .unwrap();
        let begin = std::time::Instant::now();
        for _ in 0..100 {
            assert_eq!(
                look(
                    Way::of(&links, &Beneath::new()),
                    Way::of(&links, &Beneath::new()),
                    &mut known
                )
                .unwrap(),
                first
            );
        }
        println!("a look where nothing changed: {:?}", begin.elapsed() / 100);
        run("iptables-nft -I FORWARD -i eth0 -o eth1 -j DROP");
        let second = look(
            Way::of(&links, &Beneath::new()),
            Way::of(&links, &Beneath::new()),
            &mut known,
        )
        .unwrap();
        let pair = (index("eth0"), index("eth1"));
        assert!(second.firewall.v4.pairs.contains(&pair));
        assert_eq!(second.firewall.v4.pairs.len(), 1);
        assert!(second.firewall.v6.pairs.is_empty());
        let why = second.why.iter().find(|w| w.pairs.contains(&pair)).unwrap();
        assert!(
            why.rule.contains("iifname \"eth0\" oifname \"eth1\" drop"),
            "{}",
            why.rule
        );
        assert!(command("ip -br link").contains("eth0"));
    });
}

#[test]
fn single_rules_close_what_they_may_touch() {
    namespace("single", |_| {
        for link in LINKS {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        let all = 16;
        let chain = |rules: &str| {
            format!(
                "nft 'table inet t {{ chain x {{ drop; }}; chain y {{ iifname \"docker0\" drop; }}; \
                 chain f {{ type filter hook forward priority 0; {rules}; }}; }}'"
            )
        };
        let legacy6 = |rules: &str| {
            format!(
                "printf '*filter\\n:FORWARD DROP\\n:c -\\n{rules}COMMIT\\n' | ip6tables-legacy-restore"
            )
        };
        // Closed pairs and ranges, of IPv4 and of IPv6.
        for (set, closed, ranges) in [
            (chain("counter"), [all, all], [0, 0]),
            (chain("iifname \"eth*\" accept; drop"), [8, 8], [0, 0]),
            (chain("iifname eth0 oifname eth1 drop"), [1, 1], [0, 0]),
            (chain("oif lan0 iif != eth0 log"), [3, 3], [0, 0]),
            (chain("meta nfproto ipv6 drop"), [0, all], [0, 0]),
            (chain("ip saddr 10.0.0.0/8 drop"), [0, 0], [1, 0]),
            (chain("ip saddr 10.0.0.0/11 ip daddr != 10.0.0.1 drop"), [0, 0], [1, 0]),
            (chain("ip daddr { 10.0.0.0/8, 192.168.0.0-192.168.3.7 } drop"), [0, 0], [2, 0]),
            (chain("ip6 daddr fd00::/7 counter"), [0, 0], [0, 1]),
            (chain("tcp dport 22 accept"), [0, 0], [0, 0]),
            (chain("tcp dport 22 drop"), [all, all], [0, 0]),
            (chain("ct state established,related accept"), [0, 0], [0, 0]),
            (chain("ct state invalid drop"), [all, all], [0, 0]),
            (chain("iifname vmap { \"eth0\" : drop, \"eth1\" : jump y }"), [4, 4], [0, 0]),
            (chain("iifname vmap { \"eth0\" : jump x, \"eth1\" : accept }; oifname lan0 drop"), [6, 6], [0, 0]),
            (chain("iifname { \"eth0\", \"lan*\" } goto y; drop"), [8, 8], [0, 0]),
            (chain("meta mark set 1"), [all, all], [0, 0]),
            (chain("meta mark 1 drop"), [0, 0], [0, 0]),
            // One pair, and the seven by which its connections may go the other way.
            (
                chain(
                    "iifname eth0 oifname eth1 ct state established accept; \
                     iifname eth0 oifname eth1 drop",
                ),
                [8, 8],
                [0, 0],
            ),
            // Packets to this machine may fill the set, which is empty now.
            (
                "nft 'table ip t { set s { type ipv4_addr; }; chain i { type filter hook input priority 0; tcp dport 23 add @s \
                 { ip saddr }; }; chain f { type filter hook forward priority 0; ip saddr @s drop; }; }'"
                    .into(),
                [all, 0],
                [0, 0],
            ),
            // What matches change or write down.
            ("iptables-nft -A FORWARD -p tcp -m osf --genre Linux --log 0 -j ACCEPT".into(), [all, 0], [0, 0]),
            ("iptables-nft -A FORWARD -p tcp -m socket -j ACCEPT".into(), [all, 0], [0, 0]),
            ("iptables-nft -A FORWARD -p tcp --tcp-option 2 -j ACCEPT".into(), [all, 0], [0, 0]),
            ("iptables-nft -A FORWARD -p tcp --dport 80 -j ACCEPT".into(), [0, 0], [0, 0]),
            (
                "nft 'table ip filter { chain FORWARD { type filter hook forward priority 0; \
                 iifname vmap { \"docker0\" : drop, \"eth0\" : accept }; }; }'"
                    .into(),
                [0, 0],
                [0, 0],
            ),
            // libvirt's, which count what they pass on.
            (
                "nft 'table ip libvirt_network { chain guest_cross { }; chain guest_input { oifname docker0 counter reject; }; \
                 chain forward { type filter hook forward priority 0; counter jump guest_cross; counter jump guest_input; }; }'"
                    .into(),
                [0, 0],
                [0, 0],
            ),
            // Rules that are there to count.
            (
                "nft 'table ip filter { chain acct { type filter hook forward priority 0; ip saddr 10.0.0.0/8 counter; }; }'".into(),
                [0, 0],
                [1, 0],
            ),
            ("iptables-nft -A FORWARD -s 10.0.0.0/8".into(), [0, 0], [1, 0]),
            ("iptables-nft -A FORWARD -s 10.0.0.0/8 -j ACCEPT".into(), [0, 0], [0, 0]),
            ("ip6tables-legacy -A FORWARD -s fd00::/8".into(), [0, 0], [0, 1]),
            // Addresses of the other version.
            (
                "nft 'table inet t { chain p { type nat hook prerouting priority -100; \
                 ip6 daddr 2001:db8::1 dnat ip6 to fd00::5; }; }'"
                    .into(),
                [0, 0],
                [0, 3],
            ),
            // A chain that nothing leads to, behind the last built-in one's policy.
            (
                "printf '*mangle\\n:POSTROUTING DROP\\n:unused -\\n-A unused -j ACCEPT\\nCOMMIT\\n' | ip6tables-legacy-restore".into(),
                [0, all],
                [0, 0],
            ),
            // A key of two names is longer than any number.
            (chain("iifname . oifname { \"eth0\" . \"eth1\" } drop"), [all, all], [0, 0]),
            // Gone to, and back to the policy, not to the rule behind.
            (legacy6("-A FORWARD -g c\\n-A FORWARD -j ACCEPT\\n"), [0, all], [0, 0]),
            (legacy6("-A FORWARD -j c\\n-A FORWARD -j ACCEPT\\n"), [0, 0], [0, 0]),
            (
                "nft 'table netdev t { chain i { type filter hook ingress device eth0 priority 0; drop; }; }'"
                    .into(),
                [4, 4],
                [0, 0],
            ),
            (
                "nft 'table ip t { chain p { type nat hook prerouting priority -100; \
                 iifname docker0 dnat to 10.1.1.1; }; }'"
                    .into(),
                [0, 0],
                [1, 0],
            ),
            // Its later packets are translated whatever link they come in by.
            (
                "nft 'table ip t { chain p { type nat hook prerouting priority -100; \
                 iifname eth0 ip daddr 192.0.2.9 dnat to 10.1.1.1; }; }'"
                    .into(),
                [0, 0],
                [3, 0],
            ),
            // A connection that comes in is not translated, where the kernel knows that its packets out belong to it.
            (
                "nft 'table ip t { chain p { type nat hook postrouting priority 100; \
                 oifname eth0 ip saddr 10.0.0.0/8 masquerade; }; }'"
                    .into(),
                [0, 0],
                [2, 0],
            ),
            (
                "nft 'table ip t { chain p { type nat hook postrouting priority 100; \
                 oifname eth0 snat to 10.1.1.1; }; }'"
                    .into(),
                // From all links, so to all links the other way.
                [all, 0],
                [0, 0],
            ),
        ] {
            if !try_run(&set) {
                eprintln!("skipped: this kernel does not take {set}");
                continue;
            }
            let links = links();
            let found = look(Way::of(&links, &Beneath::new()), Way::of(&links, &Beneath::new()), &mut Known::default()).unwrap();
            let by = |version: usize| {
                let guarded = [&found.firewall.v4, &found.firewall.v6][version];
                (guarded.pairs.len(), guarded.ranges.len())
            };
            let expected = [(closed[0], ranges[0]), (closed[1], ranges[1])];
            assert_eq!([by(0), by(1)], expected, "{set}: {:#?}", found.why);
            run("nft flush ruleset");
            if set.contains("legacy") {
                run("ip6tables-legacy -F; ip6tables-legacy -P FORWARD ACCEPT; ip6tables-legacy -t mangle -F; \
                     ip6tables-legacy -t mangle -X; ip6tables-legacy -t mangle -P POSTROUTING ACCEPT");
            }
        }
    });
}

/// Packets to addresses of this machine are forwarded where rules have them looked up elsewhere first.
#[test]
fn packets_to_this_machine_count_where_they_may_be_forwarded() {
    namespace("local", |_| {
        for link in LINKS {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        run(
            "nft 'table inet t { chain p { type filter hook prerouting priority 0; fib daddr type local drop; }; }'",
        );
        let links = links();
        let mut known = Known::default();
        let mut closed = || {
            let found = look(
                Way::of(&links, &Beneath::new()),
                Way::of(&links, &Beneath::new()),
                &mut known,
            )
            .unwrap();
            [found.firewall.v4.pairs.len(), found.firewall.v6.pairs.len()]
        };
        assert_eq!(closed(), [0, 0]);
        run(
            "ip rule add pref 100 lookup local; ip rule del pref 0; ip rule add pref 50 to 10.9.9.9 lookup 200",
        );
        assert_eq!(closed(), [16, 0]);
        run("ip rule del pref 50");
        assert_eq!(closed(), [0, 0]);
    });
}

/// What is on a member of a bond concerns the bond, and no other link.
#[test]
fn what_is_below_a_vlan_sees_tags() {
    namespace("tagged", |_| {
        for link in ["lower", "eth0"] {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        // The name of one that is not there, as this kernel may have no VLANs.
        let vlan = 9_999;
        let eth0 = index("eth0");
        let links: BTreeMap<u32, String> =
            [(vlan, "lower.5".to_owned()), (eth0, "eth0".to_owned())].into();
        let passed = |tagged| -> Beneath {
            let passed = Passed {
                links: [(index("lower"), "lower".to_owned())].into(),
                tagged,
                ..Passed::default()
            };
            [(vlan, passed)].into()
        };
        let mut known = Known::default();
        let mut closed = |tagged: bool| {
            let found = look(
                Way::of(&links, &passed(tagged)),
                Way::of(&links, &passed(tagged)),
                &mut known,
            )
            .unwrap();
            let pairs = found.firewall.v4.pairs.iter();
            pairs.filter(|(a, b)| a != b).collect::<Vec<_>>()
        };
        for rule in [
            "meta protocol 8021q drop",
            "iifname \"lower.5\" drop",
            "ip saddr 10.0.0.0/8 drop",
        ] {
            run(&format!(
                "nft 'table netdev t {{ chain c {{ type filter hook ingress device lower priority 0; {rule}; }}; }}'"
            ));
            // What is decided for packets without tags may be otherwise with them.
            assert_eq!(closed(false), [], "{rule}");
            assert_eq!(closed(true), [(vlan, eth0)], "{rule}");
            run("nft flush ruleset");
        }
        run(
            "nft 'table netdev t { chain c { type filter hook ingress device lower priority 0; accept; }; }'",
        );
        assert_eq!(closed(true), []);
    });
}

/// What leaves by a tunnel is sent by this machine, and what comes in by one is to it.
#[test]
fn what_is_sent_in_tunnels_meets_what_this_machine_sends_meets() {
    namespace("outer", |_| {
        run("ip link add eth0 type veth peer name eth0-far");
        // The name of one that is not there, as this kernel may have no GRE.
        let (gre, eth0) = (9_999, index("eth0"));
        let ins: BTreeMap<u32, String> = [(eth0, "eth0".to_owned())].into();
        let outs: BTreeMap<u32, String> =
            [(eth0, "eth0".to_owned()), (gre, "gre1".to_owned())].into();
        let outer = Outer {
            name: "gre1".into(),
            protocol: 47,
            port: None,
            local: Some([192, 0, 2, 1].into()),
            remote: Some([192, 0, 2, 2].into()),
        };
        let passed = |links: &BTreeMap<u32, String>| -> Beneath {
            let passed = Passed {
                links: links.clone(),
                tagged: !links.is_empty(),
                tunnels: [(gre, outer.clone())].into(),
                ..Passed::default()
            };
            [(gre, passed)].into()
        };
        let found = || {
            let (beneath, mut known) = (passed(&ins), Known::default());
            let none = Beneath::new();
            let (way_in, way_out) = (Way::of(&ins, &none), Way::of(&outs, &beneath));
            look(way_in, way_out, &mut known).unwrap()
        };
        assert!(found().why.is_empty());
        let chain = |hook: &str, rules: &str| {
            let kind = match rules.contains("nat ")
                || rules.contains("masq")
                || rules.contains("redirect")
            {
                true => "nat",
                false => "filter",
            };
            format!(
                "nft 'table ip t {{ chain c {{ type {kind} hook {hook} priority 0; {rules}; }}; }}'"
            )
        };
        for (set, closes) in [
            (chain("output", "ip protocol icmp drop; udp dport 53 drop; accept"), false),
            (chain("output", "meta l4proto { tcp, udp } drop"), false),
            (chain("output", "meta l4proto gre drop"), true),
            (chain("output", "meta l4proto != gre drop"), false),
            (chain("output", "ip protocol 47 counter"), true),
            (chain("output", "oifname lan0 drop; ip daddr 198.51.100.0/24 drop; ip saddr != 192.0.2.1 drop"), false),
            (chain("output", "oifname eth0 drop"), true),
            (chain("output", "ct state invalid drop"), true),
            (chain("output", "policy drop; meta l4proto gre accept"), false),
            (chain("output", "policy drop; meta l4proto udp accept"), true),
            (chain("postrouting", "ip saddr 172.17.0.0/16 masquerade"), false),
            (chain("postrouting", "oifname eth0 masquerade"), true),
            (chain("postrouting", "oifname lan0 snat to 203.0.113.1"), false),
            (chain("postrouting", "oifname lan0 snat to 192.0.2.2"), true),
            // What comes in is judged, and what leaves does not count for that.
            (chain("input", "meta l4proto gre drop"), false),
            (chain("input", "policy drop; ct state established accept"), true),
            (chain("input", "policy drop; meta l4proto gre accept; ct state established accept"), false),
            (chain("prerouting", "fib daddr type local tcp dport 80 dnat to 10.1.1.1"), false),
            (chain("prerouting", "fib daddr type local dnat to 10.1.1.1"), true),
            (chain("prerouting", "ip daddr 203.0.113.9 dnat to 192.0.2.1"), true),
            (chain("prerouting", "ip daddr 203.0.113.9 dnat to 10.1.1.1"), false),
            (chain("prerouting", "ip daddr 203.0.113.9 redirect"), true),
            (
                "nft 'table netdev t { chain e { type filter hook egress device eth0 priority 0; ip daddr 10.0.0.1 drop; }; }'".into(),
                true,
            ),
            ("iptables-nft -A OUTPUT -p tcp -j DROP".into(), false),
            ("iptables-nft -A OUTPUT -p gre -j DROP".into(), true),
            ("iptables-nft -A OUTPUT ! -p tcp -j DROP".into(), true),
            ("iptables-legacy -A OUTPUT -p 17 -j DROP".into(), false),
            ("iptables-legacy -A OUTPUT -p 47 -j DROP".into(), true),
            ("iptables-legacy -A OUTPUT ! -p 17 -d 192.0.2.0/24 -j LOG".into(), true),
        ] {
            if !try_run(&set) {
                eprintln!("skipped: this kernel does not take {set}");
                continue;
            }
            let found = found();
            for (version, guarded) in [&found.firewall.v4, &found.firewall.v6].into_iter().enumerate() {
                let is = guarded.pairs.contains(&(eth0, gre));
                assert_eq!(is, closes, "{set}, version {version}: {:#?}", found.why);
            }
            assert!(found.firewall.segments, "{set}");
            assert_eq!(found.ends, [], "nothing comes in by a tunnel");
            run("nft flush ruleset");
            if set.contains("legacy") {
                run("iptables-legacy -F");
            }
        }
        if load("docker.iptables", "nft") {
            let found = found();
            assert!(
                !found.firewall.v4.pairs.contains(&(eth0, gre)),
                "{:#?}",
                found.why
            );
        }
    });
}

/// Packets that carry what comes in by a tunnel are to this machine.
#[test]
fn what_comes_in_by_tunnels_meets_what_this_machine_receives_meets() {
    namespace("outer-in", |_| {
        for link in ["eth0", "lan0"] {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        run("ip link add br0 type bridge");
        // Names of tunnels that are not there, as this kernel may have no GRE.
        let (gre, vxlan) = (9_998, 9_999);
        let named = |of: &[(u32, &str)]| -> BTreeMap<u32, String> {
            of.iter()
                .map(|(i, name)| (*i, (*name).to_owned()))
                .collect()
        };
        let (eth0, lan0, br0) = (index("eth0"), index("lan0"), index("br0"));
        let outs = named(&[(eth0, "eth0"), (lan0, "lan0")]);
        let ins = named(&[(eth0, "eth0"), (lan0, "lan0"), (br0, "br0"), (gre, "gre1")]);
        let outer = |name: &str, protocol, port, remote| Outer {
            name: name.to_owned(),
            protocol,
            port,
            local: Some([192, 0, 2, 1].into()),
            remote,
        };
        // The bridge has the VXLAN as its only port.
        let beneath: Beneath = [
            (
                gre,
                Passed {
                    tunnels: [(gre, outer("gre1", 47, None, Some([192, 0, 2, 2].into())))].into(),
                    ..Passed::default()
                },
            ),
            (
                br0,
                Passed {
                    links: named(&[(vxlan, "vxlan5")]),
                    bridged: true,
                    tunnels: [(vxlan, outer("vxlan5", 17, Some(4789), None))].into(),
                    ..Passed::default()
                },
            ),
        ]
        .into();
        let found = || {
            let none = Beneath::new();
            let (way_in, way_out) = (Way::of(&ins, &beneath), Way::of(&outs, &none));
            look(way_in, way_out, &mut Known::default()).unwrap()
        };
        // By name: tunnels, and links as `by eth0`.
        let closed = |verdicts: &Verdicts| -> Vec<String> {
            let name = |index: &u32| match *index {
                index if index == gre => "gre1".to_owned(),
                index if index == vxlan => "vxlan5".to_owned(),
                index => format!("by {}", ins[&index]),
            };
            let mut all: Vec<String> = verdicts.firewall.tunnels.iter().map(name).collect();
            all.sort();
            all
        };
        assert_eq!(closed(&found()), [""; 0]);
        let mut wrong = Vec::new();
        let chain = |hook: &str, rules: &str| {
            let nat = ["nat ", "masq", "redirect"];
            let kind = match nat.iter().any(|word| rules.contains(word)) {
                true => "nat",
                false => "filter",
            };
            format!(
                "nft 'table ip t {{ chain c {{ type {kind} hook {hook} priority 0; {rules}; }}; }}'"
            )
        };
        let (both, none): (&[&str], &[&str]) = (&["gre1", "vxlan5"], &[]);
        let (g, v): (&[&str], &[&str]) = (&["gre1"], &["vxlan5"]);
        for (set, closes) in [
            (chain("input", "ip protocol icmp drop; udp dport 53 drop; accept"), none),
            (chain("input", "meta l4proto gre drop"), g),
            (chain("input", "udp dport 4789 drop"), v),
            (chain("input", "udp dport 4000-5000 drop"), v),
            (chain("input", "udp dport { 53, 4789 } drop"), v),
            (chain("input", "udp dport != 53 drop"), v),
            (chain("input", "udp dport vmap { 53 : drop, 4789 : accept }; meta l4proto udp drop"), none),
            (chain("input", "udp sport 53 drop"), v),
            (chain("input", "udp length 100-200 drop"), v),
            (chain("input", "meta l4proto != gre drop"), v),
            (chain("input", "ip protocol 47 counter"), g),
            (chain("input", "log"), both),
            (chain("input", "policy drop; meta l4proto gre accept; udp dport 4789 accept"), none),
            (chain("input", "policy drop; meta l4proto gre accept"), v),
            (chain("input", "policy drop; udp dport 53 accept"), both),
            (chain("input", "ip saddr 192.0.2.2 drop"), both),
            (chain("input", "ip saddr 198.51.100.0/24 drop"), v),
            (chain("input", "ip daddr 192.0.2.9 drop"), none),
            (chain("input", "ip saddr 192.0.2.0/24 meta l4proto gre accept; ip saddr 10.0.0.0/8 udp dport 4789 accept; drop"), v),
            (chain("input", "ct state invalid drop"), both),
            (chain("input", "ct state established accept"), none),
            (chain("input", "fib daddr type != local drop"), none),
            (chain("input", "fib daddr type local drop"), both),
            (chain("input", "iifname eth0 drop"), &["by eth0"]),
            (chain("input", "iifname { eth0, lan0 } drop"), both),
            (chain("input", "iifname docker0 drop"), none),
            (chain("input", "iifname eth0 meta l4proto gre drop"), g),
            (chain("prerouting", "ip daddr 192.0.2.1 drop"), both),
            (chain("prerouting", "iifname lan0 notrack"), none),
            (chain("prerouting", "iifname lan0 meta mark set 1"), &["by lan0"]),
            (chain("prerouting", "fib daddr type local tcp dport 80 dnat to 10.1.1.1"), none),
            (chain("prerouting", "fib daddr type local udp dport 53 dnat to 10.1.1.1"), none),
            (chain("prerouting", "fib daddr type local udp dport 4789 dnat to 10.1.1.1"), v),
            // Connections are translated on every link when they are on one.
            (chain("prerouting", "iifname eth0 fib daddr type local udp dport 4789 dnat to 10.1.1.1"), v),
            (chain("prerouting", "iifname docker0 fib daddr type local udp dport 4789 dnat to 10.1.1.1"), v),
            (chain("prerouting", "ip daddr 203.0.113.9 dnat to 192.0.2.2"), g),
            (chain("prerouting", "ip daddr 203.0.113.9 redirect"), both),
            // What is to other machines, and from this one.
            (chain("forward", "drop"), none),
            (chain("output", "meta l4proto gre drop"), none),
            (chain("output", "policy drop; ct state established accept"), both),
            (chain("output", "policy drop; meta l4proto { gre, udp } accept; ct state established accept"), none),
            (chain("postrouting", "ip saddr 172.17.0.0/16 masquerade"), none),
            (chain("postrouting", "oifname eth0 masquerade"), both),
            (chain("postrouting", "oifname docker0 snat to 192.0.2.1"), both),
            (chain("postrouting", "oifname docker0 snat to 203.0.113.1"), none),
            (
                "nft 'table netdev t { chain e { type filter hook ingress device eth0 priority 0; ip saddr 10.0.0.1 accept; }; }'".into(),
                none,
            ),
            (
                "nft 'table netdev t { chain e { type filter hook ingress device eth0 priority 0; udp dport 4789 drop; }; }'".into(),
                v,
            ),
            (
                "nft 'table netdev t { chain e { type filter hook ingress device eth0 priority 0; counter; }; }'".into(),
                &["by eth0"],
            ),
            // The frames inside are what the bridge sees.
            (
                "nft 'table bridge t { chain e { type filter hook prerouting priority 0; counter; }; }'".into(),
                none,
            ),
            ("tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress matchall action drop".into(), &["by eth0"]),
            ("tc qdisc add dev eth0 clsact; tc filter add dev eth0 egress matchall action drop".into(), none),
            ("ip xfrm policy add dir in src 192.0.2.2 dst 192.0.2.1 proto gre tmpl proto esp mode transport".into(), g),
            ("ip xfrm policy add dir in src 198.51.100.1 dst 192.0.2.1 tmpl proto esp mode transport".into(), v),
            ("ip xfrm policy add dir out src 192.0.2.1 dst 192.0.2.2 tmpl proto esp mode transport".into(), none),
            ("iptables-nft -A INPUT -p tcp -j DROP".into(), none),
            ("iptables-nft -A INPUT -p gre -j DROP".into(), g),
            ("iptables-nft -A INPUT -p udp --dport 53 -j DROP".into(), none),
            ("iptables-nft -A INPUT -p udp --dport 4789 -j DROP".into(), v),
            ("iptables-nft -A INPUT -p udp ! --dport 4789 -j DROP".into(), none),
            ("iptables-nft -A INPUT -p udp --sport 53 -j DROP".into(), v),
            ("iptables-nft -A INPUT -p udp -m multiport --dports 53,4789 -j DROP".into(), v),
            ("iptables-nft -A INPUT -p udp --dport 4789 -m limit --limit 1/s -j ACCEPT".into(), v),
            ("iptables-legacy -A INPUT -p 47 -j DROP".into(), g),
            ("iptables-legacy -A INPUT -p udp --dport 4789 -j DROP".into(), v),
            ("iptables-legacy -A INPUT -p udp --dport 4000:4788 -j DROP".into(), none),
            ("iptables-legacy -P INPUT DROP; iptables-legacy -A INPUT -p udp --dport 4789 -j ACCEPT".into(), g),
        ] {
            if !try_run(&set) {
                eprintln!("skipped: this kernel does not take {set}");
                continue;
            }
            let found = found();
            if closed(&found) != closes {
                wrong.push(format!("{set}: {:?}, not {closes:?}: {:?}", closed(&found), found.ends));
            }
            assert_eq!(found.ends.is_empty(), closes.is_empty(), "{set}");
            if set.contains("legacy") {
                run("iptables-legacy -P INPUT ACCEPT; iptables-legacy -F");
            }
            try_run("nft flush ruleset; ip xfrm policy flush; tc qdisc del dev eth0 clsact; true");
        }
        // What others install.
        for (name, closes) in [
            ("docker.iptables", none),
            ("docker-drop.iptables", none),
            ("docker.nft", none),
            ("kube-proxy.iptables", none),
            // Sources that a VXLAN may have.
            ("tailscale.iptables", v),
            ("libvirt.iptables", none),
            // Only what is forwarded is in there.
            ("firewalld.nft", none),
            ("ufw.iptables", both),
        ] {
            for iptables in ["nft", "legacy"] {
                let legacy = iptables == "legacy";
                if legacy && name.ends_with("nft") || !load(name, iptables) {
                    eprintln!("skipped: {name} by {iptables}");
                    continue;
                }
                let found = found();
                if closed(&found) != closes {
                    wrong.push(format!(
                        "{name} by {iptables}: {:?}, not {closes:?}: {:?}",
                        closed(&found),
                        found.ends
                    ));
                }
                run("nft flush ruleset");
                if legacy {
                    for table in ["filter", "nat", "mangle"] {
                        run(&format!(
                            "iptables-legacy -t {table} -F; iptables-legacy -t {table} -X"
                        ));
                    }
                    run("iptables-legacy -P INPUT ACCEPT; iptables-legacy -P FORWARD ACCEPT");
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn what_bridges_have_packets_pass_concerns_them() {
    namespace("bridged", |_| {
        for link in ["port", "eth0"] {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        // The name of one that is not there.
        let bridge = 9_999;
        let links: BTreeMap<u32, String> = [
            (bridge, "br0".to_owned()),
            (index("eth0"), "eth0".to_owned()),
        ]
        .into();
        let passed = Passed {
            links: [(index("port"), "port".to_owned())].into(),
            bridged: true,
            ..Passed::default()
        };
        let ports: Beneath = [(bridge, passed)].into();
        let none: Beneath = [(
            bridge,
            Passed {
                bridged: true,
                ..Passed::default()
            },
        )]
        .into();
        let (from, to) = ((bridge, index("eth0")), (index("eth0"), bridge));
        let mut known = Known::default();
        let mut closed = |ins: &Beneath, outs: &Beneath| {
            let found = look(Way::of(&links, ins), Way::of(&links, outs), &mut known).unwrap();
            let pairs = found.firewall.v4.pairs.iter();
            pairs.filter(|(a, b)| a != b).collect::<Vec<_>>()
        };
        assert_eq!(closed(&ports, &ports), []);
        for (hook, expected) in [
            ("prerouting", vec![from]),
            ("input", vec![from]),
            ("forward", vec![]),
            ("output", vec![to]),
            ("postrouting", vec![to]),
        ] {
            let table = format!(
                "nft 'table bridge t {{ chain c {{ type filter hook {hook} priority 0; ether type arp accept; }}; }}'"
            );
            if !try_run(&table) {
                eprintln!("skipped: this kernel has no nftables for bridges");
                return;
            }
            assert_eq!(closed(&ports, &ports), expected, "{hook}");
            assert_eq!(
                closed(&Beneath::new(), &Beneath::new()),
                [],
                "no bridge: {hook}"
            );
            run("nft flush ruleset");
        }
        // What is on a port concerns packets in the role that it is used in.
        let chain = |hook: &str| {
            run(&format!(
                "nft 'table netdev t {{ chain c {{ type filter hook {hook} device port priority 0; udp dport 5 drop; }}; }}'"
            ));
        };
        chain("ingress");
        assert_eq!(closed(&ports, &none), [from]);
        assert_eq!(closed(&none, &ports), []);
        run("nft flush ruleset");
        chain("egress");
        assert_eq!(closed(&none, &ports), [to]);
        assert_eq!(closed(&ports, &none), []);
    });
}

#[test]
fn what_is_on_a_part_concerns_the_bond() {
    namespace("members", |_| {
        for link in ["member0", "member1", "eth0"] {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        // The name of one that is not there, as this kernel may have no bonds.
        let bond = 9_999;
        let links: BTreeMap<u32, String> =
            [(bond, "b0".to_owned()), (index("eth0"), "eth0".to_owned())].into();
        let member = |name: &str| (index(name), name.to_owned());
        let passed = Passed {
            links: [member("member0"), member("member1")].into(),
            ..Passed::default()
        };
        let members: Beneath = [(bond, passed)].into();
        let (ingress, egress) = ((bond, index("eth0")), (index("eth0"), bond));
        let mut known = Known::default();
        let mut closed = || {
            let found = look(
                Way::of(&links, &members),
                Way::of(&links, &members),
                &mut known,
            )
            .unwrap();
            let pairs = found.firewall.v4.pairs.iter();
            pairs.filter(|(a, b)| a != b).collect::<Vec<_>>()
        };
        assert_eq!(closed(), []);
        for (set, pair) in [
            (
                "tc qdisc add dev member1 clsact && tc filter add dev member1 ingress matchall action drop",
                ingress,
            ),
            (
                "tc qdisc add dev member0 clsact && tc filter add dev member0 egress matchall action drop",
                egress,
            ),
            (
                "nft 'table netdev t { chain c { type filter hook ingress device member0 priority 0; udp dport 5 drop; }; }'",
                ingress,
            ),
            (
                "nft 'table netdev t { chain c { type filter hook egress device member1 priority 0; udp dport 5 drop; }; }'",
                egress,
            ),
            // They see the member's name.
            (
                "nft 'table netdev t { chain c { type filter hook ingress devices = { member0, member1 } priority 0; \
                 iifname member1 udp dport 5 drop; }; }'",
                ingress,
            ),
            (
                "nft 'table netdev t { chain c { type filter hook ingress device member0 priority 0; iifname != member0 accept; \
                 udp dport 5 drop; }; }'",
                ingress,
            ),
        ] {
            if !try_run(set) {
                eprintln!("skipped: this kernel does not take {set}");
                continue;
            }
            assert_eq!(closed(), [pair], "{set}");
            run(
                "nft flush ruleset; for l in member0 member1; do tc qdisc del dev $l clsact 2>/dev/null; done; true",
            );
            assert_eq!(closed(), [], "after {set}");
        }
    });
}

//! Drawn rule sets, as commands. Not all of them make sense to the kernel: what it refuses is left out.

use raddle_e2e::Random;

/// A rule set.
pub(crate) struct Drawn {
    pub(crate) commands: Vec<String>,
}

const LINKS: [&str; 7] = [
    "source", "sink", "sink-2", "sink-3", "eth9", "docker0", "sin*",
];
const SOURCES4: [&str; 8] = [
    "10.1.1.0/24",
    "10.1.1.2",
    "10.1.1.5-10.1.1.20",
    "172.17.0.0/16",
    "172.16.0.0/12",
    "{ 10.1.1.3, 10.1.1.9-10.1.1.12, 172.20.0.0/16 }",
    "192.0.2.0/24",
    "0.0.0.0/0",
];
const TARGETS4: [&str; 5] = [
    "10.9.0.0/16",
    "10.9.0.7",
    "10.9.0.16/28",
    "{ 10.9.0.4, 10.9.0.30-10.9.0.40 }",
    "198.51.100.1",
];
const SOURCES6: [&str; 4] = [
    "2001:db8:1:1::/64",
    "2001:db8:1:1:5::/80",
    "2001:db8:1:1:3::-2001:db8:1:1:9::",
    "fd00::/8",
];
const TARGETS6: [&str; 4] = [
    "2001:db8:9::/48",
    "2001:db8:9::100/124",
    "{ 2001:db8:9::105, 2001:db8:9::110-2001:db8:9::118 }",
    "fd00::1",
];

pub(crate) fn draw(rng: &mut Random) -> Drawn {
    let mut commands = Vec::new();
    match rng.below(8) {
        0 => legacy(rng, "legacy", &mut commands),
        1 => legacy(rng, "nft", &mut commands),
        2 => {
            legacy(rng, "nft", &mut commands);
            nft(rng, 0, &mut commands);
        }
        _ => (0..1 + rng.below(2)).for_each(|n| nft(rng, n, &mut commands)),
    }
    if rng.once_in(10) {
        commands.push("tc qdisc add dev sink-3 clsact".into());
        let side = *rng.pick(&["egress", "ingress"]);
        commands.push(format!(
            "tc filter add dev sink-3 {side} protocol all u32 match u32 0 0 flowid 1:1"
        ));
    }
    if rng.once_in(10) {
        let (src, dst) = (*rng.pick(&SOURCES4[3..5]), TARGETS4[2]);
        let action = *rng.pick(&["allow", "block"]);
        let direction = *rng.pick(&["fwd", "out", "in"]);
        commands.push(format!(
            "ip xfrm policy add src {src} dst {dst} dir {direction} action {action}"
        ));
    }
    Drawn { commands }
}

/// A table of nftables with some chains.
fn nft(rng: &mut Random, n: usize, commands: &mut Vec<String>) {
    let family = *rng.pick(&["inet", "inet", "inet", "ip", "ip6"]);
    let table = format!("{family} t{n}");
    commands.push(format!("nft add table {table}"));
    let add = |rest: String| format!("nft 'add {rest}'");
    if family != "ip6" {
        commands.push(add(format!(
            "set {table} s4 {{ type ipv4_addr; flags interval; }}"
        )));
        commands.push(add(format!(
            "element {table} s4 {{ 172.17.0.0/16, 10.1.1.7-10.1.1.9 }}"
        )));
        commands.push(add(format!(
            "set {table} d4 {{ type ipv4_addr; flags dynamic; size 64; }}"
        )));
    }
    for chain in ["a", "b"] {
        commands.push(add(format!("chain {table} {chain}")));
    }
    commands.push(add(format!(
        "map {table} links {{ type ifname : verdict; elements = {{ \"source\" : jump b, \"eth9\" : drop, \"sink-2\" : goto b }}; }}"
    )));
    for chain in ["b", "a"] {
        for _ in 0..rng.below(3) {
            let own = if chain == "a" { &["b"][..] } else { &[] };
            let rule = rule(rng, family, own, "forward");
            commands.push(add(format!("rule {table} {chain} {rule}")));
        }
    }
    for base in 0..1 + rng.below(3) {
        let hook = *rng.pick(&[
            "prerouting",
            "forward",
            "forward",
            "forward",
            "postrouting",
            "input",
            "output",
            "ingress",
            "egress",
        ]);
        let nat = rng.once_in(4) && ["prerouting", "postrouting"].contains(&hook);
        let kind = if nat { "nat" } else { "filter" };
        let policy = if !nat && rng.once_in(12) {
            "drop"
        } else {
            "accept"
        };
        let priority = *rng.pick(&["-300", "-150", "-1", "0", "1", "10", "150"]);
        let on = match hook {
            "ingress" | "egress" => format!("device {} ", rng.pick(&LINKS[..4])),
            _ => String::new(),
        };
        commands.push(add(format!(
            "chain {table} base{base} {{ type {kind} hook {hook} {on}priority {priority}; policy {policy}; }}"
        )));
        for _ in 0..rng.below(4) {
            let rule = match nat {
                true => translation(rng, hook, family),
                // What the router itself sends and receives must not be counted among what it forwards.
                false if ["input", "output"].contains(&hook) => {
                    format!("{} {}", test(rng, family), rng.pick(&["accept", "drop"]))
                }
                false => rule(rng, family, &["a", "b"], hook),
            };
            commands.push(add(format!("rule {table} base{base} {rule}")));
        }
    }
}

fn link(rng: &mut Random) -> String {
    match rng.below(6) {
        0 => format!("{{ \"{}\", \"{}\" }}", rng.pick(&LINKS), rng.pick(&LINKS)),
        1 => format!("!= \"{}\"", rng.pick(&LINKS)),
        _ => format!("\"{}\"", rng.pick(&LINKS)),
    }
}

/// What a rule asks for, often of links: else too little would be free.
fn test(rng: &mut Random, family: &str) -> String {
    let not = if rng.once_in(5) { "!= " } else { "" };
    let v6 = family == "ip6" || family == "inet" && rng.once_in(3);
    match rng.below(22) {
        0..=3 => format!("iifname {}", link(rng)),
        4..=7 => format!("oifname {}", link(rng)),
        8 => format!("iif {not}{}", rng.pick(&LINKS[..4])),
        9 => format!("oif {not}{}", rng.pick(&LINKS[..4])),
        10 | 11 if v6 => format!("ip6 saddr {not}{}", rng.pick(&SOURCES6)),
        10 | 11 => format!("ip saddr {not}{}", rng.pick(&SOURCES4)),
        12 | 13 if v6 => format!("ip6 daddr {not}{}", rng.pick(&TARGETS6)),
        12 | 13 => format!("ip daddr {not}{}", rng.pick(&TARGETS4)),
        14 => format!("ip saddr {not}@s4"),
        15 => format!("meta nfproto {}", rng.pick(&["ipv4", "ipv6"])),
        16 => format!(
            "meta l4proto {}",
            rng.pick(&["udp", "tcp", "icmp", "ipv6-icmp"])
        ),
        17 => format!("udp dport {}", rng.pick(&["30000", "1-20000", "9"])),
        18 => format!(
            "ct state {}",
            rng.pick(&["new", "established,related", "invalid", "untracked"])
        ),
        19 => format!("meta mark {}", rng.pick(&["0", "1", "!= 0"])),
        20 => format!(
            "iifname . oifname {not}{{ \"{}\" . \"{}\", \"eth9\" . \"sink\" }}",
            rng.pick(&LINKS[..4]),
            rng.pick(&LINKS[..4])
        ),
        _ => (*rng.pick(&[
            "fib daddr type local",
            "ip frag-off & 0x3fff != 0",
            "meta pkttype host",
            "ip ttl 63",
            "ip6 nexthdr icmpv6",
            "icmp type echo-request",
            "meta iiftype ether",
            "ip saddr . ip daddr { 10.1.1.2 . 10.9.0.7 }",
            "meta length > 100",
        ]))
        .to_owned(),
    }
}

fn rule(rng: &mut Random, family: &str, chains: &[&str], hook: &str) -> String {
    let mut words: Vec<String> = (0..rng.below(4)).map(|_| test(rng, family)).collect();
    let jump = rng
        .pick(if chains.is_empty() { &["b"] } else { chains })
        .to_string();
    words.push(match rng.below(20) {
        0..=3 => "drop".into(),
        4..=6 => "counter".into(),
        7 => "counter accept".into(),
        8 | 9 => "accept".into(),
        10 | 11 if !chains.is_empty() => format!("{} {jump}", rng.pick(&["jump", "goto"])),
        12 => "return".into(),
        13 => (*rng.pick(&[
            "meta mark set 1",
            "ip dscp set cs1",
            "ct mark set 1",
            "ip ttl set 9",
            "meta priority set 1:1",
        ]))
        .into(),
        14 if hook == "prerouting" => "notrack".into(),
        14 => "reject".into(),
        15 => "iifname vmap @links".into(),
        16 => format!(
            "{} vmap {{ \"{}\" : drop, \"{}\" : accept, \"eth9\" : jump b }}",
            rng.pick(&["iifname", "oifname"]),
            rng.pick(&LINKS[..3]),
            rng.pick(&LINKS[3..6])
        ),
        17 => "ip daddr vmap { 10.9.0.0-10.9.0.20 : drop, 10.9.0.21-10.9.0.30 : accept }".into(),
        18 => (*rng.pick(&[
            "limit rate 1/second drop",
            "add @d4 { ip saddr }",
            "queue num 7",
            "continue",
        ]))
        .into(),
        _ => "counter drop".into(),
    });
    words.join(" ")
}

fn translation(rng: &mut Random, hook: &str, family: &str) -> String {
    let mut words: Vec<String> = (0..rng.below(3)).map(|_| test(rng, family)).collect();
    words.push(
        (*match hook {
            "postrouting" => rng.pick(&[
                "masquerade",
                "snat ip to 10.1.1.77",
                "snat ip to 10.2.1.50-10.2.1.60",
                "snat ip6 to 2001:db8:1:1::77",
                "accept",
            ]),
            _ => rng.pick(&[
                "dnat ip to 10.9.0.55",
                "dnat ip to 10.1.1.9",
                "dnat ip6 to 2001:db8:9::133",
                "redirect to :9",
                "accept",
            ]),
        })
        .into(),
    );
    words.join(" ")
}

/// Rules by iptables, over nftables or not.
fn legacy(rng: &mut Random, which: &str, commands: &mut Vec<String>) {
    let v6 = rng.once_in(3);
    let (ip, sources, targets) = match v6 {
        true => ("ip6tables", &SOURCES6[..2], &TARGETS6[..2]),
        false => (
            "iptables",
            &["10.1.1.0/24", "10.1.1.2", "172.17.0.0/16"][..],
            &TARGETS4[..3],
        ),
    };
    let ip = format!("{ip}-{which}");
    commands.push(format!("{ip} -N own"));
    for _ in 0..2 + rng.below(6) {
        let (table, chain) = *rng.pick(&[
            ("filter", "FORWARD"),
            ("filter", "FORWARD"),
            ("filter", "FORWARD"),
            ("filter", "own"),
            ("filter", "INPUT"),
            ("mangle", "PREROUTING"),
            ("mangle", "FORWARD"),
            ("mangle", "POSTROUTING"),
            ("raw", "PREROUTING"),
            ("nat", "POSTROUTING"),
            ("nat", "PREROUTING"),
        ]);
        let mut words = vec![format!("{ip} -t {table} -A {chain}")];
        let not = |rng: &mut Random| if rng.once_in(5) { "! " } else { "" };
        let name = |rng: &mut Random| rng.pick(&LINKS).replace('*', "+");
        if rng.once_in(2) && !chain.ends_with("POSTROUTING") {
            words.push(format!("{}-i {}", not(rng), name(rng)));
        }
        if rng.once_in(2)
            && (chain == "FORWARD" || chain.ends_with("POSTROUTING") || chain == "own")
        {
            words.push(format!("{}-o {}", not(rng), name(rng)));
        }
        if rng.once_in(3) {
            words.push(format!("{}-s {}", not(rng), rng.pick(sources)));
        }
        if rng.once_in(4) {
            words.push(format!("{}-d {}", not(rng), rng.pick(targets)));
        }
        if rng.once_in(5) {
            words.push(
                (*rng.pick(&[
                    "-p udp --dport 30000",
                    "-p tcp",
                    "-m conntrack --ctstate ESTABLISHED,RELATED",
                    "-m mark --mark 1",
                    "-m addrtype --dst-type LOCAL",
                    "-f",
                ]))
                .to_owned(),
            );
        }
        words.push(
            (*match (table, chain) {
                ("nat", "POSTROUTING") => rng.pick(&[
                    "-j MASQUERADE",
                    "-j SNAT --to-source 10.1.1.77",
                    "-j ACCEPT",
                ]),
                ("nat", _) => rng.pick(&[
                    "-j DNAT --to-destination 10.9.0.55",
                    "-j REDIRECT",
                    "-j RETURN",
                ]),
                ("raw", _) => rng.pick(&["-j NOTRACK", "-j DROP", "-j ACCEPT", "-j CT --notrack"]),
                ("mangle", _) => rng.pick(&[
                    "-j MARK --set-mark 1",
                    "-j ACCEPT",
                    "-j DSCP --set-dscp 8",
                    "-j TTL --ttl-set 9",
                    "-j DROP",
                ]),
                _ => rng.pick(&[
                    "-j DROP",
                    "-j ACCEPT",
                    "-j own",
                    "-j RETURN",
                    "-j REJECT",
                    "-g own",
                    "",
                ]),
            })
            .to_owned(),
        );
        commands.push(words.join(" "));
    }
    if rng.once_in(8) {
        commands.push(format!("{ip} -P FORWARD DROP"));
    }
}

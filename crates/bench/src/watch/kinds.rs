//! The kinds of changes, and what makes and unmakes each.

use super::bpf::Hook;

/// How the daemon gets to know of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A netlink group of the firewall's: nftables, tc, xfrm.
    Announced,
    /// A netlink group of routing's: links, routes, rules, neighbours, settings of a link.
    Followed,
    /// Nobody says so: the daemon has to look.
    Polled,
}

impl Told {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Told::Announced => "announced",
            Told::Followed => "followed",
            Told::Polled => "polled",
        }
    }
}

/// What makes the change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A tool that has been started before and reads its standard input: its words, and what it reads.
    Tool(&'static str, &'static str),
    /// Writes a setting of the namespace, a path below `/proc/sys/net`.
    Setting(&'static str, &'static str),
    /// Hooks a program in that drops everything.
    Program(Hook),
}

/// What becomes of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// None may arrive.
    Stops,
    /// Some go another way, or to another MAC address.
    Moves,
}

/// A kind of change. Commands are words for a router's tools; `{mac}` is the first sink's MAC address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) told: Told,
    pub(super) effect: Effect,
    /// Before the first round; where one of these fails, this kernel cannot do it.
    pub(super) before: &'static [&'static str],
    pub(super) change: Change,
    /// Takes the change back.
    pub(super) back: &'static [&'static str],
    /// After the last round.
    pub(super) after: &'static [&'static str],
    /// The frames' source is one that the router knows no way back to.
    pub(super) stranger: bool,
    /// Of an IP packet, in bytes.
    pub(super) length: usize,
}

const ONE_LINK: &str = "ip route replace 10.9.0.0/16 via 10.2.1.2";
const TWO_LINKS: &str = "ip route replace 10.9.0.0/16 nexthop via 10.2.1.2 nexthop via 10.2.2.2";
const TABLE: &str = "nft add table inet watch";
const CHAIN: &str =
    "nft add chain inet watch passing { type filter hook forward priority 0; policy accept; }";
const NO_TABLE: &str = "nft delete table inet watch";

/// What most of them have in common.
const PLAIN: Kind = Kind {
    name: "",
    told: Told::Announced,
    effect: Effect::Stops,
    before: &[],
    change: Change::Setting("", ""),
    back: &[],
    after: &[],
    stranger: false,
    length: 46,
};

/// All of them, in the order in which they are measured.
pub(super) const ALL: [Kind; 19] = [
    Kind {
        name: "nft-rule",
        before: &[TABLE, CHAIN],
        change: Change::Tool(
            "nft -f -",
            "add rule inet watch passing ip daddr 10.9.0.0/16 drop",
        ),
        back: &["nft flush chain inet watch passing"],
        after: &[NO_TABLE],
        ..PLAIN
    },
    Kind {
        name: "nft-element",
        before: &[
            TABLE,
            CHAIN,
            "nft add set inet watch closed { type ipv4_addr; flags interval; }",
            "nft add rule inet watch passing ip daddr @closed drop",
        ],
        change: Change::Tool("nft -f -", "add element inet watch closed { 10.9.0.0/16 }"),
        back: &["nft flush set inet watch closed"],
        after: &[NO_TABLE],
        ..PLAIN
    },
    Kind {
        name: "tc-ingress",
        before: &["tc qdisc add dev source clsact"],
        // A classic BPF program that says `TC_ACT_SHOT`.
        change: Change::Tool(
            "tc -batch -",
            "filter add dev source ingress bpf direct-action bytecode \"1,6 0 0 2\"",
        ),
        back: &["tc filter del dev source ingress"],
        after: &["tc qdisc del dev source clsact"],
        ..PLAIN
    },
    Kind {
        name: "tc-egress",
        before: &[ONE_LINK, "tc qdisc add dev sink clsact"],
        change: Change::Tool(
            "tc -batch -",
            "filter add dev sink egress bpf direct-action bytecode \"1,6 0 0 2\"",
        ),
        back: &["tc filter del dev sink egress"],
        after: &["tc qdisc del dev sink clsact", TWO_LINKS],
        ..PLAIN
    },
    Kind {
        name: "qdisc",
        before: &[ONE_LINK],
        // No packet fits into its bucket.
        change: Change::Tool(
            "tc -batch -",
            "qdisc replace dev sink root tbf rate 8kbit burst 10 limit 1",
        ),
        back: &["tc qdisc del dev sink root"],
        after: &[TWO_LINKS],
        ..PLAIN
    },
    Kind {
        name: "xfrm-policy",
        change: Change::Tool(
            "ip -batch -",
            "xfrm policy add src 0.0.0.0/0 dst 10.9.0.0/16 dir fwd action block",
        ),
        back: &["ip xfrm policy flush"],
        ..PLAIN
    },
    Kind {
        name: "route",
        told: Told::Followed,
        effect: Effect::Moves,
        change: Change::Tool("ip -batch -", "route replace 10.9.0.0/16 via 10.2.1.2"),
        back: &[TWO_LINKS],
        ..PLAIN
    },
    Kind {
        name: "route-gone",
        told: Told::Followed,
        change: Change::Tool("ip -batch -", "route del 10.9.0.0/16"),
        back: &[TWO_LINKS],
        ..PLAIN
    },
    Kind {
        name: "nexthops",
        told: Told::Followed,
        effect: Effect::Moves,
        before: &[
            "ip nexthop add id 1 via 10.2.1.2 dev sink",
            "ip nexthop add id 2 via 10.2.2.2 dev sink-2",
            "ip nexthop add id 3 group 1/2",
            "ip route replace 10.9.0.0/16 nhid 3",
        ],
        change: Change::Tool("ip -batch -", "nexthop replace id 3 group 1"),
        back: &["ip nexthop replace id 3 group 1/2"],
        after: &[
            TWO_LINKS,
            "ip nexthop del id 3",
            "ip nexthop del id 2",
            "ip nexthop del id 1",
        ],
        ..PLAIN
    },
    Kind {
        name: "rule",
        told: Told::Followed,
        change: Change::Tool("ip -batch -", "rule add pref 100 to 10.9.0.0/16 prohibit"),
        back: &["ip rule del pref 100"],
        ..PLAIN
    },
    Kind {
        name: "neighbour",
        told: Told::Followed,
        effect: Effect::Moves,
        change: Change::Tool(
            "ip -batch -",
            "neigh replace 10.2.1.2 lladdr 02:00:5e:00:00:07 dev sink nud permanent",
        ),
        back: &["ip neigh replace 10.2.1.2 lladdr {mac} dev sink nud permanent"],
        ..PLAIN
    },
    Kind {
        name: "mtu",
        told: Told::Followed,
        before: &[ONE_LINK],
        change: Change::Tool("ip -batch -", "link set dev sink mtu 1300"),
        back: &["ip link set dev sink mtu 1500"],
        after: &[TWO_LINKS],
        length: 1400,
        ..PLAIN
    },
    Kind {
        name: "rp-filter",
        told: Told::Followed,
        change: Change::Setting("ipv4/conf/source/rp_filter", "1"),
        back: &["sysctl -qw net.ipv4.conf.source.rp_filter=0"],
        stranger: true,
        ..PLAIN
    },
    Kind {
        name: "forwarding",
        told: Told::Followed,
        change: Change::Setting("ipv4/conf/source/forwarding", "0"),
        back: &["sysctl -qw net.ipv4.conf.source.forwarding=1"],
        ..PLAIN
    },
    Kind {
        name: "hash-policy",
        told: Told::Polled,
        effect: Effect::Moves,
        change: Change::Setting("ipv4/fib_multipath_hash_policy", "0"),
        back: &["sysctl -qw net.ipv4.fib_multipath_hash_policy=1"],
        ..PLAIN
    },
    Kind {
        name: "iptables",
        told: Told::Polled,
        change: Change::Tool(
            "iptables-legacy-restore -n",
            "*filter\n-A FORWARD -d 10.9.0.0/16 -j DROP\nCOMMIT",
        ),
        back: &["iptables-legacy -F FORWARD"],
        ..PLAIN
    },
    Kind {
        name: "tcx",
        told: Told::Polled,
        change: Change::Program(Hook::Tcx),
        ..PLAIN
    },
    Kind {
        name: "bpf-netfilter",
        told: Told::Polled,
        change: Change::Program(Hook::Netfilter),
        ..PLAIN
    },
    Kind {
        name: "vrf",
        told: Told::Followed,
        before: &[
            "ip link add red type vrf table 5",
            "ip link set red up",
            "ip route add unreachable default metric 4278198272 table 5",
        ],
        change: Change::Tool("ip -batch -", "link set dev source master red"),
        back: &["ip link set dev source nomaster"],
        after: &["ip link del red"],
        ..PLAIN
    },
];

/// Known to the daemon, and not measured: why.
pub(super) const UNSEEN: &[(&str, &str)] = &[(
    "ipvs",
    "looked for as iptables is; a service alone changes nothing of what becomes of these frames",
)];

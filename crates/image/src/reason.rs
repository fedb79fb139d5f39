//! Why a packet was not forwarded by an engine. All that is said of a reason is said here, once.

use std::fmt::{self, Write as _};

/// What an engine does with a packet that it does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes to the kernel, untouched.
    Punt,
    /// It is dropped, as the kernel would drop it without a word.
    Drop,
}

/// One reason for each entry: its variant, its number, its name in counters, metrics and messages (lower case, words
/// joined by hyphens), what becomes of the packet, its place among the errors of a SID that are counted apart, if it
/// has one; then what it means, and what to do if it is much.
///
/// From these come the enum, [`Reason::ALL`], the C header and the table of `docs/reasons.md`.
macro_rules! reasons {
    ($($variant:ident = $number:literal, $name:literal, $verdict:ident $(, slot $slot:literal)?,
        $means:literal, $advice:literal;)*) => {
        /// Why an engine punted a packet to the kernel, or dropped it.
        ///
        /// The number is the counter's index, also of a program that an earlier version has pinned: numbers are only
        /// ever added at the end, and never used again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Reason {
            /// Not a reason: the packet was forwarded.
            None = 0,
            $(#[doc = $means] $variant = $number,)*
        }

        /// What is said of each reason, by its number.
        const FACTS: &[Facts] = &[
            Facts {
                name: "forwarded",
                verdict: Verdict::Punt,
                slot: None,
                means: "",
                advice: "",
            },
            $(Facts {
                name: $name,
                verdict: Verdict::$verdict,
                slot: slot!($($slot)?),
                means: $means,
                advice: $advice,
            },)*
        ];

        impl Reason {
            /// Every reason, in the order of its number.
            pub const ALL: [Reason; FACTS.len()] = [Reason::None, $(Reason::$variant,)*];
        }
    };
}

macro_rules! slot {
    () => {
        None
    };
    ($slot:literal) => {
        Some($slot)
    };
}

/// What is said of a reason.
struct Facts {
    name: &'static str,
    verdict: Verdict,
    /// Its place among the errors of a SID.
    slot: Option<usize>,
    means: &'static str,
    advice: &'static str,
}

reasons! {
    NotEnabled = 1, "not-enabled", Punt,
        "the link is not one that raddle forwards from; or what is known of links is being written anew, for some milliseconds after \
         a change of routing rules, firewalls or links",
        "where it goes on: name the link with `--link`, or turn forwarding on";
    Held = 2, "held", Punt,
        "raddle has been told to keep out: a firewall rule appeared, notifications were lost, no \
         daemon keeps the image in step, or it is being written",
        "`raddle status` says why";
    NotIp = 3, "not-ip", Punt,
        "neither IPv4 nor IPv6: ARP, LLDP, MPLS, ...",
        "";
    Vlan = 4, "vlan", Punt,
        "a tag of no VLAN that is forwarded from upon the link, or more than two tags; or the program for tagged frames is not loaded",
        "`raddle status` says which VLANs are forwarded from; [some](vlans.md#what-is-left-to-the-kernel) are the kernel's";
    OtherMac = 5, "other-mac", Punt,
        "not to this link's own MAC address: broadcast, multicast, somebody else's",
        "";
    Truncated = 6, "truncated", Punt,
        "the frame ends before its headers do",
        "look at the sender";
    BadHeader = 7, "bad-header", Punt,
        "IP version or header length is wrong",
        "look at the sender";
    BadChecksum = 8, "bad-checksum", Punt,
        "the IPv4 header checksum is wrong",
        "look at the cable, the NIC, the sender";
    BadLength = 9, "bad-length", Punt,
        "the IP length does not fit the frame",
        "look at the sender";
    Options = 10, "options", Punt,
        "IPv4 options, or an IPv6 hop-by-hop header",
        "";
    TtlExceeded = 11, "ttl-exceeded", Punt, slot 6,
        "TTL or hop limit of 1 or 0: the kernel answers with ICMP",
        "traceroute, or a loop";
    MartianSource = 12, "martian-source", Punt,
        "a source address that may not appear on the wire",
        "look at the sender";
    MartianDestination = 13, "martian-destination", Punt,
        "a destination address that may not appear on the wire",
        "look at the sender";
    LocalSource = 14, "local-source", Punt,
        "the source is an address of this machine, or a `local` route leads to it",
        "a loop, or somebody pretends to be you";
    RpFilter = 15, "rp-filter", Punt,
        "reverse-path filtering (`rp_filter`) refuses the source or, where engines do not see the way back, may",
        "`raddle explain` says by which link the source's route leaves, `raddle status` names out-links that are judged by the kernel alone";
    ForwardingOff = 16, "forwarding-off", Punt,
        "forwarding is off for the link and family, or the link takes no IPv6 (`disable_ipv6`, MTU \
         below 1280)",
        "turn it on";
    Local = 17, "local", Punt,
        "to this machine itself: routing protocols, ssh, ...",
        "";
    Broadcast = 18, "broadcast", Punt,
        "a broadcast destination",
        "";
    Multicast = 19, "multicast", Punt,
        "a multicast destination",
        "multicast routing is the kernel's";
    Anycast = 20, "anycast", Punt,
        "an anycast address of this machine",
        "";
    LinkLocal = 21, "link-local", Punt,
        "an IPv6 link-local source or destination",
        "";
    NoRoute = 22, "no-route", Punt, slot 8,
        "no table has a route: the kernel answers with ICMP",
        "look at your routes";
    Blackhole = 23, "blackhole", Drop,
        "a blackhole route or nexthop",
        "";
    Unreachable = 24, "unreachable", Punt,
        "an unreachable route: the kernel answers with ICMP",
        "";
    Prohibit = 25, "prohibit", Punt,
        "a prohibit route: the kernel answers with ICMP",
        "";
    Throw = 26, "throw", Punt,
        "a throw route: the kernel goes on with the next rule",
        "";
    Unresolved = 27, "unresolved", Punt, slot 9,
        "the neighbour has no valid link-layer address; the kernel asks for it",
        "if it lasts: the neighbour is down";
    OutLink = 28, "out-link", Punt,
        "raddle may not send through that link: down, shaped, not Ethernet, part of a bridge, cannot \
         take redirects, ...",
        "`raddle status` says why";
    SameLink = 29, "same-link", Punt,
        "it would leave by the link that it came in on; the kernel also sends a redirect",
        "fix the sender's routes";
    Mtu = 30, "mtu", Punt, slot 7,
        "longer than the route's or the link's MTU (or `net.ipv6.conf.LINK.mtu`, for both families): \
         the kernel fragments or answers. With `ip_forward_use_pmtu` also what is longer than \
         `net.ipv4.route.min_pmtu`: the kernel alone knows the MTUs it has learnt",
        "raise the MTU; turn LRO off; `sysctl -w net.ipv4.ip_forward_use_pmtu=0`";
    SeedUnknown = 31, "seed-unknown", Punt,
        "several paths, and the kernel's own hash key could not be read",
        "`sysctl -w net.ipv4.fib_multipath_hash_seed=N`, or `raddle run --seed random`; before Linux \
         6.11 it cannot be set";
    HashPolicy = 32, "hash-policy", Punt,
        "several paths, hash policy 2 or 3, and a tunnel that carries neither IPv4 nor IPv6 in the \
         end (TIPC)",
        "";
    Rules = 33, "rules", Punt,
        "a routing rule asks for what the packet shows and cannot be followed: the way back that `rp_filter` looks for, too large a look-up, too many \
         rules, or one that decides by something unknown, is for user 0, or discards (`blackhole`). One that asks for all packets of links that are \
         asked about it sends all of its family here",
        "`raddle status` names it; those of VRFs, Tailscale and wg-quick are fine ([rules](rules.md))";
    Encap = 34, "encap", Punt,
        "the route or nexthop has an encapsulation that raddle does not carry out: MPLS, IP tunnels, \
         and [of SRv6](srv6.md#who-does-what) End.BPF, End.X with `oif`, segment lists that are to be \
         signed",
        "";
    RouteFeature = 35, "route-feature", Punt,
        "routes with a TOS; IPv6 routes with a source prefix; several IPv6 routes of one metric that \
         are not one multipath route; with `net.ipv6.conf.all.proxy_ndp`, proxied IPv6 neighbours \
         (`ip -6 neigh show proxy`); multipath routes over a link whose `ignore_routes_with_linkdown` \
         changed since it lost its carrier: the kernel keeps the shares that it gave by the setting \
         of that time, and does not tell",
        "of such a link: `ip link set dev LINK down` until it is repaired";
    Resilient = 36, "resilient", Punt,
        "a resilient nexthop group whose buckets are not known just now, or whose idle timer is below \
         0.2 s",
        "a longer idle timer";
    ImageFull = 37, "image-full", Punt,
        "there was no room for the table or the group",
        "raise the key that `raddle status` names (`routes4`, `routes6`, `sids`, `groups`, `members` \
         or `adjacencies`), restart";
    DeepHeaders = 38, "deep-headers", Punt,
        "the hash needs bytes that are in a later buffer of a large frame",
        "";
    RedirectFailed = 39, "redirect-failed", Punt,
        "the redirect was refused: the out-link has just gone",
        "";
    BucketActivity = 40, "bucket-activity", Punt,
        "a resilient group's bucket in use is shown to the kernel eight times in the idle timer, and \
         first thing after it may have moved, by a packet that the kernel forwards the same way",
        "";
    NoSrh = 41, "no-srh", Drop, slot 0,
        "for an SRv6 SID that wants a segment routing header with segments left, and there is none",
        "look at the headend's segment list";
    SegmentsLeft = 42, "segments-left", Drop, slot 1,
        "for an SRv6 SID that ends the path (End.D*), with segments left",
        "look at the headend's segment list";
    BadSrh = 43, "bad-srh", Drop, slot 2,
        "an SRH that is cut short, lies about its lengths, or has a TLV that runs out",
        "look at the sender";
    Hmac = 44, "hmac", Drop, slot 3,
        "an SRH whose HMAC is wrong, or is missing where `seg6_require_hmac` wants one",
        "compare the keys (`ip sr hmac show`)";
    Payload = 45, "payload", Drop, slot 4,
        "what is encapsulated is not what the SID's behaviour takes out (IPv6 to End.DX4, ...)",
        "look at the headend";
    SegmentLink = 46, "segment-link", Drop, slot 5,
        "the out-link of End.DX2 is gone, down, not Ethernet, or the frame is larger than its MTU, or \
         no Ethernet II frame",
        "`ip link show`; raise its MTU";
    HmacCheck = 47, "hmac-check", Punt, slot 10,
        "an SRH with an HMAC: the XDP engine leaves the check to the kernel",
        "";
    SidChain = 48, "sid-chain", Punt, slot 11,
        "more SRv6 behaviours one after the other on this machine than an engine carries out on one \
         packet",
        "";
    Headroom = 49, "headroom", Punt,
        "no room in front of the frame for the headers of an encapsulation",
        "shorten the segment list, or use compressed SIDs";
    SourceCheck = 50, "source-check", Punt,
        "a `broadcast`, `anycast` or `multicast` route leads to the source. The kernel refuses such \
         packets where it looks sources up: since there was a routing rule or an added `local` route, \
         or while there is a realm. That cannot be seen",
        "look at the sender";
    Expiring = 51, "expiring", Punt,
        "an IPv6 route that expires (`expires` in `raddle -6 route show`: of a router advertisement, \
         of an address with a lifetime, of `ip route add ... expires`), from half a second before its \
         time until it is renewed or the kernel has removed it: the kernel alone knows whether it \
         still counts",
        "if it lasts: the router advertises too seldom; `sysctl net.ipv6.route.gc_interval` says how \
         often the kernel removes expired routes";
    Firewall = 52, "firewall", Punt,
        "netfilter, tc or xfrm may judge, change or count packets of these links or addresses; with connection tracking or \
         reassembly, fragments and ICMP errors as well; SRv6 on links that any of this concerns",
        "`raddle status` names the rules ([firewalls](firewalls.md))";
    SeveralBuffers = 53, "several-buffers", Punt,
        "a large frame that lies in several buffers, where the kernel (before Linux 6.3) or the driver of any out-link with an \
         MTU above 1500 loses such frames",
        "a newer kernel; an MTU at which frames fit into one buffer (some 3,500 bytes, by the driver)";
    Bridge = 54, "bridge", Punt,
        "a frame to a bridge or a VLAN of it, by a port at which its VLAN is not forwarded from, or its source has yet to be learnt",
        "if it lasts: look at `bridge fdb show` and `bridge vlan show`; [some](bridges.md#what-is-left-to-the-kernel) are the kernel's";
}

impl Reason {
    /// How many counters reasons take; indices from [`Reason::ALL`] lie below this.
    pub const SLOTS: usize = 64;

    /// One bit for each reason for which packets are dropped, at its number.
    pub(crate) const DROPS: u64 = {
        let mut drops = 0;
        let mut number = 0;
        while number < FACTS.len() {
            if matches!(FACTS[number].verdict, Verdict::Drop) {
                drops |= 1 << number;
            }
            number += 1;
        }
        drops
    };

    /// One bit for each reason of packets that no engine ever forwards, at its number.
    pub(crate) const NOT_TRANSIT: u64 = {
        let reasons = [
            Reason::NotEnabled,
            Reason::NotIp,
            Reason::OtherMac,
            Reason::Local,
            Reason::Broadcast,
            Reason::Multicast,
            Reason::Anycast,
            Reason::LinkLocal,
        ];
        let (mut bits, mut at) = (0, 0);
        while at < reasons.len() {
            bits |= 1 << reasons[at] as u8;
            at += 1;
        }
        bits
    };

    /// Whether packets that are punted for this reason might have been forwarded: the others are for this machine, for many, or of
    /// no protocol that is routed.
    #[inline]
    pub const fn is_transit(self) -> bool {
        Reason::NOT_TRANSIT >> self as u8 & 1 == 0
    }

    /// Whether a packet is dropped for this reason, as the kernel drops it silently, and not punted.
    #[inline]
    pub const fn is_drop(self) -> bool {
        Reason::DROPS >> self as u8 & 1 != 0
    }

    /// Its place among the errors that are counted apart for each SID, if it has one; see
    /// [`segment_counter`](crate::segment_counter).
    #[inline]
    pub const fn slot(self) -> Option<usize> {
        FACTS[self as usize].slot
    }

    /// The reason with this number, if there is one.
    pub fn from_number(n: u8) -> Option<Reason> {
        Reason::ALL.get(usize::from(n)).copied()
    }

    /// The name in counters, metrics and messages: lower case, words joined by hyphens.
    pub const fn name(self) -> &'static str {
        FACTS[self as usize].name
    }

    /// What it means, in Markdown: half a sentence.
    pub const fn means(self) -> &'static str {
        FACTS[self as usize].means
    }

    /// What to do if there are many such packets, in Markdown with links into the book; empty where there is nothing to do.
    pub const fn advice(self) -> &'static str {
        FACTS[self as usize].advice
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What `docs/reasons.md` has between its marks: a table of all reasons, in Markdown.
pub fn reasons_table() -> String {
    let mut out =
        String::from("| reason | what it means | what to do if it is much |\n|---|---|---|\n");
    for facts in &FACTS[1..] {
        let dropped = match facts.verdict {
            Verdict::Drop => ": **dropped**",
            Verdict::Punt => "",
        };
        let _ = writeln!(
            out,
            "| `{}` | {}{dropped} | {} |",
            facts.name, facts.means, facts.advice
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        for (i, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i, "{reason}");
            assert_eq!(Reason::from_number(i as u8), Some(*reason));
        }
        assert!(Reason::ALL.len() <= Reason::SLOTS);
        assert_eq!(Reason::from_number(Reason::ALL.len() as u8), None);
    }

    #[test]
    fn names_are_unique_and_words_of_lower_case() {
        let mut names = Reason::ALL.map(Reason::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        let is_word = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(names.iter().all(|name| name.chars().all(is_word)));
    }

    /// What the kernel drops without a word (`ip_error`, `seg6_local_input_core`), by name: whoever changes this changes
    /// what becomes of packets.
    #[test]
    fn these_are_dropped() {
        let drops = Reason::ALL.into_iter().filter(|reason| reason.is_drop());
        let names: Vec<&str> = drops.map(Reason::name).collect();
        assert_eq!(
            names,
            [
                "blackhole",
                "no-srh",
                "segments-left",
                "bad-srh",
                "hmac",
                "payload",
                "segment-link"
            ]
        );
    }
}

//! Why a packet was not forwarded by an engine.

/// Why an engine handed a packet to the kernel, or dropped it.
///
/// The number is the counter's index and is shared with the XDP program (`bpf/image.h`), so numbers
/// are only ever added at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// Not a reason: the packet was forwarded.
    None = 0,
    /// The link that the packet came in on is not one of ours.
    NotEnabled = 1,
    /// The image is held back or too old (no daemon keeps it in step), so the kernel decides.
    Held = 2,
    /// Neither IPv4 nor IPv6: ARP, LLDP, 802.3 and so on.
    NotIp = 3,
    /// A VLAN tag.
    Vlan = 4,
    /// Not sent to this link's MAC address: broadcast, multicast or somebody else's.
    OtherMac = 5,
    /// Too short to hold its headers.
    Truncated = 6,
    /// IP version or header length is wrong.
    BadHeader = 7,
    /// IPv4 header checksum is wrong.
    BadChecksum = 8,
    /// The length in the IP header does not fit the frame.
    BadLength = 9,
    /// IPv4 options or an IPv6 hop-by-hop header.
    Options = 10,
    /// TTL or hop limit is 1 or 0: the kernel answers with an ICMP error.
    TtlExceeded = 11,
    /// A source address that may not appear on the wire.
    MartianSource = 12,
    /// A destination address that may not appear on the wire.
    MartianDestination = 13,
    /// The source address is one of this machine's own.
    OwnSource = 14,
    /// Reverse-path filtering is on for the link and is left to the kernel.
    RpFilter = 15,
    /// Forwarding is off for the link.
    ForwardingOff = 16,
    /// For this machine itself.
    Local = 17,
    /// A broadcast address.
    Broadcast = 18,
    /// A multicast destination.
    Multicast = 19,
    /// An anycast address of this machine.
    Anycast = 20,
    /// A link-local source or destination (IPv6).
    LinkLocal = 21,
    /// No route.
    NoRoute = 22,
    /// A blackhole route: dropped silently, as the kernel does.
    Blackhole = 23,
    /// An unreachable route.
    Unreachable = 24,
    /// A prohibit route.
    Prohibit = 25,
    /// A throw route.
    Throw = 26,
    /// The nexthop's neighbour has no valid link-layer address: the kernel must resolve it.
    Unresolved = 27,
    /// The out-link cannot be used by an engine (shaped, not Ethernet, no redirect support, down).
    OutLink = 28,
    /// The packet would leave by the link that it came in on; the kernel sends a redirect.
    SameLink = 29,
    /// Larger than the path's MTU: the kernel fragments or answers.
    Mtu = 30,
    /// The kernel's hash seed is random and cannot be known (`fib_multipath_hash_seed` is 0).
    SeedUnknown = 31,
    /// A packet in a tunnel whose hash is not modelled (policies 2 and 3), or a policy beyond 3.
    HashPolicy = 32,
    /// Routing rules that engines do not model.
    Rules = 33,
    /// A route with an encapsulation that engines do not model.
    Encap = 34,
    /// Another route feature that engines do not model (TOS, several device routes, ...).
    RouteFeature = 35,
    /// A resilient group whose buckets are not known just now, or whose idle timer is below 0.2 s.
    Resilient = 36,
    /// The image's memory is used up.
    ImageFull = 37,
    /// The hash needs bytes that are not at hand (headers in a later buffer of the frame).
    DeepHeaders = 38,
    /// The redirect itself was refused (the out-link's driver or queue).
    RedirectFailed = 39,
    /// A packet of a resilient group's bucket that the kernel shall see now and then, lest it takes the
    /// bucket for idle; it forwards the packet by the same bucket.
    BucketActivity = 40,
    /// For an SRv6 SID that wants an SRH, and there is none, or none with segments left.
    NoSrh = 41,
    /// For an SRv6 SID that ends the path, and there are segments left.
    SegmentsLeft = 42,
    /// An SRH that is cut short, lies about its lengths, or has a TLV that runs out.
    BadSrh = 43,
    /// An SRH whose HMAC is wrong, or is missing where `seg6_require_hmac` wants one.
    Hmac = 44,
    /// What is encapsulated is not what the SRv6 behaviour takes out.
    Payload = 45,
    /// The out-link of an SRv6 SID that sends frames (End.DX2): gone, down, no Ethernet, or the frame is
    /// larger than its MTU.
    SegmentLink = 46,
    /// An SRH with an HMAC, which the XDP engine does not check.
    HmacCheck = 47,
    /// More SRv6 behaviours one after the other on this machine than engines carry out on one packet.
    SidChain = 48,
    /// No room in front of the frame, or in the engine, for the headers of an encapsulation.
    Headroom = 49,
    /// The source is no unicast address by a route in some table, and where the kernel looks sources up it
    /// refuses such a packet. Nobody can see from outside whether it does.
    SourceCheck = 50,
    /// The IPv6 route is about to expire, or its time has come: whether it is used yet, the kernel knows.
    Expiring = 51,
}

impl Reason {
    /// How many counters reasons take; indices from [`Reason::ALL`] lie below this.
    pub const SLOTS: usize = 64;

    /// Every reason, in the order of its number.
    pub const ALL: [Reason; 52] = {
        use Reason::*;
        [
            None,
            NotEnabled,
            Held,
            NotIp,
            Vlan,
            OtherMac,
            Truncated,
            BadHeader,
            BadChecksum,
            BadLength,
            Options,
            TtlExceeded,
            MartianSource,
            MartianDestination,
            OwnSource,
            RpFilter,
            ForwardingOff,
            Local,
            Broadcast,
            Multicast,
            Anycast,
            LinkLocal,
            NoRoute,
            Blackhole,
            Unreachable,
            Prohibit,
            Throw,
            Unresolved,
            OutLink,
            SameLink,
            Mtu,
            SeedUnknown,
            HashPolicy,
            Rules,
            Encap,
            RouteFeature,
            Resilient,
            ImageFull,
            DeepHeaders,
            RedirectFailed,
            BucketActivity,
            NoSrh,
            SegmentsLeft,
            BadSrh,
            Hmac,
            Payload,
            SegmentLink,
            HmacCheck,
            SidChain,
            Headroom,
            SourceCheck,
            Expiring,
        ]
    };

    /// Whether a packet is dropped for this reason, as the kernel drops it silently, and not handed
    /// over.
    #[inline]
    pub fn is_drop(self) -> bool {
        use Reason::*;
        matches!(
            self,
            Blackhole | NoSrh | SegmentsLeft | BadSrh | Hmac | Payload | SegmentLink
        )
    }

    /// The reason with this number, if there is one.
    pub fn from_number(n: u8) -> Option<Reason> {
        Reason::ALL.get(usize::from(n)).copied()
    }

    /// The name in counters, metrics and messages: lower case, words joined by hyphens.
    pub fn name(self) -> &'static str {
        use Reason::*;
        match self {
            None => "forwarded",
            NotEnabled => "not-enabled",
            Held => "held",
            NotIp => "not-ip",
            Vlan => "vlan",
            OtherMac => "other-mac",
            Truncated => "truncated",
            BadHeader => "bad-header",
            BadChecksum => "bad-checksum",
            BadLength => "bad-length",
            Options => "options",
            TtlExceeded => "ttl-exceeded",
            MartianSource => "martian-source",
            MartianDestination => "martian-destination",
            OwnSource => "own-source",
            RpFilter => "rp-filter",
            ForwardingOff => "forwarding-off",
            Local => "local",
            Broadcast => "broadcast",
            Multicast => "multicast",
            Anycast => "anycast",
            LinkLocal => "link-local",
            NoRoute => "no-route",
            Blackhole => "blackhole",
            Unreachable => "unreachable",
            Prohibit => "prohibit",
            Throw => "throw",
            Unresolved => "unresolved",
            OutLink => "out-link",
            SameLink => "same-link",
            Mtu => "mtu",
            SeedUnknown => "seed-unknown",
            HashPolicy => "hash-policy",
            Rules => "rules",
            Encap => "encap",
            RouteFeature => "route-feature",
            Resilient => "resilient",
            ImageFull => "image-full",
            DeepHeaders => "deep-headers",
            RedirectFailed => "redirect-failed",
            BucketActivity => "bucket-activity",
            NoSrh => "no-srh",
            SegmentsLeft => "segments-left",
            BadSrh => "bad-srh",
            Hmac => "hmac",
            Payload => "payload",
            SegmentLink => "segment-link",
            HmacCheck => "hmac-check",
            SidChain => "sid-chain",
            Headroom => "headroom",
            SourceCheck => "source-check",
            Expiring => "expiring",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
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

    /// The names in the first column of the table in docs/reasons.md.
    fn documented() -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| row.split(" |").next())
            .flat_map(|cell| cell.split(", "))
            .map(|name| name.trim_matches('`').to_owned())
            .collect()
    }

    /// A row without a reason, a reason without a row, and one that stands there twice all fail.
    #[test]
    fn every_reason_is_documented_and_nothing_else() {
        let mut documented = documented();
        let mut names: Vec<&str> = Reason::ALL[1..].iter().map(|r| r.name()).collect();
        documented.sort();
        names.sort_unstable();
        assert_eq!(documented, names);
    }
}

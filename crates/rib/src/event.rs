//! What the kernel tells us, as typed facts.
//!
//! `netlink` decodes messages into these, a snapshot file holds them as JSON, and [`crate::Rib`]
//! applies them. Names and numbers are rtnetlink's; addresses are in no particular byte order
//! because they are `IpAddr`s.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::algo::MpAlgo;

/// A network device (`RTM_NEWLINK`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name, such as `eth0`.
    pub name: String,
    /// Link-layer address, where it is 6 bytes long.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// `IFF_*` flags: 1 up, 0x40 running, 0x10000 lower up.
    pub flags: u32,
    /// `ARPHRD_*`: 1 is Ethernet, 772 loopback.
    pub arp_type: u16,
    /// `IF_OPER_*`: 6 is up.
    pub operstate: u8,
    /// Kind from `IFLA_INFO_KIND`: `veth`, `bridge`, `vlan`, ...; none for physical devices.
    pub kind: Option<String>,
    /// The bridge, bond or VRF that this device is enslaved to.
    pub master: Option<u32>,
    /// `IFLA_LINK`: a veth's peer, a VLAN's lower device.
    pub lower: Option<u32>,
    /// `IFLA_LINK_NETNSID`: the namespace of `lower` where it is another one.
    pub lower_netns: Option<i32>,
    /// Root qdisc's kind (`IFLA_QDISC`).
    pub qdisc: String,
    /// Number of transmit queues.
    pub tx_queues: u32,
    /// Attached XDP program, if any.
    pub xdp: Option<XdpAttached>,
}

impl Link {
    /// Administratively up (`IFF_UP`).
    pub fn is_up(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Has carrier, as nexthop objects see it: `IFF_RUNNING` or `IFF_LOWER_UP`
    /// (`nh_netdev_event`).
    pub fn has_carrier(&self) -> bool {
        self.flags & (0x40 | 0x1_0000) != 0
    }

    /// Nexthop objects go when their link goes down or loses carrier (`nh_netdev_event`).
    pub(crate) fn keeps_nexthops(&self) -> bool {
        self.is_up() && self.has_carrier()
    }

    /// An Ethernet device (`ARPHRD_ETHER`).
    pub fn is_ethernet(&self) -> bool {
        self.arp_type == 1
    }
}

/// An XDP program on a link, as `IFLA_XDP` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpAttached {
    /// `XDP_ATTACHED_*`: 1 driver, 2 generic, 3 hardware, 4 several.
    pub mode: u8,
    /// Program id; 0 when not told.
    pub program: u32,
}

/// An address of this machine (`RTM_NEWADDR`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The link that has it.
    pub index: u32,
    /// The local address (`IFA_LOCAL`, or `IFA_ADDRESS` for IPv6).
    pub local: IpAddr,
    /// The peer of a point-to-point address, where it differs from `local`.
    pub peer: Option<IpAddr>,
    /// Prefix length, 0..=32 or 0..=128.
    pub prefix_len: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `IFA_F_*` flags.
    pub flags: u32,
    /// Broadcast address (IPv4).
    pub broadcast: Option<IpAddr>,
    /// Label (IPv4).
    pub label: Option<String>,
}

/// A neighbour entry (`RTM_NEWNEIGH`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The link that it is on.
    pub index: u32,
    /// Its address.
    pub dst: IpAddr,
    /// Its link-layer address, where it is 6 bytes long.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*` state bits.
    pub state: u16,
    /// `NTF_*` flags (0x80 router, 0x08 proxy).
    pub flags: u8,
    /// `RTPROT_*` of who installed it.
    pub protocol: u8,
}

/// `NUD_VALID`: permanent, no-ARP, reachable, probe, stale or delay. A neighbour in one of these
/// states has a link-layer address that may be used.
pub const NUD_VALID: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;
/// `NUD_STALE`.
pub const NUD_STALE: u16 = 0x04;

impl Neighbour {
    /// Whether the kernel would send to it without asking (`nud_state & NUD_VALID`).
    pub fn is_valid(&self) -> bool {
        self.state & NUD_VALID != 0
    }
}

/// An encapsulation that a route or nexthop carries (`RTA_ENCAP_TYPE`, `RTA_ENCAP`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Encap {
    /// `LWTUNNEL_ENCAP_*`: 5 seg6, 7 seg6local, ...
    pub kind: u16,
    /// The attribute's payload as it came.
    pub data: Vec<u8>,
}

/// One nexthop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteNexthop {
    /// Gateway; an IPv4 route may have an IPv6 one (`RTA_VIA`).
    pub gateway: Option<IpAddr>,
    /// Out-link; 0 when the message named none.
    pub index: u32,
    /// Weight, 1..=256.
    pub weight: u16,
    /// `RTNH_F_*`: 1 dead, 4 onlink, 16 linkdown.
    pub flags: u8,
    /// Encapsulation.
    pub encap: Option<Encap>,
}

impl Default for RouteNexthop {
    /// Of weight 1, without gateway, link or encapsulation: what a route message that names none of
    /// them tells.
    fn default() -> RouteNexthop {
        RouteNexthop {
            gateway: None,
            index: 0,
            weight: 1,
            flags: 0,
            encap: None,
        }
    }
}

/// `RTNH_F_DEAD`.
pub const RTNH_F_DEAD: u8 = 1;
/// `RTNH_F_ONLINK`.
pub const RTNH_F_ONLINK: u8 = 4;
/// `RTNH_F_LINKDOWN`.
pub const RTNH_F_LINKDOWN: u8 = 16;

/// Route types (`RTN_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum RouteKind {
    /// Not told (deletions).
    Unspec = 0,
    /// Gateway or direct route.
    #[default]
    Unicast = 1,
    /// Accept locally.
    Local = 2,
    /// Accept as broadcast.
    Broadcast = 3,
    /// Accept as anycast.
    Anycast = 4,
    /// Multicast.
    Multicast = 5,
    /// Drop.
    Blackhole = 6,
    /// ICMP unreachable.
    Unreachable = 7,
    /// ICMP prohibited.
    Prohibit = 8,
    /// Not in this table.
    Throw = 9,
    /// Translate (no longer used).
    Nat = 10,
    /// External resolver.
    Xresolve = 11,
}

impl RouteKind {
    /// The kind with this `RTN_*` number.
    pub fn from_number(n: u8) -> Option<RouteKind> {
        use RouteKind::*;
        [
            Unspec,
            Unicast,
            Local,
            Broadcast,
            Anycast,
            Multicast,
            Blackhole,
            Unreachable,
            Prohibit,
            Throw,
            Nat,
            Xresolve,
        ]
        .get(usize::from(n))
        .copied()
    }
}

/// Bit of [`Route::flags`] of routes that raddle itself has and the kernel does not: dumps do not sweep
/// them, and they come before the kernel's of the same prefix. The kernel uses other bits.
pub const ROUTE_OWN: u32 = 1 << 24;

/// Where a route leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteTarget {
    /// Nowhere: blackhole, unreachable, prohibit, throw.
    #[default]
    None,
    /// One nexthop of the route's own.
    Single(RouteNexthop),
    /// `RTA_MULTIPATH`.
    Multipath(Vec<RouteNexthop>),
    /// `RTA_NH_ID`: a nexthop object; the kernel's expansion of it is not kept.
    Object(u32),
}

impl RouteTarget {
    /// Whether it is, or one of its nexthops is, a SID of this machine.
    pub fn has_sid(&self) -> bool {
        let is_sid = |hop: &RouteNexthop| {
            let encap = hop.encap.as_ref();
            encap.is_some_and(|encap| encap.kind == crate::seg6::ENCAP_SEG6_LOCAL)
        };
        match self {
            RouteTarget::Single(hop) => is_sid(hop),
            RouteTarget::Multipath(hops) => hops.iter().any(is_sid),
            RouteTarget::None | RouteTarget::Object(_) => false,
        }
    }
}

/// Route metrics that matter to forwarding and display (`RTA_METRICS`), as pairs of `RTAX_*` and
/// value; `RTAX_MTU` is 2.
pub type Metrics = Vec<(u8, u32)>;

/// A route (`RTM_NEWROUTE`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Table: 254 main, 255 local, 253 default.
    pub table: u32,
    /// Destination.
    pub dst: IpNet,
    /// Source prefix of a source-specific IPv6 route.
    #[serde(default)]
    pub src: Option<IpNet>,
    /// TOS (IPv4).
    #[serde(default)]
    pub tos: u8,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Type.
    pub kind: RouteKind,
    /// Metric (`RTA_PRIORITY`); lower is better.
    pub metric: u32,
    /// Preferred source address.
    #[serde(default)]
    pub prefsrc: Option<IpAddr>,
    /// `RTM_F_*` and `RTNH_F_*` flags of the route itself.
    #[serde(default)]
    pub flags: u32,
    /// IPv6 router preference (`RTA_PREF`).
    #[serde(default)]
    pub pref: Option<u8>,
    /// Metrics.
    #[serde(default)]
    pub metrics: Metrics,
    /// How it spreads its packets (`RTA_MP_ALGO`), where it says so itself. The kernel drops this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mp_algo: Option<MpAlgo>,
    /// Where it leads.
    pub target: RouteTarget,
}

impl Default for Route {
    /// A unicast route of the main table to 0.0.0.0/0, of universe scope and metric 0, that leads
    /// nowhere yet.
    fn default() -> Route {
        Route {
            table: 254,
            dst: IpNet::default(),
            src: None,
            tos: 0,
            protocol: 0,
            scope: 0,
            kind: RouteKind::Unicast,
            metric: 0,
            prefsrc: None,
            flags: 0,
            pref: None,
            metrics: Metrics::new(),
            mp_algo: None,
            target: RouteTarget::None,
        }
    }
}

/// What a route message does to the routes that have the same key (spec: replace/append).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOp {
    /// From a dump, or added where the key was free (`NLM_F_CREATE | NLM_F_EXCL`).
    Add,
    /// `NLM_F_REPLACE`: takes the place of the first with this key.
    Replace,
    /// `NLM_F_APPEND`: goes behind those with this key (IPv4), or tells the whole set (IPv6).
    Append,
    /// `NLM_F_CREATE` alone: goes before those with this key (IPv4), or tells the whole set (IPv6).
    Prepend,
}

/// A nexthop object (`RTM_NEWNEXTHOP`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nexthop {
    /// Identity, never 0.
    pub id: u32,
    /// `AF_*` of the nexthop; 0 for groups.
    pub family: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// `RTNH_F_*`.
    pub flags: u32,
    /// What it is.
    pub kind: NexthopKind,
    /// For a forwarding database, not for routes (`NHA_FDB`).
    #[serde(default)]
    pub fdb: bool,
}

impl Nexthop {
    /// An object for routes, of universe scope and no protocol. There is no default one, as an id is
    /// never 0.
    pub fn new(id: u32, family: u8, kind: NexthopKind) -> Nexthop {
        Nexthop {
            id,
            family,
            scope: 0,
            protocol: 0,
            flags: 0,
            kind,
            fdb: false,
        }
    }
}

/// The kinds of nexthop object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NexthopKind {
    /// Drops what it gets.
    Blackhole,
    /// One neighbour, or one device.
    Single {
        /// Gateway; none for a device-only nexthop.
        gateway: Option<IpAddr>,
        /// Out-link.
        index: u32,
        /// Encapsulation.
        encap: Option<Encap>,
    },
    /// Hash-threshold group (`NEXTHOP_GRP_TYPE_MPATH`).
    Group(Vec<GroupMember>),
    /// Resilient group (`NEXTHOP_GRP_TYPE_RES`).
    Resilient {
        /// Members.
        members: Vec<GroupMember>,
        /// Number of buckets.
        buckets: u16,
        /// Idle timer in seconds/100 (`clock_t`).
        idle_timer: u32,
        /// Unbalanced timer in seconds/100.
        unbalanced_timer: u32,
        /// Time unbalanced, in seconds/100, as of the message.
        unbalanced_time: u64,
    },
}

/// One member of a nexthop group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupMember {
    /// The member nexthop's id.
    pub id: u32,
    /// Weight, 1..=65535.
    pub weight: u16,
}

/// A bucket of a resilient group (`RTM_NEWNEXTHOPBUCKET`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The group's id.
    pub group: u32,
    /// Its place in the group's table, from 0.
    pub index: u16,
    /// The member that owns it.
    pub nexthop: u32,
    /// Since when the kernel has sent nothing by it, in seconds/100 (`clock_t`), as of the message.
    #[serde(default)]
    pub idle_time: u64,
    /// `RTNH_F_*`: 8 offload, 64 trap.
    #[serde(default)]
    pub flags: u32,
}

/// Stands in [`Rule::other`] for `FIB_RULE_INVERT`: the rule applies to what does not match.
pub const RULE_OTHER_INVERT: u16 = 0x1001;

/// A routing rule (`RTM_NEWRULE`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// 4 or 6.
    pub family: u8,
    /// Priority; lower is asked first.
    pub priority: u32,
    /// Table to look in.
    pub table: u32,
    /// `FR_ACT_*`: 1 is a table look-up.
    pub action: u8,
    /// Source prefix.
    pub from: Option<IpNet>,
    /// Destination prefix.
    pub to: Option<IpNet>,
    /// Input device.
    pub iif: Option<String>,
    /// Output device.
    pub oif: Option<String>,
    /// Firewall mark and mask.
    pub fwmark: Option<(u32, u32)>,
    /// Selector or modifier attributes that have no field here (`FRA_*` numbers): TOS, ports,
    /// suppress, l3mdev, uid range, inverted match...
    pub other: Vec<u16>,
    /// `RTPROT_*`.
    pub protocol: u8,
}

/// Per-device settings that netlink's `RTM_NEWNETCONF` and `/proc/sys` tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSettings {
    /// `net.ipv4.conf.<dev>.forwarding`.
    pub forwarding4: bool,
    /// Whether IPv6 from this device is forwarded: `net.ipv6.conf.all.forwarding` or the device's
    /// `force_forwarding`, on a device that takes IPv6 at all.
    pub forwarding6: bool,
    /// Effective `rp_filter`: the larger of `conf.all` and `conf.<dev>`.
    pub rp_filter: u8,
    /// IPv4 `ignore_routes_with_linkdown` (`conf.all` or `conf.<dev>`).
    pub ignore_linkdown4: bool,
    /// IPv6 `ignore_routes_with_linkdown`.
    pub ignore_linkdown6: bool,
    /// IPv4 `send_redirects` (`conf.all` or `conf.<dev>`).
    pub send_redirects: bool,
    /// IPv4 `accept_local`.
    pub accept_local: bool,
    /// `net.ipv6.conf.<dev>.mtu`, which an administrator or a router advertisement may set below
    /// the link's; 0 where there is none.
    #[serde(default)]
    pub mtu6: u32,
    /// `net.ipv6.conf.<dev>.seg6_require_hmac`: -1 to ignore HMACs of SRHs, 0 to check those that there
    /// are, 1 to want one. The device's alone (`seg6_hmac_validate_skb`).
    #[serde(default)]
    pub seg6_require_hmac: i8,
    /// `net.ipv6.conf.<dev>.hop_limit`, or that of `conf.all` where the device has no IPv6; none where it is not
    /// known.
    #[serde(default)]
    pub hop_limit: Option<u8>,
}

/// Settings of the whole network namespace that selection and forwarding depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `net.ipv4.fib_multipath_hash_policy`.
    pub hash_policy4: u8,
    /// `net.ipv6.fib_multipath_hash_policy`.
    pub hash_policy6: u8,
    /// `net.ipv4.fib_multipath_hash_fields`.
    pub hash_fields4: u32,
    /// `net.ipv6.fib_multipath_hash_fields`.
    pub hash_fields6: u32,
    /// `net.ipv4.fib_multipath_hash_seed`; 0 means a random seed that nobody can read.
    pub hash_seed: u32,
    /// `net.ipv4.fib_multipath_use_neigh`.
    pub use_neigh: bool,
    /// `net.ipv4.ip_forward_use_pmtu`: forwarded packets, too, keep to the path MTUs that ICMP errors
    /// have told this machine. The kernel announces none of them.
    pub forward_use_pmtu: bool,
    /// `net.ipv4.route.min_pmtu`: no path MTU below it is learnt.
    #[serde(default)]
    pub min_pmtu: u32,
    /// `net.ipv6.seg6_flowlabel`: -1 for an outer flow label of 0, 0 for the inner packet's, 1 for one
    /// made of the flow's hash.
    #[serde(default)]
    pub seg6_flowlabel: i8,
    /// `ip sr tunsrc`: source of outer headers; none for one chosen by the destination.
    #[serde(default)]
    pub tunsrc: Option<Ipv6Addr>,
}

/// Algorithms of HMACs in SRHs (`SEG6_HMAC_ALGO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HmacAlgorithm {
    /// HMAC-SHA1.
    Sha1 = 1,
    /// HMAC-SHA256.
    Sha256 = 2,
}

/// A key for HMACs in SRHs (`ip sr hmac`). Shown without its secret, and part of no snapshot.
#[derive(Clone, PartialEq, Eq)]
pub struct HmacKey {
    /// Its number, never 0.
    pub id: u32,
    /// Algorithm.
    pub algorithm: HmacAlgorithm,
    /// Secret, at most 64 bytes.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HmacKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Something that happened to the mirrored state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // events are moved once, and routes are nearly all of them
pub enum Event {
    /// A link is new or has changed.
    Link(Link),
    /// A link is gone.
    LinkGone(u32),
    /// Per-device settings, by interface index.
    Device(u32, DeviceSettings),
    /// An address is new or has changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A neighbour is new or has changed.
    Neighbour(Neighbour),
    /// A neighbour is gone: link and address.
    NeighbourGone(u32, IpAddr),
    /// A nexthop object is new or has changed.
    Nexthop(Nexthop),
    /// A nexthop object is gone.
    NexthopGone(u32),
    /// A bucket of a resilient group has this owner.
    Bucket(Bucket),
    /// A route is new or has changed.
    Route(Route, RouteOp),
    /// A route, or one nexthop of an IPv6 one, is gone.
    RouteGone(Route),
    /// A rule is new.
    Rule(Rule),
    /// A rule is gone.
    RuleGone(Rule),
    /// Settings of the namespace.
    Settings(Settings),
    /// All keys for HMACs in SRHs.
    HmacKeys(Vec<HmacKey>),
    /// A dump of these kinds of object begins: what it does not mention by [`Event::SweepEnd`] is
    /// gone.
    SweepBegin(Sweep),
    /// The dump is complete.
    SweepEnd(Sweep),
}

/// Kinds of object that a dump can sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sweep {
    /// Links.
    Links,
    /// Addresses.
    Addresses,
    /// Neighbours.
    Neighbours,
    /// Nexthop objects.
    Nexthops,
    /// Buckets of all resilient groups.
    Buckets,
    /// Buckets of the resilient group with this id.
    BucketsOf(u32),
    /// IPv4 routes of all tables.
    Routes4,
    /// IPv6 routes of all tables.
    Routes6,
    /// Rules of both families.
    Rules,
}

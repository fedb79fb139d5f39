//! What checks look at: gathered once, then never changed, so that checks are pure functions.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use raddle_rib::event::{
    Address, DeviceSettings, GroupMember, Link, Neighbour, Nexthop, NexthopKind, Route,
    RouteNexthop, Settings,
};

use super::srv6::Srv6;
use raddle_preflight as preflight;
use raddle_select::KernelVersion;

/// What the user told that no machine can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Hash seeds of routers one tier away.
    pub peer_seeds: Vec<u32>,
    /// Both directions of a flow have to take the same way, so seeds have to be equal.
    pub symmetric: bool,
}

/// Where a fact comes from, for what could not be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The kernel's version.
    Kernel,
    /// Settings below `/proc/sys/net` that the mirror does not have.
    Settings,
    /// `rps_cpus` of receive queues.
    Steering,
    /// Offloads of links.
    Offloads,
    /// The BPF flow dissector.
    Dissector,
    /// TCP connections of this machine.
    Connections,
    /// Other network namespaces.
    Namespaces,
    /// The kernel's own choices (`RTM_GETROUTE`).
    Choices,
    /// What native XDP would lose or bypass.
    Xdp,
    /// HMAC keys and the source of outer headers.
    Segments,
    /// What the daemon has besides the kernel.
    Daemon,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Kernel => "the kernel's version",
            Need::Settings => "settings in /proc/sys/net",
            Need::Steering => "receive packet steering",
            Need::Offloads => "offloads of links",
            Need::Dissector => "the BPF flow dissector",
            Need::Connections => "TCP connections",
            Need::Namespaces => "other network namespaces",
            Need::Choices => "the kernel's own choices",
            Need::Xdp => "what XDP would lose or bypass",
            Need::Segments => "HMAC keys and tunsrc of SRv6",
            Need::Daemon => "what the raddle daemon has besides the kernel",
        })
    }
}

/// Settings that the mirror does not have; none for what could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// `net.ipv4.nexthop_compat_mode`.
    pub compat_mode: Option<bool>,
    /// `net.core.txrehash`.
    pub txrehash: Option<bool>,
    /// `net.ipv4.tcp_plb_enabled`.
    pub plb: Option<bool>,
}

/// How packets are received.
#[derive(Clone, Debug, Default)]
pub struct Receive {
    /// Links with receive packet steering.
    pub steered: Vec<u32>,
    /// Links whose NIC gives its hash with the packet.
    pub hashed: Vec<u32>,
    /// Links that merge packets (LRO).
    pub merged: Vec<u32>,
    /// NICs that take VLAN tags out of frames.
    pub untagged: Vec<u32>,
    /// The BPF flow dissector's program.
    pub dissector: Option<u32>,
}

/// Where routes with several paths lead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Nexthops of the route's own (`RTA_MULTIPATH`).
    Plain(Vec<RouteNexthop>),
    /// A nexthop group.
    Group(u32),
}

/// Routes with the same several paths.
#[derive(Clone, Debug)]
pub struct Paths {
    /// 4 or 6.
    pub family: u8,
    /// Where they lead.
    pub target: Target,
    /// How many routes.
    pub routes: usize,
    /// How many of them to one address.
    pub hosts: usize,
    /// The first of these.
    pub host: Option<IpNet>,
    /// One of them: its table and destination.
    pub table: u32,
    /// The destination of the same.
    pub dst: IpNet,
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dst)?;
        if self.table != raddle_rib::TABLE_MAIN {
            write!(f, " table {}", self.table)?;
        }
        match self.routes {
            0 | 1 => Ok(()),
            n => write!(f, " and {} more", n - 1),
        }
    }
}

/// One of several paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Id of the nexthop object, where it is one.
    pub object: Option<u32>,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// Out-link.
    pub index: u32,
    /// Weight.
    pub weight: u16,
}

/// TCP connections of this machine between the same two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Our address.
    pub local: IpAddr,
    /// Theirs.
    pub remote: IpAddr,
    /// How many.
    pub count: usize,
}

/// Another network namespace that forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// What it is called.
    pub place: String,
    /// Its hash seed.
    pub seed: u32,
    /// Its IPv4 hash policy.
    pub policy4: u32,
}

/// What the kernel answered for flows over some paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// The place of these paths in [`Facts::paths`].
    pub paths: usize,
    /// How many flows were asked about.
    pub asked: usize,
    /// Answers by out-link.
    pub by_link: BTreeMap<u32, usize>,
}

/// All facts.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the user told.
    pub asked: Asked,
    /// The kernel's version.
    pub kernel: Option<KernelVersion>,
    /// Settings of the namespace.
    pub settings: Settings,
    /// Whether the key is known that the kernel has while no seed is set.
    pub own_key: OwnKey,
    /// More of them.
    pub tuning: Tuning,
    /// Links by index.
    pub links: BTreeMap<u32, Link>,
    /// Their settings.
    pub devices: BTreeMap<u32, DeviceSettings>,
    /// Addresses of this machine.
    pub addresses: Vec<Address>,
    /// Neighbours by link and address.
    pub neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    /// Nexthop objects.
    pub nexthops: BTreeMap<u32, Nexthop>,
    /// Routes with several paths, by these.
    pub paths: Vec<Paths>,
    /// Prefixes that have several unicast routes, with them, in the kernel's order.
    pub rivals: Vec<Vec<Route>>,
    /// How packets are received.
    pub receive: Receive,
    /// Connections over several paths, two or more between the same addresses; the most first.
    pub connections: Vec<Connections>,
    /// Other namespaces that forward.
    pub others: Vec<Other>,
    /// The kernel's choices where they tell something.
    pub choices: Vec<Choices>,
    /// What XDP would lose or bypass.
    pub traps: Vec<(preflight::Topic, preflight::Finding)>,
    /// The daemon of this network namespace.
    pub daemon: Daemon,
    /// SIDs, segment lists, and their settings.
    pub(crate) srv6: Srv6,
    /// What could not be seen, and why.
    pub not_seen: BTreeMap<Need, String>,
}

/// The daemon of this network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Daemon {
    /// Nobody has asked, or was told.
    #[default]
    NotSeen,
    /// None runs.
    Absent,
    /// None runs, and programs of an earlier one are attached.
    Gone {
        /// The links.
        links: Vec<String>,
        /// For how many seconds more they forward; none where that is not known.
        seconds: Option<u64>,
    },
    /// One runs, and leaves this to the kernel.
    Runs(Punts),
    /// One runs that does not answer, and why that is thought.
    Silent(String),
}

impl Daemon {
    /// What an error says about the daemon that was asked.
    pub(crate) fn of_error(error: raddle_control::Error) -> Daemon {
        match error {
            hangs @ raddle_control::Error::Hangs { .. } => Daemon::Silent(hangs.to_string()),
            _ => Daemon::NotSeen,
        }
    }
}

/// What became of the packets that came to a daemon's links since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Punts {
    /// Packets that it forwarded or dropped.
    pub forwarded: u64,
    /// Packets that it left to the kernel, by the name of the reason.
    pub by_reason: Vec<(String, u64)>,
    /// Of each link that it forwards from: packets that came in, and those of them that it left to the kernel and that were to be
    /// forwarded.
    pub by_link: Vec<(String, u64, u64)>,
    /// What is left to the kernel by which rule, each with the name of the reason.
    pub rules: Vec<(String, String)>,
    /// What was lost behind its verdict, by link: of the links that have lost any.
    pub lost: Vec<Lost>,
}

/// What was lost behind a daemon's verdict by a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The link's name; empty of links that have gone.
    pub link: String,
    /// Its driver, where that is known.
    pub driver: Option<String>,
    /// Packets that were sent through it, and through VLANs upon it, those that were lost included.
    pub sent: u64,
    /// Packets that were lost on the way out.
    pub lost: u64,
    /// Packets that came in by it, and on which an XDP program has failed.
    pub aborted: u64,
    /// Why the last was lost on the way out.
    pub why: String,
}

/// Whether the kernel's own hash key is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnKey {
    /// Nobody has looked: a seed is set, or it is a snapshot.
    #[default]
    NotLooked,
    /// It has been read and proven.
    Known,
    /// It could not be read, and why.
    Unknown(String),
}

impl Facts {
    /// A link's name.
    pub fn name(&self, index: u32) -> String {
        match self.links.get(&index) {
            Some(link) => link.name.clone(),
            None => format!("if{index}"),
        }
    }

    /// A link's settings.
    pub fn device(&self, index: u32) -> DeviceSettings {
        self.devices.get(&index).copied().unwrap_or_default()
    }

    /// The hash policy of a family.
    pub fn policy(&self, family: u8) -> u8 {
        match family {
            4 => self.settings.hash_policy4,
            _ => self.settings.hash_policy6,
        }
    }

    /// Members of a group; none for anything else.
    pub fn group(&self, id: u32) -> &[GroupMember] {
        match self.nexthops.get(&id).map(|nexthop| &nexthop.kind) {
            Some(NexthopKind::Group(members) | NexthopKind::Resilient { members, .. }) => members,
            _ => &[],
        }
    }

    /// The members of several paths, in order.
    pub fn members(&self, paths: &Paths) -> Vec<Member> {
        match &paths.target {
            Target::Plain(hops) => hops
                .iter()
                .map(|hop| Member {
                    object: None,
                    gateway: hop.gateway,
                    index: hop.index,
                    weight: hop.weight,
                })
                .collect(),
            Target::Group(id) => self
                .group(*id)
                .iter()
                .filter_map(|member| {
                    let NexthopKind::Single { gateway, index, .. } =
                        self.nexthops.get(&member.id)?.kind
                    else {
                        return None;
                    };
                    Some(Member {
                        object: Some(member.id),
                        gateway,
                        index,
                        weight: member.weight,
                    })
                })
                .collect(),
        }
    }

    /// Routes of a family that have two paths or more to choose from.
    pub fn multipath(&self, family: u8) -> impl Iterator<Item = &Paths> {
        let several = |paths: &&Paths| match &paths.target {
            Target::Plain(hops) => hops.len() > 1,
            Target::Group(id) => self.group(*id).len() > 1,
        };
        let ours = move |paths: &&Paths| paths.family == family;
        self.paths.iter().filter(ours).filter(several)
    }

    /// How many routes of a family have several paths.
    pub fn multipath_routes(&self, family: u8) -> usize {
        self.multipath(family).map(|paths| paths.routes).sum()
    }

    /// Whether any route has several paths.
    pub fn has_multipath(&self) -> bool {
        [4, 6].iter().any(|f| self.multipath(*f).next().is_some())
    }

    /// A member as `ip` writes it.
    pub fn describe(&self, member: &Member) -> String {
        let id = member
            .object
            .map_or(String::new(), |id| format!("id {id} "));
        let via = member
            .gateway
            .map_or(String::new(), |g| format!("via {g} "));
        format!(
            "{id}{via}dev {} weight {}",
            self.name(member.index),
            member.weight
        )
    }

    /// The link on whose prefix an address lies.
    pub fn link_towards(&self, address: IpAddr) -> Option<u32> {
        let on = self.addresses.iter().filter(|own| {
            let net = IpNet::new(own.local, own.prefix_len);
            net.is_ok_and(|net| net.contains(&address))
        });
        on.max_by_key(|own| own.prefix_len).map(|own| own.index)
    }

    /// Links that packets are forwarded from, loopback aside.
    pub fn in_links(&self) -> impl Iterator<Item = &Link> {
        self.links.values().filter(|link| {
            let device = self.device(link.index);
            link.arp_type != LOOPBACK && link.is_up() && (device.forwarding4 || device.forwarding6)
        })
    }

    /// Links that these packets are received by: themselves, and for VLANs, bridges and macvlans, which receive nothing by themselves, what
    /// is beneath them.
    pub fn receivers(&self) -> impl Iterator<Item = &Link> {
        let named = |link: &Link| (link.index, link.name.clone());
        let beneath = preflight::beneath(self.links.values());
        let all = preflight::with_beneath(&self.in_links().map(named).collect(), &beneath);
        let receives =
            move |link: &&Link| all.contains_key(&link.index) && !preflight::is_upon_others(link);
        self.links.values().filter(receives)
    }
}

/// `ARPHRD_LOOPBACK`.
pub(crate) const LOOPBACK: u16 = 772;

/// The prefix of sysctl names of a family.
pub(crate) fn net(family: u8) -> &'static str {
    if family == 4 { "net.ipv4" } else { "net.ipv6" }
}

/// `-6 ` for IPv6, as an argument of `ip`.
pub(crate) fn ip_family(family: u8) -> &'static str {
    if family == 4 { "" } else { "-6 " }
}

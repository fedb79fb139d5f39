//! Links, addresses and neighbours.

use raddle_rib::event::{Address, Bond, Link, Neighbour, Vlan, XdpAttached};
use raddle_select::{BondMode, BondPolicy};
use serde::Deserialize;
use serde_json::Value;

use super::object::{Lookup, Objects, Word, address, bits, mac};
use super::{Error, Fault};

/// `IFF_*`, as `ip` prints them; RUNNING it does not print, but its absence (NO-CARRIER).
const LINK_FLAGS: [(&str, u32); 17] = [
    ("UP", 1),
    ("BROADCAST", 2),
    ("DEBUG", 4),
    ("LOOPBACK", 8),
    ("POINTOPOINT", 0x10),
    ("NOTRAILERS", 0x20),
    ("NOARP", 0x80),
    ("PROMISC", 0x100),
    ("ALLMULTI", 0x200),
    ("MASTER", 0x400),
    ("SLAVE", 0x800),
    ("MULTICAST", 0x1000),
    ("PORTSEL", 0x2000),
    ("AUTOMEDIA", 0x4000),
    ("DYNAMIC", 0x8000),
    ("LOWER_UP", 0x1_0000),
    ("DORMANT", 0x2_0000),
];
const RUNNING: u32 = 0x40;

/// `IF_OPER_*` in order.
const OPERSTATES: [&str; 7] = [
    "UNKNOWN",
    "NOTPRESENT",
    "DOWN",
    "LOWERLAYERDOWN",
    "TESTING",
    "DORMANT",
    "UP",
];

/// `ARPHRD_*` of the link types that concern routing.
const LINK_TYPES: [(&str, u16); 10] = [
    ("ether", 1),
    ("infiniband", 32),
    ("ppp", 512),
    ("ipip", 768),
    ("tunnel6", 769),
    ("loopback", 772),
    ("sit", 776),
    ("gre", 778),
    ("gre6", 823),
    ("none", 0xfffe),
];
/// `ARPHRD_VOID`: what has another name.
const OTHER_TYPE: u16 = 0xffff;

/// `IFA_F_*`.
const ADDRESS_FLAGS: [(&str, u32); 12] = [
    ("secondary", 1),
    ("temporary", 1),
    ("nodad", 2),
    ("optimistic", 4),
    ("dadfailed", 8),
    ("home", 0x10),
    ("deprecated", 0x20),
    ("tentative", 0x40),
    ("mngtmpaddr", 0x100),
    ("noprefixroute", 0x200),
    ("autojoin", 0x400),
    ("stable-privacy", 0x800),
];
const PERMANENT: u32 = 0x80;

/// `NUD_*`.
const NEIGHBOUR_STATES: [(&str, u32); 8] = [
    ("INCOMPLETE", 1),
    ("REACHABLE", 2),
    ("STALE", 4),
    ("DELAY", 8),
    ("PROBE", 0x10),
    ("FAILED", 0x20),
    ("NOARP", 0x40),
    ("PERMANENT", 0x80),
];

#[derive(Deserialize)]
struct LinkObject {
    ifindex: u32,
    ifname: String,
    #[serde(default)]
    altnames: Vec<String>,
    flags: Vec<String>,
    mtu: u32,
    link_type: String,
    #[serde(default)]
    qdisc: String,
    operstate: Option<String>,
    address: Option<String>,
    link: Option<String>,
    link_index: Option<u32>,
    link_netnsid: Option<i32>,
    master: Option<String>,
    linkinfo: Option<LinkInfo>,
    #[serde(default)]
    num_tx_queues: u32,
    xdp: Option<Xdp>,
}

#[derive(Default, Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
    info_data: Option<InfoData>,
    info_slave_kind: Option<String>,
    info_slave_data: Option<SlaveData>,
}

/// What is read of any kind, each of which has fields of its own by these names.
#[derive(Deserialize)]
struct InfoData {
    table: Option<Value>,
    mode: Option<Value>,
    xmit_hash_policy: Option<Value>,
    arp_interval: Option<Value>,
    arp_validate: Option<Value>,
    protocol: Option<Value>,
    id: Option<Value>,
    egress_qos: Option<Value>,
}

#[derive(Deserialize)]
struct SlaveData {
    state: Option<Value>,
    queue_id: Option<Value>,
}

/// `BOND_ARP_VALIDATE_*` and `BOND_ARP_FILTER`, by number.
const ARP_VALIDATE: [&str; 7] = [
    "none",
    "active",
    "backup",
    "all",
    "filter",
    "filter_active",
    "filter_backup",
];

#[derive(Deserialize)]
struct Xdp {
    #[serde(default)]
    mode: u8,
    prog: Option<XdpProgram>,
}

#[derive(Deserialize)]
struct XdpProgram {
    id: u32,
}

/// The links of `ip -d -j link`.
pub(super) fn links(objects: &Objects, names: &Lookup) -> Result<Vec<Link>, Error> {
    objects.each(|link: LinkObject| {
        let silent = link.flags.iter().any(|flag| flag == "NO-CARRIER");
        let mut flags = bits(&link.flags, &LINK_FLAGS);
        if flags & 1 != 0 && !silent {
            flags |= RUNNING;
        }
        let operstate = link.operstate.as_deref();
        let operstate = OPERSTATES.iter().position(|name| Some(*name) == operstate);
        let master = link.master.map(|name| names.link(&name)).transpose()?;
        // A veth's other end may be in another namespace, under an index of its own.
        let lower = match (&link.link, link.link_index) {
            (_, Some(index)) => Some(index),
            (Some(name), None) => names.link(name).ok(),
            (None, None) => None,
        };
        let info = link.linkinfo.unwrap_or_default();
        let (kind, data) = (info.info_kind, info.info_data);
        let of = |name| data.as_ref().filter(|_| kind.as_deref() == Some(name));
        let vrf_table = of("vrf").and_then(|data| data.table.as_ref()?.as_u64());
        let bond = of("bond").map(|data| Bond {
            mode: named(data.mode.as_ref(), |n| {
                Some(BondMode::from_number(n)?.name())
            }),
            policy: named(data.xmit_hash_policy.as_ref(), |n| {
                Some(BondPolicy::from_number(n)?.name())
            }),
            by_traffic: Bond::is_by_traffic(
                u32::from(data.arp_interval.as_ref().and_then(Value::as_u64) > Some(0)),
                named(data.arp_validate.as_ref().filter(|is| !is.is_null()), |n| {
                    ARP_VALIDATE.get(usize::from(n)).copied()
                })
                .into(),
            ),
            ..Bond::default()
        });
        let vlan = of("vlan").and_then(vlan);
        let part = info
            .info_slave_data
            .filter(|_| info.info_slave_kind.as_deref() == Some("bond"));
        let part = part.as_ref();
        let bond_active = part.and_then(|part| Some(part.state.as_ref()?.as_str()? == "ACTIVE"));
        let bond_queue = part.and_then(|part| part.queue_id.as_ref()?.as_u64());
        Ok(Link {
            index: link.ifindex,
            name: link.ifname,
            altnames: link.altnames,
            mac: link.address.as_deref().and_then(mac),
            mtu: link.mtu,
            flags,
            arp_type: link_type(&link.link_type),
            operstate: operstate.unwrap_or(0) as u8,
            kind,
            master,
            vrf_table: vrf_table.and_then(|table| table.try_into().ok()),
            bond,
            vlan,
            bond_active,
            bond_queue: bond_queue.and_then(|id| id.try_into().ok()).unwrap_or(0),
            // Without the order in which members joined, which `ip` does not print, these say nothing.
            bond_down: false,
            bond_aggregator: 0,
            // `ip` prints no FDB, without which nothing is known of a bridge or a VXLAN, and not all that tunnels are set to.
            bridge: None,
            port: None,
            macvlan: None,
            tunnel: None,
            lower,
            lower_netns: link.link_netnsid,
            qdisc: link.qdisc,
            tx_queues: link.num_tx_queues,
            xdp: link.xdp.filter(|xdp| xdp.mode != 0).map(|xdp| XdpAttached {
                mode: xdp.mode,
                program: xdp.prog.map_or(0, |program| program.id),
            }),
        })
    })
}

/// What a VLAN is set to; none where its number is not told.
fn vlan(data: &InfoData) -> Option<Vlan> {
    let id = data.id.as_ref()?.as_u64()?;
    let protocol = data.protocol.as_ref().and_then(Value::as_str);
    let maps = |mapping: &Value| mapping["to"].as_u64() != Some(0);
    let egress = data.egress_qos.as_ref().and_then(Value::as_array);
    Some(Vlan {
        // One of another kind has no number here, and engines do not know it.
        protocol: match protocol.map(str::to_ascii_lowercase).as_deref() {
            None | Some("802.1q") => raddle_image::Vlan::CUSTOMER,
            Some("802.1ad") => raddle_image::Vlan::SERVICE,
            Some(_) => 0,
        },
        id: id.try_into().ok()?,
        egress_qos: egress.is_some_and(|mappings| mappings.iter().any(maps)),
    })
}

/// The number of a name; 0 of one that is not told, and of one that is not known a number that none has.
fn named(told: Option<&Value>, name: impl Fn(u8) -> Option<&'static str>) -> u8 {
    let Some(told) = told else {
        return 0;
    };
    let mut numbers = 0..u8::MAX;
    numbers
        .find(|number| name(*number).is_some_and(|name| told == name))
        .unwrap_or(u8::MAX)
}

/// A name, or `[772]` where `ip` knows none or prints numbers.
fn link_type(text: &str) -> u16 {
    let known = LINK_TYPES.iter().find(|(name, _)| *name == text);
    let number = || text.trim_matches(['[', ']']).parse().ok();
    known
        .map(|(_, number)| *number)
        .or_else(number)
        .unwrap_or(OTHER_TYPE)
}

#[derive(Deserialize)]
struct AddressList {
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Value>,
}

#[derive(Deserialize)]
struct AddressObject {
    family: String,
    local: Option<String>,
    address: Option<String>,
    prefixlen: u8,
    scope: Option<Word>,
    broadcast: Option<String>,
    label: Option<String>,
    #[serde(default)]
    dynamic: bool,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

/// The addresses of `ip -j addr`.
pub(super) fn addresses(objects: &Objects, names: &Lookup) -> Result<Vec<Address>, Error> {
    let lists = objects.each(|list: AddressList| {
        let index = names.link(&list.ifname)?;
        let full = list
            .addr_info
            .iter()
            .filter(|info| info.as_object().is_none_or(|map| !map.is_empty()));
        full.map(|info| one_address(info, index, names))
            .collect::<Result<Vec<_>, Fault>>()
    })?;
    Ok(lists.into_iter().flatten().flatten().collect())
}

/// None for families other than IPv4 and IPv6.
fn one_address(info: &Value, index: u32, names: &Lookup) -> Result<Option<Address>, Fault> {
    let of = |fault| Fault::OfAddress {
        info: info.to_string(),
        fault: Box::new(fault),
    };
    let read = AddressObject::deserialize(info).map_err(|e| of(e.into()))?;
    if !matches!(read.family.as_str(), "inet" | "inet6") {
        return Ok(None);
    }
    let [local, peer, broadcast] = [&read.local, &read.address, &read.broadcast]
        .map(|text| text.as_deref().map(address).transpose());
    let (local, peer, broadcast) = (local?, peer?, broadcast?);
    let local = local.ok_or_else(|| of(Fault::Missing("local")))?;
    let limit = if local.is_ipv4() { 32 } else { 128 };
    if read.prefixlen > limit {
        return Err(of(Fault::AddressLength(limit)));
    }
    let flags = ADDRESS_FLAGS
        .iter()
        .filter(|(name, _)| read.rest.get(*name) == Some(&Value::Bool(true)))
        .fold(0, |flags, (_, bit)| flags | bit);
    Ok(Some(Address {
        index,
        local,
        peer: peer.filter(|peer| *peer != local),
        prefix_len: read.prefixlen,
        scope: names.scope(&read.scope)?.unwrap_or(0),
        flags: flags | if read.dynamic { 0 } else { PERMANENT },
        broadcast,
        label: read.label,
    }))
}

#[derive(Deserialize)]
struct NeighbourObject {
    dst: String,
    dev: String,
    lladdr: Option<String>,
    #[serde(default)]
    state: Vec<String>,
    protocol: Option<Word>,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

/// The neighbours of `ip -j neigh show nud all`.
pub(super) fn neighbours(objects: &Objects, names: &Lookup) -> Result<Vec<Neighbour>, Error> {
    let all = objects.each(|neighbour: NeighbourObject| {
        if neighbour.rest.contains_key("proxy") {
            return Ok(None);
        }
        let flag = |name: &str, bit| match neighbour.rest.contains_key(name) {
            true => bit,
            false => 0u8,
        };
        Ok(Some(Neighbour {
            index: names.link(&neighbour.dev)?,
            dst: address(&neighbour.dst)?,
            mac: neighbour.lladdr.as_deref().and_then(mac),
            state: bits(&neighbour.state, &NEIGHBOUR_STATES) as u16,
            flags: flag("router", 0x80) | flag("extern_learn", 0x10),
            protocol: names.protocol(&neighbour.protocol)?.unwrap_or(0),
        }))
    })?;
    Ok(all.into_iter().flatten().collect())
}

//! Tunnels over IPv4: what packets are put into that leave by one, and which ones end at an address of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::adjacency::Ports;
use crate::egress::is_bridge;
use crate::event::{LearntMtu, Link, Tunnel, TunnelDf, TunnelKind};
use crate::prefix::Prefix;
use crate::rules::{Arrival, Asked, Lookup, TABLE_LOCAL, lookup_all, vrf_of};
use crate::segments::salt;
use crate::state::State;
use raddle_image as image;
use raddle_image::{MAX_LINKS, TUNNEL_KEYED, TunnelEnd, tunnel_flags as flag, tunnel_kind as kind};

/// What packets are put into that leave by a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outer {
    /// As engines put it in front of them.
    pub tunnel: image::Tunnel,
    /// Where the outer packet is looked up; none where only the kernel knows.
    pub lookup: Option<Lookup>,
    /// How long packets may be that are put into it, from their IP header on, by what the kernel has learnt of the way to the other end; none
    /// where that is nothing.
    pub mtu: Option<u32>,
}

/// Why frames of a VXLAN to a MAC address do not go to exactly one IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRemote {
    /// Its FDB has no entry for that, and none for all others: the kernel drops them.
    NoEntry,
    /// It has several for all others, or the MAC address is a group's.
    Several,
    /// The entry leads to an IPv6 address, by a nexthop object, or with another port, VNI or link than the VXLAN's.
    Elsewhere,
}

/// Stands for all MAC addresses that a VXLAN has no entry of its own for.
pub(crate) const ALL_OTHERS: [u8; 6] = [0; 6];

/// At most so many tunnels that end at one address are told to engines.
const MOST_ENDS: usize = 4096;

/// Bytes of an IPv4 packet with the longest IPv6 packet in it that any link takes.
pub(crate) const IPV6_IN_IPV4: u32 = 1280 + 20;

/// `LOOPBACK_IFINDEX`.
const LOOPBACK: u32 = 1;

/// Whether frames of a link are those of a VXLAN, also of one of which nothing else is told.
pub(crate) fn is_vxlan(link: &Link) -> bool {
    matches!(
        link.tunnel,
        Some(Tunnel {
            kind: TunnelKind::Vxlan { .. },
            ..
        })
    ) || link.kind.as_deref() == Some("vxlan")
}

/// A tunnel that carries packets, and no frames: it has no MAC address.
pub(crate) fn carries_packets(link: &Link) -> bool {
    link.tunnel
        .is_some_and(|tunnel| !matches!(tunnel.kind, TunnelKind::Vxlan { .. }))
}

/// The MAC address that frames have which a link takes itself; zeros where there are no frames.
pub(crate) fn own_mac(link: &Link) -> Option<[u8; 6]> {
    match carries_packets(link) {
        true => Some([0; 6]),
        false => link.mac,
    }
}

impl State {
    /// Whether all packets that leave by a link have the same other end, whatever their gateway is: that of a tunnel which
    /// carries packets and has a remote address.
    pub(crate) fn has_one_end(&self, index: u32) -> bool {
        let link = self.links.get(&index).filter(|link| carries_packets(link));
        let tunnel = link.and_then(|link| link.tunnel);
        tunnel.is_some_and(|tunnel| tunnel.remote.is_some())
    }

    /// What packets are put into that leave by a tunnel, with a VXLAN in frames to this MAC address; none for what is the kernel's
    /// (`ip_tunnel_xmit`, `ipip6_tunnel_xmit`, `vxlan_xmit`):
    ///
    /// 1. The tunnel does nothing that engines do not, is bound to no link, and has an address of its own, which is one of the machine's:
    ///    the kernel sends from no other ([`State::has_address`]).
    /// 2. Its other end is one address: of a VXLAN, that of the only entry that it has for the MAC address, or if it has none for
    ///    all others. That is no address that packets have several receivers by.
    /// 3. What is the namespace's, the TTL and the source ports of a VXLAN, is known. A route may say another TTL (`hoplimit`): none
    ///    does.
    /// 4. `sit` with `pmtudisc` has outer packets fragmented where they have no room for the least MTU of IPv6: there is room on all
    ///    links, and no route says otherwise.
    /// 5. Outer packets that are not to be fragmented are so all the same where a route has a locked MTU (`iptunnel_xmit`): none has.
    /// 6. The kernel may have learnt that the way to the other end takes less than the links ([`LearntMtu`]). Rules 4 and 5 go for that as for
    ///    what routes say, and what would be longer with its headers is the kernel's: it fragments or answers (`tnl_update_pmtu`), or at
    ///    least learns for whom that is (`skb_tunnel_check_pmtu`).
    pub(crate) fn outer(&self, link: &Link, mac: [u8; 6]) -> Option<Outer> {
        let plain = |tunnel: &Tunnel| !tunnel.is_special && self.is_bound_to_none(*tunnel);
        let tunnel = link.tunnel.filter(plain)?;
        let (src, dst) = self.outer_ends(link, mac)?;
        let src = Some(src).filter(|src| self.has_address(*src))?;
        let learnt = self.learnt_mtus.get(&(src, dst));
        let nowhere = dst.is_multicast() || dst.is_broadcast() || dst.octets()[0] == 0;
        let mut out = image::Tunnel {
            src: src.octets(),
            dst: dst.octets(),
            ttl: tunnel.ttl,
            tos: tunnel.tos,
            salt: salt(self),
            ..image::Tunnel::default()
        };
        let metrics = self.attrs.metrics4();
        let is_locked = metrics.locked_mtu || learnt.is_some_and(|learnt| learnt.is_locked);
        if is_locked && tunnel.df != TunnelDf::Unset {
            return None;
        }
        let takes_little = learnt.is_some_and(|learnt| learnt.mtu < IPV6_IN_IPV4);
        let tos_inner = match tunnel.kind {
            // `ip_tunnel_xmit` looks at this bit only.
            TunnelKind::Ipip | TunnelKind::Gre { .. } => tunnel.tos & 1 != 0,
            TunnelKind::Sit | TunnelKind::Vxlan { .. } => tunnel.tos == 1,
        };
        if tos_inner {
            out.tos = 0;
            out.flags |= flag::TOS_INNER;
        }
        out.flags |= match tunnel.df {
            TunnelDf::Unset => 0,
            TunnelDf::Set => flag::DF,
            TunnelDf::Inner => flag::DF_INNER,
        };
        out.flags |= carries(tunnel.kind);
        match tunnel.kind {
            TunnelKind::Sit
                if tunnel.df == TunnelDf::Set && (takes_little || self.has_little_room()) =>
            {
                return None;
            }
            TunnelKind::Ipip | TunnelKind::Sit => out.kind = kind::IP,
            TunnelKind::Gre { okey, .. } => {
                out.kind = kind::GRE;
                if let Some(key) = okey {
                    out.flags |= flag::HAS_KEY;
                    out.key = key.to_be_bytes();
                }
            }
            TunnelKind::Vxlan {
                vni,
                port,
                sports,
                checksum,
                ttl_inner,
                ..
            } => {
                out.kind = kind::VXLAN;
                let [_, key @ ..] = vni.to_be_bytes();
                out.key[..3].copy_from_slice(&key);
                out.port = port;
                let given = Some(sports).filter(|(first, end)| first < end);
                let (first, end) = given.unwrap_or(self.settings.local_ports);
                out.sport = first;
                out.sports = end.checked_sub(first).filter(|count| *count > 0)?;
                if checksum {
                    out.flags |= flag::CHECKSUM;
                }
                match (ttl_inner, tunnel.ttl) {
                    (true, _) => out.ttl = 0,
                    (false, 0) if metrics.hop_limit => return None,
                    (false, 0) => {
                        out.ttl = Some(self.settings.default_ttl).filter(|ttl| *ttl != 0)?;
                    }
                    (false, _) => {}
                }
            }
        }
        if out.ttl == 0 {
            out.flags |= flag::TTL_INNER;
        }
        let takes = |learnt: &LearntMtu| learnt.mtu.saturating_sub(out.len() as u32);
        (!nowhere).then(|| Outer {
            mtu: learnt.map(takes),
            tunnel: out,
            lookup: self.lookup_of_own(src, dst),
        })
    }

    /// This end of a tunnel and the other one, of a VXLAN that of frames to a MAC address; none where either is not one address.
    pub(crate) fn outer_ends(&self, link: &Link, mac: [u8; 6]) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let tunnel = link.tunnel?;
        let dst = match tunnel.kind {
            TunnelKind::Vxlan { .. } => self.remote_of(link.index, mac).ok()?,
            _ => tunnel.remote?,
        };
        Some((tunnel.local?, dst))
    }

    /// Whether any link has an MTU at which the least MTU of IPv6 does not fit into an outer packet, or any route may have one.
    fn has_little_room(&self) -> bool {
        let mut links = self.links.values();
        let has_little = |link: &Link| link.is_ethernet() && link.mtu < IPV6_IN_IPV4;
        self.attrs.metrics4().little_mtu || links.any(has_little)
    }

    /// Whether an address is one of this machine's (`__ip_dev_find`).
    fn has_address(&self, address: Ipv4Addr) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|known| known.local == IpAddr::V4(address))
    }

    /// To where a VXLAN sends frames to a MAC address (`vxlan_xmit`).
    pub(crate) fn remote_of(&self, vxlan: u32, mac: [u8; 6]) -> Result<Ipv4Addr, NoRemote> {
        if mac[0] & 1 != 0 {
            return Err(NoRemote::Several);
        }
        let own = self.tunnels.remotes(vxlan, mac);
        let all = match own {
            [] => self.tunnels.remotes(vxlan, ALL_OTHERS),
            own => own,
        };
        match all {
            [] => Err(NoRemote::NoEntry),
            [entry] => match entry.dst {
                IpAddr::V4(dst) if !entry.is_special => Ok(dst),
                _ => Err(NoRemote::Elsewhere),
            },
            _ => Err(NoRemote::Several),
        }
    }

    /// Whether a tunnel is bound to nothing that engines do not look at: to no link, or as a VXLAN to one that is in no VRF. (Of a
    /// VXLAN the entries of its FDB say by which link frames leave.)
    fn is_bound_to_none(&self, tunnel: Tunnel) -> bool {
        if tunnel.link == 0 {
            return true;
        }
        let link = self.links.get(&tunnel.link);
        let in_none = |link: &Link| vrf_of(link, |index| self.links.get(&index)).is_none();
        matches!(tunnel.kind, TunnelKind::Vxlan { .. }) && link.is_some_and(in_none)
    }

    /// Where rules have packets of this machine looked up, as tunnels send them: they come in by the loopback device, have no mark
    /// and no output link (`ip_route_output_key`). None where that hangs on what the packets show beside their addresses.
    pub(crate) fn lookup_of_own(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Option<Lookup> {
        let loopback = self.links.get(&LOOPBACK);
        let name = loopback.map_or("lo", |link| &link.name);
        let others: &[String] = loopback.map_or(&[], |link| &link.altnames);
        let packets = Asked {
            src: IpNet::from(IpAddr::V4(src)),
            ..Asked::to(IpAddr::V4(dst))
        };
        lookup_all(&self.rules, 4, Arrival::Link(name, others), &packets).ok()
    }

    /// The tunnels that end at an address of this machine and that engines take packets from, in the order in which they look for
    /// them (`ip_tunnel_lookup`, `vxlan_vs_find_vni`):
    ///
    /// 1. The tunnel does nothing that engines do not, is bound to no link, is up, and engines have room for it by its index. It has a remote
    ///    address, or is a VXLAN, which takes what anybody sends.
    /// 2. What comes in by it may be forwarded: engines forward from it; of a VXLAN, from it or from what is upon it, and they may send by it.
    ///    (A port of a bridge is not forwarded from by itself; what is on it that engines would pass has it be neither.)
    /// 3. A VXLAN does not learn: nobody tells the kernel where what engines take from it came from.
    /// 4. No other tunnel, whatever it does, would be found in the same way: there may be more to how the kernel chooses. One that is bound to
    ///    a link, with one end only, comes before those that are bound to none.
    pub(crate) fn tunnel_ends(&self, local: Ipv4Addr, ports: &Ports) -> Vec<TunnelEnd> {
        let below = self.with_below(&ports.enabled);
        // By their words; none where there are several.
        let mut ends: BTreeMap<[u64; 2], Option<TunnelEnd>> = BTreeMap::new();
        let tunnels = self.links.values().filter_map(|link| link.tunnel);
        let first: Vec<Tunnel> = tunnels.filter(|tunnel| is_bound_first(*tunnel)).collect();
        let tunnels = self.links.values();
        for (link, tunnel) in tunnels.filter_map(|link| Some((link, link.tunnel?))) {
            let is_vxlan = matches!(tunnel.kind, TunnelKind::Vxlan { .. });
            // A socket of UDP hears what is to any address.
            if tunnel.local != Some(local) && !is_vxlan {
                continue;
            }
            let Some(end) = end_of(link, tunnel) else {
                continue;
            };
            let learns = matches!(tunnel.kind, TunnelKind::Vxlan { learns: true, .. });
            let usable = tunnel.local == Some(local)
                && !tunnel.is_special
                && self.is_bound_to_none(tunnel)
                && !learns
                && !first.iter().any(|of| comes_first(*of, tunnel))
                && link.is_up()
                && (link.index as usize) < MAX_LINKS
                && match is_vxlan {
                    true => below.contains(&link.index) && ports.out.contains(&link.index),
                    false => ports.enabled.contains(&link.index),
                };
            let only = Some(end).filter(|_| usable);
            let known = ends.entry(end.words());
            known.and_modify(|known| *known = None).or_insert(only);
        }
        ends.into_values().flatten().take(MOST_ENDS).collect()
    }

    /// The links that engines forward from, and all that is below them. Costs a walk over all links.
    fn with_below(&self, enabled: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut ports: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for link in self.links.values() {
            if let Some(master) = link.master {
                ports.entry(master).or_default().push(link.index);
            }
        }
        let mut all = BTreeSet::new();
        let mut left: Vec<u32> = enabled.iter().copied().collect();
        while let Some(index) = left.pop() {
            let Some(link) = self.links.get(&index).filter(|_| all.insert(index)) else {
                continue;
            };
            if link.is_vlan() || link.macvlan.is_some() {
                left.extend(link.lower.filter(|_| link.lower_netns.is_none()));
            } else if is_bridge(link) {
                left.extend(ports.get(&index).into_iter().flatten());
            }
        }
        all
    }

    /// Follows links: at which addresses tunnels end, and which tables are VRFs'. What table local says of these addresses is due then.
    pub(crate) fn note_tunnels(&mut self) {
        let tunnels = self.links.values().filter_map(|link| link.tunnel);
        let ends = TunnelsHere {
            locals: tunnels.filter_map(|tunnel| tunnel.local).collect(),
            vrfs: self
                .links
                .values()
                .filter_map(|link| link.vrf_table)
                .collect(),
        };
        if ends == self.tunnels_here {
            return;
        }
        let before = std::mem::replace(&mut self.tunnels_here, ends);
        let now = &self.tunnels_here;
        let all = before.vrfs != now.vrfs;
        for local in before.locals.union(&now.locals) {
            if all || before.locals.contains(local) != now.locals.contains(local) {
                self.v4.touch(TABLE_LOCAL, Prefix::host(local.to_bits()));
            }
        }
    }
}

/// Where tunnels end, and what tables there are from which they get nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TunnelsHere {
    /// Addresses that tunnels have, whatever they are.
    locals: BTreeSet<Ipv4Addr>,
    /// Tables of VRFs.
    vrfs: BTreeSet<u32>,
}

impl TunnelsHere {
    /// Whether there is a tunnel that has this address.
    pub(crate) fn end_at(&self, local: Ipv4Addr) -> bool {
        self.locals.contains(&local)
    }

    /// Whether packets that are looked up so may come in by a VRF: sockets that are not bound to it do not hear those
    /// (`inet_bound_dev_eq`).
    pub(crate) fn is_of_vrf(&self, lookup: &Lookup) -> bool {
        let mut tables = lookup.tables.iter();
        tables.any(|look| self.vrfs.contains(&look.table))
    }
}

/// The families that tunnels of a kind carry.
fn carries(of: TunnelKind) -> u8 {
    match of {
        TunnelKind::Ipip => flag::CARRIES4,
        TunnelKind::Sit => flag::CARRIES6,
        TunnelKind::Gre { .. } | TunnelKind::Vxlan { .. } => flag::CARRIES4 | flag::CARRIES6,
    }
}

/// Whether the kernel finds a tunnel before those that are bound to no link (`ip_tunnel_lookup`): it is bound to one, which may be that of
/// the packet, and has one end at most.
fn is_bound_first(tunnel: Tunnel) -> bool {
    let is_vxlan = matches!(tunnel.kind, TunnelKind::Vxlan { .. });
    let is_whole = tunnel.local.is_some() && tunnel.remote.is_some();
    !is_vxlan && !is_whole && tunnel.link != 0
}

/// Whether such a tunnel takes packets of another one of its kind, which has both ends, whatever their keys are.
fn comes_first(first: Tunnel, other: Tunnel) -> bool {
    let agrees = |mine: Option<Ipv4Addr>, its| mine.is_none() || mine == its;
    discriminant(&first.kind) == discriminant(&other.kind)
        && agrees(first.local, other.local)
        && agrees(first.remote, other.remote)
}

/// How what comes in by a tunnel is found; none of one whose other end may be anybody.
fn end_of(link: &Link, tunnel: Tunnel) -> Option<TunnelEnd> {
    let end = TunnelEnd {
        index: link.index,
        flags: carries(tunnel.kind),
        ..TunnelEnd::default()
    };
    Some(match tunnel.kind {
        TunnelKind::Ipip | TunnelKind::Sit => TunnelEnd {
            kind: kind::IP,
            remote: tunnel.remote?.to_bits(),
            ..end
        },
        TunnelKind::Gre { ikey, .. } => TunnelEnd {
            kind: kind::GRE,
            remote: tunnel.remote?.to_bits(),
            key: ikey.map_or(0, |key| TUNNEL_KEYED | u64::from(key)),
            ..end
        },
        TunnelKind::Vxlan { vni, port, .. } => TunnelEnd {
            kind: kind::VXLAN,
            key: TunnelEnd::vxlan(port, vni),
            ..end
        },
    })
}

//! Links that XDP cannot be used on, or that the kernel treats in ways it would miss.

use std::collections::BTreeMap;

use raddle_image::{MAX_LINKS, MAX_TAGS};
use raddle_rib::event::{Bond, Link, Tunnel, TunnelKind};
use raddle_rib::vrf_of;
use raddle_select::{BondMode, BondPolicy};

use super::beneath::{bridge_of, is_bridge, is_macvlan, is_upon_others, lowers, of_uppers_too};
use super::veth::Stacked;
use super::{Finding, Role, Scene, Severity};

/// `IFF_LOOPBACK`.
const LOOPBACK: u32 = 8;

/// Kinds of device that look inside, or add to, what their lower device receives.
pub(super) fn is_stacked_kind(kind: &str) -> bool {
    matches!(
        kind,
        "vlan" | "macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "macsec" | "dsa"
    )
}

/// Decides about every link. `stacked`: the devices on top of a link, by its index; those in other
/// namespaces are there too.
///
/// 1. Loopback, or not Ethernet with a 6-byte address: not used.
/// 2. An interface index that the image has no room for: not used.
/// 3. A member of a bond or team: not used. What comes in by it is the master's. One in a VRF is used: it is only
///    looked up elsewhere. A port of a bridge is used for the bridge, never for itself, but for those of [`refused_port`]; what is found of
///    it concerns the bridge by that port alone ([`mod@super::beneath`]).
/// 4. A device made of other devices (tunnel, dummy, ...): not used. XDP on it runs
///    late or not at all, and what is sent through it must pass its own code. A bond is used whose driver runs a program on all its
///    members and sends by them what XDP redirects to it ([`refused_bond`]), unless a member of it is one that would not be used
///    by rules 1, 2, 4, 5 or 7 itself; in `generic` mode none is: there the program of a bond runs when tags have been taken out of
///    frames by its members (`__netif_receive_skb_core`), and would take frames of any VLAN for the bond's own.
/// 5. A device with ipvlans or the like on top: not forwarded from. Packets for these look like our own. With VLANs on top it
///    is used, if their tags can be seen ([`super::tags`]); with macvlans if these take only what is to their own address
///    ([`super::veth::Stacked`]).
/// 6. A VLAN is used by way of the links below it, which the program is attached to, and packets leave by: all of them in this
///    namespace, with at most [`MAX_TAGS`] tags of 802.1Q or 802.1ad, see [`refused_vlan`]. Where one of these links is not used in a
///    role, the VLAN is not either; so not upon a port of a bridge, or a member of a bond. Not sent through: one whose tags have
///    priorities from packets', and one upon a bond whose choice for frames with such tags is not known ([`dissects`]).
/// 7. One with somebody else's XDP program: not forwarded from.
/// 8. A bridge is used by way of its ports, unless it does what engines do not ([`refused_bridge`]).
/// 9. A macvlan is used by way of the link below it ([`refused_macvlan`]).
/// 10. A tunnel that engines know is used by way of whatever links its outer packets take ([`refused_tunnel`]); 1 and 4 are not for it.
pub(super) fn judge(
    scene: &Scene,
    generic: bool,
    stacked: &BTreeMap<u32, Stacked>,
) -> Vec<Finding> {
    let names: BTreeMap<u32, &Link> = scene.links.iter().map(|l| (l.index, l)).collect();
    let (mut findings, mut of_tunnels) = (Vec::new(), Vec::new());
    for link in &scene.links {
        let mut reject = |role, what: String, why: &str| {
            let finding = Finding::new(Severity::LinkRejected, what, why);
            findings.push(finding.on(&link.name, role));
        };
        if link.flags & LOOPBACK != 0 {
            reject(Role::Both, "loopback".into(), "there is nothing to forward");
            continue;
        }
        if link.tunnel.is_none() && (!link.is_ethernet() || link.mac.is_none()) {
            reject(
                Role::Both,
                "not Ethernet".into(),
                "raddle writes Ethernet headers only",
            );
            continue;
        }
        if link.index as usize >= MAX_LINKS {
            let what = format!("interface index {}", link.index);
            reject(
                Role::Both,
                what,
                &format!("raddle has room for indices below {MAX_LINKS}"),
            );
            continue;
        }
        let by_index = |index| names.get(&index).copied();
        let in_vrf = vrf_of(link, by_index).is_some();
        let bridge = bridge_of(link, by_index);
        if let Some(bridge) = bridge {
            if let Some((role, what, why)) = refused_port(link, bridge, &names, stacked) {
                reject(role, what, why);
            }
        } else if let Some(master) = link.master.filter(|_| !in_vrf) {
            let what = match names.get(&master) {
                Some(m) => format!(
                    "part of {} {}",
                    m.kind.as_deref().unwrap_or("device"),
                    m.name
                ),
                None => format!("part of device {master}"),
            };
            reject(
                Role::Both,
                what,
                "what comes in by it is not routed on its own",
            );
            continue;
        }
        if let Some(bond) = link.bond {
            if generic {
                let why = "generic XDP runs there when tags have been taken out of frames; the kernel forwards there";
                reject(Role::Both, "bond, in generic mode".into(), why);
                continue;
            }
            if let Some(why) = refused_bond(bond) {
                reject(
                    Role::Both,
                    why,
                    "the driver of bonds runs no XDP program there",
                );
                continue;
            }
            let members = || scene.links.iter().filter(|l| l.master == Some(link.index));
            if let Some(member) = members().find(|member| !is_end(member)) {
                let what = format!("its member {} is no Ethernet link of its own", member.name);
                reject(Role::Both, what, "the kernel forwards there");
                continue;
            }
            if let Some(member) = members().find(|member| member.bond_queue != 0) {
                let what = format!(
                    "its member {} has a queue_id, {}",
                    member.name, member.bond_queue
                );
                reject(
                    Role::Out,
                    what,
                    "packets of that queue leave by it in the kernel, and XDP has no queues",
                );
            }
            if let Some(member) = members().find(|member| member.xdp.is_some()) {
                let what = format!("its member {} has an XDP program", member.name);
                reject(
                    Role::In,
                    what,
                    "a bond gives its program to all its members",
                );
            }
            if let Some((member, upper)) = members().find_map(|member| {
                let upper = stacked.get(&member.index)?;
                Some((member, upper.others.first().or(upper.vlans.first())?))
            }) {
                let what = format!("{upper} is stacked upon its member {}", member.name);
                reject(
                    Role::In,
                    what,
                    "frames for it can look to XDP like frames for the bond",
                );
            }
        } else if link.is_vlan() {
            if let Some((what, why)) = refused_vlan(link, &names) {
                reject(Role::Both, what, why);
                continue;
            }
            if link.vlan.is_some_and(|vlan| vlan.egress_qos) {
                reject(
                    Role::Out,
                    "its tags have priorities (egress-qos-map)".into(),
                    "XDP puts the same tag into all frames; the kernel sends there",
                );
            }
            let lower = lowers(link, by_index);
            if let Some((what, why)) = lower.first().and_then(|lower| refused_below(lower, &names))
            {
                reject(Role::Both, what, why);
                continue;
            }
            let below = lower.first();
            let upon_vlan = link.lower.and_then(by_index).is_some_and(Link::is_vlan);
            if let Some((lower, policy)) = below.and_then(|lower| {
                let policy = dissects(lower.bond?, upon_vlan)?;
                Some((lower, policy))
            }) {
                let what = format!(
                    "its lower link {} is a bond with xmit_hash_policy {}",
                    lower.name,
                    policy.name()
                );
                reject(Role::Out, what, DISSECTS);
            }
        } else if is_bridge(link) {
            if let Some((what, why)) = refused_bridge(link) {
                reject(Role::Both, what, why);
                continue;
            }
        } else if is_macvlan(link) {
            if let Some((role, what, why)) = refused_macvlan(link, &names) {
                reject(role, what, why);
            }
        } else if let Some(tunnel) = &link.tunnel {
            if let Some(finding) = refused_tunnel(link, tunnel) {
                let is_both = finding.role == Role::Both;
                of_tunnels.push(finding);
                if is_both {
                    continue;
                }
            }
        } else if let Some(kind) = link.kind.as_deref().filter(|kind| !is_simple_kind(kind)) {
            let why = "XDP on it runs late or not at all; the kernel forwards there";
            reject(Role::Both, format!("{kind} device"), why);
            continue;
        }
        if let Some(upper) = stacked.get(&link.index).and_then(|all| all.others.first()) {
            let why = "frames for it can look to XDP like frames for this link; the kernel \
                       forwards from here";
            reject(Role::In, format!("{upper} is stacked upon it"), why);
        }
        if let Some(xdp) = link.xdp.filter(|_| !scene.attached.contains(&link.index)) {
            let mode = match xdp.mode {
                1 => "native",
                2 => "generic",
                3 => "offloaded",
                _ => "several modes",
            };
            let what = format!("XDP program {} is attached already ({mode})", xdp.program);
            let off = if xdp.mode == 2 {
                "xdpgeneric off"
            } else {
                "xdp off"
            };
            let why = format!(
                "a link has one XDP program; see: bpftool prog show id {}; what raddle has left there itself \
                 (on-exit = \"keep\") goes by raddle detach",
                xdp.program
            );
            let finding = Finding::new(Severity::LinkRejected, what, why).on(&link.name, Role::In);
            findings.push(finding.fix(format!("ip link set dev {} {off}", link.name)));
        }
    }
    findings.append(&mut of_tunnels);
    of_uppers_too(findings, &[], scene)
}

/// What follows.
const KERNEL: &str = "the kernel forwards there";

/// `LOOPBACK_IFINDEX`.
const LOOPBACK_INDEX: u32 = 1;

/// Whether a link is a tunnel that engines send through, or take packets from, as far as it is set to what they do.
pub fn is_usable_tunnel(link: &Link) -> bool {
    let refused = |tunnel| refused_tunnel(link, tunnel).is_some_and(|it| it.role == Role::Both);
    link.tunnel.as_ref().is_some_and(|tunnel| !refused(tunnel))
}

/// In which role a tunnel is not used, why, and a command that changes it.
///
/// 1. It does what engines do not, or its outer packets are bound to a link (loopback aside): in neither.
/// 2. It has no address of its own end, which the kernel then chooses for each packet: in neither.
/// 3. It has several other ends, and is no VXLAN: in neither. One without any end is the kernel's own (`gre0`, `tunl0`, `sit0`).
/// 4. A VXLAN learns from what comes in: nothing comes in by it, as the kernel would not see it.
fn refused_tunnel(link: &Link, tunnel: &Tunnel) -> Option<Finding> {
    let (kind, not_done) = match tunnel.kind {
        TunnelKind::Ipip => (
            "ipip",
            "external, mode any or mplsip, encap (FOU, GUE), a mark, or more",
        ),
        TunnelKind::Sit => (
            "sit",
            "external, mode any or ipip, isatap, 6rd, encap (FOU, GUE), a mark, or more",
        ),
        TunnelKind::Gre { .. } => (
            "gre",
            "external, csum, seq, encap (FOU, GUE), a mark, or more",
        ),
        TunnelKind::Vxlan { .. } => (
            "vxlan",
            "external, vnifilter, a multicast group, an end of IPv6, df inherit, gbp, gpe, proxy, l2miss, l3miss, rsc, or more",
        ),
    };
    let name = &link.name;
    let refused = |role, what: String, why: &str| {
        Finding::new(Severity::LinkRejected, what, why).on(name, role)
    };
    let set = |what: &str| format!("ip link set dev {name} type {kind} {what}");
    if tunnel.is_special {
        let what = format!("{kind} with an option that raddle does not carry out: {not_done}");
        let why = "ip -d link shows them; the kernel forwards there";
        return Some(refused(Role::Both, what, why));
    }
    if tunnel.link != 0 && tunnel.link != LOOPBACK_INDEX {
        let what = format!("{kind} that is bound to a link (dev)");
        return Some(refused(Role::Both, what, KERNEL));
    }
    let is_vxlan = matches!(tunnel.kind, TunnelKind::Vxlan { .. });
    if tunnel.local.is_none() && tunnel.remote.is_none() && !is_vxlan {
        let what = format!("{kind} for what no other tunnel takes");
        return Some(refused(Role::Both, what, KERNEL));
    }
    if tunnel.local.is_none() {
        let what = format!("{kind} without an address of its own end (local)");
        let why = "the kernel chooses one for each packet, and forwards there";
        return Some(refused(Role::Both, what, why).fix(set("local ADDRESS")));
    }
    match tunnel.kind {
        TunnelKind::Vxlan { learns: true, .. } => {
            let what = "vxlan that learns from what comes in".to_owned();
            let why =
                "the kernel has to see that, and forwards from there; with EVPN it need not learn";
            Some(refused(Role::In, what, why).fix(set("nolearning")))
        }
        TunnelKind::Vxlan { .. } => None,
        _ if tunnel.remote.is_none() => {
            let what = format!("{kind} with several other ends (no remote)");
            Some(refused(Role::Both, what, KERNEL).fix(set("remote ADDRESS")))
        }
        _ => None,
    }
}

/// In which role a port of a bridge is not used, and why.
///
/// 1. Nothing is known of it as a port, or it does what engines do not (`vlan_tunnel`, `mab`, a `backup_port`): in neither.
/// 2. A macvlan, or a VLAN upon another bridge: in neither. There is one bridge on a frame's way.
/// 3. With a VLAN upon itself, which takes frames before the bridge does (`__netif_receive_skb_core`): nothing comes in by it.
fn refused_port(
    link: &Link,
    bridge: &Link,
    links: &BTreeMap<u32, &Link>,
    stacked: &BTreeMap<u32, Stacked>,
) -> Option<(Role, String, &'static str)> {
    let name = &bridge.name;
    let both = |what| Some((Role::Both, what, KERNEL));
    match link.port {
        None => return both(format!("port of bridge {name} of which nothing is known")),
        Some(port) if port.is_special => {
            return both(format!(
                "port of bridge {name} with vlan_tunnel, mab or a backup_port"
            ));
        }
        Some(_) => {}
    }
    let lower = lowers(link, |index| links.get(&index).copied());
    if is_macvlan(link) || lower.first().is_some_and(|lower| is_bridge(lower)) {
        return both(format!("port of bridge {name}, and upon others itself"));
    }
    let vlan = stacked.get(&link.index)?.vlans.first()?;
    let why = "a VLAN takes frames before the bridge does; the kernel forwards from there";
    Some((Role::In, format!("{vlan} is upon it"), why))
}

/// Why a bridge is not used whatever its ports are, and what follows.
fn refused_bridge(link: &Link) -> Option<(String, &'static str)> {
    let Some(bridge) = link.bridge else {
        return Some(("bridge of which nothing is known".to_owned(), KERNEL));
    };
    if bridge.is_special {
        let what = "bridge with mst_enable, or with nf_call_iptables, nf_call_ip6tables or nf_call_arptables of its own";
        return Some((what.to_owned(), KERNEL));
    }
    if bridge.filters_vlans && raddle_image::Vlan::of(bridge.protocol, 1).is_none() {
        let what = format!("bridge with tags of EtherType {:#06x}", bridge.protocol);
        return Some((what, KERNEL));
    }
    None
}

/// `MACVLAN_MODE_*`: those whose macvlan gets what is to its own address, and nothing else.
const MACVLAN_PRIVATE: u32 = 1;
const MACVLAN_VEPA: u32 = 2;
const MACVLAN_BRIDGE: u32 = 4;

/// Whether a macvlan, or a macvtap, takes only frames to its own address, and that is not its lower link's: then what is to that looks like
/// nothing else (`macvlan_handle_frame`). In the modes passthru and source it takes others.
pub(super) fn takes_its_own_only(upper: &Link, lower: Option<&Link>) -> bool {
    let mode = upper.macvlan.map(|macvlan| macvlan.mode);
    let own = lower.is_some_and(|lower| lower.mac != upper.mac);
    let modes = [MACVLAN_PRIVATE, MACVLAN_VEPA, MACVLAN_BRIDGE];
    own && mode.is_some_and(|mode| modes.contains(&mode))
}

/// In which role a macvlan is not used, and why.
///
/// 1. Upon a link in another namespace, or one that is not known: in neither.
/// 2. Upon a bridge, a VLAN of one, a port of one, or a macvlan: in neither.
/// 3. In a mode in which it takes frames that are not to its own address: in neither.
/// 4. In mode bridge nothing leaves by it: what it sends may be for a macvlan upon the same link (`macvlan_queue_xmit`), also of another
///    namespace.
fn refused_macvlan(
    link: &Link,
    links: &BTreeMap<u32, &Link>,
) -> Option<(Role, String, &'static str)> {
    let by_index = |index| links.get(&index).copied();
    let both = |what: &str| Some((Role::Both, what.to_owned(), KERNEL));
    if link.lower_netns.is_some() {
        return both("macvlan of a link in another network namespace");
    }
    let Some(lower) = link.lower.and_then(by_index) else {
        return both("macvlan of a link that is not known");
    };
    let below = lowers(lower, by_index);
    let all = || std::iter::once(lower).chain(below.iter().copied());
    if all().any(|lower| is_bridge(lower) || is_macvlan(lower))
        || bridge_of(lower, by_index).is_some()
    {
        return both("macvlan upon a bridge, a port of one, or a macvlan");
    }
    if all().any(|lower| lower.tunnel.is_some()) {
        return both("macvlan upon a tunnel");
    }
    if !takes_its_own_only(link, Some(lower)) {
        return both("macvlan that takes frames which are not to its own address");
    }
    let is_bridge = link
        .macvlan
        .is_some_and(|macvlan| macvlan.mode == MACVLAN_BRIDGE);
    let what = "macvlan of mode bridge".to_owned();
    let why = "what it sends may be for a macvlan upon the same link, which XDP would not give it to; the kernel sends there. With \
               mode private or vepa XDP does";
    is_bridge.then_some((Role::Out, what, why))
}

/// Tunnels, and links that come in by tunnels alone, where no link by which outer packets could come in has the program, `with_program`
/// being those that would; `ins` are the links that are forwarded from.
pub(super) fn without_carrier(
    scene: &Scene,
    ins: &BTreeMap<u32, String>,
    with_program: &BTreeMap<u32, String>,
) -> Vec<Finding> {
    let mut carriers = scene.links.iter();
    let has_program = |link: &Link| !is_upon_others(link) && with_program.contains_key(&link.index);
    if carriers.any(has_program) {
        return Vec::new();
    }
    let found = ins.values().map(|name| {
        let why =
            "what comes in by it comes in by others first: with --link these have to be named, too";
        let what = "no other link is forwarded from";
        Finding::new(Severity::LinkRejected, what, why).on(name, Role::In)
    });
    found.collect()
}

/// Bonds that are not sent through, `with_program` being the links that the program is to run on.
///
/// The driver of bonds passes what is redirected on to a member's `ndo_xdp_xmit` without looking whether it has one (`bond_xdp_xmit`, to
/// Linux 6.18): without, the kernel crashes. It sees to it that all members have one, and refuses others, only while a program is on
/// the bond that runs in the drivers of its members (`bond_xdp_set`, `bond_enslave`).
pub(super) fn bonds_not_sent_through(
    scene: &Scene,
    generic: bool,
    with_program: &BTreeMap<u32, String>,
) -> Vec<Finding> {
    let bonds = scene.links.iter().filter(|link| link.bond.is_some());
    let refused = bonds.filter(|link| generic || !with_program.contains_key(&link.index));
    let found = refused.map(|link| {
        let why = "a bond is sent through only while the program is on it, in the drivers of its members: else a member whose driver \
                   knows no XDP could crash the kernel";
        let finding = Finding::new(Severity::LinkRejected, "the program is not on the bond", why);
        finding.on(&link.name, Role::Out)
    });
    found.collect()
}

/// Why XDP is not used on a bond, as far as that goes by how it is set; none where it can be (`bond_xdp_check`, Linux 5.15).
fn refused_bond(bond: Bond) -> Option<String> {
    // The monitor does not see what XDP takes (`bond_rcv_validate`).
    if bond.by_traffic {
        return Some(
            "bond whose members any packet keeps up (arp_interval, and arp_validate none or backup)"
                .to_owned(),
        );
    }
    let (mode, policy) = (
        BondMode::from_number(bond.mode),
        BondPolicy::from_number(bond.policy),
    );
    match (mode, policy) {
        (Some(BondMode::RoundRobin | BondMode::ActiveBackup), _) => None,
        (Some(BondMode::Xor | BondMode::Lacp), Some(policy)) => match policy {
            BondPolicy::VlanSrcMac => Some(format!("bond with xmit_hash_policy {}", policy.name())),
            _ => None,
        },
        (Some(BondMode::Xor | BondMode::Lacp), None) => {
            Some(format!("bond with xmit_hash_policy {}", bond.policy))
        }
        (Some(mode), _) => Some(format!("bond of mode {}", mode.name())),
        (None, _) => Some(format!("bond of mode {}", bond.mode)),
    }
}

/// Why a VLAN is not used whatever is below it, and what follows; none where [`raddle_rib::below`] knows it.
fn refused_vlan(link: &Link, links: &BTreeMap<u32, &Link>) -> Option<(String, &'static str)> {
    let by_index = |index| links.get(&index).copied();
    if raddle_rib::below(link, by_index).is_some() {
        return None;
    }
    let (mut at, mut tags) = (link, 0);
    while let Some(vlan) = at.vlan {
        tags += 1;
        if at.lower_netns.is_some() {
            let what = "VLAN of a link in another network namespace".to_owned();
            return Some((what, "the program cannot be attached there from here"));
        }
        if raddle_image::Vlan::of(vlan.protocol, vlan.id).is_none() {
            let what = format!("VLAN with tags of EtherType {:#06x}", vlan.protocol);
            return Some((what, KERNEL));
        }
        if tags > MAX_TAGS {
            return Some((format!("VLAN with more than {MAX_TAGS} tags"), KERNEL));
        }
        match at.lower.and_then(by_index) {
            Some(lower) => at = lower,
            None => return Some(("VLAN of a link that is not known".to_owned(), KERNEL)),
        }
    }
    Some(("VLAN of which nothing is known".to_owned(), KERNEL))
}

/// Why a VLAN is not used for the link below it that is no VLAN: a port of a bridge, which goes on with frames of other VLANs, a macvlan,
/// or a tunnel.
fn refused_below(lower: &Link, links: &BTreeMap<u32, &Link>) -> Option<(String, &'static str)> {
    let what = match bridge_of(lower, |index| links.get(&index).copied()) {
        Some(bridge) => format!("part of bridge {}", bridge.name),
        None if is_macvlan(lower) => "macvlan".to_owned(),
        None if lower.tunnel.is_some() => "tunnel".to_owned(),
        None => return None,
    };
    Some((format!("its lower link {}: {what}", lower.name), KERNEL))
}

const DISSECTS: &str = "by which member packets with such tags leave is known for layer2, layer2+3 and layer3+4, and for encap3+4 with one \
                        tag; the kernel sends there";

/// The policy by which a bond chooses a member for frames with tags in a way that engines do not follow; none where they do.
///
/// In the kernel the outermost tag is beside the frame, and the dissector that encap2+3 and encap3+4 use sees the packet. In XDP the tag is
/// in the frame: of encap3+4 the hash is the same, of encap2+3 it is not, as it hashes the EtherType, too. With two tags the kernel's is
/// another with both (rules of `rib`'s `bonds.rs`).
fn dissects(bond: Bond, upon_vlan: bool) -> Option<BondPolicy> {
    let by_hash = matches!(
        BondMode::from_number(bond.mode),
        Some(BondMode::Xor | BondMode::Lacp)
    );
    let policy = BondPolicy::from_number(bond.policy)?;
    let not = match policy {
        BondPolicy::Encap23 => true,
        BondPolicy::Encap34 => upon_vlan,
        _ => false,
    };
    (by_hash && not).then_some(policy)
}

/// Whether a link is the end of a wire, as far as XDP is concerned.
fn is_end(link: &Link) -> bool {
    let is_simple = link.kind.as_deref().is_none_or(is_simple_kind);
    is_simple && link.is_ethernet() && (link.index as usize) < MAX_LINKS
}

/// Kinds of device that are the end of a wire, as far as XDP is concerned. Physical ones have no
/// kind.
fn is_simple_kind(kind: &str) -> bool {
    matches!(kind, "veth" | "tun" | "netdevsim")
}

#[cfg(test)]
mod tests;

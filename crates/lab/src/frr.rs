//! FRR on the routers: configuration, start, and its command line.

use std::{
    fmt::Write as _,
    fs::{self, File},
    os::unix::fs::chown,
    path::Path,
    process::Stdio,
};

use ipnet::IpNet;
use nix::unistd::User;

use crate::{
    Bgp, Evpn, LabError, Tenant, Topology, names,
    netns::{self, View},
    preflight, state,
};

/// Starts zebra and bgpd on a node that speaks BGP.
///
/// They end with the lab: whatever runs in a node's namespace is ended by `down`.
pub(crate) fn start(lab: &str, topology: &Topology, node: &str, bgp: &Bgp) -> Result<(), LabError> {
    let home = preflight::frr_home()?;
    let dir = state::node_dir(lab, node).join("frr");
    let peers: Vec<_> = peers(topology, node).collect();
    let zebra = zebra_conf(node, &dir, topology.nexthop_groups(), tenants(bgp));
    install(&dir, "zebra", &zebra)?;
    install(&dir, "bgpd", &bgpd_conf(node, &dir, bgp, &peers))?;
    for daemon in ["zebra", "bgpd"] {
        run(lab, node, &home, &dir, daemon)?;
    }
    Ok(())
}

/// The devices of a node over which it holds sessions.
fn peers<'a>(topology: &'a Topology, node: &'a str) -> impl Iterator<Item = &'a str> {
    let links = topology.links().iter().filter(|l| l.bgp);
    let ends = links.flat_map(|l| &l.ends).filter(move |e| e.node == node);
    let made = topology.node(node).into_iter().flat_map(|n| &n.made);
    let made = made.filter(|device| device.bgp);
    ends.map(|e| &*e.dev)
        .chain(made.map(|device| &*device.name))
}

/// The VRFs whose routes a node exchanges by EVPN.
fn tenants(bgp: &Bgp) -> &[Tenant] {
    bgp.evpn.as_ref().map_or(&[], |evpn| &evpn.tenants)
}

/// zebra's configuration.
///
/// FRR 8.4 loses multipath for good when a link flaps: the kernel silently drops the dead nexthop from
/// the group, FRR keeps the group cached (for 180 s after its last use) and, when the nexthop is back,
/// reuses it as it is. Two settings help. Forgetting unused groups after a second keeps nexthop groups
/// in the kernel, as routers of today have them, with their IPv6 gateways in sight; so that is the
/// default. Without groups in the kernel, routes list their nexthops, the old way.
///
/// A tenant's VRF is told the number of its network here, not in bgpd, which hears of it from zebra.
fn zebra_conf(node: &str, dir: &Path, groups: bool, tenants: &[Tenant]) -> String {
    let fix = if groups {
        "zebra nexthop-group keep 1"
    } else {
        "no zebra nexthop kernel enable"
    };
    let mut conf = format!("{}{fix}\n", preamble(node, dir, "zebra"));
    for Tenant { vrf, vni, .. } in tenants {
        let _ = write!(conf, "vrf {vrf}\n vni {vni}\nexit-vrf\n");
    }
    conf
}

/// bgpd's configuration: unnumbered eBGP on the fabric's devices, every equally long path used, and
/// timers for people who wait.
fn bgpd_conf(node: &str, dir: &Path, bgp: &Bgp, peers: &[&str]) -> String {
    let mut conf = preamble(node, dir, "bgpd");
    let mut line = |text: String| {
        conf.push_str(&text);
        conf.push('\n');
    };
    line(format!("router bgp {}", bgp.asn));
    line(format!(" bgp router-id {}", bgp.router_id));
    line(" no bgp ebgp-requires-policy".into());
    if bgp.evpn.is_some() {
        line(" no bgp default ipv4-unicast".into());
        line(" bgp disable-ebgp-connected-route-check".into());
    }
    line(" bgp bestpath as-path multipath-relax".into());
    line(" timers bgp 1 3".into());
    line(" neighbor fabric peer-group".into());
    line(" neighbor fabric remote-as external".into());
    line(" neighbor fabric timers connect 1".into());
    line(" neighbor fabric advertisement-interval 0".into());
    for dev in peers {
        line(format!(" neighbor {dev} interface peer-group fabric"));
    }
    let evpn = bgp.evpn.as_ref();
    evpn.into_iter()
        .flat_map(|evpn| overlay_lines(bgp, evpn))
        .for_each(&mut line);
    for family in FAMILIES {
        line(format!(" address-family {family} unicast"));
        announced(&bgp.networks, family).for_each(&mut line);
        line("  neighbor fabric activate".into());
        line("  maximum-paths 64".into());
        line(" exit-address-family".into());
    }
    if bgp.evpn.is_some() {
        line(" address-family l2vpn evpn".into());
        line("  neighbor overlay activate".into());
        line("  advertise-all-vni".into());
        line(" exit-address-family".into());
    }
    for tenant in tenants(bgp) {
        tenant_lines(bgp, tenant).into_iter().for_each(&mut line);
    }
    conf
}

const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// The lines for what is announced of one family.
fn announced<'a>(networks: &'a [IpNet], family: &'a str) -> impl Iterator<Item = String> {
    let of = |net: &IpNet| FAMILIES[usize::from(net.addr().is_ipv6())];
    let nets = networks.iter().filter(move |net| of(net) == family);
    nets.map(|net| format!("  network {}", net.trunc()))
}

/// bgpd's configuration of the sessions that carry EVPN.
///
/// They are between the leaves themselves, one to each, by whatever path the fabric has. Were the spines to
/// pass EVPN on, every route would come twice, and FRR from 8.4 on loses the MAC address of a route's far
/// end for good when the first of the two goes (its issue 12391). A session that the far end opens first
/// would have FRR 8.4 want that end on a connected network, in spite of `ebgp-multihop`, and then believe
/// none of its routes; so nothing is asked for such networks.
fn overlay_lines(bgp: &Bgp, evpn: &Evpn) -> Vec<String> {
    let mut lines = vec![
        " neighbor overlay peer-group".into(),
        " neighbor overlay remote-as external".into(),
        // From leaf to leaf, over a spine.
        " neighbor overlay ebgp-multihop 4".into(),
        format!(" neighbor overlay update-source {}", bgp.router_id),
        " neighbor overlay timers connect 1".into(),
        " neighbor overlay advertisement-interval 0".into(),
    ];
    let peers = evpn.peers.iter();
    lines.extend(peers.map(|peer| format!(" neighbor {peer} peer-group overlay")));
    lines
}

/// bgpd's configuration for a tenant: what it announces, as IP prefixes of EVPN. The network's
/// number decides who imports it: route targets are made of the AS and that number, and FRR compares the number alone.
fn tenant_lines(bgp: &Bgp, tenant: &Tenant) -> Vec<String> {
    let mut lines = vec![
        format!("router bgp {} vrf {}", bgp.asn, tenant.vrf),
        format!(" bgp router-id {}", bgp.router_id),
    ];
    for family in FAMILIES {
        lines.push(format!(" address-family {family} unicast"));
        lines.extend(announced(&tenant.networks, family));
        lines.push(" exit-address-family".into());
    }
    lines.push(" address-family l2vpn evpn".into());
    lines.extend(FAMILIES.map(|family| format!("  advertise {family} unicast")));
    lines.push(" exit-address-family".into());
    lines
}

fn preamble(node: &str, dir: &Path, daemon: &str) -> String {
    let log = dir.join(daemon).with_extension("log");
    format!(
        "hostname {node}\nlog file {} informational\n",
        log.display()
    )
}

/// Writes a configuration file where FRR's user can read it, and log beside it.
fn install(dir: &Path, daemon: &str, conf: &str) -> Result<(), LabError> {
    let failed = || LabError::io(format!("cannot write {daemon}'s configuration"));
    let path = dir.join(daemon).with_extension("conf");
    fs::write(&path, conf).map_err(failed())?;
    let user = User::from_name("frr").ok().flatten();
    let (uid, gid) = user.map(|u| (u.uid.as_raw(), u.gid.as_raw())).unzip();
    chown(dir, uid, gid)
        .and_then(|()| chown(&path, uid, gid))
        .map_err(failed())
}

/// Runs a daemon, until it has put itself into the background.
fn run(lab: &str, node: &str, home: &Path, dir: &Path, daemon: &str) -> Result<(), LabError> {
    let failed = || LabError::io(format!("cannot start {daemon} on {node}"));
    let program = home.join(daemon);
    let file = |extension: &str| dir.join(daemon).with_extension(extension);
    let said = file("start");
    let output = File::create(&said).map_err(failed())?;
    let view = View { binds: Vec::new() };
    let netns = names::netns(lab, node);
    let mut command = netns::command(&netns, &program.display().to_string(), view)?;
    command.arg("-d").args(["-A", "127.0.0.1", "-P", "0"]);
    command
        .arg("-f")
        .arg(file("conf"))
        .arg("-i")
        .arg(file("pid"));
    command
        .arg("-z")
        .arg(dir.join("zserv.api"))
        .arg("--vty_socket")
        .arg(dir);
    let copy = output.try_clone().map_err(failed())?;
    let status = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(copy)
        .status()
        .map_err(failed())?;
    if status.success() {
        return Ok(());
    }
    let words = fs::read_to_string(&said).unwrap_or_default();
    Err(LabError::Command {
        what: format!("starting BGP on {node}"),
        command: program.display().to_string(),
        stderr: match words.trim() {
            "" => status.to_string(),
            words => words.to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clos, L3vni};

    #[test]
    fn a_leaf_of_a_fabric() {
        let t = Clos::default().topology().unwrap();
        let bgp = t.node("leaf2").unwrap().bgp.as_ref().unwrap();
        let peers: Vec<_> = peers(&t, "leaf2").collect();
        assert_eq!(peers, ["spine1", "spine2"]);
        let conf = bgpd_conf("leaf2", Path::new("/d"), bgp, &peers);
        for line in [
            "log file /d/bgpd.log informational",
            "router bgp 65002",
            " neighbor spine2 interface peer-group fabric",
            "  network 10.2.1.0/24",
            "  network 2001:db8:2:1::/64",
        ] {
            assert_eq!(
                conf.lines().filter(|l| *l == line).count(),
                1,
                "{line}\n{conf}"
            );
        }
        assert!(!conf.contains("neighbor host"));
    }

    #[test]
    fn both_cures_for_lost_paths() {
        let conf = |groups| zebra_conf("n", Path::new("/d"), groups, &[]);
        assert!(conf(true).contains("nexthop-group keep 1"));
        assert!(conf(false).contains("no zebra nexthop kernel enable"));
    }

    #[test]
    fn sessions_are_held_over_the_uppermost_devices() {
        let fabric = |vlan, bond| Clos {
            vlan,
            bond,
            ..Clos::default()
        };
        for (vlan, bond, peer) in [
            (Some(10), false, "spine2.10"),
            (None, true, "spine2"),
            (Some(10), true, "spine2.10"),
        ] {
            let t = fabric(vlan, bond).topology().unwrap();
            let peers: Vec<_> = peers(&t, "leaf1").collect();
            assert_eq!(peers.len(), 2);
            assert_eq!(peers[1], peer);
        }
    }

    #[test]
    fn tenants_of_a_leaf() {
        let t = L3vni::default().topology().unwrap();
        let conf = |node: &str| {
            let bgp = t.node(node).unwrap().bgp.as_ref().unwrap();
            let dir = Path::new("/d");
            let peers: Vec<_> = peers(&t, node).collect();
            zebra_conf(node, dir, true, tenants(bgp)) + &bgpd_conf(node, dir, bgp, &peers)
        };
        let leaf = conf("leaf2");
        for part in [
            "vrf blue\n vni 4002\nexit-vrf\n",
            " bgp disable-ebgp-connected-route-check\n",
            " neighbor overlay update-source 10.255.1.2\n",
            " neighbor 10.255.1.1 peer-group overlay\n",
            " address-family l2vpn evpn\n  neighbor overlay activate\n  advertise-all-vni\n",
            "router bgp 65002 vrf red\n bgp router-id 10.255.1.2\n \
             address-family ipv4 unicast\n  network 10.2.0.0/24\n exit-address-family\n \
             address-family ipv6 unicast\n  network 2001:db8:2::/64\n exit-address-family\n \
             address-family l2vpn evpn\n  advertise ipv4 unicast\n  advertise ipv6 unicast\n",
        ] {
            assert!(leaf.contains(part), "{part}\n{leaf}");
        }
        let spine = conf("spine1");
        assert!(!spine.contains("evpn") && !spine.contains("vrf"), "{spine}");
    }
}

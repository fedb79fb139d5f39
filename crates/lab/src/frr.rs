//! FRR on the routers: configuration, start, and its command line.

use std::{
    fs::{self, File},
    os::unix::fs::chown,
    path::Path,
    process::Stdio,
};

use ipnet::IpNet;
use nix::unistd::User;

use crate::{
    Bgp, LabError, Topology, names,
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
    let zebra = zebra_conf(node, &dir, topology.nexthop_groups());
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
    links
        .flat_map(|l| &l.ends)
        .filter(move |e| e.node == node)
        .map(|e| &*e.dev)
}

/// zebra's configuration.
///
/// FRR 8.4 loses multipath for good when a link flaps: the kernel silently drops the dead nexthop from
/// the group, FRR keeps the group cached (for 180 s after its last use) and, when the nexthop is back,
/// reuses it as it is. Two settings help. Forgetting unused groups after a second keeps nexthop groups
/// in the kernel, as routers of today have them, with their IPv6 gateways in sight; so that is the
/// default. Without groups in the kernel, routes list their nexthops, the old way.
fn zebra_conf(node: &str, dir: &Path, groups: bool) -> String {
    let fix = if groups {
        "zebra nexthop-group keep 1"
    } else {
        "no zebra nexthop kernel enable"
    };
    format!("{}{fix}\n", preamble(node, dir, "zebra"))
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
    line(" bgp bestpath as-path multipath-relax".into());
    line(" timers bgp 1 3".into());
    line(" neighbor fabric peer-group".into());
    line(" neighbor fabric remote-as external".into());
    line(" neighbor fabric timers connect 1".into());
    line(" neighbor fabric advertisement-interval 0".into());
    for dev in peers {
        line(format!(" neighbor {dev} interface peer-group fabric"));
    }
    for (family, v4) in [("ipv4", true), ("ipv6", false)] {
        line(format!(" address-family {family} unicast"));
        for net in bgp
            .networks
            .iter()
            .filter(|n| matches!(n, IpNet::V4(_)) == v4)
        {
            line(format!("  network {}", net.trunc()));
        }
        line("  neighbor fabric activate".into());
        line("  maximum-paths 64".into());
        line(" exit-address-family".into());
    }
    conf
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
    use crate::Clos;

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
        assert!(zebra_conf("n", Path::new("/d"), true).contains("nexthop-group keep 1"));
        assert!(zebra_conf("n", Path::new("/d"), false).contains("no zebra nexthop kernel enable"));
    }
}

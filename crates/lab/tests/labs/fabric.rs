//! Fabrics with real routing daemons.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use raddle_lab::{Clos, HashPolicy, Lab, LabError, Stage, UpOptions};

use crate::common::{echo, output, up};
use crate::traces::{is_root, name, traces};

fn route(lab: &Lab, node: &str, prefix: &str) -> String {
    let family = if prefix.contains(':') { "-6" } else { "-4" };
    output(lab, node, &["ip", family, "route", "show", prefix])
}

fn nexthops(lab: &Lab, node: &str, prefix: &str) -> usize {
    let text = route(lab, node, prefix);
    text.matches("nexthop")
        .count()
        .max(usize::from(!text.is_empty()))
}

/// Waits for a route to have so many nexthops.
fn wait_for(lab: &Lab, node: &str, prefix: &str, count: usize) {
    let start = Instant::now();
    while nexthops(lab, node, prefix) != count {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{prefix}: not {count} nexthops"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn clos() {
    if !is_root("clos") {
        return;
    }
    let rate = "1gbit".parse().ok();
    let lab = up(
        "clos",
        &Clos {
            rate,
            ..Clos::default()
        }
        .topology()
        .unwrap(),
    );

    // Every path in both families, by nexthop groups.
    for prefix in ["10.2.1.0/24", "2001:db8:2:1::/64"] {
        assert_eq!(nexthops(&lab, "leaf1", prefix), 2);
        assert!(route(&lab, "leaf1", prefix).contains("nhid"));
    }
    let before = lab.counters().unwrap();
    assert!(echo(&lab, "host1", "host2", [10, 2, 1, 2].into()));
    assert!(echo(
        &lab,
        "host1",
        "host2",
        "2001:db8:2:1::2".parse().unwrap()
    ));
    let (access, end) = lab.topology().link_of("host2", "leaf2").unwrap();
    let after = lab.counters().unwrap();
    assert!(after[access.0].to[end].packets > before[access.0].to[end].packets);

    // Rates hold on the fabric, in both directions of every link, and nowhere else.
    let (wires, _) = lab.wire_device(access, 0).unwrap();
    let shapers = Command::new("tc")
        .args(["-n", &wires, "qdisc", "show"])
        .output()
        .unwrap();
    let shapers = String::from_utf8(shapers.stdout).unwrap();
    assert_eq!(shapers.matches("qdisc tbf").count(), 8, "{shapers}");
    assert_eq!(shapers.matches("rate 1Gbit").count(), 8, "{shapers}");

    // A pulled cable takes one path away; plugged in again, it is back (FRR alone would lose it).
    let link = lab
        .topology()
        .links_between("leaf1", "spine1")
        .next()
        .unwrap();
    lab.link_down(link).unwrap();
    wait_for(&lab, "leaf1", "10.2.1.0/24", 1);
    lab.link_up(link).unwrap();
    lab.wait_converged(Duration::from_secs(60), |_| ()).unwrap();

    // A node has its own view of the system.
    assert_eq!(
        output(&lab, "leaf1", &["ls", "/sys/class/net"]),
        "host1\nlo\nspine1\nspine2\n"
    );
    assert!(output(&lab, "leaf1", &["ls", "-A", "/run/raddle"]).is_empty());
    assert!(output(&lab, "leaf1", &["stat", "-fc", "%T", "/sys/fs/bpf"]).contains("bpf"));
    assert!(output(&lab, "leaf1", &["vtysh", "-c", "show bgp summary"]).contains("65001"));

    lab.set_policy(HashPolicy::L3).unwrap();
    for family in ["ipv4", "ipv6"] {
        let path = format!("/proc/sys/net/{family}/fib_multipath_hash_policy");
        assert_eq!(output(&lab, "spine1", &["cat", &path]), "0\n");
    }

    // The name is taken, for up; and known, to load and list.
    let name = name("clos");
    let again = Lab::up(&name, lab.topology(), UpOptions::default());
    assert!(matches!(again, Err(LabError::NameInUse(n)) if n == name));
    assert_eq!(Lab::load(&name).unwrap().topology(), lab.topology());
    assert!(
        Lab::list()
            .iter()
            .any(|l| l.name == name && l.stage == Stage::Ready)
    );

    lab.down().unwrap();
    assert_eq!(traces(&name), [""; 0]);
    assert!(matches!(Lab::down(&name), Err(LabError::NoSuchLab(_))));
}

#[test]
fn hosts_that_route() {
    if !is_root("hosts_that_route") {
        return;
    }
    let clos = Clos {
        hosts_speak_bgp: true,
        nexthop_groups: false,
        ..Clos::default()
    };
    let lab = up("hosts", &clos.topology().unwrap());
    assert_eq!(nexthops(&lab, "host1", "10.2.1.2"), 2);
    assert!(!route(&lab, "host1", "10.2.1.2").contains("nhid"));
    assert!(echo(&lab, "host1", "host2", [10, 2, 1, 2].into()));
    assert!(echo(
        &lab,
        "host1",
        "host2",
        "2001:db8:2:1::2".parse().unwrap()
    ));

    let link = lab
        .topology()
        .links_between("host1", "spine2")
        .next()
        .unwrap();
    lab.link_down(link).unwrap();
    wait_for(&lab, "host1", "10.2.1.2", 1);
    lab.link_up(link).unwrap();
    lab.wait_converged(Duration::from_secs(60), |_| ()).unwrap();
}

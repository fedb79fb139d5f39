//! Devices that nodes make of their links: VLANs, bonds, and tenants' networks by EVPN.

use std::{
    io::Write as _,
    thread,
    time::{Duration, Instant},
};

use raddle_lab::{Clos, L3vni, Lab, LabError, LinkId, ScopedLab, Topology, UpOptions};

use crate::common::{echo, output};
use crate::traces::{is_root, name, traces};

/// A lab, unless the kernel cannot make its devices: then it has to say so, and leave nothing.
fn up(test: &str, topology: &Topology) -> Option<ScopedLab> {
    if !is_root(test) {
        return None;
    }
    let options = UpOptions {
        // Emulated machines are slow.
        wait: Some(Duration::from_secs(240)),
        ..UpOptions::default()
    };
    let name = name(test);
    match Lab::up(&name, topology, options) {
        Err(LabError::NoDevices { what, modules, .. }) => {
            assert!(!modules.is_empty());
            assert_eq!(traces(&name), [""; 0]);
            // Not eprintln!, which the test harness keeps to itself.
            let line = format!("skipped: {test} needs a kernel with more than this (no {what})\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            None
        }
        lab => Some(lab.unwrap().scoped()),
    }
}

/// Waits until a file of a node has this number.
fn wait_for(lab: &Lab, node: &str, file: &str, number: &str) {
    let start = Instant::now();
    while output(lab, node, &["cat", file]).trim() != number {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{file} of {node} is not {number}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn reaches(lab: &Lab, from: &str, to: &str, addresses: [&str; 2]) {
    for address in addresses {
        assert!(echo(lab, from, to, address.parse().unwrap()), "{address}");
    }
}

const HOST2: [&str; 2] = ["10.2.1.2", "2001:db8:2:1::2"];

fn down(lab: ScopedLab) {
    let name = lab.name().to_owned();
    lab.down().unwrap();
    assert_eq!(traces(&name), [""; 0]);
}

#[test]
fn vlans_upon_bonds() {
    let clos = Clos {
        vlan: Some(10),
        bond: true,
        ..Clos::default()
    };
    let Some(lab) = up("vlans-upon-bonds", &clos.topology().unwrap()) else {
        return;
    };
    reaches(&lab, "host1", "host2", HOST2);
    // Packets as large as the MTU, whose frames have a tag besides.
    let large = ["ping", "-c1", "-W5", "-Mdo", "-s8972", HOST2[0]];
    output(&lab, "host1", &large);
    let shown = output(&lab, "leaf1", &["ip", "-d", "link", "show", "spine1"]);
    for part in ["mode 802.3ad", "xmit_hash_policy encap3+4"] {
        assert!(shown.contains(part), "{shown}");
    }
    let shown = output(&lab, "leaf1", &["ip", "route", "show", "10.2.1.0/24"]);
    for part in ["dev spine1.10", "dev spine2.10"] {
        assert!(shown.contains(part), "{shown}");
    }

    // LACP notices that a cable loses everything, of which its carrier says nothing.
    let ports = "/sys/class/net/spine1/bonding/ad_num_ports";
    wait_for(&lab, "leaf1", ports, "2");
    let cable = lab.topology().link_of("leaf1", "spine1-1").unwrap().0;
    lab.cut(cable).unwrap();
    wait_for(&lab, "leaf1", ports, "1");
    reaches(&lab, "host1", "host2", HOST2);
    lab.restore(cable).unwrap();
    wait_for(&lab, "leaf1", ports, "2");
    down(lab);
}

#[test]
fn bonds_and_vlans_alone() {
    for (vlan, bond, test) in [(Some(4094), false, "vlans"), (None, true, "bonds")] {
        let clos = Clos {
            spines: 1,
            vlan,
            bond,
            ..Clos::default()
        };
        let Some(lab) = up(test, &clos.topology().unwrap()) else {
            continue;
        };
        reaches(&lab, "host1", "host2", HOST2);
        down(lab);
    }
}

#[test]
fn tenants() {
    let Some(lab) = up("tenants", &L3vni::default().topology().unwrap()) else {
        return;
    };
    let far = ["10.2.0.2", "2001:db8:2::2"];
    for tenant in ["red", "blue"] {
        let [near, far_host] = [1, 2].map(|leaf| format!("{tenant}{leaf}"));
        reaches(&lab, &near, &far_host, far);
        let route = ["ip", "route", "show", "vrf", tenant, "10.2.0.0/24"];
        let shown = output(&lab, "leaf1", &route);
        let way = format!("via 10.255.1.2 dev br-{tenant}");
        assert!(shown.contains(&way), "{shown}");
    }
    // The largest packet that fits beside the tunnel's headers goes as it is.
    output(
        &lab,
        "red1",
        &["ping", "-c1", "-W5", "-Mdo", "-s8922", far[0]],
    );
    // The address is the other tenant's, too, and that is not who is asked.
    assert!(!echo(&lab, "red1", "blue2", far[0].parse().unwrap()));
    // Either spine is a way for the tunnels.
    for spine in ["spine1", "spine2"] {
        let between = lab.topology().links_between("leaf1", spine);
        let links: Vec<LinkId> = between.collect();
        lab.link_down(links[0]).unwrap();
        reaches(&lab, "red1", "red2", far);
        lab.link_up(links[0]).unwrap();
        lab.wait_converged(Duration::from_secs(60), |_| ()).unwrap();
    }
    down(lab);
}

//! Two sites over SRv6, with the kernel alone.

use raddle_lab::{Lab, Srv6Vpn};

use crate::common::{echo, up};
use crate::traces::is_root;

/// Packets and errors of a node's SIDs, by SID.
fn counted(lab: &Lab, node: &str) -> Vec<(String, u64, u64)> {
    let shown = [
        "ip",
        "-6",
        "-s",
        "route",
        "show",
        "root",
        "5f00::/16",
        "table",
        "main",
    ];
    let shown = lab.output(node, &shown).unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let sids = shown.lines().filter(|line| line.contains("seg6local"));
    sids.map(|line| {
        let mut words = line.split_whitespace();
        let sid = words.next().unwrap().to_owned();
        let mut after = |name| {
            words.find(|word| *word == name).unwrap();
            words.next().unwrap().parse().unwrap()
        };
        (sid, after("packets"), after("errors"))
    })
    .collect()
}

#[test]
fn sites_in_two_subnets() {
    if !is_root("sites_in_two_subnets") {
        return;
    }
    let lab = up("l3", &Srv6Vpn::default().topology().unwrap());
    for address in ["10.2.0.2", "2001:db8:2::2"] {
        assert!(echo(&lab, "ce1", "ce2", address.parse().unwrap()));
    }
    for (node, sids) in [
        ("pe1", ["5f00:0:1:d4::", "5f00:0:1:d6::"]),
        ("pe2", ["5f00:0:2:d4::", "5f00:0:2:d6::"]),
    ] {
        for ((sid, packets, errors), wanted) in counted(&lab, node).into_iter().zip(sids) {
            assert_eq!((&*sid, errors), (wanted, 0));
            assert!(packets > 0, "{node} {sid}");
        }
    }
    // Either of them, as both have the SID.
    let visited: u64 = ["p1", "p2"].map(|p| counted(&lab, p)[0].1).iter().sum();
    assert!(visited > 0);
}

#[test]
fn sites_in_one_ethernet() {
    if !is_root("sites_in_one_ethernet") {
        return;
    }
    let vpn = Srv6Vpn {
        layer2: true,
        ..Srv6Vpn::default()
    };
    let lab = up("l2", &vpn.topology().unwrap());
    for address in ["10.0.0.2", "2001:db8::2"] {
        assert!(echo(&lab, "ce1", "ce2", address.parse().unwrap()));
    }
    for node in ["pe1", "pe2"] {
        let (_, packets, errors) = counted(&lab, node)[0];
        assert!(packets > 0 && errors == 0, "{node}");
    }
    // The far site is the next hop.
    let ping = ["ping", "-c", "1", "-t", "1", "-W", "2", "10.0.0.2"];
    assert!(lab.output("ce1", &ping).unwrap().status.success());
}

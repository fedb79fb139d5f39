//! Output of iproute2 6.1, and what is made of it.

use raddle_rib::event::{Bond, Encap, GroupMember, NexthopKind, RouteKind, RouteTarget, Vlan};

use super::*;

const LINK: &str = r#"[
{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"qdisc":"noqueue",
 "operstate":"UNKNOWN","link_type":"loopback","address":"00:00:00:00:00:00","num_tx_queues":1},
{"ifindex":3,"link":"p1","ifname":"e1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,
 "operstate":"UP","link_type":"ether","address":"ae:6b:4c:a5:5b:1d","linkinfo":{"info_kind":"veth"}},
{"ifindex":4,"link_index":9,"link_netnsid":0,"ifname":"e1.5","master":"e1",
 "flags":["NO-CARRIER","BROADCAST","UP"],"mtu":1500,"operstate":"LOWERLAYERDOWN",
 "link_type":"[1]","xdp":{"mode":1,"prog":{"id":7}}},{}]"#;
const ADDR: &str = r#"[{"ifindex":3,"ifname":"e1","addr_info":[
{"family":"inet","local":"10.0.1.1","prefixlen":24,"scope":"global","label":"e1"},
{"family":"inet","local":"10.8.8.1","address":"10.8.8.2","prefixlen":32,"scope":"253","secondary":true},
{"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link","tentative":true,"dynamic":true}]}]"#;
const NEIGH: &str = r#"[
{"dst":"10.0.1.2","dev":"e1","lladdr":"02:00:00:00:00:01","state":["PERMANENT"]},
{"dst":"fd00::2","dev":"e1","router":null,"state":["FAILED"],"protocol":"zebra"},
{"dst":"10.0.1.9","dev":"e1","proxy":null}]"#;
const NEXTHOP: &str = r#"[
{"id":1,"gateway":"10.0.1.2","dev":"e1","scope":"253","protocol":"0","flags":["onlink"]},
{"id":5,"scope":"global","blackhole":null,"protocol":"unspec","flags":[]},
{"id":6,"gateway":"fd00::2","dev":"e1.5","encap":"seg6","mode":"encap","segs":["fc00::1"],"flags":[]},
{"id":10,"group":[{"id":1,"weight":3},{"id":6}],"flags":[]},
{"id":13,"group":[{"id":1},{"id":6}],"type":"resilient","resilient_args":{"buckets":8,
 "idle_timer":60.5,"unbalanced_timer":300,"unbalanced_time":0},"flags":[]}]"#;
const BUCKET: &str = r#"[{"id":13,"bucket":{"index":0,"idle_time":0.22,"nhid":6},"flags":[]},
{"id":13,"bucket":{"index":1,"idle_time":0.22,"nhid":1},"flags":[]}]"#;
const RULE4: &str = r#"[{"priority":0,"src":"all","table":"255","protocol":"2"},
{"priority":101,"not":null,"src":"10.0.0.0","srclen":8,"tos":"0x10","sport_start":5,"sport_end":7,"dport":80,"fwmark":"0x3","fwmask":"0xff",
 "table":"77","protocol":"0"},
{"priority":102,"src":"all","dst":"10.0.0.1","ipproto":"ipproto-6","dscp":"46","action":"7","protocol":"0"},
{"priority":103,"src":"all","goto":32766},
{"priority":104,"src":"all","iif":"gone","iif_detached":null,"table":"77"},
{"priority":32766,"src":"all","table":"main","new_in_8_0":"x"}]"#;
const ROUTE4: &str = r#"[
{"type":"1","dst":"default","gateway":"10.0.1.2","dev":"e1","table":"77","protocol":"186","scope":"0",
 "metric":20,"flags":["linkdown"],"metrics":[{"mtu":1400,"advmss":1360}]},
{"dst":"10.50.0.0/16","tos":"0x10","flags":[],"nexthops":[
 {"gateway":"10.0.1.2","dev":"e1","weight":3,"flags":[]},
 {"via":{"family":"inet6","host":"fd00::9"},"dev":"e1.5","weight":1,"flags":["dead","linkdown"]}]},
{"type":"blackhole","dst":"10.52.0.0/16","table":"main","protocol":"boot","scope":"global","flags":[]},
{"dst":"10.53.0.0/16","nhid":10,"flags":[],"nexthops":[{"gateway":"10.0.1.2","dev":"e1","weight":3}]},
{"type":"local","dst":"10.0.1.1","dev":"e1","table":"local","protocol":"kernel","scope":"host",
 "prefsrc":"10.0.1.1","flags":[]},
{"dst":"fd00::/64","dev":"e1","protocol":"kernel","metric":256,"flags":[],"pref":"medium"}]"#;
const ROUTE6: &str = r#"[{"dst":"default","from":"fd01::/16","gateway":"fd00::2","dev":"e1",
"metric":1024,"flags":[],"pref":"high"}]"#;
const SYSCTL: &str = "net.ipv4.fib_multipath_hash_policy = 1
net.ipv4.fib_multipath_hash_seed = 4294967295
net.ipv4.conf.all.rp_filter = 2
net.ipv4.conf.lo.forwarding = 0
net.ipv4.conf.e1.forwarding = 1
net.ipv4.conf.e1/5.forwarding = 1
net.ipv4.ip_local_port_range = 32768\t60999
net.ipv6.conf.all.forwarding = 1
net.ipv6.conf.e1/5.disable_ipv6 = 0
";

fn folder(change: impl Fn(&mut BTreeMap<&str, String>)) -> tempfile::TempDir {
    let mut files: BTreeMap<&str, String> = [
        ("link.json", LINK),
        ("addr.json", ADDR),
        ("neigh.json", NEIGH),
        ("nexthop.json", NEXTHOP),
        ("bucket.json", BUCKET),
        ("rule.json", RULE4),
        ("rule6.json", "[]"),
        ("route4.json", ROUTE4),
        ("route6.json", ROUTE6),
        ("sysctl.txt", SYSCTL),
        ("kernel.txt", "6.12.5-arch1\n"),
    ]
    .map(|(name, text)| (name, text.to_owned()))
    .into();
    change(&mut files);
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn all_kinds_of_objects_are_read() {
    let dir = folder(|_| {});
    let s = snapshot(&[dir.path().to_owned()]).unwrap();
    assert_eq!(s.kernel.as_deref(), Some("6.12.5"));
    assert_eq!(
        (s.settings.hash_policy4, s.settings.hash_seed),
        (1, u32::MAX)
    );
    let flags: Vec<u32> = s.links.iter().map(|link| link.flags).collect();
    assert_eq!(flags, [0x1_0049, 0x1_1043, 3]);
    assert!(!s.links[2].has_carrier() && s.links[2].is_ethernet());
    assert_eq!((s.links[2].master, s.links[2].lower), (Some(3), Some(9)));
    let device = s.devices.iter().find(|(index, _)| *index == 4).unwrap().1;
    assert!(device.forwarding4 && device.forwarding6 && device.rp_filter == 2);
    let flags: Vec<u32> = s.addresses.iter().map(|a| a.flags).collect();
    assert_eq!(flags, [0x80, 0x81, 0x40]);
    assert_eq!(s.addresses[1].peer, "10.8.8.2".parse().ok());
    assert_eq!(s.neighbours.len(), 2);
    assert_eq!((s.neighbours[1].state, s.neighbours[1].flags), (0x20, 0x80));
    let kinds: Vec<&NexthopKind> = s.nexthops.iter().map(|nh| &nh.kind).collect();
    let group = [(1, 3), (6, 1)].map(|(id, weight)| GroupMember { id, weight });
    assert_eq!(kinds[3], &NexthopKind::Group(group.to_vec()));
    let owners: Vec<u32> = s.buckets.iter().map(|bucket| bucket.nexthop).collect();
    assert_eq!(owners, [6, 1]);
    let encap = |kind: &NexthopKind| match kind {
        NexthopKind::Single { encap, .. } => encap.clone(),
        _ => None,
    };
    let seg6 = Encap {
        kind: 5,
        data: Vec::new(),
    };
    assert_eq!(encap(kinds[2]), Some(seg6));
    assert!(matches!(
        kinds[4],
        NexthopKind::Resilient {
            idle_timer: 6050,
            unbalanced_timer: 30_000,
            ..
        }
    ));
}

#[test]
fn rules_with_unknown_words_are_not_plain() {
    let dir = folder(|_| {});
    let s = snapshot(&[dir.path().to_owned()]).unwrap();
    let plain = |priority| {
        let rule = s.rules.iter().find(|r| r.priority == priority).unwrap();
        (rule.table, rule.action, rule.other.is_empty())
    };
    assert_eq!(plain(0), (255, 1, true));
    assert_eq!(plain(101), (77, 1, false));
    assert_eq!(plain(102), (0, 7, true));
    assert_eq!(plain(103), (0, 2, true));
    assert_eq!(plain(104), (77, 1, true));
    assert_eq!(plain(32766), (254, 1, false));
    let [_, ports, proto, ..] = &s.rules[..] else {
        panic!("{:?}", s.rules)
    };
    assert_eq!(ports.fwmark, Some((3, 0xff)));
    let shown = (ports.tos, ports.sport, ports.dport);
    assert_eq!(shown, (0x10, Some((5, 7)), Some((80, 80))));
    assert_eq!((proto.ip_proto, proto.dscp), (Some(6), Some(46)));
}

#[test]
fn routes_are_read() {
    let dir = folder(|_| {});
    let s = snapshot(&[dir.path().to_owned()]).unwrap();
    let route = |dst: &str| s.routes.iter().find(|r| r.dst.to_string() == dst).unwrap();
    let default = route("0.0.0.0/0");
    assert_eq!(
        (default.table, default.protocol, default.metric),
        (77, 186, 20)
    );
    assert_eq!((default.flags, &*default.metrics), (16, &[(2, 1400)][..]));
    let RouteTarget::Multipath(hops) = &route("10.50.0.0/16").target else {
        panic!("{:?}", route("10.50.0.0/16"));
    };
    assert_eq!((hops[0].weight, hops[1].flags), (3, 17));
    assert_eq!(hops[1].gateway, "fd00::9".parse().ok());
    assert_eq!(route("10.52.0.0/16").kind, RouteKind::Blackhole);
    assert_eq!(route("10.53.0.0/16").target, RouteTarget::Object(10));
    assert_eq!(route("10.0.1.1/32").kind, RouteKind::Local);
    let six = route("::/0");
    assert_eq!((six.pref, six.src), (Some(1), "fd01::/16".parse().ok()));
    // Of the other family: it is in the other file.
    assert!(!s.routes.iter().any(|r| r.dst.to_string() == "fd00::/64"));
    // The snapshot says the same when it has been read.
    let json = serde_json::to_string(&s).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), s);
}

#[test]
fn several_files_do_as_well_as_a_directory() {
    let dir = folder(|_| {});
    let files: Vec<PathBuf> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(
        snapshot(&files).unwrap(),
        snapshot(&[dir.path().to_owned()]).unwrap()
    );
}

#[test]
fn what_is_missing_is_named() {
    let cases: [(&str, &str, &str, &str); 9] = [
        (
            "link.json",
            r#""mtu":65536,"#,
            "",
            "object 1 (ifname lo): missing field `mtu`",
        ),
        (
            "neigh.json",
            r#""dev":"e1","#,
            "",
            "object 1 (dst 10.0.1.2): missing field `dev`",
        ),
        (
            "route4.json",
            r#""dev":"e1","#,
            r#""dev":"e7","#,
            "link 'e7' is not in link.json",
        ),
        (
            "route4.json",
            r#""77""#,
            r#""blue""#,
            "table 'blue' is a name that only its own",
        ),
        (
            "nexthop.json",
            r#"{"id":1,"#,
            "{",
            "object 1: missing field `id`",
        ),
        (
            "nexthop.json",
            "resilient_args",
            "args",
            "object 5 (id 13): missing field `resilient",
        ),
        (
            "addr.json",
            r#""local":"10.0.1.1","#,
            "",
            "missing field `local`",
        ),
        (
            "sysctl.txt",
            "ipv4.conf.e1.",
            "ipv4.conf.e2.",
            "net.ipv4.conf.e1.forwarding",
        ),
        (
            "route6.json",
            "[{",
            "{",
            "route6.json is not the JSON output of ip -j",
        ),
    ];
    for (file, from, to, said) in cases {
        let dir = folder(|files| {
            let text = files.get_mut(file).unwrap();
            assert!(text.contains(from), "{file}: {from}");
            *text = text.replacen(from, to, 1);
        });
        let error = snapshot(&[dir.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(said), "{error}");
    }
    let dir = folder(|files| {
        files.remove("addr.json");
    });
    let error = snapshot(&[dir.path().to_owned()]).unwrap_err().to_string();
    assert!(error.starts_with("there is no addr.json"), "{error}");
    let odd = dir.path().join("odd.json");
    std::fs::write(&odd, "[]").unwrap();
    let error = snapshot(&[odd]).unwrap_err().to_string();
    assert!(error.contains("odd.json is none of the files"), "{error}");
}

/// A bond, what it is made of, and another device whose settings have the same names.
#[test]
fn bonds_and_their_parts_are_read() {
    const BONDS: &str = r#"[
{"ifindex":2,"ifname":"b0","flags":["UP"],"mtu":1500,"link_type":"ether",
 "linkinfo":{"info_kind":"bond","info_data":{"mode":"802.3ad","xmit_hash_policy":"layer3+4","arp_interval":100,"arp_validate":null}}},
{"ifindex":3,"ifname":"e0","flags":["UP"],"mtu":1500,"link_type":"ether","master":"b0",
 "linkinfo":{"info_slave_kind":"bond","info_slave_data":{"state":"ACTIVE"}}},
{"ifindex":4,"ifname":"e1","flags":["UP"],"mtu":1500,"link_type":"ether","master":"b0",
 "linkinfo":{"info_kind":"veth","info_slave_kind":"bond","info_slave_data":{"state":"BACKUP","queue_id":2}}},
{"ifindex":5,"ifname":"m0","flags":["UP"],"mtu":1500,"link_type":"ether",
 "linkinfo":{"info_kind":"macvlan","info_data":{"mode":"bridge"}}},
{"ifindex":6,"ifname":"e2","flags":["UP"],"mtu":1500,"link_type":"ether","master":"m0",
 "linkinfo":{"info_slave_kind":"bridge","info_slave_data":{"state":"forwarding"}}}]"#;
    let objects = Objects::parse("link", BONDS).unwrap();
    let names = Lookup::new(Names::built_in(), Objects::parse("link", BONDS).unwrap()).unwrap();
    let links = links::links(&objects, &names).unwrap();
    assert_eq!(links[2].bond_queue, 2);
    let seen: Vec<_> = links.iter().map(|l| (l.bond, l.bond_active)).collect();
    let bond = Bond {
        mode: 4,
        policy: 1,
        by_traffic: true,
        ..Bond::default()
    };
    let expected = [
        (Some(bond), None),
        (None, Some(true)),
        (None, Some(false)),
        (None, None),
        (None, None),
    ];
    assert_eq!(seen, expected);
}

/// VLANs, as iproute2 prints them (`vlan_print_opt`).
#[test]
fn vlans_are_read() {
    const VLANS: &str = r#"[
{"ifindex":2,"ifname":"e0","flags":["UP"],"mtu":1500,"link_type":"ether"},
{"ifindex":3,"link":"e0","ifname":"e0.5","flags":["UP"],"mtu":1500,"link_type":"ether",
 "linkinfo":{"info_kind":"vlan","info_data":{"protocol":"802.1Q","id":5,"flags":["REORDER_HDR"]}}},
{"ifindex":4,"link":"e0.5","ifname":"e0.5.6","flags":["UP"],"mtu":1500,"link_type":"ether",
 "linkinfo":{"info_kind":"vlan","info_data":{"protocol":"802.1ad","id":6,"flags":["REORDER_HDR"],
 "ingress_qos":[{"from":1,"to":2}],"egress_qos":[{"from":0,"to":3}]}}},
{"ifindex":5,"link":"e0","ifname":"x","flags":["UP"],"mtu":1500,"link_type":"ether",
 "linkinfo":{"info_kind":"vxlan","info_data":{"id":6}}}]"#;
    let objects = Objects::parse("link", VLANS).unwrap();
    let names = Lookup::new(Names::built_in(), Objects::parse("link", VLANS).unwrap()).unwrap();
    let links = links::links(&objects, &names).unwrap();
    let seen: Vec<_> = links.iter().map(|l| (l.lower, l.vlan)).collect();
    let vlan = |protocol, id, egress_qos| {
        Some(Vlan {
            protocol,
            id,
            egress_qos,
        })
    };
    let expected = [
        (None, None),
        (Some(2), vlan(0x8100, 5, false)),
        (Some(3), vlan(0x88a8, 6, true)),
        (Some(2), None),
    ];
    assert_eq!(seen, expected);
}

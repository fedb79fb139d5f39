//! Counters: as `ip -statistics` prints them, with what an engine has counted, and as a dump that `ip`
//! reads.

use std::fs::File;
use std::io::Write as _;
use std::process::{Command as Process, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns};
use raddle_control::{
    Count, Counters, CpuCounts, NexthopCount, Owner, Segment, SegmentCounts, Segments,
};
use raddle_netlink::codec::{Attribute, Attributes, Message, Messages, SidCounters};
use raddle_netlink::{EncapOf, Socket};
use serde_json::json;

use super::live::{Namespace, missing};
use super::*;

/// The attributes of a SID that counts.
fn counting(action: u32, more: &[(u16, Vec<u8>)]) -> Encap {
    let zeros = [2, 3, 4].map(|number| attribute(number, &[0; 8])).concat();
    let all: Vec<(u16, Vec<u8>)> = more.iter().cloned().chain([(10 | 0x8000, zeros)]).collect();
    seg6local(action, &all)
}

fn segment(encap: Encap, owner: Option<Owner>, counts: SegmentCounts) -> Segment {
    Segment {
        counters: true,
        name: String::new(),
        segs: Vec::new(),
        encap,
        index: 2,
        dev: None,
        owner,
        counts,
    }
}

/// Two SIDs, one of which counts, and a segment list.
fn world() -> World {
    let sid = |dst: &str, encap| route(dst, RouteTarget::Single(wrapped(hop("", 2, 1), encap)));
    let mut world = World::with(&[
        sid("fc00::1/128", counting(1, &[])),
        sid(
            "fc00::2/128",
            seg6local(3, &[(3, 100u32.to_ne_bytes().to_vec())]),
        ),
        sid("2001:db8:7::/48", seg6(1, &["fc00:1::1", "fc00:2::1"])),
        route("2001:db8:8::/48", via("fd00:1::2", 2)),
    ]);
    let mut cpus = [[0u64; 16]; 2];
    (cpus[0][0], cpus[0][1], cpus[0][2]) = (3, 400, 7);
    (cpus[1][0], cpus[1][1], cpus[1][14]) = (1, 100, 2);
    let cpus = [0, 1].map(|cpu| CpuCounts {
        cpu,
        values: cpus[cpu as usize],
    });
    let owner = Owner::Route {
        table: 254,
        dst: "fc00::1/128".parse().unwrap(),
        metric: 1024,
        gateway: None,
    };
    let sid = SegmentCounts {
        segment: 5,
        forwards: true,
        cpus: cpus.to_vec(),
        ..SegmentCounts::default()
    };
    let list = SegmentCounts {
        segment: 6,
        reason: Some("image-full".into()),
        ..SegmentCounts::default()
    };
    let mut figures = Figures::default();
    figures.take_segments(Segments {
        segments: vec![
            segment(counting(1, &[]), Some(owner), sid),
            segment(seg6(1, &["fc00:1::1", "fc00:2::1"]), None, list),
        ],
    });
    let nexthops = [(10, 1000), (1, 60)].map(|(packets, bytes)| NexthopCount {
        ifindex: 2,
        dev: String::new(),
        via: "fd00:1::2".parse().ok(),
        mtu: 1500,
        forwards: true,
        stale: false,
        count: Count { packets, bytes },
    });
    figures.take_counters(&Counters {
        nexthops: nexthops.to_vec(),
        ..Counters::default()
    });
    let kernel = EncapOf::Route {
        table: 254,
        dst: "fc00::1/128".parse().unwrap(),
        metric: 1024,
        gateway: None,
        index: 2,
    };
    let counted = SidCounters {
        packets: 10,
        bytes: 1000,
        errors: 1,
    };
    figures.kernel.insert(kernel, counted);
    world.figures = Some(figures);
    world
}

#[test]
fn engine_and_kernel_are_added_up() {
    let world = world();
    assert_eq!(
        world.show("-s sr show fc00::1"),
        "fc00::1  encap seg6local action End packets 14 bytes 1500 errors 8 dev eth1 metric 1024 \
         pref medium\n"
    );
    assert_eq!(
        world.show("-s -d sr show fc00::1"),
        "unicast fc00::1  encap seg6local action End packets 14 bytes 1500 errors 8 dev eth1 table main \
         proto boot scope global metric 1024 pref medium\n\
         \tengine packets 4 bytes 500 no-srh 7 other 2 kernel packets 10 bytes 1000 errors 1 \n"
    );
    // Without -s there are no figures, and nothing of what is no SRv6.
    let plain = "fc00::1  encap seg6local action End dev eth1 metric 1024 pref medium\n\
                 fc00::2  encap seg6local action End.T table 100 dev eth1 metric 1024 pref medium\n";
    assert_eq!(world.show("sr show fc00::/16"), plain);
    assert!(world.show("sr").ends_with(plain));
    assert!(!world.show("-s sr").contains("2001:db8:8::"));
    assert_eq!(world.show("sr show fc00::3"), "");
}

#[test]
fn json_tells_engine_and_kernel_apart() {
    let text = world().show("-s -j sr show");
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 3);
    let find = |dst: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        rows.find(|row| row["dst"] == dst).unwrap().clone()
    };
    let row = find("fc00::1");
    assert_eq!(
        row["stats64"],
        json!({ "packets": 14, "bytes": 1500, "errors": 8 })
    );
    assert_eq!(
        row["counters"],
        json!({
            "kernel": { "packets": 10, "bytes": 1000, "errors": 1 },
            "engine": {
                "segment": 5, "packets": 4, "bytes": 500, "errors": 7,
                "reasons": { "no-srh": 7, "other": 2 },
                "cpus": [
                    { "cpu": 0, "packets": 3, "bytes": 400, "errors": 7, "reasons": { "no-srh": 7 } },
                    { "cpu": 1, "packets": 1, "bytes": 100, "errors": 0, "reasons": { "other": 2 } },
                ],
            },
        })
    );
    // One that does not count.
    assert_eq!(find("fc00::2")["counters"], json!({}));
    let list = find("2001:db8:7::/48");
    assert_eq!(list["counters"]["engine"]["reason"], "image-full");
}

#[test]
fn nexthops_have_packets_and_bytes() {
    let world = world();
    assert_eq!(
        world.show("-s -6 route show 2001:db8:8::/48"),
        "2001:db8:8::/48 via fd00:1::2 dev eth1 packets 11 bytes 1060 metric 1024 pref medium\n"
    );
    let text = world.show("-s -j nexthop get id 3");
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows[0]["sent"], json!({ "packets": 11, "bytes": 1060 }));
}

#[test]
fn what_is_raddles_own_says_so() {
    let vlans = [5u16.to_ne_bytes(), [0; 2]].concat();
    let vlans = [vlans, 3u32.to_ne_bytes().to_vec()].concat();
    let mut own = route(
        "fc00::5/128",
        RouteTarget::Single(wrapped(hop("", 0, 1), seg6local(24, &[(0x1001, vlans)]))),
    );
    own.flags = raddle_rib::event::ROUTE_STATIC;
    let world = World::with(&[own]);
    assert_eq!(
        world.show("sr show"),
        "fc00::5  encap seg6local action End.DX2V vlans [ vlan 5 oif eth2 ] metric 1024 static pref medium\n"
    );
    let text = world.show("-j sr show");
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows[0]["vlans"], json!([{ "vlan": 5, "oif": "eth2" }]));
    assert_eq!(rows[0]["flags"], json!(["static"]));
}

/// What the engine cannot do with what is raddle's own is dropped: nobody else has it.
#[test]
fn what_is_raddles_own_is_dropped_where_it_is_not_ready() {
    let list = || seg6(1, &["fc00:1::1"]);
    let own = |own: bool| {
        let mut route = route(
            "2001:db8:7::/48",
            RouteTarget::Single(wrapped(hop("", 2, 1), list())),
        );
        route.flags = if own {
            raddle_rib::event::ROUTE_STATIC
        } else {
            0
        };
        let mut world = World::with(&[route]);
        let mut figures = Figures::default();
        let counts = SegmentCounts {
            segment: 6,
            reason: Some("image-full".into()),
            own,
            ..SegmentCounts::default()
        };
        figures.take_segments(Segments {
            segments: vec![segment(list(), None, counts)],
        });
        world.figures = Some(figures);
        world.show("-s -d sr show")
    };
    assert!(own(false).contains("(to the kernel: image-full)"));
    assert!(own(true).contains("(dropped: image-full)"));
}

/// A message has a byte for it.
#[test]
fn weights_that_no_dump_can_tell_are_refused() {
    let of_weight = |weight| {
        let heavy = |sid, weight| RouteNexthop {
            weight,
            ..wrapped(hop("", 2, 1), seg6(1, &[sid]))
        };
        let lists = vec![heavy("fc00:1::1", weight), heavy("fc00:2::1", 1)];
        let world = World::with(&[route("2001:db8:7::/48", RouteTarget::Multipath(lists))]);
        world.bytes("sr save").map_err(|e| e.to_string())
    };
    assert!(of_weight(256).unwrap().len() > 4);
    let error = of_weight(257).unwrap_err();
    assert!(
        error.contains("2001:db8:7::/48 has a path of weight 257"),
        "{error}"
    );
}

/// The router's objects: `eth0` leads to the other namespace.
const ROUTER: &str = "
link set lo up
link set eth0 up
-6 addr add 2001:db8:1::1/64 dev eth0 nodad
-6 addr add 2001:db8:9::1/128 dev lo nodad
-6 route add fc00::1 encap seg6local action End count dev eth0
-6 route add fc00::2 encap seg6local action End.X nh6 2001:db8:1::2 count dev eth0
-6 route add fc00::3 encap seg6local action End dev eth0
-6 route add fc00::4 encap seg6local action End flavors psp count dev eth0
-6 route add fc00::5 encap seg6local action End.X nh6 2001:db8:1::2 count flavors next-csid lblen 48 nflen 16 dev eth0 table 77
-6 route add fc00::6 encap seg6local action End.DT6 table 255 count dev eth0
-6 route add fc00::8 encap seg6local action End.B6.Encaps srh segs fc00:b::1,fc00:b::2 count dev eth0
-6 nexthop add id 9 encap seg6local action End count dev eth0
-6 route add fc00::9 nhid 9
-6 route add 2001:db8:8::/48 encap seg6 mode encap segs fc00:b::1 dev eth0
";
const SENDER: &str = "
link set eth0 up
-6 addr add 2001:db8:1::2/64 dev eth0 nodad
-6 route add fc00::/16 via 2001:db8:1::1
-6 route add 2001:db8:9::/64 encap seg6 mode encap segs fc00::6 dev eth0
";

/// Runs `body` in a namespace, on a thread of its own.
fn within<T: Send + 'static>(
    namespace: &Namespace,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let file = File::open(format!("/run/netns/{}", namespace.0)).unwrap();
    let run = move || {
        setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
        body()
    };
    thread::spawn(run).join().unwrap()
}

/// `RTA_DST` and the bytes of `RTA_ENCAP` of each route of a dump behind its magic number.
fn encaps(dump: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    assert_eq!(dump[..4], sr::MAGIC.to_ne_bytes());
    let find = |message: &Message<'_>, kind| {
        Attributes::new(&message.payload[12..])
            .map(Result::unwrap)
            .find(|a: &Attribute<'_>| a.kind == kind)
            .map(|a| a.payload.to_vec())
    };
    let messages = Messages::new(&dump[4..]).map(Result::unwrap);
    let routes = messages.filter(|message| message.kind == libc::RTM_NEWROUTE);
    let mut found: Vec<_> = routes
        .filter_map(|message| Some((find(&message, 1)?, find(&message, 22)?)))
        .collect();
    found.sort();
    found
}

/// What `ip` writes when it is given this on its standard input.
fn ip_reads(line: &str, input: &[u8]) -> String {
    let mut child = Process::new("ip")
        .args(line.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "ip {line}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn figures_of_the_kernel_are_the_kernels() {
    if let Some(missing) = missing() {
        eprintln!("skipped: figures_of_the_kernel_are_the_kernels needs {missing}");
        return;
    }
    let (router, sender) = (Namespace::new("counted"), Namespace::new("sender"));
    router.ip(&format!(
        "link add eth0 type veth peer name eth0 netns {}",
        sender.0
    ));
    within(&router, || {
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    });
    for (namespace, lines) in [(&sender, SENDER), (&router, ROUTER)] {
        for line in lines.lines().filter(|line| !line.is_empty()) {
            namespace.ip(line);
        }
    }
    for address in ["fc00::1", "fc00::9", "2001:db8:9::1"] {
        let status = Process::new("ip")
            .args([
                "netns", "exec", &sender.0, "ping", "-6", "-c3", "-i0.1", "-W1",
            ])
            .arg(address)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        // No SID answers; what is behind one does.
        assert_eq!(status.success(), address.starts_with("2001"), "{address}");
    }
    let mut world = router.world();
    world.figures = Some(within(&router, || {
        Figures::of_kernel(Socket::open().unwrap().sid_counters().unwrap())
    }));
    for line in [
        "-s -6 route show table all",
        "-s -j -6 route show table all",
        "-s -d -6 route show table all",
        "-s -6 nexthop",
        "-s -j -p -6 nexthop",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let command = Command::parse(&words, Names::load()).unwrap();
        assert_eq!(world.print(&command).unwrap(), router.ip(line), "{line}");
    }
    let counted = world.show("-s sr show fc00::6");
    assert!(
        counted.contains("packets 3 bytes ") && counted.contains("errors 0"),
        "{counted}"
    );
    assert!(
        world
            .show("-s sr show fc00::1")
            .contains("packets 0 bytes 0 errors 3")
    );
    // The dump has the kernel's own attributes, byte for byte, and ip prints them as the kernel's.
    let words = ["sr", "save"];
    let command = Command::parse(&words, Names::load()).unwrap();
    let state = State {
        links: &world.links,
        nexthops: &world.nexthops,
        routes: &world.routes,
        figures: world.figures.as_ref(),
        ..State::default()
    };
    let mut dump = Vec::new();
    command.print(&state, &mut dump).unwrap();
    let theirs = Process::new("ip")
        .args(["-n", &router.0, "-6", "route", "save", "table", "all"])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let (ours, theirs) = (encaps(&dump), encaps(&theirs.stdout));
    assert_eq!(ours.len(), 9);
    assert_eq!(ours, theirs);
    let shown = ip_reads(&format!("-n {} -s -6 route showdump", router.0), &dump);
    // A dump tells the nexthop object's encapsulation, and not which object it was.
    let expected = router
        .ip("-s -6 route show table all")
        .replace(" nhid 9", "");
    for line in shown.lines() {
        assert!(
            expected.contains(line.trim()),
            "{line}\nis not in\n{expected}"
        );
    }
    assert_eq!(shown.matches("errors 3").count(), 2, "{shown}");
}

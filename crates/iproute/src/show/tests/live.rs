//! Against the running kernel: what `ip` prints in a namespace, we print from the mirror of it.

use std::fs::File;
use std::process::Command as Process;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::unistd::geteuid;
use raddle_netlink::Mirror;
use raddle_rib::event::Event;

use super::*;

/// The objects, as `ip` commands.
const OBJECTS: &str = "
link set lo up
link add eth1 address 02:00:00:00:00:01 type veth peer name p1
link add eth2 address 02:00:00:00:00:02 type veth peer name p2
link set eth1 addrgenmode none
link set eth2 addrgenmode none
link set p1 addrgenmode none
link set p2 addrgenmode none
link set eth1 up
link set eth2 up
link set p1 up
link set p2 up
addr add 10.0.1.1/24 dev eth1
addr add 10.0.2.1/24 dev eth2
-6 addr add fd00:1::1/64 dev eth1 nodad
-6 addr add fd00:2::1/64 dev eth2 nodad
neigh add 10.0.1.2 lladdr 02:00:00:00:01:02 dev eth1 nud permanent
neigh add 10.0.1.3 lladdr 02:00:00:00:01:03 dev eth1 nud noarp proto zebra
-6 neigh add fd00:1::2 lladdr 02:00:00:00:01:02 dev eth1 nud permanent router
nexthop add id 1 via 10.0.1.2 dev eth1 proto bgp
nexthop add id 2 via 10.0.2.2 dev eth2
nexthop add id 3 via fd00:1::2 dev eth1
nexthop add id 4 via fd00:2::2 dev eth2
nexthop add id 5 blackhole
nexthop add id 6 dev eth1 proto static
-6 nexthop add id 7 blackhole
-6 nexthop add id 8 dev eth1
nexthop add id 9 via 10.9.9.9 dev eth1 onlink
nexthop add id 10 group 1/2
nexthop add id 11 group 1,3/9,200 proto zebra
nexthop add id 12 group 3,30/4,256
nexthop add id 13 group 1/2,2 type resilient buckets 8 idle_timer 6000 unbalanced_timer 3000
nexthop add id 14 group 1
nexthop add id 15 group 3
nexthop add id 16 group 5
nexthop add id 17 group 7
nexthop add id 18 via fd00:1::2 dev eth1 encap seg6 mode encap segs fc00:1::1,fc00:2::1
nexthop add id 19 group 4/3 type resilient buckets 4
route add 192.0.2.0/28 nhid 5
route add 192.0.2.16/28 nhid 14
route add 192.0.2.32/28 nhid 6
route add 192.0.2.48/28 nhid 9
route add 192.0.2.64/28 nhid 16
route add 192.0.2.80/28 nhid 12
route add 192.0.2.96/28 nhid 3
route add 192.0.2.112/28 nhid 10
route add 192.0.2.128/28 nhid 11
route add 192.0.2.144/28 nhid 13
route add 192.0.2.160/28 nhid 2
route add 198.18.0.0/24 via 10.0.1.2 metric 0x64 mtu lock 1400 hoplimit 30 rtt 300ms rttvar 1500ms
route add 198.18.1.0/24 nexthop via 10.0.1.2 dev eth1 weight 200 onlink nexthop dev eth2 weight 256
route add 198.18.2.0/24 dev eth1 proto 99 scope 77 src 10.0.1.1
route add 198.18.3.0/24 via 10.0.1.2 table 1234 tos 0x08
route add 198.18.4.0/24 via inet6 fe80::9 dev eth1 features ecn initcwnd 10 quickack 1
route add 198.18.5.0/24 encap seg6 mode encap segs fc00:1::1 dev eth1
route add default via 10.0.1.2 proto dhcp metric 5
route add default via 10.0.2.2 proto ra metric 6
route add unreachable default metric 4278198272
route add prohibit 0.0.0.0/5 table 300
route add throw 0.0.0.0/5 table 256
route add 10.0.0.0/8 dev eth1 metric 3
route append 10.0.0.0/8 dev eth2 metric 3
route add 10.0.0.0/8 dev eth2 tos 0x28
-6 route add default via fe80::1 dev eth1 proto ra pref high
-6 route add 2001:db8::/48 nhid 7
-6 route add 2001:db8:1::/48 nhid 17
-6 route add 2001:db8:2::/48 nhid 8
-6 route add 2001:db8:3::/48 nhid 15
-6 route add 2001:db8:4::/48 nhid 12
-6 route add 2001:db8:5::/48 nhid 18
-6 route add 2001:db8:6::/48 from 2001:db8:ffff::/48 via fd00:1::2 src fd00:1::1 mtu 1400 pref low
-6 route add 2001:db8:6::/48 via fd00:1::2
-6 route add 2001:db8:6::/48 via fd00:1::2 metric 7
-6 route add blackhole 2001:db8:7::/48
-6 route add unreachable 2001:db8:8::/48 proto static
-6 route add throw 2001:db8:9::/48 table 1234
-6 route add 2001:db8:a::/48 nexthop via fd00:1::2 weight 2 nexthop via fd00:2::2 weight 256
-6 route add 2001:db8:b::1 dev eth1
-6 route add 2001:db8::/32 dev eth2
-6 route add 2001:db8:c::/48 encap seg6local action End.X nh6 fd00:1::2 dev eth1
-6 route add 2001:db8:d::/48 encap seg6local action End flavors next-csid lblen 48 nflen 16 dev eth1
-6 route add 2001:db8:e::/48 encap seg6local action End.T table 100 dev eth1
";

/// What is compared. Neighbours only one a line, because the kernel's order of them is random.
const COMMANDS: [&str; 49] = [
    "route",
    "route show table all",
    "-d route show table all",
    "-j route show table all",
    "-j -d route show table all",
    "-j -p -d route show table all",
    "-o -d route show table all",
    "-N -d route show table all",
    "-6 route",
    "-6 -j -p route",
    "-d -6 route show table all",
    "route show dev eth1",
    "route show dev eth1 table all",
    "-6 route show dev eth1",
    "route show via 10.0.1.2",
    "route show src 10.0.1.1",
    "route show root 10.0.0.0/8 proto kernel",
    "route show match 198.18.2.9",
    "route show default metric 6",
    "route show table 1234",
    "-6 route show table 1234",
    "route show scope link",
    "route show type blackhole",
    "route show tos 0x28",
    "-6 route show from root 2001:db8::/32",
    "-6 route show root 2001:db8:6::/44 metric 7",
    "-j route show proto 77",
    "nexthop",
    "-d nexthop",
    "-j nexthop",
    "-d -j -p nexthop",
    "-4 nexthop",
    "-6 nexthop",
    "nexthop show groups",
    "nexthop show dev eth1",
    "nexthop bucket",
    "-6 nexthop bucket show id 13",
    "-6 nexthop bucket",
    "-4 nexthop bucket show",
    "-6 nexthop bucket get id 13 index 1",
    "-j nexthop bucket show",
    "-j -p -d nex b list nhid 2",
    "nexthop bucket show dev eth1",
    "-j nexthop bucket show nhid 99",
    "-o nexthop bucket get id 13 index 7",
    "-j nexthop bucket get id 13 index 0",
    "-4 neigh show dev eth1",
    "neigh show nud noarp to 10.0.1.3",
    "-6 -j -p neigh show to fd00:1::2",
];

/// Between two looks at what the kernel takes a moment for.
const PAUSE: Duration = Duration::from_millis(50);

/// A network namespace that goes when the test does.
pub(super) struct Namespace(pub(super) String);

impl Namespace {
    pub(super) fn new(kind: &str) -> Namespace {
        let name = format!("raddle-{kind}-{}", std::process::id());
        let status = Process::new("ip")
            .args(["netns", "add", &name])
            .status()
            .unwrap();
        assert!(status.success());
        Namespace(name)
    }

    pub(super) fn ip(&self, line: &str) -> String {
        let mut command = Process::new("ip");
        command.args(["-n", &self.0]).args(line.split_whitespace());
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {line}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Everything that a mirror of the namespace tells.
    pub(super) fn world(&self) -> World {
        let namespace = File::open(format!("/run/netns/{}", self.0)).unwrap();
        let read = move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).unwrap();
            let mut world = World {
                links: Vec::new(),
                nexthops: Vec::new(),
                buckets: Vec::new(),
                neighbours: Vec::new(),
                routes: Vec::new(),
                clock: 0,
                figures: None,
            };
            let mut take = |event| match event {
                Event::Link(link) => world.links.push(link),
                Event::Nexthop(nexthop) => world.nexthops.push(nexthop),
                Event::Bucket(bucket) => world.buckets.push(bucket),
                Event::Neighbour(neighbour) => world.neighbours.push(neighbour),
                Event::Route(route, _) => world.routes.push(route),
                Event::Clock(now) => world.clock = now,
                _ => {}
            };
            Mirror::open().unwrap().initial(&mut take).unwrap();
            world
        };
        // A thread of its own, because there is no way back out of a namespace.
        thread::spawn(read).join().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Process::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Why the test cannot run here.
pub(super) fn missing() -> Option<String> {
    if !geteuid().is_root() {
        return Some("root (network namespaces)".to_owned());
    }
    let version = match Process::new("ip").arg("-V").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(_) => return Some("ip (apt-get install iproute2)".to_owned()),
    };
    let same = version.contains("iproute2-6.1.");
    (!same).then(|| {
        format!(
            "iproute2 6.1, whose output ours is; here is {}",
            version.trim()
        )
    })
}

#[test]
fn we_print_what_ip_prints() {
    if let Some(missing) = missing() {
        eprintln!("skipped: we_print_what_ip_prints needs {missing}");
        return;
    }
    let namespace = Namespace::new("show");
    OBJECTS
        .lines()
        .filter(|line| !line.is_empty())
        .for_each(|line| {
            namespace.ip(line);
        });
    compare(&namespace, "at first");
    // A peer that goes takes the carrier with it, and the nexthop objects and their routes.
    namespace.ip("link set p2 down");
    let gone = || namespace.ip("route show dev eth2").contains("linkdown");
    let noticed = (0..100).any(|_| {
        thread::sleep(PAUSE);
        gone()
    });
    assert!(noticed, "eth2 still has a carrier");
    compare(&namespace, "without carrier");
}

/// The text without the times for which buckets have been idle.
fn at_rest(text: &str) -> String {
    let mut parts = text.split("idle_time");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        // The timer of a group is an `idle_timer`, which stays.
        let time = match part.starts_with('r') {
            true => part,
            false => part.trim_start_matches(|c: char| "\" :.".contains(c) || c.is_ascii_digit()),
        };
        text + "idle_time" + time
    })
}

fn compare(namespace: &Namespace, when: &str) {
    let all = || COMMANDS.map(|line| at_rest(&namespace.ip(line)));
    // Changes of carrier take the kernel a moment, so both must have seen the same state.
    let seen = (0..100).find_map(|_| {
        let (before, world, after) = (all(), namespace.world(), all());
        (before == after).then_some((world, after)).or_else(|| {
            thread::sleep(PAUSE);
            None
        })
    });
    let (world, theirs) = seen.expect("a namespace at rest");
    assert!(theirs[1].lines().count() > 50, "{}", theirs[1]);
    for (line, theirs) in COMMANDS.iter().zip(&theirs) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ours = world
            .print(&Command::parse(&words, Names::load()).unwrap())
            .unwrap();
        let ours = at_rest(&ours);
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs, "{when}: {line}");
        }
        assert_eq!(&ours, theirs, "{when}: {line}");
    }
}

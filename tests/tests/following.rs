//! The kernel's state changes under a running daemon: where packets go agrees with the kernel again
//! at once, whether the kernel announces the change or not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use raddle_e2e::frame::Flow;
use raddle_e2e::{Crafted, Daemon, World, root, within};

/// Generous, because machines are busy; how long it took is printed.
const LIMIT: Duration = Duration::from_secs(60);

/// A router with a daemon, and flows that are looked at after every change.
struct Followed<'a> {
    world: &'a World,
    daemon: Daemon<'a>,
    flows: Vec<Flow>,
    frames: Vec<Crafted>,
    slowest: Duration,
}

/// Who forwards, once raddle has caught up.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Raddle,
    Kernel,
}

impl<'a> Followed<'a> {
    fn new(world: &'a World) -> Followed<'a> {
        let flows = world.flows(96);
        let mut followed = Followed {
            world,
            daemon: Daemon::start(world, &[]),
            frames: world.frames(&flows),
            flows,
            slowest: Duration::ZERO,
        };
        let links = followed.agrees("at the start", Who::Raddle);
        assert_eq!(links.len(), world.links() as usize, "{links:?}");
        followed
    }

    /// Runs `ip` and compares.
    fn ip(&mut self, arguments: &str) -> BTreeSet<String> {
        self.world.ip(arguments);
        self.agrees(arguments, Who::Raddle)
    }

    /// Sends a packet of each flow until every one goes where the kernel says that it would send it,
    /// and says which links these are.
    fn agrees(&mut self, what: &str, who: Who) -> BTreeSet<String> {
        let start = Instant::now();
        loop {
            let shot = start.elapsed();
            let expected: Vec<_> = self
                .flows
                .iter()
                .map(|f| self.world.kernel_choice(f))
                .collect();
            let before = self.world.kernel_forwarded();
            let arrived = self
                .world
                .transmit_for(&self.frames, Duration::from_millis(15));
            let by_kernel = self.world.kernel_forwarded() - before;
            let wrong = expected
                .iter()
                .zip(&arrived)
                .position(|(link, arrivals)| arrivals.iter().map(|a| &a.link).ne(link.iter()));
            let shown = match wrong {
                Some(i) => format!(
                    "{:?}: {:?}, not {:?}",
                    self.flows[i], arrived[i], expected[i]
                ),
                None if who == Who::Raddle && by_kernel > 0 => {
                    format!(
                        "the kernel forwarded {by_kernel} packets: {}",
                        self.daemon.counters()
                    )
                }
                None => {
                    self.slowest = self.slowest.max(shot);
                    eprintln!("{:>5} ms  {what}", shot.as_millis());
                    return expected.into_iter().flatten().collect();
                }
            };
            assert!(start.elapsed() < LIMIT, "after {what}: {shown}");
        }
    }

    /// `raddle explain` finds that the kernel agrees, for some of the flows.
    fn explains(&self) {
        for Flow {
            src,
            dst,
            sport,
            dport,
            ..
        } in &self.flows[..4]
        {
            let words = format!(
                "explain -j --check {dst} from {src} iif source ipproto udp sport {sport} dport {dport}"
            );
            self.world
                .raddle_json(&words.split(' ').collect::<Vec<_>>());
        }
    }
}

fn names(links: &[&str]) -> BTreeSet<String> {
    links.iter().map(|l| (*l).to_owned()).collect()
}

#[test]
fn routes_come_and_go() {
    if !root("routes_come_and_go") {
        return;
    }
    let world = World::new("routes", 4);
    let mut f = Followed::new(&world);
    let two = "nexthop via 10.2.1.2 weight 3 nexthop via 10.2.4.2 weight 200";
    f.ip(&format!("route replace 10.9.0.0/16 {two}"));
    f.ip("route add 10.9.0.0/25 via 10.2.3.2");
    // A second one of the same key is not used before the first is gone.
    f.ip("route append 10.9.0.0/25 via 10.2.2.2");
    f.ip("route del 10.9.0.0/25 via 10.2.3.2");
    f.ip("route add 10.9.0.0/25 via 10.2.3.2 metric 7");
    f.ip("route del 10.9.0.0/25 via 10.2.2.2");
    f.ip("route add blackhole 10.9.0.64/26");
    f.ip("route replace unreachable 10.9.0.64/26");
    f.ip("route del unreachable 10.9.0.64/26");
    f.ip("route add 10.9.0.77/32 via inet6 2001:db8:2:2::2 dev sink-2");
    // IPv6 joins what is appended to one set.
    f.ip("-6 route add 2001:db8:9::/64 via 2001:db8:2:1::2");
    f.ip("-6 route append 2001:db8:9::/64 via 2001:db8:2:2::2");
    f.ip("-6 route append 2001:db8:9::/64 nexthop via 2001:db8:2:3::2 weight 9 nexthop via 2001:db8:2:4::2");
    f.ip("-6 route del 2001:db8:9::/64 via 2001:db8:2:2::2");
    f.ip("-6 route replace 2001:db8:9::/64 via 2001:db8:2:4::2 metric 1024");
    f.ip("-6 route del 2001:db8:9::/64");
    // What rules ask for and then decide by something else is left to the kernel.
    world.ip("rule add to 10.9.0.0/26 lookup 77 suppress_ifgroup 9 pref 100");
    f.agrees("a rule", Who::Kernel);
    let (packets, rule) = (
        "IPv4 packets to 10.9.0.0/26",
        "routing rule 100: from all to 10.9.0.0/26 suppress_ifgroup ... lookup 77",
    );
    let told = |f: &Followed<'_>| {
        let punted = f.daemon.status()["punted"].to_string();
        punted.contains(packets) && punted.contains(rule)
    };
    let until_told = |f: &Followed<'_>, want: bool| {
        within(LIMIT, || match told(f) == want {
            true => Ok(()),
            false => Err(f.daemon.status().to_string()),
        })
    };
    until_told(&f, true);
    let said = format!("{packets}: {rule}");
    let said = said.as_str();
    assert!(f.daemon.log().contains(said), "{}", f.daemon.log());
    let checked = world.raddle(&["run", "--check"]);
    assert!(checked.stdout.contains(said), "{}", checked.stdout);
    world.ip("route add default via 10.2.1.2 table 77");
    f.agrees("a route in its table", Who::Kernel);
    f.ip("rule del pref 100");
    f.ip("route add 10.9.0.0/24 via 10.2.3.2 table 77");
    f.ip("rule add to 10.9.0.0/26 ipproto udp lookup 77 pref 100");
    f.ip("route replace 10.9.0.0/24 via 10.2.2.2 table 77");
    f.ip("rule add from 10.1.1.0/24 sport 1-2 lookup 77 pref 99");
    f.ip("route del 10.9.0.0/24 table 77");
    f.ip("rule del pref 99");
    f.ip("rule del pref 100");
    until_told(&f, false);
    f.explains();
    let links = f.ip("route flush root 10.9.0.0/16");
    assert!(!links.is_empty(), "IPv6 is still there");
    eprintln!("slowest: {:?}", f.slowest);
}

/// One that comes alone is published when nothing more has come for a moment, not when others could have.
#[test]
fn a_change_waits_for_no_other() {
    if !root("a_change_waits_for_no_other") {
        return;
    }
    let world = World::new("alone", 2);
    let daemon = Daemon::start(&world, &[]);
    let count = |daemon: &Daemon<'_>, most: u64| -> u64 {
        let status = daemon.status();
        let buckets = status["lag"]["buckets"].as_array().unwrap().clone();
        let soon = buckets
            .iter()
            .filter(|b| b["up_to_microseconds"].as_u64().unwrap() <= most);
        soon.map(|b| b["count"].as_u64().unwrap()).sum()
    };
    let before = count(&daemon, 5_000);
    for n in 0..20 {
        let verb = ["add", "del"][n % 2];
        let published = |daemon: &Daemon<'_>| count(daemon, u64::MAX);
        let earlier = published(&daemon);
        world.ip(&format!("route {verb} 10.9.0.7/32 via 10.2.1.2"));
        within(LIMIT, || match published(&daemon) > earlier {
            true => Ok(()),
            false => Err("it is not published".to_owned()),
        });
    }
    // Waiting for others, none would be; and a busy machine has others wait.
    let soon = count(&daemon, 5_000) - before;
    assert!(
        soon >= 3,
        "{soon} of 20 within 5 ms: {}",
        daemon.status()["lag"]
    );
    daemon.terminate();
}

#[test]
fn nexthop_objects_and_neighbours_change() {
    if !root("nexthop_objects_and_neighbours_change") {
        return;
    }
    let world = World::new("nexthops", 4);
    let mut f = Followed::new(&world);
    for n in 1..=4 {
        let (four, six) = world.gateway(n);
        let dev = world.out(n);
        world.ip(&format!("nexthop add id {n} via {four} dev {dev}"));
        world.ip(&format!("nexthop add id {} via {six} dev {dev}", 10 + n));
    }
    world.ip("nexthop add id 100 group 1/2,5/3,2");
    world.ip("nexthop add id 110 group 11/12,5/13,2");
    f.ip("route replace 10.9.0.0/16 nhid 100");
    let links = f.ip("route replace 2001:db8:9::/48 nhid 110");
    assert_eq!(links, names(&["sink", "sink-2", "sink-3"]));
    f.ip("nexthop replace id 100 group 2/3,200/4,100");
    f.ip("nexthop replace id 3 via 10.2.1.2 dev sink");
    f.ip("nexthop replace id 110 group 14");
    f.ip("nexthop replace id 110 group 11/12/13/14");
    f.ip("nexthop del id 12");

    // A member whose neighbour is not valid is passed over, though it keeps its share.
    f.ip("neigh del 10.2.2.2 dev sink-2");
    // From valid ones: the kernel (`__neigh_update`, 6.18) announces no entry that is made as a failed one, and
    // the one that the packets before have left may be collected by then.
    for (neighbour, dev) in [("10.2.2.2", "sink-2"), ("2001:db8:2:3::2", "sink-3")] {
        world.ip(&format!(
            "neigh replace {neighbour} lladdr 02:00:5e:00:00:09 dev {dev} nud stale extern_learn"
        ));
        f.ip(&format!(
            "neigh replace {neighbour} dev {dev} nud failed extern_learn"
        ));
    }
    f.explains();
    world.neighbours(2, "reachable");
    f.agrees("neighbours on sink-2 reachable", Who::Raddle);
    world.neighbours(2, "stale");
    f.agrees("neighbours on sink-2 stale", Who::Raddle);
    world.neighbours(3, "permanent");
    f.agrees("neighbours on sink-3 permanent", Who::Raddle);

    // Another machine behind the same address.
    world.ip("neigh replace 10.2.4.2 lladdr 02:00:5e:00:00:07 dev sink-4 nud permanent");
    world.ip("neigh replace 2001:db8:2:4::2 lladdr 02:00:5e:00:00:07 dev sink-4 nud permanent");
    f.agrees("another MAC address", Who::Raddle);
    let arrived = world.transmit(&f.frames);
    let there: Vec<_> = arrived
        .iter()
        .flatten()
        .filter(|a| a.link == "sink-4")
        .collect();
    assert!(there.len() > 5);
    for arrival in there {
        assert_eq!(arrival.frame[..6], [2, 0, 0x5e, 0, 0, 7]);
        assert_eq!(arrival.frame[6..12], world.mac("router", "sink-4"));
    }
    // The group takes its routes along.
    f.ip("nexthop del id 100");
    f.ip("nexthop del id 110");
    eprintln!("slowest: {:?}", f.slowest);
}

#[test]
fn links_and_addresses_go() {
    if !root("links_and_addresses_go") {
        return;
    }
    let world = World::new("links", 4);
    let mut f = Followed::new(&world);
    // Nobody announces what this does to IPv4 routes.
    f.ip("link set sink-2 down");
    f.ip("link set sink-2 up");
    world.neighbours(2, "permanent");
    f.agrees("neighbours on sink-2 back", Who::Raddle);
    world.ip("-6 route replace 2001:db8:9::/48 nexthop via 2001:db8:2:1::2 nexthop via 2001:db8:2:2::2 nexthop via 2001:db8:2:3::2 nexthop via 2001:db8:2:4::2");
    f.agrees("the IPv6 route back", Who::Raddle);
    // Without the sysctl, a link without carrier keeps its share: nothing to compare but IPv4's and
    // IPv6's choice; with it, the next change of a link counts.
    for conf in ["ipv4", "ipv6"] {
        world.sysctl(
            &format!("net.{conf}.conf.all.ignore_routes_with_linkdown"),
            "1",
        );
    }
    world.lab().link_down(world.plug(3)).unwrap();
    let links = f.agrees("no carrier on sink-3", Who::Raddle);
    assert_eq!(links, names(&["sink", "sink-2", "sink-4"]));
    world.lab().link_up(world.plug(3)).unwrap();
    f.agrees("carrier on sink-3", Who::Raddle);
    world.neighbours(3, "permanent");
    f.agrees("neighbours on sink-3 back", Who::Raddle);
    assert_eq!(f.agrees("all links again", Who::Raddle).len(), 4);

    // Nexthop objects go with their link's carrier and do not come back, in silence.
    for n in 1..=4 {
        let (four, six) = world.gateway(n);
        let dev = world.out(n);
        world.ip(&format!("nexthop add id {n} via {four} dev {dev}"));
        world.ip(&format!("nexthop add id {} via {six} dev {dev}", 10 + n));
    }
    world.ip("nexthop add id 100 group 1/4,3");
    world.ip("nexthop add id 110 group 11/12/14");
    f.ip("route replace 10.9.0.0/16 nhid 100");
    f.ip("-6 route del 2001:db8:9::/48");
    f.ip("-6 route add 2001:db8:9::/48 nhid 110");
    world.lab().link_down(world.plug(4)).unwrap();
    let links = f.agrees("no carrier on sink-4, which groups use", Who::Raddle);
    assert_eq!(links, names(&["sink", "sink-2"]));
    world.lab().link_up(world.plug(4)).unwrap();
    f.agrees("carrier on sink-4", Who::Raddle);
    world.lab().link_down(world.plug(1)).unwrap();
    // IPv4 is left without any member.
    let links = f.agrees("no carrier on sink", Who::Raddle);
    assert_eq!(links, names(&["sink-2"]));
    world.lab().link_up(world.plug(1)).unwrap();

    // The routes that were reached through an address go with it, in silence.
    f.ip("route replace 10.9.0.0/16 via 10.2.3.2");
    f.ip("addr del 10.2.3.1/24 dev sink-3");
    f.explains();

    // Others keep theirs, without the nexthop over that link, also where its gateway is known.
    let six = world.gateway(4).1;
    for via in [
        "10.2.4.2 dev sink-4".to_owned(),
        format!("inet6 {six} dev sink-4"),
    ] {
        f.ip(&format!(
            "route replace 10.9.0.0/16 nexthop via 10.2.1.2 dev sink weight 1 nexthop via 10.2.2.2 dev sink-2 weight 2 \
             nexthop via {via} weight 3"
        ));
        let links = f.ip("addr del 10.2.4.1/24 dev sink-4");
        assert!(links.contains("sink-2"), "{links:?}");
        f.explains();
        f.ip("addr add 10.2.4.1/24 dev sink-4");
        world.neighbours(4, "permanent");
        f.agrees("the neighbours back", Who::Raddle);
        f.explains();
    }
    eprintln!("slowest: {:?}", f.slowest);
}

/// A neighbour entry outlives its link's carrier; the connected route does not count then where the sysctl
/// says so, and the kernel goes on to a shorter one.
#[test]
fn hosts_behind_a_link_without_carrier() {
    if !root("hosts_behind_a_link_without_carrier") {
        return;
    }
    let world = World::new("hosts", 2);
    let mut f = Followed::new(&world);
    for conf in ["ipv4", "ipv6"] {
        let key = format!("net.{conf}.conf.all.ignore_routes_with_linkdown");
        world.sysctl(&key, "1");
    }
    world.sysctl("net.ipv6.conf.sink.ignore_routes_with_linkdown", "1");
    world.ip("route add 10.2.0.0/16 via 10.2.2.2");
    world.ip("-6 route add 2001:db8:2::/48 via 2001:db8:2:2::2");
    let (four, six) = world.gateway(1);
    for flow in &mut f.flows {
        flow.dst = match flow.dst.is_ipv4() {
            true => four.into(),
            false => six.into(),
        };
    }
    f.frames = world.frames(&f.flows);
    assert_eq!(f.agrees("hosts", Who::Raddle), names(&["sink"]));
    world.lab().link_down(world.plug(1)).unwrap();
    let links = f.agrees("no carrier on sink", Who::Kernel);
    assert_eq!(links, names(&["sink-2"]));
    for flow in &f.flows[..2] {
        let words = format!(
            "explain -j {} from {} iif source ipproto udp sport {} dport {}",
            flow.dst, flow.src, flow.sport, flow.dport
        );
        let words: Vec<&str> = words.split(' ').collect();
        let answer = world.raddle(&words);
        assert!(!answer.stdout.contains("\"exact\""), "{}", answer.stdout);
    }
    world.lab().link_up(world.plug(1)).unwrap();
    world.neighbours(1, "permanent");
    assert_eq!(f.agrees("carrier on sink", Who::Raddle), names(&["sink"]));
}

/// The kernel does not look for carrier when it makes an IPv4 route with an IPv6 gateway, only when it comes
/// or goes.
#[test]
fn ipv6_gateways_of_ipv4_routes_keep_their_shares() {
    if !root("ipv6_gateways_of_ipv4_routes_keep_their_shares") {
        return;
    }
    let world = World::new("gateways", 3);
    world.sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", "1");
    let mut f = Followed::new(&world);
    f.flows.retain(|flow| flow.dst.is_ipv4());
    f.frames = world.frames(&f.flows);
    let hops: Vec<String> = (1..=3)
        .map(|n| {
            format!(
                "nexthop via inet6 {} dev {}",
                world.gateway(n).1,
                world.out(n)
            )
        })
        .collect();
    let make = format!("route replace 10.9.0.0/16 {}", hops.join(" "));
    // What is sent to the link without carrier is lost, and the rest goes where the kernel sends it.
    let shares = |what: &str, dead: bool| {
        let (expected, took) = within(LIMIT, || {
            let choices: Vec<_> = f
                .flows
                .iter()
                .map(|flow| world.kernel_choice(flow))
                .collect();
            let arrived = world.transmit(&f.frames);
            for ((flow, choice), arrivals) in f.flows.iter().zip(&choices).zip(&arrived) {
                let there = choice.iter().filter(|link| !dead || *link != "sink-3");
                if arrivals.iter().map(|a| &a.link).ne(there) {
                    return Err(format!("{what}: {flow:?}: {arrivals:?}, not {choice:?}"));
                }
                let words = format!(
                    "explain -j {} from {} iif source ipproto udp sport {} dport {}",
                    flow.dst, flow.src, flow.sport, flow.dport
                );
                let answer = world.raddle_json(&words.split(' ').collect::<Vec<_>>());
                if answer["link"].as_str() != choice.as_deref() {
                    return Err(format!("{what}: {flow:?}: {answer}, not {choice:?}"));
                }
            }
            Ok(choices.into_iter().flatten().collect::<BTreeSet<String>>())
        });
        eprintln!("{took:?} {what}");
        expected
    };
    let (all, two) = (
        names(&["sink", "sink-2", "sink-3"]),
        names(&["sink", "sink-2"]),
    );
    world.ip(&make);
    assert_eq!(shares("with carrier", false), all);
    world.lab().link_down(world.plug(3)).unwrap();
    assert_eq!(shares("carrier is lost", true), two);
    world.ip("route del 10.9.0.0/16");
    world.ip(&make);
    assert_eq!(shares("made without carrier", true), all);
    world.lab().link_up(world.plug(3)).unwrap();
    world.neighbours(3, "permanent");
    assert_eq!(shares("carrier comes", false), all);
    world.lab().link_down(world.plug(3)).unwrap();
    assert_eq!(shares("carrier is lost again", true), two);
}

#[test]
fn links_are_plugged_in_and_out() {
    if !root("links_are_plugged_in_and_out") {
        return;
    }
    let world = World::new("plugged", 2);
    let mut f = Followed::new(&world);
    let attached = |want: bool| {
        within(LIMIT, || {
            match world.attached().contains(&"late".to_owned()) {
                is if is == want => Ok(()),
                is => Err(format!("link late is attached: {is}")),
            }
        })
    };
    for _ in 0..2 {
        world.ip("link add late type veth peer name far");
        world.ip("link set far up");
        world.ip("link set late up");
        let (_, took) = attached(true);
        eprintln!("attached after {took:?}");
        f.agrees("one more link", Who::Raddle);
        world.ip("link del late");
        f.agrees("one link less", Who::Raddle);
        attached(false);
    }
    // What frames are sent to has to be the link's address.
    world.ip("link set source address 02:00:5e:00:00:09");
    within(LIMIT, || {
        match f.daemon.status()["links"].as_array().unwrap().len() {
            3 => Ok(()),
            n => Err(format!("{n} links")),
        }
    });
    within(LIMIT, || {
        match world.transmit(&f.frames).iter().flatten().count() {
            0 => Ok(()),
            n => Err(format!("{n} packets to the old address came through")),
        }
    });
    for frame in &mut f.frames {
        frame.bytes[..6].copy_from_slice(&[2, 0, 0x5e, 0, 0, 9]);
    }
    f.agrees("another MAC address of our own", Who::Raddle);
}

#[test]
fn settings_change() {
    if !root("settings_change") {
        return;
    }
    let world = World::new("settings", 3);
    let mut f = Followed::new(&world);
    // The kernel does not announce these: they are looked at now and then.
    world.policy(0);
    f.agrees("policy 0", Who::Raddle);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "77");
    f.agrees("another seed", Who::Raddle);
    world.policy(2);
    f.agrees("a policy that is left to the kernel", Who::Kernel);
    world.policy(1);
    f.agrees("policy 1", Who::Raddle);
    world.sysctl("net.ipv4.conf.source.forwarding", "0");
    f.agrees("no IPv4 forwarding from the link", Who::Kernel);
    world.sysctl("net.ipv4.conf.source.forwarding", "1");
    f.agrees("IPv4 forwarding from the link", Who::Raddle);
    world.sysctl("net.ipv4.conf.all.rp_filter", "2");
    f.agrees("loose rp_filter", Who::Raddle);
    world.sysctl("net.ipv4.conf.all.rp_filter", "1");
    f.agrees("strict rp_filter", Who::Raddle);
    world.sysctl("net.ipv4.conf.all.rp_filter", "0");
    f.agrees("no rp_filter", Who::Raddle);
    f.ip("link set sink-2 mtu 1280");
    f.explains();
    eprintln!("slowest: {:?}", f.slowest);
}

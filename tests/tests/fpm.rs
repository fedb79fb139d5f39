//! Routes by FPM: what is told there and the kernel does not have is forwarded by; from a sender of our own, which
//! can tell SIDs, and from a real zebra.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_e2e::tagged::{flow, passed, plain, to_sid};
use raddle_e2e::{Crafted, Daemon, Outcome, World, root, within};
use raddle_netlink::codec::{Builder, encode};
use raddle_rib::event::{
    Event, GroupMember, Nexthop, NexthopKind, Route, RouteNexthop, RouteOp, RouteTarget,
};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef};
use serde_json::{Value, json};

/// A routing daemon's end.
struct Zebra(TcpStream);

impl Zebra {
    fn connect(world: &World) -> Zebra {
        let connect = || TcpStream::connect("127.0.0.1:2620").unwrap();
        Zebra(world.lab().within("router", connect).unwrap())
    }

    /// One frame with all of these.
    fn tell(&mut self, events: &[Event]) {
        let mut builder = Builder::new();
        for event in events {
            encode(&mut builder, event, 1).unwrap();
        }
        let messages = builder.as_bytes();
        let length = u16::try_from(messages.len() + 4).unwrap();
        let frame = [&[1, 1][..], &length.to_be_bytes(), messages].concat();
        self.0.write_all(&frame).unwrap();
    }
}

fn route(prefix: &str, target: RouteTarget) -> Event {
    let route = Route {
        dst: prefix.parse().unwrap(),
        protocol: 186,
        metric: 20,
        target,
        ..Route::default()
    };
    Event::Route(route, RouteOp::Prepend)
}

fn gone(prefix: &str) -> Event {
    match route(prefix, RouteTarget::None) {
        Event::Route(route, _) => Event::RouteGone(route),
        other => other,
    }
}

fn index_of(world: &World, link: &str) -> u32 {
    let shown: Value = serde_json::from_str(&world.ip(&format!("-j link show {link}"))).unwrap();
    shown[0]["ifindex"].as_u64().unwrap() as u32
}

/// What is carried out on packets of a prefix, by way of this link.
fn encap(what: &Seg6, index: u32) -> RouteTarget {
    RouteTarget::Single(RouteNexthop {
        index,
        encap: Some(what.encode()),
        ..RouteNexthop::default()
    })
}

fn fpm(daemon: &Daemon<'_>, used: Value) {
    within(Duration::from_secs(60), || {
        let fpm = daemon.status()["fpm"].take();
        match fpm["used"] == used {
            true => Ok(()),
            false => Err(fpm.to_string()),
        }
    });
}

/// How many of these packets come out, once the daemon has done what it was told.
fn pass(world: &World, frames: &[Crafted], count: usize) -> Vec<Vec<u8>> {
    let ask = || {
        let sent = passed(world, frames);
        match sent.len() == count {
            true => Ok(sent),
            false => Err(format!("{} packets and not {count}", sent.len())),
        }
    };
    within(Duration::from_secs(60), ask).0
}

#[test]
fn sids_lists_and_groups_are_told() {
    if !root("sids_lists_and_groups_are_told") {
        return;
    }
    let world = World::new("fpm", 2);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "4242");
    world.ip("-6 route add 5f00:0:f1::/48 via 2001:db8:2:1::2");
    world.ip("sr tunsrc set 2001:db8:2:1::1");
    let before = world.ip("-6 route show table all") + &world.ip("route show table all");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("raddle.toml");
    std::fs::write(&config, "[fpm]\ngrace = 2\n").unwrap();
    let daemon = Daemon::start(&world, &["--config", config.to_str().unwrap()]);
    let indexes = [1, 2].map(|n| index_of(&world, &world.out(n)));

    // A group before its members, a SID that is an object, one that a VRF would have, and a list.
    let mut zebra = Zebra::connect(&world);
    let member = |id| GroupMember { id, weight: 1 };
    let object = |id, family, kind| Event::Nexthop(Nexthop::new(id, family, kind));
    let single = |n: u32, encap: bool| NexthopKind::Single {
        gateway: Some(world.gateway(n).0.into()).filter(|_| !encap),
        index: indexes[n as usize - 1],
        encap: encap.then(|| Seg6::Sid(Sid::new(Behaviour::End)).encode()),
    };
    let end46 = Behaviour::Dt46 {
        table: TableRef::Vrf(254),
    };
    let list = Encaps::new(Mode::Encap, &["5f00:0:f1::1".parse().unwrap()]).unwrap();
    let group = object(16, 0, NexthopKind::Group(vec![member(11), member(12)]));
    zebra.tell(&[group]);
    zebra.tell(&[route("198.51.100.0/24", RouteTarget::Object(16))]);
    zebra.tell(&[
        object(11, 2, single(1, false)),
        object(12, 2, single(2, false)),
    ]);
    let sid = object(13, 10, single(1, true));
    zebra.tell(&[sid, route("5f00:0:1::/48", RouteTarget::Object(13))]);
    let sid = encap(&Seg6::Sid(Sid::new(end46)), indexes[0]);
    zebra.tell(&[route("5f00:0:2::/48", sid)]);
    let list = encap(&Seg6::Encaps(list), indexes[0]);
    zebra.tell(&[route("203.0.113.0/24", list)]);
    // What the kernel has is the kernel's.
    let other = RouteTarget::Object(99);
    zebra.tell(&[route("5f00:0:f1::/48", other)]);
    fpm(&daemon, json!({ "inet": 2, "inet6": 2 }));

    let many = |dst: &str| -> Vec<Crafted> {
        (0..32)
            .map(|n| plain(&world, &flow(dst, 1000 + n)))
            .collect()
    };
    let spread = many("198.51.100.9");
    pass(&world, &spread, 32);
    let arrived = world.exchange(&spread, Duration::from_millis(60));
    for n in [1, 2] {
        let out = world.out(n);
        let by = arrived.iter().filter(|a| a.link == out).count();
        assert!((4..=28).contains(&by), "{by} by {out}");
    }
    let outer = |frame: &Vec<u8>| frame[38..44] == [0x5f, 0, 0, 0, 0, 0xf1];
    assert!(pass(&world, &many("203.0.113.9"), 32).iter().all(outer));
    // End.DT46 takes the inner packet out, which goes on by the group.
    let inner = [to_sid(&world, "5f00:0:2::1", &flow("198.51.100.9", 77))];
    assert_eq!(pass(&world, &inner, 1)[0][12..14], [8, 0]);
    // End without an SRH is an error, and counted as one.
    let bare = [to_sid(&world, "5f00:0:1::1", &flow("198.51.100.9", 78))];
    assert_eq!(passed(&world, &bare).len(), 0);

    // The kernel has got none of them, and nothing was set up in it.
    let after = world.ip("-6 route show table all") + &world.ip("route show table all");
    assert_eq!(before, after);
    let shown = world.raddle(&["-s", "sr", "show"]).stdout;
    let line = |what: &str| {
        let line = shown.lines().find(|line| line.contains(what));
        line.unwrap_or_else(|| panic!("{what} is not in {shown}"))
            .to_owned()
    };
    assert!(line("5f00:0:1::/48").contains("errors 1"), "{shown}");
    assert!(line("End.DT46").contains("packets 1 "), "{shown}");
    assert!(line("203.0.113.0/24").contains(" fpm"), "{shown}");
    let shown = world.raddle(&["route", "show", "198.51.100.0/24"]).stdout;
    assert!(
        shown.contains("proto bgp") && shown.contains("fpm"),
        "{shown}"
    );
    let shown = world.raddle(&["status"]).stdout;
    assert!(shown.contains("FPM at 127.0.0.1:2620"), "{shown}");
    let words = [
        "explain",
        "198.51.100.9",
        "from",
        "10.1.1.2",
        "iif",
        "source",
    ];
    let shown =
        world.raddle(&[&words[..], &["ipproto", "udp", "sport", "1", "dport", "9"]].concat());
    assert!(shown.stdout.contains("told by FPM"), "{}", shown.stdout);

    // Without the group's second member all flows go by the first.
    zebra.tell(&[Event::NexthopGone(12)]);
    within(Duration::from_secs(60), || {
        let arrived = world.exchange(&spread, Duration::from_millis(60));
        match arrived.iter().filter(|a| a.link == world.out(1)).count() {
            32 => Ok(()),
            n => Err(format!("{n} by the first")),
        }
    });
    zebra.tell(&[gone("198.51.100.0/24")]);
    pass(&world, &spread, 0);

    // It comes back within the grace, and does not tell everything again.
    drop(zebra);
    within(Duration::from_secs(60), || {
        match &daemon.status()["fpm"]["peer"] {
            Value::Null => Ok(()),
            peer => Err(peer.to_string()),
        }
    });
    assert_eq!(passed(&world, &many("203.0.113.9")).len(), 32);
    let mut zebra = Zebra::connect(&world);
    let sid = encap(&Seg6::Sid(Sid::new(Behaviour::End)), indexes[0]);
    zebra.tell(&[route("5f00:0:1::/48", sid)]);
    fpm(&daemon, json!({ "inet": 0, "inet6": 1 }));
    pass(&world, &many("203.0.113.9"), 0);
    // It does not come back.
    drop(zebra);
    fpm(&daemon, json!({ "inet": 0, "inet6": 0 }));
    assert!(daemon.log().contains("nobody has come back"));
    daemon.terminate();
}

/// Gateways that only FPM knows are resolved: the kernel has no packets for them.
#[test]
fn gateways_by_fpm_are_resolved() {
    if !root("gateways_by_fpm_are_resolved") {
        return;
    }
    let world = World::new("fpmhosts", 1);
    let daemon = Daemon::start(&world, &["--fpm"]);
    world.ip("neigh flush dev sink nud all");
    assert!(!world.ip("neigh show dev sink").contains("lladdr"));
    let hop = RouteNexthop {
        gateway: Some(world.gateway(1).0.into()),
        index: index_of(&world, "sink"),
        ..RouteNexthop::default()
    };
    let mut zebra = Zebra::connect(&world);
    zebra.tell(&[route("198.51.100.0/24", RouteTarget::Single(hop))]);
    pass(&world, &[plain(&world, &flow("198.51.100.9", 7))], 1);
    daemon.terminate();
}

/// An address that somebody else has, and one that others could reach.
#[test]
fn an_address_that_cannot_be_had_is_refused() {
    if !root("an_address_that_cannot_be_had_is_refused") {
        return;
    }
    let world = World::new("fpmbusy", 1);
    let bind = || std::net::TcpListener::bind("127.0.0.1:2620").unwrap();
    let _other = world.lab().within("router", bind).unwrap();
    for check in [&["--check"][..], &[]] {
        let outcome = world.raddle(&[&["run", "--fpm"], check].concat());
        assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("127.0.0.1:2620"),
            "{}",
            outcome.stderr
        );
    }
    let outcome = world.raddle(&["run", "--fpm=10.1.1.1:2620", "--check"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("no access control"),
        "{}",
        outcome.stderr
    );
}

/// FRR's programs and modules, where they are installed.
fn frr() -> Option<PathBuf> {
    let homes = ["/usr/lib/frr", "/usr/libexec/frr"].map(Path::new);
    let home = homes.into_iter().find(|home| home.join("zebra").exists())?;
    Some(home.to_owned())
}

/// zebra gives its routes to the kernel and to FPM. What the kernel loses, raddle has.
#[test]
fn a_real_zebra_tells_its_routes() {
    if !root("a_real_zebra_tells_its_routes") {
        return;
    }
    let Some(home) = frr() else {
        eprintln!("skipped: a_real_zebra_tells_its_routes needs FRR (apt-get install frr)");
        return;
    };
    let world = World::new("fpmfrr", 2);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "4242");
    let daemon = Daemon::start(&world, &["--fpm"]);
    let folder = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("zebra.conf"), "fpm address 127.0.0.1 port 2620\n").unwrap();
    let statics = "ip route 198.51.100.0/24 10.2.1.2\nip route 198.51.100.0/24 10.2.2.2\n";
    std::fs::write(file("staticd.conf"), statics).unwrap();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd
        .lines()
        .find(|line| line.starts_with("frr:"))
        .unwrap();
    let ids: Vec<u32> = line
        .split(':')
        .filter_map(|field| field.parse().ok())
        .collect();
    chown(folder.path(), Some(ids[0]), Some(ids[1])).unwrap();
    for (program, more) in [("zebra", &["-M", "dplane_fpm_nl"][..]), ("staticd", &[])] {
        let path = home.join(program);
        let mut command = world
            .lab()
            .command("router", path.to_str().unwrap())
            .unwrap();
        command
            .args(["-d", "-A", "127.0.0.1", "-P", "0"])
            .args(more);
        for (option, name) in [
            ("-f", format!("{program}.conf")),
            ("-i", format!("{program}.pid")),
            ("-z", "zserv.api".to_owned()),
            ("--vty_socket", String::new()),
        ] {
            command.arg(option).arg(file(&name));
        }
        let outcome = Outcome::of(&mut command);
        assert_eq!(outcome.code, Some(0), "{program}: {}", outcome.stderr);
    }
    let frames: Vec<Crafted> = (0..32)
        .map(|n| plain(&world, &flow("198.51.100.9", 1000 + n)))
        .collect();
    within(Duration::from_secs(60), || {
        let fpm = daemon.status()["fpm"].take();
        let told = fpm["routes"]["inet"].as_u64() >= Some(1) && fpm["resync"] == false;
        let kernel = world.ip("route show 198.51.100.0/24");
        match told && kernel.contains("sink-2") {
            true => Ok(()),
            false => Err(format!("{fpm} {kernel}")),
        }
    });
    assert_eq!(passed(&world, &frames).len(), 32);
    let links = |world: &World| -> Vec<String> {
        let arrived = world.transmit(&frames);
        let one = |all: &Vec<raddle_e2e::Arrival>| all[0].link.to_string();
        arrived.iter().map(one).collect()
    };
    let by_kernel = links(&world);
    // Somebody takes it from the kernel, and zebra, which would give it back, is busy. It has told it, though, and
    // each flow keeps its link.
    let pid = std::fs::read_to_string(file("zebra.pid")).unwrap();
    let zebra = Pid::from_raw(pid.trim().parse().unwrap());
    kill(zebra, Signal::SIGSTOP).unwrap();
    world.ip("route del 198.51.100.0/24");
    within(Duration::from_secs(60), || {
        let fpm = daemon.status()["fpm"].take();
        match fpm["used"]["inet"].as_u64() {
            Some(1..) => Ok(()),
            _ => Err(fpm.to_string()),
        }
    });
    assert_eq!(world.ip("route show 198.51.100.0/24"), "");
    assert_eq!(links(&world), by_kernel);
    kill(zebra, Signal::SIGCONT).unwrap();
    fpm(&daemon, json!({ "inet": 0, "inet6": 0 }));
    assert_eq!(links(&world), by_kernel);
    assert_eq!(daemon.status()["fpm"]["messages"]["malformed"], 0);
    daemon.terminate();
}

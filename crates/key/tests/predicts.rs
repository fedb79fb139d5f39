//! The key that is read predicts what the kernel does, in namespaces that have no seed set.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use raddle_netlink::{RouteQuery, Socket};
use raddle_select::{
    Flow, HashConfig, Hasher, Policy, choose_plain, keys_of_plain_packet, upper_bounds,
};

/// Weights of the links.
const WEIGHTS: [u16; 5] = [1, 2, 3, 1, 5];

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
}

/// A router with five links and a route over all of them for each family.
fn router(policy: u8) {
    run("ip link set lo up");
    run("ip link add in0 type veth peer name in1");
    run("ip link set in0 up");
    run("ip link set in1 up");
    run("ip addr add 10.9.0.1/24 dev in0");
    run("ip addr add 2001:db8:9::1/64 dev in0 nodad");
    let (mut four, mut six) = (String::new(), String::new());
    for (n, weight) in WEIGHTS.iter().enumerate() {
        run(&format!("ip link add v{n} type veth peer name w{n}"));
        run(&format!("ip link set v{n} up"));
        run(&format!("ip link set w{n} up"));
        run(&format!("ip addr add 10.0.{n}.1/24 dev v{n}"));
        run(&format!("ip addr add 2001:db8:{n}::1/64 dev v{n} nodad"));
        four += &format!(" nexthop via 10.0.{n}.2 dev v{n} weight {weight}");
        six += &format!(" nexthop via 2001:db8:{n}::2 dev v{n} weight {weight}");
    }
    for (file, value) in [
        ("ipv4/fib_multipath_hash_policy", policy),
        ("ipv6/fib_multipath_hash_policy", policy),
        ("ipv4/conf/all/forwarding", 1),
        ("ipv6/conf/all/forwarding", 1),
        ("ipv4/conf/all/rp_filter", 0),
        ("ipv4/conf/in0/rp_filter", 0),
    ] {
        std::fs::write(format!("/proc/sys/net/{file}"), value.to_string()).unwrap();
    }
    run(&format!("ip route add 198.18.0.0/15{four}"));
    run(&format!("ip -6 route add 2001:db8:ffff::/48{six}"));
}

/// Numbers without a pattern.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn flow(state: &mut u64, v6: bool) -> (IpAddr, IpAddr, u16, u16) {
    let (a, b, ports) = (draw(state), draw(state), draw(state));
    let (src, dst): (IpAddr, IpAddr) = match v6 {
        false => (
            Ipv4Addr::from(0x0a09_0002 + (a as u32 & 0x7f)).into(),
            Ipv4Addr::from(0xc612_0000 | b as u32 & 0x1_ffff).into(),
        ),
        true => (
            Ipv6Addr::from(0x2001_0db8_0009_u128 << 80 | u128::from(a >> 1 | 2)).into(),
            Ipv6Addr::from(0x2001_0db8_ffff_u128 << 80 | u128::from(b)).into(),
        ),
    };
    (src, dst, ports as u16 | 1, (ports >> 16) as u16 | 1)
}

#[test]
fn a_thousand_flows_take_the_links_that_the_key_says() {
    let here = std::thread::spawn(|| {
        if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            return eprintln!("skipped: needs root (no network namespace: {error})");
        }
        let key = match raddle_key::read() {
            Ok(key) => key,
            Err(error) => panic!("{error}"),
        };
        let hasher = Hasher::new(key);
        let mut state = u64::from(std::process::id()) << 20 | 1;
        for policy in [Policy::L3, Policy::L4] {
            let made = std::thread::spawn(move || {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                router(policy as u8);
                let index = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
                assert!(index.contains("in0"));
                let socket = Socket::open().unwrap();
                (socket, nix::net::if_::if_nametoindex("in0").unwrap())
            });
            let (mut socket, iif) = made.join().unwrap();
            let uppers = upper_bounds(&WEIGHTS.map(|weight| Some(weight.into())));
            for n in 0..500 {
                let v6 = n % 2 == 1;
                let (src, dst, sport, dport) = flow(&mut state, v6);
                let query = RouteQuery {
                    src: Some(src),
                    iif: Some(iif),
                    ip_proto: Some(17),
                    sport: Some(sport),
                    dport: Some(dport),
                    ..RouteQuery::default()
                };
                let answer = socket.get_route(dst, &query).unwrap();
                let flow = Flow::new(src, dst).unwrap().ports(17, sport, dport);
                let keys = keys_of_plain_packet(&HashConfig::from(policy), &flow);
                let choice = choose_plain(&uppers, |_| true, hasher.hash31(&keys)).unwrap();
                let n = choice.member;
                let expected: IpAddr = match v6 {
                    false => format!("10.0.{n}.2").parse().unwrap(),
                    true => format!("2001:db8:{n}::2").parse().unwrap(),
                };
                assert_eq!(answer.gateway, Some(expected), "{flow:?}, {policy:?}");
            }
        }
    });
    if let Err(panic) = here.join() {
        std::panic::resume_unwind(panic);
    }
}

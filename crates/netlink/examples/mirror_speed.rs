//! How long a mirror takes to read a full table: installs N routes (1,000,000) in a network
//! namespace of its own and mirrors them. Needs root.
//!
//! `cargo run --release --example mirror_speed [N]`

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use raddle_netlink::{Mirror, Socket};
use raddle_rib::event::{Event, Route, RouteNexthop, RouteTarget};

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |n| n.parse::<u32>())?;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
    for command in [
        "link add v0 type veth peer name p0",
        "link set p0 up",
        "link set v0 up",
        "addr add 192.0.2.1/24 dev v0",
    ] {
        let status = Command::new("ip").args(command.split(' ')).status()?;
        assert!(status.success(), "ip {command}");
    }
    let index = nix::net::if_::if_nametoindex("v0")?;

    let start = Instant::now();
    Socket::open()?.install_routes((0..count).map(|n| route(n, index)))?;
    println!("installed {count} routes in {:.2?}", start.elapsed());

    let before = resident()?;
    for _ in 0..3 {
        let (start, cpu) = (Instant::now(), cpu_time()?);
        let mut mirror = Mirror::open()?;
        let mut routes = 0u64;
        mirror.initial(&mut |event| routes += u64::from(matches!(event, Event::Route(..))))?;
        let took = start.elapsed();
        println!(
            "mirrored {routes} routes in {took:.2?} ({:.2} M/s), CPU of all threads {:.2?}, \
             resident {:.1} MB (before: {:.1} MB)",
            routes as f64 / took.as_secs_f64() / 1e6,
            cpu_time()? - cpu,
            resident()?,
            before,
        );
    }
    Ok(())
}

/// A /24 of its own for each, via one gateway.
fn route(n: u32, index: u32) -> Route {
    let dst = Ipv4Net::new_assert(Ipv4Addr::from((n + 0x0001_0000) << 8), 24);
    let hop = RouteNexthop {
        gateway: Some(IpAddr::from([192, 0, 2, 2])),
        index,
        weight: 1,
        ..RouteNexthop::default()
    };
    Route {
        dst: IpNet::V4(dst),
        protocol: 186,
        metric: 20,
        target: RouteTarget::Single(hop),
        ..Route::default()
    }
}

/// Resident memory of this process in MB.
fn resident() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|l| l.starts_with("VmRSS"))
        .ok_or("no VmRSS")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).ok_or("no value")?.parse()?;
    Ok(kilobytes / 1024.0)
}

/// CPU time of this process so far, in user and kernel mode.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let of = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64)
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

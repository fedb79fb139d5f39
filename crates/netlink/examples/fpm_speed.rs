//! How fast routes come in by FPM: a thread tells N routes (1,000,000) over loopback, by two nexthop groups in turn,
//! one frame each as zebra does, and a mirror takes them and publishes every 10 ms. Needs no root.
//!
//! `cargo run --release --example fpm_speed [N]`

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use raddle_image::{Capacity, Memory};
use raddle_netlink::codec::{Builder, encode};
use raddle_netlink::fpm::{Options, Reader, Server};
use raddle_rib::event::{
    DeviceSettings, Event, GroupMember, Link, Nexthop, NexthopKind, Route, RouteOp, RouteTarget,
};
use raddle_rib::{Ports, Rib};

const GATHER: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |n| n.parse::<u32>())?;
    let options = Options {
        users: vec![nix::unistd::geteuid().as_raw()],
        grace: Duration::ZERO,
        reader: Reader { counters: true },
    };
    let mut server = Server::bind("127.0.0.1:0".parse()?, options)?;
    let stream = stream(count)?;
    let bytes = stream.len() as f64 / 1e6;
    let mut zebra = TcpStream::connect(server.address()?)?;
    let capacity = Capacity::default();
    let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
    for index in 1..=3 {
        rib.apply(Event::Link(Link::ethernet(index, "eth", [2; 6])));
        rib.apply(Event::Device(index, DeviceSettings::default()));
    }
    rib.set_ports(Ports {
        enabled: [1].into(),
        out: [2, 3].into(),
    });
    rib.commit();
    let sender = std::thread::spawn(move || zebra.write_all(&stream).map(|()| zebra));
    let (start, mut last) = (Instant::now(), Instant::now());
    let mut commits = 0;
    while server.stats().tallies.routes < u64::from(count) {
        let told = server.poll(Instant::now(), &mut |told| rib.apply(Event::Fpm(told)));
        if last.elapsed() >= GATHER || told == 0 {
            commits += u32::from(rib.is_dirty());
            rib.commit();
            last = Instant::now();
        }
    }
    rib.commit();
    let took = start.elapsed();
    println!(
        "{count} routes, {bytes:.1} MB, in {took:.2?}: {:.0} messages/s, {commits} commits, {} entries",
        f64::from(count) / took.as_secs_f64(),
        rib.usage().entries4
    );
    let start = Instant::now();
    drop(sender.join().map_err(|_| "the sender failed")??);
    while server.peer().is_some() {
        server.poll(Instant::now(), &mut |told| rib.apply(Event::Fpm(told)));
    }
    server.poll(Instant::now(), &mut |told| rib.apply(Event::Fpm(told)));
    rib.commit();
    println!(
        "gone in {:.2?}, {} left",
        start.elapsed(),
        rib.fpm_stats().routes4
    );
    Ok(())
}

/// What is told, as a stream.
fn stream(count: u32) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stream = Vec::new();
    for id in 1..=3 {
        let kind = NexthopKind::Single {
            gateway: Some(IpAddr::from([192, 0, 2, id as u8])),
            index: id,
            encap: None,
        };
        frame(&mut stream, &Event::Nexthop(Nexthop::new(id, 2, kind)))?;
    }
    for id in [10, 11] {
        let members = [1, id - 8].map(|id| GroupMember { id, weight: 1 });
        let kind = NexthopKind::Group(members.to_vec());
        frame(&mut stream, &Event::Nexthop(Nexthop::new(id, 0, kind)))?;
    }
    for n in 0..count {
        let dst = Ipv4Net::new_assert(Ipv4Addr::from((n + 0x0001_0000) << 8), 24);
        let route = Route {
            dst: IpNet::V4(dst),
            protocol: 186,
            metric: 20,
            target: RouteTarget::Object(10 + n % 2),
            ..Route::default()
        };
        frame(&mut stream, &Event::Route(route, RouteOp::Replace))?;
    }
    Ok(stream)
}

fn frame(stream: &mut Vec<u8>, event: &Event) -> Result<(), Box<dyn Error>> {
    let mut builder = Builder::new();
    encode(&mut builder, event, 1)?;
    let messages = builder.as_bytes();
    let length = u16::try_from(messages.len() + 4)?;
    stream.extend([1, 1]);
    stream.extend(length.to_be_bytes());
    stream.extend(messages);
    Ok(())
}

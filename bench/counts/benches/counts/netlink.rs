//! Decoding: 256 route messages, as the kernel sends them, in one buffer.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gungraun::{library_benchmark, library_benchmark_group};
use ipnet::IpNet;
use raddle_netlink::codec::{Builder, decode, encode};
use raddle_rib::event::{Event, RouteOp};

use crate::router::{OUT, hops, route};

const MESSAGES: u16 = 256;

/// Routes to neighbouring prefixes over as many nexthops as there are links.
fn messages(v6: bool, links: &[u32]) -> Vec<u8> {
    let mut buffer = Vec::new();
    for n in 0..MESSAGES {
        let (address, len) = match v6 {
            true => (Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 0).into(), 48),
            false => (
                IpAddr::V4(Ipv4Addr::new(198, 18 + (n >> 8) as u8, n as u8, 0)),
                24,
            ),
        };
        let dst = IpNet::new(address, len).expect("the family has the length");
        let told = Event::Route(route(dst, hops(v6, links)), RouteOp::Add);
        let mut builder = Builder::new();
        encode(&mut builder, &told, 0).expect("routes have a message");
        buffer.extend_from_slice(builder.as_bytes());
    }
    buffer
}

#[library_benchmark(setup = messages)]
#[bench::ipv4_single(false, &OUT[..1])]
#[bench::ipv4_multipath(false, &OUT)]
#[bench::ipv6_multipath(true, &OUT)]
fn route_messages(buffer: Vec<u8>) -> Vec<u8> {
    let mut sink = |event: Event| {
        black_box(event);
    };
    let counts = decode(&buffer, &mut sink);
    assert_eq!(counts.events, u64::from(MESSAGES));
    buffer
}

library_benchmark_group!(name = decoding, benchmarks = route_messages);

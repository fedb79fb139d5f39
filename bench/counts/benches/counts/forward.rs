//! The userspace engine: 256 frames of as many flows over a default route of two nexthops, policy 1, one
//! by one or in vectors.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use gungraun::{library_benchmark, library_benchmark_group};
use ipnet::IpNet;
use raddle_forward::{Engine, Verdict};
use raddle_image::Reason;
use raddle_rib::event::{Event, RouteOp};

use crate::router::{INGRESS, OUT, hops, mac, route, router};

const FLOWS: u8 = 255;

/// An engine that has seen all of these frames once, so that it knows the seed; and the frames.
fn warm(v6: bool) -> (Engine, Vec<Vec<u8>>) {
    let any = match v6 {
        true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    let mut rib = router();
    let default = IpNet::new(any, 0).expect("0 is a length");
    let both = route(default, hops(v6, &OUT));
    rib.apply(Event::Route(both, RouteOp::Add));
    rib.commit();
    let mut engine = Engine::new(Arc::clone(rib.memory()));
    let frames: Vec<Vec<u8>> = (0..=FLOWS)
        .map(|flow| if v6 { udp6(flow) } else { udp4(flow) })
        .collect();
    let mut left = OUT.map(|_| 0);
    for frame in &frames {
        match engine.forward(&mut frame.clone(), INGRESS, 0) {
            Verdict::Forward { index, .. } => left[(index - OUT[0]) as usize] += 1,
            other => panic!("not forwarded: {other:?}"),
        }
    }
    assert!(left.iter().all(|count| *count > 64), "{left:?}");
    (engine, frames)
}

/// Ethernet, up to the network header.
fn ethernet(ether_type: u16) -> Vec<u8> {
    let mut frame = Vec::from(mac(INGRESS));
    frame.extend([6, 0, 0, 0, 0, 1]);
    frame.extend(ether_type.to_be_bytes());
    frame
}

/// UDP with 18 bytes of payload.
fn udp(frame: &mut Vec<u8>, flow: u8) {
    frame.extend([0x80, flow, 0, 53, 0, 26, 0, 0]);
    frame.extend([0xa5; 18]);
}

fn udp4(flow: u8) -> Vec<u8> {
    let mut frame = ethernet(0x0800);
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([198, 51, 100, flow, 203, 0, 113, 9]);
    let words = frame[14..].chunks_exact(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    udp(&mut frame, flow);
    frame
}

fn udp6(flow: u8) -> Vec<u8> {
    let mut frame = ethernet(0x86dd);
    frame.extend([0x60, 0, 0, 0, 0, 26, 17, 64]);
    frame.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, flow.into()).octets());
    frame.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 9).octets());
    udp(&mut frame, flow);
    frame
}

#[library_benchmark(setup = warm)]
#[bench::ipv4(false)]
#[bench::ipv6(true)]
fn frames((mut engine, mut frames): (Engine, Vec<Vec<u8>>)) -> (Engine, Vec<Vec<u8>>) {
    for frame in &mut frames {
        engine.forward(frame, INGRESS, 0);
    }
    (engine, frames)
}

#[library_benchmark(setup = warm)]
#[bench::ipv4(false)]
#[bench::ipv6(true)]
fn vectors((mut engine, mut frames): (Engine, Vec<Vec<u8>>)) -> (Engine, Vec<Vec<u8>>) {
    let mut verdicts = [Verdict::Kernel(Reason::None); FLOWS as usize + 1];
    engine.forward_all(&mut frames, INGRESS, 0, &mut verdicts);
    black_box(verdicts);
    (engine, frames)
}

library_benchmark_group!(name = engine, benchmarks = [frames, vectors]);

//! Packets of the source's that are known again by what is in them, whatever is put around them.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::frame::{Flow, ipv6, udp};
use crate::{Crafted, World};

/// How long nothing has to come until nothing more will.
const QUIET: Duration = Duration::from_millis(60);

/// What all packets of these tests have in them.
const TAG: u64 = 0x6f77_6e21_7261_6464;

/// Which of these packets came out of the router, and as what; nothing else that neighbours say to each other.
pub fn passed(world: &World, frames: &[Crafted]) -> Vec<Vec<u8>> {
    let arrived = world.exchange(frames, QUIET).into_iter();
    let frames = arrived.filter(|arrival| arrival.link != "source");
    let frames = frames.map(|arrival| arrival.frame);
    frames
        .filter(|frame| frame.windows(8).any(|bytes| bytes == TAG.to_be_bytes()))
        .collect()
}

/// A frame of this flow from the source to the router.
pub fn plain(world: &World, flow: &Flow) -> Crafted {
    Crafted {
        bytes: udp(world.frame_macs(), flow, TAG, 20),
        kind: "plain",
        flow: None,
    }
}

/// The same in IPv6 to this SID.
pub fn to_sid(world: &World, sid: &str, flow: &Flow) -> Crafted {
    let inner = udp(world.frame_macs(), flow, TAG, 20);
    let next = if flow.dst.is_ipv4() { 4 } else { 41 };
    let src: Ipv6Addr = "2001:db8:1:1::2".parse().unwrap();
    let outer = ipv6(src, sid.parse().unwrap(), next, 64, 0, &inner[14..]);
    Crafted {
        bytes: [&inner[..12], &[0x86, 0xdd], &outer].concat(),
        kind: "encapsulated",
        flow: None,
    }
}

/// A flow from the source's side, of the family of `dst`.
pub fn flow(dst: &str, sport: u16) -> Flow {
    let src = if dst.contains(':') {
        "2001:db8:1:1::2"
    } else {
        "10.1.1.2"
    };
    Flow {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        proto: 17,
        sport,
        dport: 9,
    }
}

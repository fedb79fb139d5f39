//! What is measured and counted: frames of as many flows, for one kind of segment.

use raddle_image::{Segment, segment_flags, segment_kind};

use super::packets::{frame, ip6, srh, udp};
use super::router::{OUT, Router, octets, plain};

/// Frames of a scenario.
pub(crate) const FRAMES: usize = 256;

/// A router, and what comes to it.
pub(crate) fn scenario(name: &str) -> (Router, Vec<Vec<u8>>) {
    let mut router = Router::wide();
    router.via("fc00:2::/32", 0);
    router.via("2001:db8:3::/48", 1);
    let list = [octets("fc00:2::1"), octets("fc00:1::1")];
    let around = |next, payload: &[u8]| ip6("2001:db8::1", "fc00:1::1", next, payload);
    let packet: Box<dyn Fn(u16) -> Vec<u8>> = match name {
        "End" => {
            router.sid("fc00:1::/32", plain(segment_kind::END));
            Box::new(move |flow| around(43, &[srh(17, 1, &list, &[]), udp(flow)].concat()))
        }
        "End.DX2" => {
            let out = Segment {
                out: OUT + 3,
                mtu: 1500,
                ..plain(segment_kind::END_DX2)
            };
            router.sid("fc00:1::/32", out);
            let inner = |flow| frame(&ip6("2001:db8::1", "2001:db8:3::1", 17, &udp(flow)));
            Box::new(move |flow| around(143, &inner(flow)))
        }
        "H.Encaps" => {
            let header = srh(0, 0, &list[..1], &[]);
            let mut outer = ip6("fc00:f::1", "fc00:2::1", 43, &header);
            outer[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 43, 64]);
            let flags = segment_flags::HAS_SRH | segment_flags::LABEL_FROM_INNER;
            let segment = router.with_template(segment_kind::ENCAPS, flags, &outer);
            router.sid("2001:db8:2::/48", segment);
            Box::new(|flow| ip6("2001:db8::1", "2001:db8:2::1", 17, &udp(flow)))
        }
        _ => Box::new(|flow| ip6("2001:db8::1", "2001:db8:3::1", 17, &udp(flow))),
    };
    let frames = (0..FRAMES as u16).map(|flow| frame(&packet(flow)));
    (router, frames.collect())
}

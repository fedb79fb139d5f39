//! Steps B1 to B10.

use raddle_image::{Reason, link_flags};
use raddle_xdp::Verdict;

use crate::bench::{bent, dst6, from6, set_up, src6, to6};
use raddle_xdp_testing::bench::{DST_MAC, SRC_MAC};
use raddle_xdp_testing::frames::{self, udp6};
use raddle_xdp_testing::net::in_namespace;

#[test]
fn verdicts6() {
    in_namespace("verdicts6", || {
        let b = set_up();
        let frame = to6("2001:db8:1::7");
        let after = b.forward(&frame, 0);
        let mut expected = frame.clone();
        expected[..6].copy_from_slice(&DST_MAC);
        expected[6..12].copy_from_slice(&SRC_MAC);
        expected[21] -= 1;
        assert_eq!(after, expected);
        b.kernel(&bent(frame.clone(), |f| f[14] = 0x50), Reason::BadHeader);
        b.kernel(&bent(frame.clone(), |f| f[20] = 0), Reason::Options);
        b.kernel(&bent(frame.clone(), |f| f[19] += 1), Reason::BadLength);
        b.kernel(
            &bent(frame.clone(), |f| f[18..20].fill(0xff)),
            Reason::BadLength,
        );
        for hops in [0, 1] {
            b.kernel(&bent(frame.clone(), |f| f[21] = hops), Reason::TtlExceeded);
        }
        b.with_link(|link| link.flags &= !link_flags::FORWARD6);
        b.kernel(&frame, Reason::ForwardingOff);
        b.with_link(|link| link.flags |= link_flags::RULES6);
        b.kernel(&frame, Reason::Rules);
        b.with_link(|link| link.flags |= link_flags::RULES4 | link_flags::RP_FILTER);
        b.forward(&frame, 0);
        b.with_link(|_| ());
        for src in ["ff02::1", "::1", "::", "::ffff:1.2.3.4"] {
            b.kernel(&from6(src), Reason::MartianSource);
        }
        b.kernel(&from6("fe80::1"), Reason::LinkLocal);
        b.kernel(&from6("febf::1"), Reason::LinkLocal);
        for src in [
            "fec0::1",
            "::2",
            "::1.2.3.4",
            "::fffe:1.2.3.4",
            "0:0:1::ffff:0:0",
        ] {
            b.forward(&from6(src), 0);
        }
        b.kernel(&to6("::1"), Reason::MartianDestination);
        b.kernel(&to6("::"), Reason::MartianDestination);
        b.kernel(&to6("ff02::1"), Reason::Multicast);
        b.kernel(&to6("fe80::1"), Reason::LinkLocal);
        b.kernel(&to6("::2"), Reason::NoRoute);
        b.kernel(&to6("3fff::1"), Reason::NoRoute);
        b.kernel(&to6("2001:db8::9"), Reason::Local);
        b.kernel(&to6("2001:db8::8"), Reason::NoRoute);
        b.kernel(&to6("2001:db8:5::1"), Reason::Unreachable);
        b.kernel(&to6("2001:db8:6::1"), Reason::SameLink);
        b.kernel(&to6("2001:db8:7::1"), Reason::Unresolved);
        let hole = to6("2001:db8:4::1");
        assert_eq!(b.run(&hole).0, Verdict::Drop(Reason::Blackhole));
        b.kernel(&udp6(src6(), dst6(), (1, 2), 1501 - 48), Reason::Mtu);
        assert_eq!(
            b.forward(&udp6(src6(), dst6(), (1, 2), 1500 - 48), 0).len(),
            1514
        );
        for (payload, frame_len, keep) in [(0, 62, 62), (0, 90, 62), (700, 5000, 762)] {
            let mut padded = udp6(src6(), dst6(), (1, 2), payload);
            padded.resize(frame_len, 0x77);
            assert_eq!(b.forward(&padded, 0).len(), keep);
        }
        // No next header at all: 54 bytes of packet in 60 of frame.
        let mut bare = frames::ipv6(src6(), dst6(), 0, 59, &[]);
        bare.resize(70, 0);
        assert_eq!(b.forward(&bare, 0).len(), 60);
    });
}

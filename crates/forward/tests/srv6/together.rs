//! Frames with segments that are decided about together, beside the same frames one after the other.

use proptest::prelude::*;
use raddle_forward::{Engine, HEADROOM, VECTOR, Verdict};
use raddle_image::{
    ADJ_FORWARD, Adjacency, Group, Reason, Segment, flavours, link_flags, segment_flags,
    segment_kind,
};

use crate::headends::template;
use crate::packets::{frame, ip4, ip6, srh, udp};
use crate::router::{INGRESS, OTHER_TABLE, OUT, Router, SEED, octets, plain};
use crate::scenarios::{FRAMES, scenario};

/// Frames in buffers with room in front.
type Buffers = Vec<Vec<u8>>;

/// Decides about all of these together, and holds that against one after the other.
pub(crate) fn compare(
    [alone, together]: [&mut Engine; 2],
    frames: &[Vec<u8>],
) -> Result<Vec<Verdict>, TestCaseError> {
    let with_room = |frame: &Vec<u8>| [&vec![0xee; HEADROOM][..], frame].concat();
    let ours: Buffers = frames.iter().map(with_room).collect();
    let mut theirs = ours.clone();
    let mut verdicts = vec![Verdict::Kernel(Reason::None); frames.len()];
    let range = |buffer: &mut Vec<u8>| HEADROOM..buffer.len();
    together.forward_all_in(&mut theirs, range, INGRESS, 0, &mut verdicts);
    for ((mut ours, theirs), said) in ours.into_iter().zip(theirs).zip(&verdicts) {
        let came = ours[HEADROOM..].to_vec();
        let range = HEADROOM..ours.len();
        let verdict = alone.forward_in(&mut ours, range, INGRESS, 0);
        prop_assert_eq!(verdict, *said, "{:02x?}", came);
        let part = match verdict {
            Verdict::Forward { start, len, .. } => start..start + len,
            _ => HEADROOM..ours.len(),
        };
        prop_assert_eq!(&ours[part.clone()], &theirs[part], "{:02x?}", came);
    }
    prop_assert_eq!(alone.counters(), together.counters());
    Ok(verdicts)
}

/// Adjacencies that nothing leaves by: a segment, one that is not resolved, one of the link that packets come
/// in by.
const MEMBER: u32 = 8;
const UNRESOLVED: u32 = 9;
const BACK: u32 = 10;

/// Where packets go behind a segment, and without one: to several, to turns, to one, to one with a smaller MTU, to
/// adjacencies that nothing leaves by, to another segment, nowhere.
const NEXT: [&str; 9] = [
    "fc00:10::9",
    "fc00:11::9",
    "fc00:12::9",
    "fc00:13::9",
    "fc00:14::9",
    "fc00:15::9",
    "fc00:16::9",
    "fc00:1::9",
    "fc00:17::9",
];

/// A router on which the next destination of a packet is chosen in each way.
fn router(signed: bool) -> Router {
    let flags = link_flags::FORWARD4 | link_flags::FORWARD6;
    let signed = if signed { link_flags::HMAC_REQUIRED } else { 0 };
    let mut router = Router::with(flags | signed, 1);
    let spread = router.spread(&[0, 1, 7]);
    let turns = router.turns(&[2, 3]);
    router.route6(0, "fc00:10::/32", spread);
    router.route6(0, "fc00:11::/32", turns);
    router.via("fc00:12::/32", 4);
    router.via("fc00:13::/32", 7);
    router.via("203.0.113.0/24", 7);
    for (net, adjacency) in [(14, MEMBER), (15, UNRESOLVED), (16, BACK)] {
        router.via(&format!("fc00:{net}::/32"), adjacency);
        router.via(&format!("203.0.{net}.0/24"), adjacency);
    }
    let back = Adjacency {
        index: INGRESS,
        state: ADJ_FORWARD,
        mtu: 1500,
        ..Adjacency::default()
    };
    router.memory.store_adjacency(BACK, &back);
    let unresolved = Adjacency {
        reason: Reason::Unresolved as u8,
        ..Adjacency::default()
    };
    router.memory.store_adjacency(UNRESOLVED, &unresolved);
    router.route6(0, "2001:db8:9::/48", spread);
    router.route6(OTHER_TABLE, "::/0", turns);
    let other = router.spread(&[5, 6]);
    router.route6(OTHER_TABLE, "fc00:10::/32", other);
    let single = router.group(Group::Single(5));
    router.route6(OTHER_TABLE, "fc00:12::/32", single);
    let end = router.sid("fc00:0::/32", plain(segment_kind::END));
    router.segment_adjacency(MEMBER, end);
    let psp = Segment {
        flavours: flavours::PSP,
        ..plain(segment_kind::END)
    };
    router.sid("fc00:1::/32", psp);
    let x = Segment {
        target: octets("fc00:10::7"),
        ..plain(segment_kind::END_X)
    };
    router.sid("fc00:2::/32", x);
    let t = Segment {
        table6: OTHER_TABLE,
        ..plain(segment_kind::END_T)
    };
    router.sid("fc00:3::/32", t);
    let dx2 = Segment {
        out: OUT + 2,
        mtu: 60,
        ..plain(segment_kind::END_DX2)
    };
    router.sid("fc00:4::/32", dx2);
    let targets = ["fc00:10::1", "fc00:11::1", "fc00:12::1", "fc00:0::1"];
    for (n, target) in targets.iter().enumerate() {
        let list = srh(0, 0, &[octets(target)], &[]);
        let mut outer = template("::", 0, &list);
        outer[24..40].copy_from_slice(&octets(target));
        let flags = segment_flags::HAS_SRH | segment_flags::LABEL_FROM_INNER;
        let segment = router.with_template(segment_kind::ENCAPS, flags, &outer);
        let segment = Segment {
            salt: n as u32 * 77,
            ..segment
        };
        router.sid(&format!("2001:db8:{n}::/48"), segment);
        router.sid(&format!("198.51.{n}.0/24"), segment);
    }
    router
}

/// Packets to all of these.
fn drawn() -> impl Strategy<Value = Vec<u8>> {
    let rare = prop::sample::select((0..20u8).collect::<Vec<_>>());
    let next = prop::sample::select(&NEXT[..]);
    (0u8..16, any::<u16>(), next, 0usize..1480, rare).prop_map(|(to, flow, next, len, rare)| {
        let pad = if rare < 2 { len } else { len % 20 };
        let upper = [udp(flow % 50), vec![7; pad]].concat();
        let src = "2001:db8:ff::1";
        let mut packet = match to {
            0..4 => {
                let left = if rare == 2 { 2 } else { 1 };
                let list = ["fc00:12::5", next, "fc00:4::1"].map(octets);
                let tlvs: &[u8] = if rare == 3 {
                    &[4, 6, 0, 0, 0, 0, 0, 0]
                } else {
                    &[]
                };
                let header = srh(17, left + (to & 1), &list, tlvs);
                ip6(src, &format!("fc00:{to}::1"), 43, &[header, upper].concat())
            }
            4 => {
                let inner = frame(&ip6(src, next, 17, &upper));
                match flow & 1 {
                    0 => ip6(src, "fc00:4::1", 143, &inner),
                    _ => {
                        let header = srh(143, u8::from(rare == 4), &[octets("fc00:4::1")], &[]);
                        ip6(src, "fc00:4::1", 43, &[header, inner].concat())
                    }
                }
            }
            5..9 => ip6(src, &format!("2001:db8:{}::1", to - 5), 17, &upper),
            9..13 => ip4("192.0.2.1", &format!("198.51.{}.1", to - 9), 17, &upper),
            13 => ip6(src, next, 17, &upper),
            14 => {
                let net = [113, 14, 15, 16][usize::from(flow) % 4];
                ip4("192.0.2.1", &format!("203.0.{net}.1"), 17, &upper)
            }
            _ => ip6(src, "2001:db8:9::1", 17, &upper),
        };
        if rare == 5 && to < 9 {
            packet[7] = flow as u8 % 3;
        }
        let mut frame = frame(&packet);
        if rare == 6 {
            frame.truncate(frame.len() - usize::from(flow) % 50);
        }
        if rare == 7 || rare == 8 {
            // Some byte of the headers.
            let [at, bits] = flow.to_be_bytes();
            let at = 12 + usize::from(at) % (frame.len().min(100) - 12);
            frame[at] ^= if rare == 7 { 1 << (bits & 7) } else { bits };
        }
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn as_one_after_the_other(
        frames in prop::collection::vec(drawn(), 0..=2 * VECTOR + 9),
        signed in prop::sample::select(vec![false, false, false, true]),
        seed in prop::sample::select(vec![SEED, SEED, SEED, 0]),
    ) {
        let (mut alone, mut together) = (router(signed), router(signed));
        alone.set_config(seed, 1);
        together.set_config(seed, 1);
        compare([&mut alone.engine, &mut together.engine], &frames)?;
    }
}

/// The packets above are worth something: they leave by each link and as frames.
#[test]
fn every_link_is_reached() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let frames = prop::collection::vec(drawn(), 4000);
    let frames = frames.new_tree(&mut TestRunner::deterministic());
    let (mut alone, mut together) = (router(false), router(false));
    let engines = [&mut alone.engine, &mut together.engine];
    let verdicts = compare(engines, &frames.unwrap().current()).unwrap();
    for reason in [Reason::Mtu, Reason::Unresolved, Reason::SameLink] {
        let of_reason = |verdict: &&Verdict| **verdict == Verdict::Kernel(reason);
        let found = verdicts.iter().filter(of_reason).count();
        assert!(found > 5, "{reason}: {found}");
    }
    let left = |verdict: &Verdict| match verdict {
        Verdict::Forward { adjacency, .. } => Some(*adjacency),
        _ => None,
    };
    let reached: std::collections::BTreeSet<_> = verdicts.iter().filter_map(left).collect();
    assert_eq!(reached.len(), 9, "{reached:?}");
}

#[test]
fn ranges_that_are_none_are_truncated() {
    let mut router = router(false);
    let mut buffers = vec![vec![0; 60]; 3];
    let mut verdicts = [Verdict::Drop(Reason::None); 3];
    let engine = &mut router.engine;
    engine.forward_all_in(&mut buffers, |_| 50..61, INGRESS, 0, &mut verdicts);
    assert_eq!(verdicts, [Verdict::Kernel(Reason::Truncated); 3]);
    let counted = engine.counters().reason(Reason::Truncated);
    assert_eq!((counted.packets, counted.bytes), (3, 0));
}

/// What is measured is forwarded, every frame of it, and the same one by one and together.
#[test]
fn scenarios_that_are_measured() {
    for name in ["End", "End.DX2", "H.Encaps", "none"] {
        let ((mut alone, frames), (mut together, _)) = (scenario(name), scenario(name));
        let verdicts = compare([&mut alone.engine, &mut together.engine], &frames).unwrap();
        assert_eq!(verdicts.len(), FRAMES, "{name}");
        for verdict in verdicts {
            assert!(
                matches!(verdict, Verdict::Forward { .. }),
                "{name}: {verdict:?}"
            );
        }
    }
}

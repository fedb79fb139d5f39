//! The hash that a driver gives with a packet, on veths: those compute one for packets with ports
//! that bring none.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_image::{BucketsHead, Group, How, Member, Memory, Reason};
use raddle_xdp::bench::{Bench, Program};
use raddle_xdp::{AttachedMode, Error, Mode, NoRxHash, offers_rx_hash};
use raddle_xdp_testing::frames::{IN_MAC, ipv4, udp4};
use raddle_xdp_testing::image::{adjacency, config, link, load, threshold};
use raddle_xdp_testing::net::{Wire, in_namespace, index_of, veth};
use raddle_xdp_testing::tables::Tables4;

const MEMBERS: u32 = 8;
const SRC: [u8; 4] = [10, 0, 0, 1];
/// By a hash-threshold group.
const DST: [u8; 4] = [192, 0, 2, 7];

/// A route from `in0` over as many adjacencies as [`MEMBERS`], all through `out0`; which one a frame
/// took, its destination's last byte tells. No seed is known.
fn fill(memory: &Memory) {
    memory.store_link(index_of("in0"), &link(index_of("in0"), IN_MAC, 5));
    let out = index_of("out0");
    for number in 0..MEMBERS {
        let mac = [2, 0, 0, 0, 1, number as u8];
        memory.store_adjacency(number, &adjacency(out, mac, [2, 0, 0, 0, 2, 2], 1500));
    }
    let members: Vec<(u32, u32)> = (0..MEMBERS).map(|n| (n, 1)).collect();
    memory.store_group(0, Group::Kernel(Reason::NoRoute));
    threshold(memory, 1, 0, &members);
    let route = (u32::from_be_bytes([192, 0, 2, 0]), 24, 1);
    Tables4::new(memory).table(0, 3, &[route]);
    memory.store_config(&config(0, 1, 1));
}

/// The members that flows with these source ports take; none for those that the kernel gets.
fn taken(src: &Wire, dst: &Wire) -> Vec<Option<u8>> {
    let ports = 1000..1024;
    let member = |port| {
        src.send(&udp4(SRC, DST, (port, 2000), 40));
        dst.receive().map(|frame| frame[5])
    };
    ports.map(member).collect()
}

#[test]
fn the_hash_of_a_packet_counts_where_it_is_read() {
    in_namespace("the_hash_of_a_packet_counts_where_it_is_read", || {
        veth("src0", "in0", 1500);
        veth("dst0", "out0", 1500);
        let mut engine = load();
        let (index, out) = (index_of("in0"), index_of("out0"));
        if !offers_rx_hash(index).unwrap() {
            eprintln!("skipped: the_hash_of_a_packet_counts_where_it_is_read needs Linux 6.8");
            return;
        }
        assert!(matches!(
            engine.set_rx_hash(index, true),
            Err(Error::NotAttached { .. })
        ));
        engine.set_out_link(out).unwrap();
        let memory = engine.memory();
        fill(&memory);
        let bench = Bench::load(1).unwrap();
        let _pass = bench
            .attach(Program::Pass, index_of("dst0"), AttachedMode::Native)
            .unwrap();
        let (src, dst) = (Wire::open("src0"), Wire::open("dst0"));

        engine.attach(index, Mode::Generic).unwrap();
        let refused = engine.set_rx_hash(index, true).unwrap_err().to_string();
        assert!(refused.contains("does not run in the driver"), "{refused}");
        engine.detach(index).unwrap();

        engine.attach(index, Mode::Native).unwrap();
        engine.set_rx_hash(index, false).unwrap();
        let few = |taken: &[Option<u8>]| taken.iter().flatten().count();
        src.send(&udp4(SRC, DST, (1, 2), 40));
        assert_eq!(dst.receive(), None, "no seed is known");

        match engine.set_rx_hash(index, true) {
            Err(Error::RxHash {
                why: why @ NoRxHash::Refused(_),
                ..
            }) => {
                eprintln!("skipped: needs a kernel that lets such programs redirect: {why}");
                return;
            }
            other => other.unwrap(),
        }
        engine.set_rx_hash(index, true).unwrap();
        assert!(engine.reads_rx_hash(index));
        let first = taken(&src, &dst);
        assert_eq!(few(&first), first.len(), "a brought hash needs no seed");
        let mut members: Vec<_> = first.iter().flatten().collect();
        members.sort_unstable();
        members.dedup();
        assert!(members.len() > 3, "24 flows over 8 members: {first:?}");
        assert_eq!(taken(&src, &dst), first, "a flow keeps to its member");
        // Without ports the hash is none over ports, and does not count.
        src.send(&ipv4(SRC, DST, 0, 47, &[0; 40]));
        assert_eq!(dst.receive(), None);
        // Nor with another policy.
        memory.store_config(&config(0, 0, 0));
        src.send(&udp4(SRC, DST, (1000, 2000), 40));
        assert_eq!(dst.receive(), None);
        assert!(engine.counters().reason(Reason::SeedUnknown).packets >= 3);

        // A resilient group hands one packet of each bucket to the kernel, then takes the same hash.
        memory.store_config(&config(0, 1, 1));
        let head = BucketsHead {
            reciprocal: ((1u64 << 32) / u64::from(MEMBERS)) as u32,
            interval: BucketsHead::LONGEST,
        };
        memory.store_member_word(16, head.to_word());
        for bucket in 0..MEMBERS {
            let member = Member {
                upper: 1,
                adjacency: bucket,
            };
            memory.store_member(17 + bucket, member);
        }
        let resilient = Group::Resilient {
            first: 16,
            count: MEMBERS as u16,
            how: How::default(),
        };
        memory.store_group(1, resilient);
        taken(&src, &dst);
        let buckets = taken(&src, &dst);
        assert_eq!(few(&buckets), buckets.len(), "{buckets:?}");

        // And back: no hash is read any more.
        threshold(
            &memory,
            1,
            0,
            &(0..MEMBERS).map(|n| (n, 1)).collect::<Vec<_>>(),
        );
        engine.set_rx_hash(index, false).unwrap();
        assert!(!engine.reads_rx_hash(index));
        src.send(&udp4(SRC, DST, (1000, 2000), 40));
        assert_eq!(dst.receive(), None);
        memory.store_config(&config(7, 1, 1));
        let by_seed = taken(&src, &dst);
        assert_eq!(few(&by_seed), by_seed.len());
        assert_ne!(by_seed, first);
    });
}

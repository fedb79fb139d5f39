//! What is planned for the common cases beside what is carried out: whatever is planned, it is the same.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use proptest::prelude::*;
use raddle_image::{
    Capacity, LINK_TABLE, Memory, Reason, Segment, flavours, segment_flags, segment_kind,
};
use raddle_packet::Family;
use raddle_srv6::{Demand, ETHERNET, Keys, Next, Packet, Plan, Settings, Undo, Usual, carry_out};

/// Room in front of a frame.
const ROOM: usize = 200;
/// Words of the template that is there: an outer header and an SRH of two segments.
const WORDS: usize = 10;
/// Where it stands, at the end of the templates.
const TEMPLATE: usize = 6;

fn memory() -> Memory {
    let memory = Memory::heap(&Capacity {
        templates: TEMPLATE + WORDS,
        ..Capacity::default()
    });
    let header = [
        [0x60, 0, 0, 0, 0, 0, 43, 33],
        [0xfc; 8],
        [1; 8],
        [0xfd; 8],
        [2; 8],
    ];
    let list = [[0, 4, 4, 1, 1, 0, 0, 0], [3; 8], [4; 8], [5; 8], [6; 8]];
    for (place, word) in (TEMPLATE as u32..).zip(header.into_iter().chain(list)) {
        memory.store_template_word(place, u64::from_le_bytes(word));
    }
    memory
}

fn segment() -> impl Strategy<Value = Segment> {
    let kind = prop::sample::select(vec![
        segment_kind::END,
        segment_kind::END_X,
        segment_kind::END_T,
        segment_kind::END_DX2,
        segment_kind::END_DX6,
        segment_kind::ENCAPS,
        segment_kind::KERNEL,
    ]);
    let flavours = prop::sample::select(vec![0, 0, flavours::PSP, flavours::USP]);
    let size = prop::sample::select(vec![80u16, 80, 80, 64, 40, 32, 42, 88]);
    let flags = [
        segment_flags::HAS_SRH,
        segment_flags::LABEL_FROM_INNER,
        segment_flags::LABEL_FROM_FLOW,
    ];
    let flags = prop::sample::subsequence(flags.to_vec(), 0..=2);
    (kind, flavours, size, flags, 0u32..2, 20u32..120).prop_map(
        |(kind, flavours, size, flags, out, mtu)| Segment {
            kind,
            flavours,
            flags: flags.into_iter().fold(0, |all, flag| all | flag),
            size,
            template: TEMPLATE as u32,
            out,
            mtu,
            table4: LINK_TABLE,
            table6: LINK_TABLE,
            salt: 99,
            target: [7; 16],
            ..Segment::default()
        },
    )
}

/// An IPv6 packet with an SRH, or with a frame at once; up to two bytes of its headers are others.
fn packet6() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((6usize..60, any::<u8>()), 0..3);
    let small = prop::collection::vec((40usize..48, 0u8..8), 0..2);
    (1u8..4, 0u8..5, any::<bool>(), 0usize..90, changes, small).prop_map(
        |(segments, left, has_srh, len, changes, small)| {
            let mut packet = vec![0x6a, 0xbc, 0xde, 0xf0, 0, 0, 143, 9];
            packet.extend([0xaa; 16]);
            packet.extend([0xbb; 16]);
            if has_srh {
                packet[6] = 43;
                packet.extend([143, 2 * segments, 4, left, segments - 1, 0, 0, 0]);
                packet.extend((0..16 * segments).map(|n| 0x10 + n));
            }
            packet.extend([9; 12]);
            packet.extend([8, 0]);
            packet.resize(packet.len() + len + 6, 0x33);
            // Versions and lengths have been checked before.
            for (at, byte) in changes.into_iter().chain(small) {
                packet[at] = byte;
            }
            packet
        },
    )
}

fn packet() -> impl Strategy<Value = (Family, Vec<u8>)> {
    let packet4 = (any::<u8>(), 20usize..60).prop_map(|(tos, len)| {
        let mut packet = vec![0x45, tos, 0, len as u8, 0, 0, 0, 0, 64, 17];
        packet.resize(len, 0x44);
        (Family::V4, packet)
    });
    prop_oneof![4 => packet6().prop_map(|packet| (Family::V6, packet)), 1 => packet4]
}

/// What a segment makes of a packet: where to, and the packet or frame as it is then.
type Made = (Next, Vec<u8>);

fn carried(
    (memory, segment, demand): (&Memory, &Segment, Demand),
    (family, l3): (Family, &[u8]),
    room: usize,
) -> Result<Made, Reason> {
    let mut buffer = vec![0; room + ETHERNET];
    buffer.extend(l3);
    let end = buffer.len();
    let mut undo = Undo::default();
    let of = (family, l3.len());
    let mut packet = Packet::new(&mut buffer, room..end, of, &mut undo).unwrap();
    let keys = Keys::default();
    let settings = Settings {
        memory,
        keys: &keys,
        demand,
        hash31: &|_, _| Ok(5),
    };
    let next = carry_out(&settings, segment, &mut packet)?;
    let made = match &next {
        Next::Frame(frame) => packet.bytes(frame.start..frame.start + frame.len).to_vec(),
        Next::Route(_) => packet.l3().to_vec(),
    };
    Ok((next, made))
}

fn planned(
    (memory, segment, demand): (&Memory, &Segment, Demand),
    (family, l3): (Family, &[u8]),
    room: usize,
) -> Option<(Plan, Vec<u8>)> {
    let usual = Usual::new(memory, segment, demand);
    let place = room + ETHERNET;
    let plan = usual.plan((family, l3), place)?;
    let mut l3 = l3.to_vec();
    let made = match &plan {
        Plan::Step(step) => {
            let came = l3.clone();
            let back = step.take(&mut l3);
            let made = l3.clone();
            back.take_back(&mut l3);
            assert_eq!(l3, came, "a step that is taken back");
            assert_eq!(made[24..40], step.dst().to_be_bytes());
            made
        }
        Plan::Frame(frame) => l3[frame.start - place..][..frame.len].to_vec(),
        Plan::Around(around) => {
            let mut made = vec![0xee; around.size()];
            around.write(memory, &mut made);
            made.extend(l3);
            assert_eq!(made.len(), around.len());
            assert_eq!(made[7], around.hop_limit());
            let (src, dst) = usual.outer_addresses().unwrap();
            let addresses = [src.to_be_bytes(), dst.to_be_bytes()].concat();
            assert_eq!(made[8..40], addresses);
            made
        }
    };
    Some((plan, made))
}

fn demand() -> impl Strategy<Value = Demand> {
    prop::sample::select(vec![
        Demand::IfPresent,
        Demand::IfPresent,
        Demand::Ignored,
        Demand::Required,
    ])
}

#[test]
fn what_is_planned_is_what_is_carried_out() {
    use proptest::test_runner::{Config, TestRunner};

    let memory = memory();
    let mut runner = TestRunner::new(Config {
        cases: 4000,
        failure_persistence: None,
        ..Config::default()
    });
    let kinds = std::cell::RefCell::new([0u32; 4]);
    let room = prop::sample::select(vec![ROOM, ROOM, ROOM, 79, 30]);
    let drawn = (segment(), demand(), packet(), room);
    let result = runner.run(&drawn, |(segment, demand, (family, l3), room)| {
        let of = (&memory, &segment, demand);
        let Some((plan, made)) = planned(of, (family, &l3), room) else {
            kinds.borrow_mut()[3] += 1;
            return Ok(());
        };
        let carried = carried(of, (family, &l3), room);
        let kind = match (&plan, &carried) {
            (Plan::Frame(frame), Ok((Next::Frame(left), _))) => {
                prop_assert_eq!(frame, left);
                0
            }
            (Plan::Step(_), Ok((Next::Route(_), _))) => 1,
            (Plan::Around(around), Ok((Next::Route(_), _))) => {
                prop_assert_eq!(around.salt, segment.salt);
                2
            }
            _ => return Err(TestCaseError::fail(format!("{plan:?} but {carried:?}"))),
        };
        kinds.borrow_mut()[kind] += 1;
        prop_assert_eq!(made, carried.unwrap().1);
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    let kinds = kinds.into_inner();
    assert!(kinds.iter().all(|count| *count > 40), "{kinds:?}");
}

/// Each byte of a plain SRH that matters does: with any other value nothing is planned, or what is carried out.
#[test]
fn every_byte_of_an_srh_is_looked_at() {
    let memory = memory();
    let segment = Segment {
        kind: segment_kind::END,
        table6: LINK_TABLE,
        ..Segment::default()
    };
    let mut l3 = vec![0x60, 0, 0, 0, 0, 48, 43, 64];
    l3.extend([0xaa; 32]);
    l3.extend([17, 4, 4, 1, 1, 0, 0, 0]);
    l3.extend([1; 32]);
    l3.extend([0; 8]);
    let of = (&memory, &segment, Demand::IfPresent);
    assert!(planned(of, (Family::V6, &l3), ROOM).is_some());
    for (at, value) in (40..48).flat_map(|at| (0..=255).map(move |value| (at, value))) {
        let mut l3 = l3.clone();
        l3[at] = value;
        if let Some((_, made)) = planned(of, (Family::V6, &l3), ROOM) {
            let carried = carried(of, (Family::V6, &l3), ROOM);
            assert_eq!(Ok(made), carried.map(|carried| carried.1), "{at}: {value}");
        }
    }
    for len in 40..l3.len() {
        let planned = planned(of, (Family::V6, &l3[..len]), ROOM);
        assert_eq!(planned.is_some(), len >= 80, "{len} bytes");
    }
}

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use raddle_image::flavours;

fn address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from_bits)
}

fn segments() -> impl Strategy<Value = Vec<Ipv6Addr>> {
    proptest::collection::vec(address(), 1..9)
}

fn behaviour() -> impl Strategy<Value = Behaviour> {
    let table = prop_oneof![
        any::<u32>().prop_map(TableRef::Table),
        any::<u32>().prop_map(TableRef::Vrf),
    ];
    let vlans = proptest::collection::btree_map(0..4095u16, any::<u32>(), 1..6);
    prop_oneof![
        Just(Behaviour::End),
        (address(), proptest::option::of(1..u32::MAX))
            .prop_map(|(nh6, oif)| Behaviour::X { nh6, oif }),
        any::<u32>().prop_map(|table| Behaviour::T { table }),
        any::<u32>().prop_map(|oif| Behaviour::Dx2 { oif }),
        vlans.prop_map(|vlans| Behaviour::Dx2v {
            vlans: vlans.into_iter().collect()
        }),
        address().prop_map(|nh6| Behaviour::Dx6 { nh6 }),
        any::<u32>().prop_map(|nh4| Behaviour::Dx4 {
            nh4: Ipv4Addr::from_bits(nh4)
        }),
        table.clone().prop_map(|table| Behaviour::Dt6 { table }),
        table.clone().prop_map(|table| Behaviour::Dt4 { table }),
        table.prop_map(|table| Behaviour::Dt46 { table }),
        segments().prop_map(|segments| Behaviour::b6(&segments).unwrap()),
        (segments(), any::<bool>())
            .prop_map(|(segments, reduced)| Behaviour::b6_encaps(&segments, reduced).unwrap()),
        Just(Behaviour::Other(15)),
    ]
}

fn sid() -> impl Strategy<Value = Sid> {
    let lengths = prop_oneof![Just((32, 16)), Just((48, 32)), Just((8, 120))];
    (behaviour(), any::<bool>(), 0..32u8, lengths).prop_map(
        |(behaviour, counters, flavours, (block, csid))| {
            let flavours = flavours << 1;
            let compressed = flavours & (flavours::NEXT_CSID | flavours::REPLACE_CSID) != 0;
            Sid {
                behaviour,
                flavours,
                block: if compressed { block } else { 0 },
                csid: if compressed { csid } else { 0 },
                counters,
            }
        },
    )
}

fn encaps() -> impl Strategy<Value = Encaps> {
    (0..5usize, segments(), any::<Option<u128>>()).prop_map(|(mode, segments, source)| {
        let mut encaps = Encaps::new(Mode::ALL[mode], &segments).unwrap();
        encaps.source = source.filter(|a| *a != 0).map(Ipv6Addr::from_bits);
        encaps
    })
}

fn any_seg6() -> impl Strategy<Value = Seg6> {
    prop_oneof![sid().prop_map(Seg6::Sid), encaps().prop_map(Seg6::Encaps)]
}

proptest! {
    #[test]
    fn what_is_written_is_read(seg6 in any_seg6()) {
        prop_assert_eq!(Seg6::parse(&seg6.encode()), Ok(seg6));
    }

    #[test]
    fn damage_is_an_error_or_something_else(
        seg6 in any_seg6(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut encap = seg6.encode();
        let at = at.index(encap.data.len());
        encap.data[at] = byte;
        forget_counters(&mut encap);
        let _ = Seg6::parse(&encap).map(|seg6| seg6.encode());
        encap.data.truncate(cut.index(encap.data.len()));
        let _ = Seg6::parse(&encap);
    }

    #[test]
    fn any_bytes_are_read(kind in 5..8u16, data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut encap = Encap { kind, data };
        forget_counters(&mut encap);
        let _ = Seg6::parse(&encap);
    }
}

#[test]
fn counters_are_forgotten_and_nothing_else() {
    let sid = Sid::new(Behaviour::Dx2 { oif: 9 });
    let fresh = Seg6::Sid(sid).encode();
    let mut told = fresh.clone();
    // The last three attributes are the counters: header of 4, value of 8 bytes.
    let end = told.data.len();
    for from in [end - 8, end - 20, end - 32] {
        told.data[from..from + 8].fill(0x55);
    }
    assert_ne!(told, fresh);
    forget_counters(&mut told);
    assert_eq!(told, fresh);
}

#[test]
fn segments_come_in_the_order_of_travel() {
    let list: Vec<Ipv6Addr> = ["fc00:1::", "fc00:2::"].map(|a| a.parse().unwrap()).into();
    let encaps = Encaps::new(Mode::Encap, &list).unwrap();
    assert_eq!(encaps.segments(), list);
    assert_eq!(encaps.srh()[..8], [0, 4, 4, 1, 1, 0, 0, 0]);
    assert_eq!(encaps.srh()[8..24], list[1].octets());
    let inline = Encaps::new(Mode::Inline, &list).unwrap();
    assert_eq!(inline.srh()[..8], [0, 6, 4, 2, 2, 0, 0, 0]);
    assert_eq!(inline.segments()[2], Ipv6Addr::UNSPECIFIED);
    assert!(Encaps::new(Mode::Encap, &[]).is_err());
    assert!(Encaps::new(Mode::Encap, &vec![list[0]; 127]).is_ok());
    assert!(Encaps::new(Mode::Encap, &vec![list[0]; 128]).is_err());
    assert!(Encaps::new(Mode::Inline, &vec![list[0]; 127]).is_err());
}

#[test]
fn lengths_of_compressed_sids_are_the_kernels() {
    let sid = |block, csid| Sid {
        flavours: flavours::NEXT_CSID,
        block,
        csid,
        ..Sid::new(Behaviour::End)
    };
    for (block, csid, good) in [
        (32, 16, true),
        (8, 120, true),
        (40, 24, true),
        (36, 16, false),
        (120, 16, false),
        (32, 0, false),
    ] {
        let read = Seg6::parse(&Seg6::Sid(sid(block, csid)).encode());
        assert_eq!(read.is_ok(), good, "{block} {csid}: {read:?}");
    }
}

#[test]
fn flavours_that_the_kernel_heeds() {
    let both = flavours::PSP | flavours::NEXT_CSID;
    let heeded = |behaviour, flavours| {
        let mut sid = Sid::new(behaviour);
        sid.flavours = flavours;
        sid.kernel_flavours()
    };
    assert_eq!(heeded(Behaviour::End, flavours::PSP), flavours::PSP);
    assert_eq!(heeded(Behaviour::End, both), flavours::NEXT_CSID);
    assert_eq!(heeded(Behaviour::T { table: 9 }, flavours::PSP), 0);
}

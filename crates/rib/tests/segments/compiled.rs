//! What a behaviour, a segment list or a setting is compiled to.

use std::net::Ipv6Addr;

use raddle_image::{Group, LINK_TABLE, Reason, flavours, link_flags, segment_flags, segment_kind};
use raddle_rib::Rib;
use raddle_rib::event::{DeviceSettings, Event, HmacAlgorithm, HmacKey, Settings};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid};

use crate::world::{
    CAPACITY, add, encaps, group, ip, local_address, number, segment, settings, sid, single, start,
    template,
};

#[test]
fn behaviours_become_segments() {
    let mut rib = start(&CAPACITY);
    let mut end = Sid::new(Behaviour::End);
    end.flavours = flavours::NEXT_CSID | flavours::PSP;
    (end.block, end.csid) = (40, 24);
    add(&mut rib, single("fc00::1/128", Seg6::Sid(end)));
    let x = Behaviour::X {
        nh6: ip("fd01:3::9"),
        oif: None,
    };
    add(&mut rib, sid("fc00::2/128", x));
    add(&mut rib, sid("fc00::3/128", Behaviour::Dx2 { oif: 3 }));
    let dx4 = Behaviour::Dx4 {
        nh4: "10.0.0.9".parse().unwrap(),
    };
    let mut quiet = Sid::new(dx4);
    quiet.counters = false;
    add(&mut rib, single("fc00::4/128", Seg6::Sid(quiet)));

    let end = segment(&rib, "fc00::1");
    assert_eq!(end.kind, segment_kind::END);
    // PSP is not heeded beside it.
    assert_eq!(end.flavours, flavours::NEXT_CSID);
    assert_eq!((end.block, end.csid), (5, 3));
    assert_eq!(end.flags, segment_flags::HAS_COUNTERS);
    assert_eq!((end.table4, end.table6), (LINK_TABLE, LINK_TABLE));
    let x = segment(&rib, "fc00::2");
    assert_eq!(
        (x.kind, x.target),
        (segment_kind::END_X, ip("fd01:3::9").octets())
    );
    let dx2 = segment(&rib, "fc00::3");
    assert_eq!(
        (dx2.kind, dx2.out, dx2.mtu),
        (segment_kind::END_DX2, 3, 1500)
    );
    let dx4 = segment(&rib, "fc00::4");
    assert_eq!((dx4.kind, dx4.flags), (segment_kind::END_DX4, 0));
    assert_eq!(dx4.target[..5], [10, 0, 0, 9, 0]);
    for (dst, behaviour) in [
        ("fc00::5", Behaviour::Other(15)),
        (
            "fc00::6",
            Behaviour::X {
                nh6: ip("fe80::1"),
                oif: Some(3),
            },
        ),
    ] {
        add(&mut rib, sid(&format!("{dst}/128"), behaviour));
        assert_eq!(group(&rib, dst), Group::Kernel(Reason::Encap));
    }
}

#[test]
fn an_encapsulation_has_its_header() {
    let mut rib = start(&CAPACITY);
    let list = ["fc00:1::", "fc00:2::"];
    let modes = [
        (Mode::Encap, segment_kind::ENCAPS, 40 + 8 + 32),
        (Mode::EncapRed, segment_kind::ENCAPS, 40 + 8 + 16),
        (Mode::L2Encap, segment_kind::ENCAPS_L2, 40 + 8 + 32),
        (Mode::L2EncapRed, segment_kind::ENCAPS_L2, 40 + 8 + 16),
        (Mode::Inline, segment_kind::INSERT, 8 + 48),
    ];
    for (mode, kind, size) in modes {
        add(&mut rib, encaps("fd99::/64", mode, &list));
        let segment = segment(&rib, "fd99::1");
        assert_eq!(
            (segment.kind, usize::from(segment.size)),
            (kind, size),
            "{mode}"
        );
        assert_ne!(segment.salt, 0);
        let bytes = template(&rib, &segment);
        let srh = match mode {
            Mode::Inline => &bytes[..],
            _ => {
                assert_eq!(bytes[..8], [0x60, 0, 0, 0, 0, 0, 43, 64]);
                // Of link 2, by which the route goes.
                assert_eq!(bytes[8..24], ip("fd01:2::1").octets());
                assert_eq!(bytes[24..40], ip("fc00:1::").octets());
                &bytes[40..]
            }
        };
        let reduced = mode.is_reduced();
        assert_eq!(segment.flags & segment_flags::REDUCED != 0, reduced);
        let last = match mode {
            Mode::Inline => 2,
            _ => 1,
        };
        let length = (srh.len() / 8 - 1) as u8;
        let entries = last - u8::from(reduced);
        assert_eq!(srh[..8], [0, length, 4, last, entries, 0, 0, 0], "{mode}");
        rib.apply(Event::RouteGone(encaps("fd99::/64", mode, &list)));
    }
    add(&mut rib, encaps("fd99::/64", Mode::EncapRed, &list[..1]));
    let one = segment(&rib, "fd99::1");
    assert_eq!((one.size, one.flags & segment_flags::HAS_SRH), (40, 0));
    assert_eq!(template(&rib, &one)[6], 0);
}

#[test]
fn the_source_follows_settings_and_addresses() {
    let mut rib = start(&CAPACITY);
    add(&mut rib, encaps("fd99::/64", Mode::Encap, &["fc00:9::"]));
    let first = number(&rib, "fd99::1");
    let source = |rib: &Rib| {
        let bytes = template(rib, &segment(rib, "fd99::1"));
        Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[8..24]).unwrap())
    };
    assert_eq!(source(&rib), ip("fd01:2::1"));
    rib.apply(Event::Settings(Settings {
        tunsrc: Some(ip("fd07::7")),
        seg6_flowlabel: 1,
        ..settings()
    }));
    rib.commit();
    assert_eq!(source(&rib), ip("fd07::7"));
    let flags = segment(&rib, "fd99::1").flags;
    assert_ne!(flags & segment_flags::LABEL_FROM_FLOW, 0);
    rib.apply(Event::Settings(settings()));
    rib.apply(local_address(2, "fd01:2::2"));
    rib.commit();
    // The link's latest.
    assert_eq!(source(&rib), ip("fd01:2::2"));
    assert_eq!(number(&rib, "fd99::1"), first);
    for index in 1..=4 {
        for last in 1..=2 {
            let text = format!("fd01:{index}::{last}");
            let Event::Address(address) = local_address(index, &text) else {
                unreachable!()
            };
            rib.apply(Event::AddressGone(address));
        }
    }
    rib.commit();
    let none = segment(&rib, "fd99::1");
    assert_eq!(
        (none.kind, none.reason),
        (segment_kind::KERNEL, Reason::Encap as u8)
    );
}

#[test]
fn hmacs_are_in_the_template_when_the_key_is_known() {
    let mut rib = start(&CAPACITY);
    let mut srh = Encaps::new(Mode::Encap, &[ip("fc00:1::"), ip("fc00:2::")])
        .unwrap()
        .srh()
        .to_vec();
    (srh[1], srh[5]) = (srh[1] + 5, 8);
    srh.extend([5, 38, 0, 0, 0, 0, 0, 42]);
    srh.extend([0; 32]);
    let what = |mode| Seg6::Encaps(Encaps::with_srh(mode, srh.clone()).unwrap());
    add(&mut rib, single("fd99::/64", what(Mode::Encap)));
    add(&mut rib, single("fd98::/64", what(Mode::EncapRed)));
    add(&mut rib, single("fd97::/64", what(Mode::Inline)));
    let kind = |rib: &Rib, dst| segment(rib, dst).kind;
    assert_eq!(kind(&rib, "fd99::1"), segment_kind::KERNEL);
    let key = |id, secret: &[u8]| HmacKey {
        id,
        algorithm: HmacAlgorithm::Sha256,
        secret: secret.to_vec(),
    };
    rib.apply(Event::HmacKeys(vec![key(41, b"a"), key(42, b"b")]));
    rib.commit();
    let field = |rib: &Rib, dst| {
        let segment = segment(rib, dst);
        assert_eq!(segment.kind, segment_kind::ENCAPS);
        let bytes = template(rib, &segment);
        bytes[bytes.len() - 32..].to_vec()
    };
    let first = field(&rib, "fd99::1");
    assert_ne!(first, [0; 32]);
    // Another list, another HMAC.
    assert_ne!(field(&rib, "fd98::1"), first);
    // INSERT covers what is not known yet.
    assert_eq!(kind(&rib, "fd97::1"), segment_kind::KERNEL);
    rib.apply(Event::HmacKeys(vec![key(42, b"c")]));
    rib.commit();
    assert_ne!(field(&rib, "fd99::1"), first);
    assert_eq!(rib.hmac_keys().len(), 1);
    assert!(!format!("{:?}", rib.hmac_keys()).contains("99"));
    rib.apply(Event::HmacKeys(Vec::new()));
    rib.commit();
    assert_eq!(kind(&rib, "fd99::1"), segment_kind::KERNEL);
}

#[test]
fn links_say_how_hmacs_are_taken() {
    let mut rib = start(&CAPACITY);
    let mut flags = |seg6_require_hmac| {
        let settings = DeviceSettings {
            seg6_require_hmac,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(1, settings));
        rib.commit();
        rib.memory().link(1).flags & (link_flags::HMAC_REQUIRED | link_flags::HMAC_IGNORED)
    };
    assert_eq!(flags(1), link_flags::HMAC_REQUIRED);
    assert_eq!(flags(-1), link_flags::HMAC_IGNORED);
    assert_eq!(flags(0), 0);
}

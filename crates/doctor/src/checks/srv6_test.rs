//! Each check of SRv6 finds what is wrong, and nothing where it is right.

use std::net::Ipv6Addr;

use raddle_rib::seg6::{Behaviour, Sid};

use super::super::made_up::*;
use super::*;

fn segments(list: &str) -> Vec<Ipv6Addr> {
    list.split(',').map(|s| s.parse().unwrap()).collect()
}

/// Two SIDs that count, on eth1, and a segment list with one path, by eth2.
fn sane() -> Facts {
    let mut facts = healthy();
    for (dst, behaviour) in [
        ("fc00:1::1/128", Behaviour::End),
        (
            "fc00:1::4/128",
            Behaviour::Dx4 {
                nh4: "10.0.3.2".parse().unwrap(),
            },
        ),
    ] {
        facts.srv6.sids.push(LocalSid {
            table: 254,
            dst: dst.parse().unwrap(),
            link: 1,
            sid: Sid::new(behaviour),
            nh4_connected: false,
            own: false,
        });
    }
    facts.srv6.lists.push(List {
        table: 254,
        dst: "2001:db8:7::/48".parse().unwrap(),
        routes: 2,
        link: 2,
        mode: Mode::Encap,
        segments: segments("fc00:2::1,fc00:3::1"),
        hmac_key: None,
        overhead: 80,
        outs: vec![2],
        several: false,
        own: false,
    });
    facts.links.get_mut(&2).unwrap().mtu = 1580;
    facts.srv6.enabled_all = Some(false);
    facts.srv6.hmac_keys = Some(Vec::new());
    facts.srv6.tunsrc = Some("2001:db8::1".parse().unwrap());
    for index in 1..=3 {
        facts.srv6.enabled.insert(index, false);
        facts.srv6.require_hmac.insert(index, 0);
    }
    facts
}

fn address(facts: &mut Facts, index: u32, local: &str, prefix_len: u8) {
    facts.addresses.push(raddle_rib::event::Address {
        flags: 0x80,
        ..raddle_rib::event::Address::new(index, local.parse().unwrap(), prefix_len)
    });
}

#[test]
fn what_is_sane_is_found_to_be() {
    for check in CHECKS {
        assert_clean(check.id, &sane());
    }
}

/// The kernel's ways are not those of what it does not have.
#[test]
fn what_is_raddles_own_is_looked_at_as_such() {
    let mut facts = sane();
    for sid in &mut facts.srv6.sids {
        (sid.own, sid.nh4_connected) = (true, true);
        sid.sid.counters = false;
    }
    facts.srv6.lists[0].several = true;
    facts.srv6.lists[0].own = true;
    for check in CHECKS {
        assert_clean(check.id, &facts);
    }
    facts
        .srv6
        .not_ready
        .push("fc00:1::1 End.DT46: image-full".to_owned());
    let said = [
        "cannot be carried out",
        "fc00:1::1 End.DT46: image-full",
        "raise sids",
    ];
    assert_found("srv6-static", &facts, Severity::Serious, &said);
}

#[test]
fn several_paths_to_the_first_segment_are_told() {
    let mut facts = sane();
    facts.srv6.lists[0].several = true;
    facts.srv6.lists[0].outs = vec![2, 3];
    let said = [
        "1 segment list with several",
        "2001:db8:7::/48 and 1 more encap segs fc00:2::1,fc00:3::1",
        "eth2, eth3",
        "raddle run",
    ];
    assert_found("srv6-one-link", &facts, Severity::Warning, &said);
}

#[test]
fn a_connected_nh4_is_serious() {
    let mut facts = sane();
    facts.srv6.sids[1].nh4_connected = true;
    address(&mut facts, 3, "10.0.3.1", 24);
    let said = [
        "fc00:1::4/128 End.DX4 nh4 10.0.3.2",
        "ip route replace 10.0.3.2/32 via 10.0.3.2 dev eth3 onlink",
    ];
    assert_found("srv6-dx4-connected", &facts, Severity::Serious, &said);
}

#[test]
fn sids_want_forwarding() {
    let mut facts = sane();
    facts.devices.get_mut(&1).unwrap().forwarding6 = false;
    let said = ["2 SIDs", "fc00:1::1/128 End dev eth1"];
    assert_found("srv6-forwarding-off", &facts, Severity::Serious, &said);
}

#[test]
fn compressed_sids_have_the_prefix_of_block_and_csid() {
    let mut facts = sane();
    facts.srv6.sids.truncate(1);
    let sid = &mut facts.srv6.sids[0];
    sid.sid.flavours = flavours::NEXT_CSID;
    (sid.sid.block, sid.sid.csid) = (32, 16);
    for (prefix, severity) in [
        ("fc00:1:2::/48", None),
        ("fc00:1:2::/64", Some(Severity::Serious)),
        ("fc00:1::/32", Some(Severity::Warning)),
    ] {
        facts.srv6.sids[0].dst = prefix.parse().unwrap();
        match severity {
            None => assert_clean("srv6-csid-block", &facts),
            Some(severity) => {
                let said = [prefix, "lblen 32 nflen 16"];
                assert_found("srv6-csid-block", &facts, severity, &said);
            }
        }
    }
}

#[test]
fn a_link_alone_does_not_enable_seg6() {
    let mut facts = sane();
    facts.srv6.enabled.insert(2, true);
    let said = ["conf.all.seg6_enabled is 0", "conf.eth2.seg6_enabled is 1"];
    assert_found("srv6-enabled-off", &facts, Severity::Warning, &said);
    facts.srv6.enabled_all = Some(true);
    assert_clean("srv6-enabled-off", &facts);
    let mut facts = sane();
    address(&mut facts, 1, "fc00:3::1", 128);
    let said = ["fc00:3::1 is an address of this machine"];
    assert_found("srv6-enabled-off", &facts, Severity::Warning, &said);
}

#[test]
fn keys_are_missed() {
    let mut facts = sane();
    facts.srv6.lists[0].hmac_key = Some(0x2a);
    let said = ["hmac 0x2a", "ip sr hmac set"];
    assert_found("srv6-hmac", &facts, Severity::Serious, &said);
    facts.srv6.hmac_keys = Some(vec![0x2a]);
    assert_clean("srv6-hmac", &facts);
    facts.srv6.require_hmac.insert(3, -1);
    assert_found("srv6-hmac", &facts, Severity::Note, &["ignored on eth3"]);
    let mut facts = sane();
    facts.srv6.require_hmac.insert(1, 1);
    let said = ["eth1 wants", "net.ipv6.conf.eth1.seg6_require_hmac=0"];
    assert_found("srv6-hmac", &facts, Severity::Serious, &said);
    facts.srv6.hmac_keys = None;
    assert_clean("srv6-hmac", &facts);
}

#[test]
fn the_outer_source_wants_one_address() {
    let mut facts = sane();
    facts.srv6.tunsrc = Some(Ipv6Addr::UNSPECIFIED);
    let id = "srv6-source";
    assert_found(id, &facts, Severity::Warning, &["eth2 has no address"]);
    address(&mut facts, 2, "2001:db8:2::1", 64);
    assert_clean(id, &facts);
    address(&mut facts, 2, "2001:db8:2::9", 64);
    let said = ["2001:db8:2::9", "ip sr tunsrc set 2001:db8:2::1"];
    assert_found(id, &facts, Severity::Warning, &said);
    facts.srv6.lists[0].mode = Mode::Inline;
    assert_clean(id, &facts);
}

#[test]
fn lists_need_room() {
    let mut facts = sane();
    facts.links.get_mut(&2).unwrap().mtu = 1500;
    let said = [
        "packets of 1500 bytes",
        "80 bytes more, 1420 are left of the 1500 of eth2",
    ];
    assert_found("srv6-mtu", &facts, Severity::Note, &said);
    facts.srv6.lists[0].overhead = 264;
    assert_found("srv6-mtu", &facts, Severity::Serious, &["1236 are left"]);
}

#[test]
fn sids_without_counters_are_noted() {
    let mut facts = sane();
    facts.srv6.sids[0].sid.counters = false;
    assert_found(
        "srv6-uncounted",
        &facts,
        Severity::Note,
        &["fc00:1::1/128 End"],
    );
}

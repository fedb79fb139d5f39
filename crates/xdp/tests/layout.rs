//! `bpf/image.h` against the Rust types that it describes, and the reasons by number.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use raddle_forward::Count;
use raddle_rib::Reason;
use raddle_rib::image::{
    self, Adjacency, Config, LinkEntry, Segment, config_flags, flavours, group_kind, link_flags,
    segment_counter, segment_flags, segment_kind, wanted_kind,
};

/// Compiles a C file that includes the header and holds these conditions.
fn compile(conditions: &[String]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut source = String::from("#include <stddef.h>\n#include \"image.h\"\n");
    for condition in conditions {
        writeln!(source, "_Static_assert({condition}, \"\");").unwrap();
    }
    let file = folder.path().join("layout.c");
    std::fs::write(&file, source).unwrap();
    let output = Command::new(env!("RADDLE_BPF_CLANG"))
        .args(["-target", "bpf", "-fsyntax-only", "-Wall", "-Werror"])
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ))
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/bpf"))
        .arg(&file)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Size of a struct and the offset of each member that is named.
macro_rules! same {
    ($out:expr, $rust:ty, $c:literal, $($member:ident),+) => {
        $out.push(format!("sizeof(struct {}) == {}", $c, size_of::<$rust>()));
        offsets!($out, $rust, $c, $($member),+);
    };
}

/// The offset of each member that is named.
macro_rules! offsets {
    ($out:expr, $rust:ty, $c:literal, $($member:ident),+) => {
        $($out.push(format!(
            "offsetof(struct {}, {}) == {}",
            $c,
            stringify!($member),
            offset_of!($rust, $member)
        ));)+
    };
}

#[test]
fn structs() {
    let mut c = Vec::new();
    same!(
        c, Config, "config", magic, flags, seed, policy4, policy6, fields4, fields6, pad, deadline,
        sip_key, sip_mid
    );
    same!(
        c,
        LinkEntry,
        "link_entry",
        flags,
        slot,
        mac,
        pad,
        mtu,
        table4,
        table6,
        sources4,
        rest
    );
    same!(
        c,
        Adjacency,
        "adjacency",
        index,
        state,
        reason,
        pad,
        dst_mac,
        src_mac,
        mtu,
        rest
    );
    offsets!(
        c, Segment, "segment", kind, reason, flavours, flags, block, csid, size
    );
    for (one, other) in [("out", "mtu"), ("template", "vlans"), ("table4", "table6")] {
        c.push(format!("offsetof(struct segment, {one}) == 8"));
        c.push(format!("offsetof(struct segment, {other}) == 12"));
    }
    c.push(format!("sizeof(struct segment) == {}", image::SEGMENT_HEAD));
    c.push(format!(
        "sizeof(struct segment_target) == {}",
        image::SEGMENT_TARGET
    ));
    same!(c, Count, "counter", packets, bytes);
    c.push(format!(
        "sizeof(struct segment_failures) == {}",
        8 * image::SEGMENT_FAILURES
    ));
    // A segment's first counters.
    let places = [segment_counter::PACKETS, segment_counter::BYTES];
    let offsets = [offset_of!(Count, packets), offset_of!(Count, bytes)];
    assert_eq!(places.map(|place| place * 8), offsets);
    assert_eq!(segment_counter::FAILED * 8, size_of::<Count>());
    compile(&c).unwrap();
}

#[test]
fn constants() {
    let same = [
        ("IMAGE_MAGIC", image::MAGIC),
        ("MAX_LINKS", image::MAX_LINKS as u64),
        ("MAX_TABLES", image::MAX_TABLES as u64),
        ("OWN_BITS", image::OWN_BITS as u64),
        ("REASON_DROPPED", image::REASON_DROPPED as u64),
        ("REASON_COUNTERS", image::REASON_COUNTERS as u64),
        ("LINK_COUNTERS", image::LINK_COUNTERS as u64),
        ("ADJACENCY_COUNTERS", image::ADJACENCY_COUNTERS as u64),
        ("CONFIG_HOLD", config_flags::HOLD.into()),
        ("CONFIG_SEED_KNOWN", config_flags::SEED_KNOWN.into()),
        ("LINK_ENABLED", link_flags::ENABLED.into()),
        ("LINK_FORWARD4", link_flags::FORWARD4.into()),
        ("LINK_FORWARD6", link_flags::FORWARD6.into()),
        ("LINK_RP_FILTER", link_flags::RP_FILTER.into()),
        ("LINK_RULES4", link_flags::RULES4.into()),
        ("LINK_RULES6", link_flags::RULES6.into()),
        ("LINK_ACCEPT_LOCAL", link_flags::ACCEPT_LOCAL.into()),
        ("LINK_HMAC_REQUIRED", link_flags::HMAC_REQUIRED.into()),
        ("LINK_HMAC_IGNORED", link_flags::HMAC_IGNORED.into()),
        ("ADJ_KERNEL", image::ADJ_KERNEL.into()),
        ("ADJ_FORWARD", image::ADJ_FORWARD.into()),
        ("GROUP_KERNEL", group_kind::KERNEL.into()),
        ("GROUP_SINGLE", group_kind::SINGLE.into()),
        ("GROUP_THRESHOLD", group_kind::THRESHOLD.into()),
        ("GROUP_RESILIENT", group_kind::RESILIENT.into()),
        ("GROUP_PER_PACKET", group_kind::PER_PACKET.into()),
        ("GROUP_FLOWLET", group_kind::FLOWLET.into()),
        ("GROUP_SEGMENT", group_kind::SEGMENT.into()),
        ("ADJ_SEGMENT", image::ADJ_SEGMENT.into()),
        ("SEGMENT_KERNEL", segment_kind::KERNEL.into()),
        ("SEGMENT_END", segment_kind::END.into()),
        ("SEGMENT_END_X", segment_kind::END_X.into()),
        ("SEGMENT_END_T", segment_kind::END_T.into()),
        ("SEGMENT_END_DX2", segment_kind::END_DX2.into()),
        ("SEGMENT_END_DX6", segment_kind::END_DX6.into()),
        ("SEGMENT_END_DX4", segment_kind::END_DX4.into()),
        ("SEGMENT_END_DT6", segment_kind::END_DT6.into()),
        ("SEGMENT_END_DT4", segment_kind::END_DT4.into()),
        ("SEGMENT_END_B6", segment_kind::END_B6.into()),
        ("SEGMENT_END_B6_ENCAPS", segment_kind::END_B6_ENCAPS.into()),
        ("SEGMENT_END_DT46", segment_kind::END_DT46.into()),
        ("SEGMENT_END_DX2V", segment_kind::END_DX2V.into()),
        ("SEGMENT_INSERT", segment_kind::INSERT.into()),
        ("SEGMENT_ENCAPS", segment_kind::ENCAPS.into()),
        ("SEGMENT_ENCAPS_L2", segment_kind::ENCAPS_L2.into()),
        ("FLAVOUR_PSP", flavours::PSP.into()),
        ("FLAVOUR_USP", flavours::USP.into()),
        ("FLAVOUR_USD", flavours::USD.into()),
        ("FLAVOUR_NEXT_CSID", flavours::NEXT_CSID.into()),
        ("FLAVOUR_REPLACE_CSID", flavours::REPLACE_CSID.into()),
        ("SEGMENT_HAS_COUNTERS", segment_flags::COUNTERS.into()),
        ("SEGMENT_OWN", segment_flags::OWN.into()),
        ("SEGMENT_REDUCED", segment_flags::REDUCED.into()),
        ("SEGMENT_HAS_SRH", segment_flags::HAS_SRH.into()),
        ("SEGMENT_DIRECT_NH4", segment_flags::DIRECT_NH4.into()),
        (
            "SEGMENT_LABEL_FROM_FLOW",
            segment_flags::LABEL_FROM_FLOW.into(),
        ),
        (
            "SEGMENT_LABEL_FROM_INNER",
            segment_flags::LABEL_FROM_INNER.into(),
        ),
        ("LINK_TABLE", image::LINK_TABLE.into()),
        ("SEGMENT_FAILED", segment_counter::FAILED as u64),
        ("SEGMENT_FAILURES", image::SEGMENT_FAILURES as u64),
        ("GROUP_OWN", image::GROUP_OWN),
        ("SEGMENT_VALUE", image::SEGMENT_VALUE.into()),
        ("WANTED", image::WANTED as u64),
        ("WANTED_HOST6", wanted_kind::HOST6.into()),
        ("WANTED_HOST4", wanted_kind::HOST4.into()),
        ("WANTED_ADJACENCY", wanted_kind::ADJACENCY.into()),
        ("HOW_FOLLOWS", image::How::FOLLOWS.into()),
        ("TURN_SLOTS", image::TURN_SLOTS as u64),
        ("FLOWLETS", image::FLOWLETS as u64),
    ];
    let conditions: Vec<String> = same
        .iter()
        .map(|(name, value)| format!("{name} == {value}ULL"))
        .collect();
    compile(&conditions).unwrap();
}

#[test]
fn reasons() {
    let name = |reason: Reason| reason.name().to_uppercase().replace('-', "_");
    let mut conditions: Vec<String> = Reason::ALL
        .iter()
        .map(|&reason| format!("REASON_{} == {}", name(reason), reason as u8))
        .collect();
    conditions.push(format!("REASON_COUNT == {}", Reason::ALL.len()));
    compile(&conditions).unwrap();
}

#[test]
fn differences_are_found() {
    let wrong = format!("sizeof(struct config) == {}", size_of::<Config>() + 8);
    assert!(compile(&[wrong]).is_err());
}

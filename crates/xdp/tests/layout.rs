//! What a C compiler makes of `bpf/image.h`, which is made from the Rust types, against these types.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use raddle_forward::Count;
use raddle_image as image;
use raddle_image::{
    Adjacency, Config, LinkEntry, Range4, Range6, Ranges, Segment, Selector, Tunnel,
    segment_counter,
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
        sip_key, sip_mid, label_key, port_key
    );
    same!(
        c,
        LinkEntry,
        "link_entry",
        flags,
        slot,
        mac,
        pad,
        index,
        table4,
        table6,
        sources4,
        back4,
        way,
        closed4,
        closed6,
        ranges4,
        ranges6,
        rules4,
        rules6
    );
    same!(c, Range4, "range4", src, src_span, dst, dst_span);
    same!(c, Range6, "range6", src, src_last, dst, dst_last);
    same!(c, Selector, "selector", fields, sport, dport, to);
    same!(
        c, Ranges, "ranges", v4, v6, rules4, rules6, selectors4, selectors6
    );
    same!(
        c,
        Adjacency,
        "adjacency",
        index,
        state,
        reason,
        tags,
        dst_mac,
        src_mac,
        mtu,
        lower,
        tag,
        tunnel
    );
    same!(
        c, Tunnel, "tunnel", src, dst, key, kind, flags, ttl, tos, port, sport, sports, pad, salt
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
fn differences_are_found() {
    let wrong = format!("sizeof(struct config) == {}", size_of::<Config>() + 8);
    assert!(compile(&[wrong]).is_err());
}

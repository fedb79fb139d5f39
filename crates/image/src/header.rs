//! The C header of the image, made from the Rust types.

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};

use raddle_select::BondPolicy;

use crate::*;

/// A type that C has, too.
trait C {
    /// Its declaration under this name.
    fn declare(name: &str) -> String;
}

macro_rules! integers {
    ($($rust:ty = $c:literal),*) => {
        $(impl C for $rust {
            fn declare(name: &str) -> String {
                format!("{} {name}", $c)
            }
        })*
    };
}
integers!(u8 = "__u8", u16 = "__u16", u32 = "__u32", u64 = "__u64");

/// Of which those of an adjacency with tags are a [`Bonded`].
impl C for Tunnel {
    fn declare(name: &str) -> String {
        format!(
            "union {{\n\t\tstruct tunnel {name};\t/* ADJ_TUNNEL */\n\t\tstruct bonded bonded;\t/* ADJ_TAGGED */\n\t}}"
        )
    }
}

impl<T: C, const COUNT: usize> C for [T; COUNT] {
    fn declare(name: &str) -> String {
        T::declare(&format!("{name}[{COUNT}]"))
    }
}

/// The declaration of a member, whose type comes from the one that reads it.
fn member<S, T: C>(name: &str, _: fn(&S) -> &T) -> String {
    T::declare(name)
}

/// A struct, from all of its members in their order: one that is missing here does not compile.
macro_rules! record {
    ($out:ident, $rust:ident, $c:literal, $attribute:literal, $($member:ident),+ $(,)?) => {{
        let _all = |$rust { $($member: _),+ }: $rust| {};
        let mut end = 0;
        writeln!($out, "struct {} {{", $c)?;
        $(
            // What C lays out is what Rust does: members in order, without gaps.
            assert_eq!(offset_of!($rust, $member), end, "a gap before {}", stringify!($member));
            end = offset_of!($rust, $member) + size_of_member(|of: &$rust| &of.$member);
            writeln!($out, "\t{};", member(stringify!($member), |of: &$rust| &of.$member))?;
        )+
        assert_eq!(end, size_of::<$rust>(), "a gap at the end of {}", stringify!($rust));
        writeln!($out, "}}{};\n", $attribute)?;
        assert!(align_of::<$rust>() <= 8);
    }};
}

fn size_of_member<S, T>(_: fn(&S) -> &T) -> usize {
    size_of::<T>()
}

/// `bpf/image.h`, as a whole.
///
/// # Panics
/// A struct has a gap between its members. A test writes the header, so this is found there.
pub fn header() -> String {
    let mut out = String::new();
    #[expect(
        clippy::expect_used,
        reason = "a String takes whatever is written to it"
    )]
    write(&mut out).expect("a String takes everything");
    out
}

fn numbers(out: &mut String, heading: &str, numbers: &[(&str, u64)]) -> std::fmt::Result {
    writeln!(out, "/* {heading} */")?;
    for (name, value) in numbers {
        // Without a suffix: `~` of an unsigned number would clear the upper half of a word. What C takes for signed otherwise has one.
        let suffix = if *value > i64::MAX as u64 { "ULL" } else { "" };
        writeln!(out, "#define {name} {value}{suffix}")?;
    }
    writeln!(out)
}

fn write(out: &mut String) -> std::fmt::Result {
    out.push_str(
        "/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The image as the XDP program sees it. Made from crates/image by `cargo xtask generate`: change it there. A test
 * fails where this file is not what comes out.
 *
 * Numbers are in host byte order, MAC addresses in the order of the wire.
 */
#ifndef RADDLE_IMAGE_H
#define RADDLE_IMAGE_H

#include <linux/types.h>

",
    );
    writeln!(out, "#define IMAGE_MAGIC {MAGIC:#x}ULL\n")?;
    let sizes = [
        ("MAX_LINKS", MAX_LINKS as u64),
        ("MAX_TABLES", MAX_TABLES as u64),
        ("LOCAL_BITS", LOCAL_BITS as u64),
        ("RANGES", RANGES as u64),
        ("RULE_KERNEL", u64::from(RULE_KERNEL)),
        ("RULE_TABLES", u64::from(RULE_TABLES)),
        ("ZONE_FILTERED_APART", u64::from(FILTERED_APART)),
        ("REASON_DROPPED", REASON_DROPPED as u64),
        ("REASON_COUNTERS", REASON_COUNTERS as u64),
        ("LINK_COUNTERS", LINK_COUNTERS as u64),
        ("LEFT_COUNTERS", LEFT_COUNTERS as u64),
        ("ADJACENCY_COUNTERS", ADJACENCY_COUNTERS as u64),
        ("ROUND_ROBIN_SLOTS", ROUND_ROBIN_SLOTS as u64),
        ("FLOWLETS", FLOWLETS as u64),
        ("WANTED", WANTED as u64),
        ("SEGMENT_FAILED", segment_counter::FAILED as u64),
        ("SEGMENT_FAILURES", SEGMENT_FAILURES as u64),
        ("STEP_BUCKETS", STEP_BUCKETS as u64),
        ("STEP_BUCKET", STEP_BUCKET as u64),
        ("STEP_FACTOR", u64::from(STEP_FACTOR)),
        ("STEP_USED", u64::from(STEP_USED)),
        ("STEP_STAG", u64::from(STEP_STAG)),
        ("STEP_ALL", u64::from(STEP_ALL)),
        ("STEP_UNTAGGED", u64::from(STEP_UNTAGGED)),
        ("STEP_MAC", u64::from(STEP_MAC)),
        ("STEP_MAC_BITS", u64::from(STEP_MAC_BITS)),
        ("STEP_PORT", u64::from(STEP_PORT)),
        ("MAX_STEPS", MAX_STEPS as u64),
        ("LEARNT_BUCKETS", LEARNT_BUCKETS as u64),
        ("LEARNT_BUCKET", LEARNT_BUCKET as u64),
        ("LEARNT_FACTOR", LEARNT_FACTOR),
        ("MAX_TAGS", MAX_TAGS as u64),
        ("TAG", TAG as u64),
        ("MAX_BONDED", MAX_BONDED as u64),
        ("TUNNEL_IPV4", TUNNEL_IPV4 as u64),
        ("TUNNEL_GRE", TUNNEL_GRE as u64),
        ("TUNNEL_VXLAN", TUNNEL_VXLAN as u64),
        ("TUNNEL_MOST", TUNNEL_MOST as u64),
        ("TUNNEL_END", TUNNEL_END as u64),
        ("TUNNEL_KEYED", TUNNEL_KEYED),
        ("SCRATCH_SIZE", SCRATCH_SIZE as u64),
        ("SCRATCH_WANTED", SCRATCH_WANTED as u64),
        ("SCRATCH_SENT", SCRATCH_SENT as u64),
    ];
    numbers(
        out,
        "Sizes and places; see the constants of these names.",
        &sizes,
    )?;

    numbers(
        out,
        "struct config, flags; see config_flags",
        config_flags::C,
    )?;
    out.push_str("/* What holds for all packets; see Config. */\n");
    record!(
        out, Config, "config", "", magic, flags, seed, policy4, policy6, fields4, fields6, pad,
        deadline, sip_key, sip_mid, label_key, port_key
    );

    numbers(
        out,
        "struct link_entry, flags; see link_flags",
        link_flags::C,
    )?;
    out.push_str("/* A network device, by interface index; see LinkEntry. */\n");
    record!(
        out,
        LinkEntry,
        "link_entry",
        " __attribute__((aligned(64)))",
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

    out.push_str(
        "/* Packets that are the kernel's on some links, or looked up otherwise; see Ranges. */\n",
    );
    record!(out, Range4, "range4", "", src, src_span, dst, dst_span);
    record!(out, Range6, "range6", "", src, src_last, dst, dst_last);
    record!(out, Selector, "selector", "", fields, sport, dport, to);
    out.push_str(
        "struct ranges {\n\tstruct range4 v4[RANGES];\n\tstruct range6 v6[RANGES];\n\tstruct range4 rules4[RANGES];\n\tstruct range6 rules6[RANGES];\n\tstruct selector selectors4[RANGES];\n\tstruct selector selectors6[RANGES];\n};\n\n",
    );

    let policies = [
        ("BOND_LAYER2", BondPolicy::Layer2.number().into()),
        ("BOND_LAYER34", BondPolicy::Layer34.number().into()),
        ("BOND_LAYER23", BondPolicy::Layer23.number().into()),
    ];
    numbers(out, "struct bonded, policies; see BondPolicy", &policies)?;
    let states = [
        ("ADJ_KERNEL", ADJ_KERNEL.into()),
        ("ADJ_FORWARD", ADJ_FORWARD.into()),
        ("ADJ_SEGMENT", ADJ_SEGMENT.into()),
        ("ADJ_TAGGED", ADJ_TAGGED.into()),
        ("ADJ_TUNNEL", ADJ_TUNNEL.into()),
    ];
    numbers(out, "struct adjacency, states", &states)?;
    numbers(out, "struct tunnel, kinds; see tunnel_kind", tunnel_kind::C)?;
    numbers(
        out,
        "struct tunnel, flags; see tunnel_flags",
        tunnel_flags::C,
    )?;
    out.push_str("/* What packets are put into that leave by a tunnel; see Tunnel. */\n");
    record!(
        out, Tunnel, "tunnel", "", src, dst, key, kind, flags, ttl, tos, port, sport, sports, pad,
        salt
    );
    out.push_str("/* Members of a bond that frames with a tag leave by; see Bonded. */\n");
    record!(
        out, Bonded, "bonded", "", reciprocal, members, policy, count
    );
    out.push_str(
        "/* A nexthop resolved to bytes; see Adjacency. The first word is published last, so it is read first, at \
         once. */\n",
    );
    record!(
        out,
        Adjacency,
        "adjacency",
        " __attribute__((aligned(64)))",
        index,
        state,
        reason,
        zone,
        tags,
        dst_mac,
        src_mac,
        mtu,
        lower,
        tag,
        tunnel
    );

    numbers(
        out,
        "Group words: the kind is the low byte; see Group",
        group_kind::C,
    )?;
    let words = [
        ("SINGLE_NEIGHBOUR", SINGLE_NEIGHBOUR.into()),
        ("HOW_FOLLOWS", How::FOLLOWS.into()),
        ("GROUP_NO_PUNT", GROUP_NO_PUNT),
        ("SEGMENT_VALUE", SEGMENT_VALUE.into()),
    ];
    numbers(
        out,
        "The second byte of GROUP_SINGLE for a neighbour on a connected prefix, and of those from GROUP_THRESHOLD on; \
         what is added for raddle's own; values of IPv6 tables that name a segment",
        &words,
    )?;

    numbers(
        out,
        "struct segment, kinds; see segment_kind",
        segment_kind::C,
    )?;
    numbers(out, "struct segment, flavours; see flavours", flavours::C)?;
    numbers(
        out,
        "struct segment, flags; see segment_flags",
        segment_flags::C,
    )?;
    writeln!(out, "#define LINK_TABLE {LINK_TABLE:#x}u\n")?;
    out.push_str(SEGMENT);
    numbers(out, "struct wanted, kinds; see wanted_kind", wanted_kind::C)?;
    out.push_str(COUNTERS);
    reasons(out)?;
    out.push_str("#endif\n");
    Ok(())
}

/// What Segment::to_parts writes: two of its words, and two more apart.
const SEGMENT: &str = "\
/*
 * What all packets read of an SRv6 behaviour or encapsulation; see Segment. The first word is published last, so it is
 * read first, at once.
 */
struct segment {
	__u8 kind;
	__u8 reason;
	__u8 flavours;
	__u8 flags;
	__u8 block;
	__u8 csid;
	__u16 size;
	union {
		__u32 out;	/* SEGMENT_END_DX2 */
		__u32 template;	/* SEGMENT_END_DX2V, SEGMENT_TUNNEL_END, and those with a template */
		__u32 table4;	/* all others */
	};
	union {
		__u32 mtu;	/* SEGMENT_END_DX2 */
		__u32 vlans;	/* SEGMENT_END_DX2V, SEGMENT_TUNNEL_END: how many entries */
		__u32 table6;	/* all others */
	};
} __attribute__((aligned(16)));

/*
 * The address that End.X, End.DX4 and End.DX6 look up, in the order of the wire; or in `high` the salt of those with a
 * template. Others do not read it.
 */
struct segment_target {
	__u64 high, low;
};

";

/// What engines count.
const COUNTERS: &str = "\
/* One counter of one CPU. Counter `slot` of CPU `c` is at c * counter_slots + slot. */
struct counter {
	__u64 packets;
	__u64 bytes;
};

/*
 * What one CPU counts of one segment; see segment_counter. Packets and bytes of those that it was carried out on are a
 * struct counter, apart from the others: most packets touch nothing else.
 */
struct segment_failures {
	__u64 values[SEGMENT_FAILURES];
};

";

fn reasons(out: &mut String) -> std::fmt::Result {
    let c = |reason: Reason| format!("REASON_{}", reason.name().to_uppercase().replace('-', "_"));
    out.push_str("/* Why a packet is not forwarded; see Reason. */\nenum reason {\n");
    for reason in Reason::ALL {
        writeln!(out, "\t{} = {},", c(reason), reason as u8)?;
    }
    out.push_str("\tREASON_COUNT\n};\n\n");
    out.push_str("/* One bit for each reason for which packets are dropped, at its number. */\n");
    writeln!(out, "#define REASON_DROPS {:#x}ULL\n", Reason::DROPS)?;
    out.push_str(
        "/* One bit for each reason of packets that no engine ever forwards, at its number. */\n",
    );
    writeln!(
        out,
        "#define REASON_NOT_TRANSIT {:#x}ULL\n",
        Reason::NOT_TRANSIT
    )?;
    out.push_str(
        "/* Where a segment counts packets that it was not carried out on, by the reason; see segment_counter::of. */
static inline __attribute__((always_inline)) __u32 failed_slot(__u32 reason)
{
	switch (reason) {
",
    );
    for reason in segment_counter::REASONS {
        let slot = segment_counter::of(reason);
        writeln!(out, "\tcase {}:\n\t\treturn {slot};", c(reason))?;
    }
    let others = segment_counter::of(Reason::None);
    write!(out, "\tdefault:\n\t\treturn {others};\n\t}}\n}}\n\n")
}

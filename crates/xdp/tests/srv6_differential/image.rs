//! Images with segments of every kind, drawn anew over the same tables.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use raddle_image::{
    ADJ_FORWARD, ADJ_SEGMENT, ADJ_TAGGED, Adjacency, Capacity, GROUP_NO_PUNT, Group, How,
    LINK_TABLE, LinkEntry, Memory, Reason, Segment, Step, Upon, Vlan, VlanEntry, flavours,
    link_flags, segment_flags, segment_kind, segment_value,
};
use raddle_select::Policy;
use raddle_xdp::{Engine, LoadOptions};

use crate::draw::address6;
use raddle_xdp_testing::draw::Draw;
use raddle_xdp_testing::frames::IN_MAC;
use raddle_xdp_testing::image::{adjacency, config, link, roomy, threshold};
use raddle_xdp_testing::net::{index_of, veth};
use raddle_xdp_testing::tables::{Tables4, write6};

/// Segments in use.
pub(crate) const SEGMENTS: u32 = 8;
/// The index of a VLAN upon the link that frames come in on; of another that they leave by, one more.
const VLAN: u32 = 9001;
/// That of a bridge, of which the link is a port now and then: the VLAN is upon it then.
const BRIDGE: u32 = 9003;
/// Its tag.
pub(crate) const TAG: [u8; 4] = [0x81, 0, 0, 5];
/// Words of templates for each.
const WORDS: u32 = 64;

pub(crate) struct Image {
    pub(crate) engine: Engine,
    pub(crate) memory: Arc<Memory>,
    pub(crate) ingress: u32,
    out: [u32; 2],
}

impl Image {
    pub(crate) fn new() -> Image {
        veth("in0", "src0", 1500);
        veth("out0", "dst0", 1500);
        veth("out1", "dst1", 1500);
        let capacity = Capacity {
            segments: 16,
            ..roomy()
        };
        let mut engine = Engine::load(&LoadOptions { capacity }).unwrap();
        engine.load_srv6().unwrap();
        let memory = engine.memory();
        let ingress = index_of("in0");
        let out = [index_of("out0"), index_of("out1")];
        engine.set_out_link(ingress).unwrap();
        for out in out {
            engine.set_out_link(out).unwrap();
        }
        let net = |a, b, c| u32::from_be_bytes([a, b, c, 0]);
        let mut routes = vec![
            (net(192, 0, 2), 24, 1),
            (net(198, 51, 100), 24, 2),
            (u32::from_be_bytes([10, 9, 9, 9]), 32, 4),
        ];
        routes.extend((0..8).map(|n| (net(10, 5, n), 24, 10 + u32::from(n))));
        let mut tables = Tables4::new(&memory);
        tables.table(0, 3, &routes);
        tables.table(1, 3, &[(net(192, 0, 2), 24, 2), (net(198, 51, 100), 24, 1)]);
        let prefix = 0x2001_0db8_u128 << 96;
        let net = |n: u128| prefix | n << 80;
        let mut routes = vec![
            (net(1), 48, 1),
            (net(2), 48, 2),
            (net(4), 48, 3),
            (prefix | 9, 128, 4),
        ];
        // By a group, or by a value that names the segment.
        let to = |n: u32| match n % 2 {
            0 => 10 + n,
            _ => segment_value(n),
        };
        routes.extend((0..8).map(|n| (net(5) | u128::from(n) << 64, 64, to(n))));
        let other = [
            (net(15), 48, 1),
            (net(5), 48, 2),
            (net(1), 48, 11),
            (net(3), 48, segment_value(2)),
        ];
        write6(&memory, &[&routes, &other]);
        let vlan = Vlan::of(0x8100, 5).unwrap();
        let steps = [
            (ingress, Upon::Tag(vlan), VLAN),
            (ingress, Upon::All, BRIDGE),
            (BRIDGE, Upon::Tag(vlan), VLAN),
        ];
        for (lower, upon, index) in steps {
            let step = Step {
                index,
                ..Step::default()
            };
            memory.store_step(lower, upon, Some(step)).unwrap();
        }
        memory.store_group(0, Group::Kernel(Reason::NoRoute));
        memory.store_group(3, Group::Kernel(Reason::Blackhole));
        memory.store_group(4, Group::Kernel(Reason::Local));
        Image {
            engine,
            memory,
            ingress,
            out,
        }
    }

    /// Draws everything but the tables.
    pub(crate) fn redraw(&self, draw: &mut Draw) {
        let memory = &self.memory;
        let policies = [0, 1, 1, 2, 3];
        let seed = if draw.once_in(12) { 0 } else { 7 };
        memory.store_config(&config(seed, draw.of(&policies), draw.of(&policies)));
        let rare = |draw: &mut Draw, flag| if draw.once_in(10) { flag } else { 0 };
        let entry = link(self.ingress, IN_MAC, 5);
        let more = rare(draw, link_flags::RULES6)
            | rare(draw, link_flags::RULES4)
            | rare(draw, link_flags::RP_FILTER)
            | rare(draw, link_flags::RP_BEHIND)
            | rare(draw, link_flags::WAY_BACK)
            | rare(draw, link_flags::HMAC_IGNORED)
            | rare(draw, link_flags::HMAC_REQUIRED)
            | rare(draw, link_flags::RULES4_BEHIND)
            | rare(draw, link_flags::RULES6_BEHIND)
            | rare(draw, link_flags::NO_SEGMENTS);
        let more = if draw.once_in(2) { 0 } else { more };
        let flags = entry.flags | more;
        let vlans = flags | link_flags::VLANS;
        let own = if draw.once_in(4) {
            link_flags::PORT
        } else {
            vlans
        };
        for (index, flags) in [(self.ingress, own), (BRIDGE, vlans), (VLAN, flags)] {
            let entry = LinkEntry {
                flags,
                index,
                ..entry
            };
            memory.store_link(index, &entry);
        }
        for number in 0..8 {
            let out = self.out[number as usize % 2];
            let mtu = if draw.once_in(12) { 100 } else { 1500 };
            let mut adj = adjacency(out, [2, 0, 0, 1, 0, number], [2, 0, 0, 2, 0, number], mtu);
            match draw.below(16) {
                0 => adj.index = self.ingress,
                1 => {
                    adj = Adjacency {
                        reason: Reason::Unresolved as u8,
                        ..Adjacency::default()
                    }
                }
                _ => {}
            }
            if adj.index != self.ingress && adj.state == ADJ_FORWARD && draw.once_in(4) {
                let tags = draw.below(3) as u8;
                let tag = [0x8100_0005, 0x88a8_0009];
                adj = Adjacency {
                    state: ADJ_TAGGED,
                    index: VLAN + 1,
                    lower: out,
                    tags,
                    tag,
                    ..adj
                };
            }
            memory.store_adjacency(number.into(), &adj);
        }
        for number in 8..16 {
            let adj = Adjacency {
                index: number - 8,
                state: ADJ_SEGMENT,
                ..Adjacency::default()
            };
            memory.store_adjacency(number, &adj);
        }
        for number in 0..SEGMENTS {
            self.draw_segment(draw, number);
            let group = match draw.below(8) {
                0 => Group::Single(8 + number),
                1 => {
                    let own = draw.once_in(2);
                    let other = match own {
                        true => 8 + draw.below(8),
                        false => draw.below(16),
                    };
                    let members = [(8 + number, 3), (other as u32, 1)];
                    threshold(memory, 10 + number, 100 + 8 * number, &members);
                    if own {
                        self.make_no_punt(10 + number);
                    }
                    continue;
                }
                _ => Group::Segment(number),
            };
            memory.store_group(10 + number, group);
        }
        let direct = if draw.once_in(2) {
            Group::Single(0)
        } else {
            Group::Neighbour(0)
        };
        memory.store_group(1, direct);
        // Of raddle's own: all its members are segments, and what it does not forward is dropped.
        let own = draw.once_in(3);
        let base = if own { 8 } else { 0 };
        let weighted = [(1, 1), (2, 2), (3, 1), (4, 1), (5, 3)];
        threshold(
            memory,
            2,
            0,
            &weighted.map(|(n, weight)| (base + n, weight)),
        );
        let policy = draw.of(&[Policy::L3, Policy::L4, Policy::Inner, Policy::Custom]);
        match draw.below(4) {
            0 => memory.store_group(
                2,
                Group::Threshold {
                    first: 0,
                    count: 5,
                    how: How::by(policy, draw.once_in(2)),
                },
            ),
            // Not where its members are segments: some end at a limit of the program's after it has taken a turn.
            1 if !own => {
                let head = raddle_image::RoundRobinHead {
                    total: 3,
                    stride: 0,
                    slot: 1,
                    gap: 1 << 30,
                };
                for (place, word) in (40..).zip(head.to_words()) {
                    memory.store_member_word(place, word);
                }
                for n in 0..3 {
                    memory.store_member_word(42 + n, u64::from(n + 1) << 32);
                }
                let (first, count) = (40, 3);
                let group = if draw.once_in(2) {
                    Group::RoundRobin { first, count }
                } else {
                    Group::Flowlet { first, count }
                };
                memory.store_group(2, group);
            }
            1 if own => memory.store_group(2, Group::Kernel(Reason::ImageFull)),
            _ => {}
        }
        if own {
            self.make_no_punt(2);
        }
    }

    fn make_no_punt(&self, group: u32) {
        let word = &self.memory.groups.words()[group as usize];
        word.fetch_or(GROUP_NO_PUNT, Ordering::Relaxed);
    }

    fn draw_segment(&self, draw: &mut Draw, number: u32) {
        use segment_kind::*;
        let kinds = [
            END,
            END,
            END_X,
            END_X,
            END_T,
            END_DX2,
            END_DX6,
            END_DX4,
            END_DT6,
            END_DT4,
            END_B6,
            END_B6_ENCAPS,
            END_DT46,
            END_DX2V,
            INSERT,
            ENCAPS,
            ENCAPS,
            ENCAPS_L2,
            KERNEL,
            99,
        ];
        let kind = draw.of(&kinds);
        let mut segment = Segment {
            kind,
            reason: Reason::Encap as u8,
            flags: segment_flags::HAS_COUNTERS,
            template: number * WORDS,
            table4: draw.of(&[LINK_TABLE, LINK_TABLE, 1]),
            table6: draw.of(&[LINK_TABLE, LINK_TABLE, 1]),
            out: self.out[0],
            mtu: draw.of(&[1500, 1500, 60]),
            salt: draw.word() as u32,
            block: draw.of(&[4, 4, 4, 6, 0]),
            csid: draw.of(&[2, 2, 2, 4, 1]),
            ..Segment::default()
        };
        if draw.once_in(6) {
            segment.flags = 0;
        }
        for (flag, often) in [
            (segment_flags::NO_PUNT, 4),
            (segment_flags::DIRECT_NH4, 3),
            (segment_flags::LABEL_FROM_FLOW, 5),
            (segment_flags::LABEL_FROM_INNER, 2),
        ] {
            if draw.once_in(often) {
                segment.flags |= flag;
            }
        }
        if draw.once_in(2) {
            segment.flavours = draw.of(&[
                flavours::PSP,
                flavours::NEXT_CSID,
                flavours::NEXT_CSID | flavours::PSP,
                flavours::USP,
                flavours::USD,
                flavours::USP | flavours::USD | flavours::PSP,
                flavours::REPLACE_CSID,
                flavours::REPLACE_CSID | flavours::PSP | flavours::USD | flavours::USP,
            ]);
        }
        match kind {
            END_DX4 if draw.once_in(2) => segment.target[..3].copy_from_slice(&[192, 0, 2]),
            END_X | END_DX6 if draw.once_in(2) => segment.target = address6(draw),
            END_DX2 if draw.once_in(8) => segment.out = 0,
            END_DX2V => {
                segment.out = 2;
                for (n, vlan) in [1u16, 3].into_iter().enumerate() {
                    let entry = VlanEntry {
                        vlan,
                        mtu: 1500,
                        out: self.out[n],
                    };
                    let place = segment.template + n as u32;
                    self.memory.store_template_word(place, entry.to_word());
                }
            }
            END_B6 | INSERT => self.draw_template(draw, &mut segment, false),
            ENCAPS | ENCAPS_L2 | END_B6_ENCAPS => self.draw_template(draw, &mut segment, true),
            _ => {}
        }
        self.memory.store_segment(number, &segment);
    }

    fn draw_template(&self, draw: &mut Draw, segment: &mut Segment, header: bool) {
        let mut bytes = Vec::new();
        let dst = address6(draw);
        if header {
            let hop_limit = draw.of(&[64, 64, 64, 255, 1, 0]);
            bytes.extend([0x60, 0, 0, 0, 0, 0, 43, hop_limit]);
            bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            bytes.extend(dst);
        }
        if !header || draw.once_in(2) {
            let segments = 1 + draw.below(3) as u8;
            bytes.extend([0, 2 * segments, 4, segments - 1, segments - 1, 0, 0, 0]);
            for _ in 0..segments {
                bytes.extend(address6(draw));
            }
            segment.flags |= segment_flags::HAS_SRH;
        }
        if draw.once_in(40) {
            bytes.truncate(16);
        }
        segment.size = bytes.len() as u16;
        for (place, word) in (segment.template..).zip(bytes.as_chunks::<8>().0) {
            self.memory
                .store_template_word(place, u64::from_le_bytes(*word));
        }
    }

    /// What led to a difference.
    pub(crate) fn tell(&self, case: usize, frame: &[u8]) -> String {
        let mut text = format!("case {case}, frame");
        for byte in frame {
            write!(text, " {byte:02x}").unwrap();
        }
        for number in 0..SEGMENTS {
            let group = self.memory.group(10 + number);
            let segment = self.memory.segment(number);
            write!(text, "\n{number}: {group:?}, {segment:?}").unwrap();
        }
        text
    }
}

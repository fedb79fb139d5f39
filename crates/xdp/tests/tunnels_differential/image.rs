//! Images with tunnels, drawn anew over the same tables.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use raddle_image::{
    ADJ_FORWARD, ADJ_SEGMENT, ADJ_TAGGED, ADJ_TUNNEL, Adjacency, Capacity, Config, FILTERED_APART,
    GROUP_NO_PUNT, Group, Memory, RANGES, Range4, Range6, Ranges, Reason, Segment, Selector, Step,
    TUNNEL_END, TUNNEL_KEYED, Tunnel, TunnelEnd, Upon, Vlan, link_flags, segment_flags,
    segment_kind, segment_value, tunnel_flags, tunnel_kind,
};
use raddle_xdp::{Engine, LoadOptions};
use raddle_xdp_testing::draw::Draw;
use raddle_xdp_testing::frames::IN_MAC;
use raddle_xdp_testing::image::{adjacency, config, link, roomy, threshold};
use raddle_xdp_testing::net::{index_of, veth};
use raddle_xdp_testing::tables::{Tables4, write6};

use crate::packets::{HERE, INSIDE_MAC, KEYS, OWN_MAC, PORTS, Shape, THERE_MAC, VNIS, remote};

/// A VLAN upon the link that frames come in on.
const VLAN: u32 = 9001;
/// One that adjacencies leave by.
const OUT_VLAN: u32 = 9002;
/// Links of tunnels: two without frames, a VXLAN with an address, one that is a port of a bridge, with a VLAN upon that, and a macvlan.
const IPIP: u32 = 9010;
const GRE: u32 = 9011;
const VXLAN: u32 = 9012;
const PORT: u32 = 9013;
const BRIDGE: u32 = 9014;
const SVI: u32 = 9015;
const MACVLAN: u32 = 9016;
/// Where a bridge remembers senders.
const LEARNT: u16 = 9;
/// Counter slots of all links.
pub(crate) const SLOTS: Range<u32> = 5..14;
/// Adjacencies that are reached, of tunnels from [`TUNNELS`] on.
pub(crate) const ADJACENCIES: u32 = 16;
const TUNNELS: u32 = 8;
const TO_SEGMENT: u32 = 15;

pub(crate) struct Image {
    pub(crate) engine: Engine,
    pub(crate) memory: Arc<Memory>,
    pub(crate) ingress: u32,
    out: [u32; 2],
    ends: Vec<TunnelEnd>,
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
        for index in [ingress, out[0], out[1]] {
            engine.set_out_link(index).unwrap();
        }
        let net = |a, b, c, d| u32::from_be_bytes([a, b, c, d]);
        let tunnels = (0..6u8).map(|n| (net(10, 6, n, 0), 24, 10 + u32::from(n)));
        let mut routes = vec![
            (net(192, 0, 2, 0), 24, 1),
            (net(198, 51, 100, 0), 24, 2),
            (net(10, 9, 9, 9), 32, 4),
            (net(10, 4, 0, 0), 16, 3),
            (net(10, 7, 0, 0), 16, 7),
            (net(10, 8, 0, 0), 16, 6),
            (u32::from_be_bytes(HERE), 32, 5),
        ];
        routes.extend(tunnels);
        let mut tables = Tables4::new(&memory);
        tables.table(0, 3, &routes);
        // Of outer packets.
        let outer: Vec<_> = (0..6)
            .map(|n| (u32::from_be_bytes(remote(n)), 32, 20 + n as u32))
            .collect();
        tables.table(1, 3, &outer);
        // Of what comes in by tunnels.
        let other = |value| match value {
            1 | 12..16 => 2,
            2 => 1,
            value => value,
        };
        let inside: Vec<_> = routes
            .iter()
            .map(|&(net, len, value)| (net, len, other(value)))
            .collect();
        tables.table(2, 3, &inside);
        let net = |n: u128| 0x2001_0db8_u128 << 96 | n << 80;
        let mut routes = vec![
            (net(1), 48, 1),
            (net(2), 48, 2),
            (net(4), 48, 3),
            (net(0) | 9, 128, 4),
            (net(5), 48, segment_value(1)),
        ];
        routes.extend((0..6).map(|n| (net(6) | u128::from(n) << 64, 64, 10 + n)));
        write6(
            &memory,
            &[
                &routes,
                &[(net(1), 48, 2), (net(2), 48, 1), (net(6), 48, 1)],
            ],
        );
        memory.store_group(0, Group::Kernel(Reason::NoRoute));
        memory.store_group(3, Group::Kernel(Reason::Blackhole));
        memory.store_group(4, Group::Kernel(Reason::Local));
        memory.store_group(5, Group::Segment(0));
        memory.store_group(6, Group::Segment(1));
        for group in 0..30 {
            memory.store_ways(group, 0b11 << (group % 3));
        }
        let to_segment = Adjacency {
            index: 1,
            state: ADJ_SEGMENT,
            ..Adjacency::default()
        };
        memory.store_adjacency(TO_SEGMENT, &to_segment);
        memory.store_learnt(THERE_MAC, LEARNT, true).unwrap();
        Image {
            engine,
            memory,
            ingress,
            out,
            ends: Vec::new(),
        }
    }

    /// Draws everything but the tables.
    pub(crate) fn redraw(&mut self, draw: &mut Draw) {
        let policies = [0, 1, 1, 2, 3];
        let seed = if draw.once_in(12) { 0 } else { 7 };
        self.memory.store_config(&Config {
            port_key: [draw.word(), draw.word()],
            ..config(seed, draw.of(&policies), draw.of(&policies))
        });
        self.memory.store_ranges(&ranges(draw));
        self.draw_links(draw);
        self.draw_steps(draw);
        self.draw_adjacencies(draw);
        self.draw_groups(draw);
        self.draw_ends(draw);
        let segment = Segment {
            kind: draw.of(&[
                segment_kind::END_DT4,
                segment_kind::END_DT46,
                segment_kind::END,
            ]),
            flags: draw.of(&[0, 0, segment_flags::NO_PUNT]),
            table4: draw.of(&[0, 2]),
            ..Segment::default()
        };
        self.memory.store_segment(1, &segment);
    }

    fn draw_links(&self, draw: &mut Draw) {
        // Half of the images have links that let everything pass.
        let strict = draw.once_in(2);
        let links = [
            self.ingress,
            VLAN,
            IPIP,
            GRE,
            VXLAN,
            PORT,
            BRIDGE,
            SVI,
            MACVLAN,
        ];
        for (slot, index) in SLOTS.zip(links) {
            let inside = ![self.ingress, VLAN].contains(&index);
            let mac = match index {
                MACVLAN | PORT => OWN_MAC,
                _ if inside => INSIDE_MAC,
                _ => IN_MAC,
            };
            let mut entry = link(index, mac, slot);
            for (flag, often) in [
                (link_flags::RULES6, 16),
                (link_flags::RULES4, 16),
                (link_flags::RP_FILTER, 16),
                (link_flags::WAY_BACK, 6),
                (
                    link_flags::GUARDED | link_flags::TRACKED4 | link_flags::TRACKED6,
                    12,
                ),
                (link_flags::GUARDED, 6),
                (link_flags::FILTERED_APART, if inside { 8 } else { 50 }),
                (link_flags::NO_SEGMENTS, if inside { 8 } else { 30 }),
                (link_flags::NO_TUNNELS, if inside { 50 } else { 100 }),
                (link_flags::FORWARD4, 20),
                (link_flags::FORWARD6, 20),
                (link_flags::ENABLED, if inside { 20 } else { 100 }),
            ] {
                if strict && draw.once_in(often) {
                    entry.flags ^= flag;
                }
            }
            if index == self.ingress {
                entry.flags |= link_flags::VLANS;
            }
            if index == PORT {
                entry.flags = link_flags::PORT | entry.flags & link_flags::NO_TUNNELS;
            }
            if index == VXLAN && draw.once_in(4) {
                entry.flags |= link_flags::MACVLANS;
            }
            entry.table4 = if inside { draw.of(&[0, 2, 2]) } else { 0 };
            entry.table6 = if inside { draw.of(&[0, 1, 1]) } else { 0 };
            entry.back4 = draw.of(&[0, 2]);
            entry.way = draw.below(3) as u32;
            for closed in [&mut entry.closed4, &mut entry.closed6] {
                *closed = if strict {
                    draw.of(&[0, 0, 0, 0, 1, 2, 6])
                } else {
                    0
                };
            }
            for bits in [
                &mut entry.ranges4,
                &mut entry.ranges6,
                &mut entry.rules4,
                &mut entry.rules6,
            ] {
                *bits = draw.of(&[0, 0, 1, 3, 0x8001]);
            }
            self.memory.store_link(index, &entry);
        }
    }

    fn draw_steps(&self, draw: &mut Draw) {
        let vlan = Upon::Tag(Vlan::of(0x8100, 5).unwrap());
        let learnt = draw.of(&[0, LEARNT]);
        let filters = draw.once_in(2);
        let steps = [
            (self.ingress, vlan, VLAN, true),
            (PORT, Upon::All, BRIDGE, !filters),
            (PORT, Upon::Untagged, BRIDGE, filters),
            (PORT, vlan, SVI, filters),
            (BRIDGE, vlan, SVI, true),
            (VXLAN, vlan, SVI, true),
            (VXLAN, Upon::mac(OWN_MAC), MACVLAN, true),
        ];
        for (lower, upon, index, is) in steps {
            let step = is.then_some(Step {
                index,
                learnt: if lower == PORT { learnt } else { 0 },
                ..Step::default()
            });
            self.memory.store_step(lower, upon, step).unwrap();
        }
    }

    fn draw_adjacencies(&self, draw: &mut Draw) {
        for number in 0..TUNNELS {
            let out = self.out[number as usize % 2];
            let mtu = if draw.once_in(12) { 100 } else { 1500 };
            let mac = number as u8;
            let mut adj = adjacency(out, [2, 0, 0, 1, 0, mac], [2, 0, 0, 2, 0, mac], mtu);
            adj.zone = zone(draw);
            match draw.below(16) {
                0 => adj.index = self.ingress,
                1 => {
                    adj = Adjacency {
                        reason: draw.of(&[Reason::Unresolved, Reason::OutLink]) as u8,
                        ..Adjacency::default()
                    }
                }
                _ => {}
            }
            if adj.index == out && adj.state == ADJ_FORWARD && draw.once_in(4) {
                adj = Adjacency {
                    state: ADJ_TAGGED,
                    index: draw.of(&[OUT_VLAN, OUT_VLAN, SVI, VXLAN, IPIP]),
                    lower: out,
                    tags: draw.below(3) as u8,
                    tag: [0x8100_0005, 0x88a8_0009],
                    ..adj
                };
            }
            self.memory.store_adjacency(number, &adj);
        }
        for number in TUNNELS..TO_SEGMENT {
            let kind = draw.of(&[
                tunnel_kind::IP,
                tunnel_kind::GRE,
                tunnel_kind::VXLAN,
                tunnel_kind::VXLAN,
            ]);
            let kind = if draw.once_in(50) { 9 } else { kind };
            let mut flags = draw.byte() | tunnel_flags::CARRIES4 | tunnel_flags::CARRIES6;
            if draw.once_in(8) {
                flags &= !draw.of(&[tunnel_flags::CARRIES4, tunnel_flags::CARRIES6]);
            }
            let vxlan = kind == tunnel_kind::VXLAN;
            let adj = Adjacency {
                index: draw.of(&[IPIP, GRE, VXLAN, BRIDGE, self.ingress]),
                state: ADJ_TUNNEL,
                zone: zone(draw),
                dst_mac: if vxlan { THERE_MAC } else { [0; 6] },
                src_mac: if vxlan { INSIDE_MAC } else { [0; 6] },
                mtu: draw.of(&[1450, 1450, 1450, 100, 1 << 16]),
                lower: draw.of(&[1, 1, 1, 1, 0]),
                tunnel: Tunnel {
                    src: HERE,
                    dst: remote(draw.below(6)),
                    key: draw.of(&[[0, 0, 100, 0], [0xff, 0xff, 0xfe, 0], [1, 2, 3, 4]]),
                    kind,
                    flags,
                    ttl: draw.of(&[64, 64, 1, 255]),
                    tos: draw.byte(),
                    port: draw.of(&PORTS),
                    sport: draw.of(&[32768, 1024, 60000]),
                    sports: draw.of(&[28232, 1, 5535]),
                    pad: 0,
                    salt: draw.word() as u32,
                },
                ..Adjacency::default()
            };
            self.memory.store_adjacency(number, &adj);
        }
    }

    fn draw_groups(&self, draw: &mut Draw) {
        let memory = &self.memory;
        memory.store_group(
            1,
            if draw.once_in(2) {
                Group::Single(0)
            } else {
                Group::Neighbour(0)
            },
        );
        self.draw_several(draw, 2, 0);
        let reason = draw.of(&[Reason::Unreachable, Reason::Encap, Reason::Unresolved]);
        memory.store_group(7, Group::Kernel(reason));
        // Raddle's own routes lead to no errors.
        if reason != Reason::Unreachable && draw.once_in(2) {
            memory.groups.words()[7].fetch_or(GROUP_NO_PUNT, Ordering::Relaxed);
        }
        for n in 0..6 {
            if draw.once_in(4) {
                let members = [(TUNNELS + n, 2), (draw.below(16) as u32, 1), (TUNNELS, 1)];
                threshold(memory, 10 + n, 100 + 8 * n, &members);
            } else {
                memory.store_group(10 + n, Group::Single(TUNNELS + n));
            }
            let outer = 20 + n;
            match draw.below(12) {
                0 => memory.store_group(
                    outer,
                    Group::Kernel(draw.of(&[Reason::NoRoute, Reason::Local, Reason::Blackhole])),
                ),
                1 => memory.store_group(outer, Group::Segment(1)),
                2 => {
                    memory.store_group(outer, Group::Single(draw.of(&[TUNNELS, TO_SEGMENT, 9999])))
                }
                3..6 => self.draw_several(draw, outer, 200 + 16 * n),
                _ => memory.store_group(outer, Group::Single(draw.below(8) as u32)),
            }
        }
    }

    /// A group of several adjacencies, with members from this place on.
    fn draw_several(&self, draw: &mut Draw, group: u32, first: u32) {
        let memory = &self.memory;
        threshold(
            memory,
            group,
            first,
            &[(1, 1), (2, 2), (3, 1), (4, 1), (5, 3)],
        );
        let count = 3;
        if draw.once_in(4) {
            let head = raddle_image::RoundRobinHead {
                total: 3,
                stride: 0,
                slot: group,
                gap: 1 << 30,
            };
            let first = first + 8;
            for (place, word) in (first..).zip(head.to_words()) {
                memory.store_member_word(place, word);
            }
            for n in 0..3 {
                memory.store_member_word(first + 2 + n, u64::from(n + 1) << 32);
            }
            memory.store_group(
                group,
                match draw.once_in(2) {
                    true => Group::RoundRobin { first, count },
                    false => Group::Flowlet { first, count },
                },
            );
        }
    }

    fn draw_ends(&mut self, draw: &mut Draw) {
        let mut ends = Vec::new();
        let mut add = |draw: &mut Draw, kind, remote, key| {
            if draw.once_in(8) {
                return;
            }
            let frames = kind == tunnel_kind::VXLAN;
            ends.push(TunnelEnd {
                kind,
                remote,
                key,
                index: if frames {
                    draw.of(&[VXLAN, PORT, PORT])
                } else {
                    draw.of(&[IPIP, GRE])
                },
                flags: draw.of(&[3, 3, 3, 3, 1, 2]),
            });
        };
        for n in 0..3 {
            let remote = u32::from_be_bytes(remote(n));
            add(draw, tunnel_kind::IP, remote, 0);
            add(draw, tunnel_kind::GRE, remote, 0);
            for key in KEYS {
                add(
                    draw,
                    tunnel_kind::GRE,
                    remote,
                    TUNNEL_KEYED | u64::from(key),
                );
            }
        }
        for port in PORTS {
            for vni in VNIS {
                add(draw, tunnel_kind::VXLAN, 0, TunnelEnd::vxlan(port, vni));
            }
        }
        ends.sort();
        let template = 100;
        for (n, end) in (0..).zip(&ends) {
            for (place, word) in (template + n * TUNNEL_END as u32..).zip(end.to_words()) {
                self.memory.store_template_word(place, word);
            }
        }
        let segment = Segment {
            kind: segment_kind::TUNNEL_END,
            template,
            out: ends.len() as u32,
            ..Segment::default()
        };
        self.memory.store_segment(0, &segment);
        self.ends = ends;
    }

    /// What led to a difference.
    pub(crate) fn tell(&self, case: usize, shape: Shape, frame: &[u8]) -> String {
        let mut text = format!("case {case}, {shape:?}, frame");
        for byte in frame {
            write!(text, " {byte:02x}").unwrap();
        }
        for number in 0..ADJACENCIES {
            write!(text, "\n{number}: {:?}", self.memory.adjacency(number)).unwrap();
        }
        for end in &self.ends {
            write!(text, "\n{end:?}").unwrap();
        }
        for index in [
            self.ingress,
            VLAN,
            IPIP,
            GRE,
            VXLAN,
            PORT,
            BRIDGE,
            SVI,
            MACVLAN,
        ] {
            write!(text, "\n{index}: {:?}", self.memory.link(index)).unwrap();
        }
        text
    }
}

fn zone(draw: &mut Draw) -> u8 {
    draw.below(4) as u8 | draw.of(&[0, 0, 0, FILTERED_APART])
}

/// Ranges of addresses, of which the first are narrow, and the last is narrow, too.
fn ranges(draw: &mut Draw) -> Ranges {
    let mut ranges = Ranges::default();
    for n in [0, 1, RANGES - 1] {
        let first = u32::from_be_bytes([192, 0, 2, draw.byte()]);
        let v4 = Range4 {
            src: draw.of(&[0, u32::from_be_bytes([10, 0, 0, 0])]),
            src_span: draw.of(&[u32::MAX, 200]),
            dst: first,
            dst_span: 40,
        };
        let high = 0x2001_0db8_0000_0000 | u64::from(draw.of(&[1u16, 2, 6])) << 16;
        let v6 = Range6 {
            src: [0; 2],
            src_last: [u64::MAX; 2],
            dst: [high, 0],
            dst_last: [high | 0xffff, 100],
        };
        let selector = |draw: &mut Draw| Selector {
            fields: draw.of(&[0, 0xff00_1100, 0xff00_0600, 0x00ff_00b8]),
            sport: 0xffff_0000,
            dport: draw.of(&[0xffff_0000, 0x7fff_8000]),
            to: draw.of(&[1, 2, 3, 4]),
        };
        (ranges.v4[n], ranges.v6[n]) = (v4, v6);
        (ranges.rules4[n], ranges.rules6[n]) = (v4, v6);
        ranges.selectors4[n] = selector(draw);
        ranges.selectors6[n] = selector(draw);
    }
    ranges
}

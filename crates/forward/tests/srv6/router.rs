//! A router made by hand: tables, groups, adjacencies and segments where a test wants them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use raddle_fib::{Fib4, Fib6, Prefix4, Prefix6, TableId};
use raddle_forward::{Engine, HEADROOM, Verdict};
use raddle_image::{
    ADJ_FORWARD, ADJ_SEGMENT, Adjacency, Capacity, Config, GROUP_NO_PUNT, Group, How, LINK_TABLE,
    LinkEntry, MAGIC, Member, Memory, Reason, RoundRobinHead, Segment, config_flags, link_flags,
    segment_flags, segment_value,
};
use raddle_select::{Seed, compile_threshold, keyed, mid_states, upper_bounds};

/// The link that packets come in by; table 0.
pub(crate) const INGRESS: u32 = 1;
/// Seed of all hashes.
pub(crate) const SEED: u32 = 0x1234_abcd;
/// Out-links are numbered from here, as adjacencies are from 0.
pub(crate) const OUT: u32 = 10;
/// Adjacencies; the last has an MTU of 1300 bytes, the others of 1500.
pub(crate) const ADJACENCIES: u32 = 8;
/// A second table, which no link uses.
pub(crate) const OTHER_TABLE: u32 = 1;

pub(crate) struct Router {
    pub(crate) memory: Arc<Memory>,
    pub(crate) engine: Engine,
    fib4: Fib4<Memory>,
    fib6: Fib6<Memory>,
    tables4: [TableId; 2],
    tables6: [TableId; 2],
    groups: u32,
    members: u32,
    segments: u32,
    words: u32,
}

/// A link's MAC address.
pub(crate) fn mac(index: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, index as u8]
}

/// MAC address of the neighbour behind an adjacency.
pub(crate) fn neighbour(adjacency: u32) -> [u8; 6] {
    [4, 0, 0, 0, 0, adjacency as u8]
}

pub(crate) fn v6(address: &str) -> u128 {
    address.parse::<Ipv6Addr>().unwrap().to_bits()
}

pub(crate) fn octets(address: &str) -> [u8; 16] {
    v6(address).to_be_bytes()
}

pub(crate) fn v4(address: &str) -> u32 {
    address.parse::<Ipv4Addr>().unwrap().to_bits()
}

impl Router {
    /// Without a route; policy 1, everything forwarded.
    pub(crate) fn new() -> Router {
        Router::with(link_flags::FORWARD4 | link_flags::FORWARD6, 1)
    }

    pub(crate) fn with(flags: u32, policy: u8) -> Router {
        Router::made(flags, policy, false)
    }

    /// With a first table that is fast from its first route on, as the mirror has it.
    pub(crate) fn wide() -> Router {
        Router::made(link_flags::FORWARD4 | link_flags::FORWARD6, 1, true)
    }

    fn made(flags: u32, policy: u8, wide: bool) -> Router {
        let memory = Arc::new(Memory::heap(&Capacity {
            nodes4: if wide { 1 << 20 } else { 1 << 14 },
            leaves4: 1 << 14,
            words6: 1 << 17,
            groups: 512,
            members: 512,
            adjacencies: 64,
            segments: 256,
            templates: 1 << 12,
        }));
        let mut fib4 = Fib4::new(Arc::clone(&memory), Box::new(|| ()));
        let mut fib6 = Fib6::new(Arc::clone(&memory), Box::new(|| ()));
        let (first4, first6) = match wide {
            true => (fib4.create_wide_table(), fib6.create_wide_table()),
            false => (fib4.create_table(), fib6.create_table()),
        };
        let tables4 = [first4, fib4.create_table()].map(Result::unwrap);
        let tables6 = [first6, fib6.create_table()].map(Result::unwrap);
        memory.store_link(
            INGRESS,
            &LinkEntry {
                flags: flags | link_flags::ENABLED,
                mac: mac(INGRESS),
                index: INGRESS,
                ..LinkEntry::default()
            },
        );
        for number in 0..ADJACENCIES {
            memory.store_adjacency(
                number,
                &Adjacency {
                    index: OUT + number,
                    state: ADJ_FORWARD,
                    dst_mac: neighbour(number),
                    src_mac: mac(OUT + number),
                    mtu: if number + 1 == ADJACENCIES {
                        1300
                    } else {
                        1500
                    },
                    ..Adjacency::default()
                },
            );
        }
        memory.store_group(0, Group::Kernel(Reason::NoRoute));
        let router = Router {
            engine: Engine::new(Arc::clone(&memory)),
            memory,
            fib4,
            fib6,
            tables4,
            tables6,
            groups: 1,
            members: 0,
            segments: 1,
            words: 0,
        };
        router.set_config(SEED, policy);
        router
    }

    pub(crate) fn group(&mut self, group: Group) -> u32 {
        let number = self.groups;
        self.groups += 1;
        self.memory.store_group(number, group);
        number
    }

    /// Equal shares for adjacencies.
    pub(crate) fn spread(&mut self, adjacencies: &[u32]) -> u32 {
        let weights: Vec<_> = adjacencies.iter().map(|_| Some(1)).collect();
        let compiled = compile_threshold(&upper_bounds(&weights), |_| true);
        let first = self.members;
        for (upper, place) in &compiled {
            let member = Member {
                upper: *upper,
                adjacency: adjacencies[*place],
            };
            self.memory.store_member(self.members, member);
            self.members += 1;
        }
        self.group(Group::Threshold {
            first,
            count: compiled.len() as u16,
            how: How::default(),
        })
    }

    /// Another seed, 0 for none, and policy.
    pub(crate) fn set_config(&self, seed: u32, policy: u8) {
        let known = Seed::new(seed);
        self.memory.store_config(&Config {
            magic: MAGIC,
            flags: known.map_or(0, |_| config_flags::SEED_KNOWN),
            seed,
            policy4: policy,
            policy6: policy,
            fields4: 0x37,
            fields6: 0x37,
            pad: [0; 2],
            deadline: 0,
            sip_key: known.map_or([0; 4], keyed),
            sip_mid: known.map_or([[0; 4]; 256], mid_states),
            label_key: [5, 6],
            port_key: [7, 8],
        });
    }

    /// The same group, of raddle's own.
    pub(crate) fn owned(&self, group: u32) -> u32 {
        let word = &self.memory.groups.words()[group as usize];
        word.fetch_or(GROUP_NO_PUNT, Ordering::Relaxed);
        group
    }

    /// Turns of packets for adjacencies.
    pub(crate) fn turns(&mut self, adjacencies: &[u32]) -> u32 {
        let first = self.members;
        let head = RoundRobinHead {
            total: adjacencies.len() as u32,
            stride: 0,
            slot: first,
            gap: 0,
        };
        for word in head.to_words() {
            self.memory.store_member_word(self.members, word);
            self.members += 1;
        }
        for adjacency in adjacencies {
            let (upper, adjacency) = (0, *adjacency);
            let member = Member { upper, adjacency };
            self.memory.store_member(self.members, member);
            self.members += 1;
        }
        let count = adjacencies.len() as u16;
        self.group(Group::RoundRobin { first, count })
    }

    /// A route of IPv6, `table` 0 or [`OTHER_TABLE`].
    pub(crate) fn route6(&mut self, table: u32, prefix: &str, group: u32) {
        let (address, len) = prefix.split_once('/').unwrap();
        let prefix = Prefix6::new(v6(address), len.parse().unwrap()).unwrap();
        let table = self.tables6[table as usize];
        self.fib6.insert(table, prefix, group).unwrap();
    }

    pub(crate) fn route4(&mut self, table: u32, prefix: &str, group: u32) {
        let (address, len) = prefix.split_once('/').unwrap();
        let prefix = Prefix4::new(v4(address), len.parse().unwrap()).unwrap();
        let table = self.tables4[table as usize];
        self.fib4.insert(table, prefix, group).unwrap();
    }

    /// Through one adjacency.
    pub(crate) fn via(&mut self, prefix: &str, adjacency: u32) {
        let group = self.group(Group::Single(adjacency));
        match prefix.contains(':') {
            true => self.route6(0, prefix, group),
            false => self.route4(0, prefix, group),
        }
    }

    /// Puts a segment, which counts, into the image.
    pub(crate) fn segment(&mut self, segment: Segment) -> u32 {
        let number = self.segments;
        self.segments += 1;
        let flags = segment.flags | segment_flags::HAS_COUNTERS;
        self.memory
            .store_segment(number, &Segment { flags, ..segment });
        number
    }

    /// A segment that a route of the first table leads to.
    pub(crate) fn sid(&mut self, prefix: &str, segment: Segment) -> u32 {
        let number = self.segment(segment);
        if prefix.contains(':') {
            self.route6(0, prefix, segment_value(number));
        } else {
            let group = self.group(Group::Segment(number));
            self.route4(0, prefix, group);
        }
        number
    }

    /// An adjacency that is a segment.
    pub(crate) fn segment_adjacency(&mut self, number: u32, segment: u32) {
        let adjacency = Adjacency {
            index: segment,
            state: ADJ_SEGMENT,
            ..Adjacency::default()
        };
        self.memory.store_adjacency(number, &adjacency);
    }

    /// Puts bytes into the templates; the place of the first.
    pub(crate) fn template(&mut self, bytes: &[u8]) -> u32 {
        let first = self.words;
        for word in bytes.as_chunks::<8>().0 {
            self.memory
                .store_template_word(self.words, u64::from_le_bytes(*word));
            self.words += 1;
        }
        first
    }

    /// A segment with the link's tables and this template.
    pub(crate) fn with_template(&mut self, kind: u8, flags: u8, template: &[u8]) -> Segment {
        Segment {
            flags,
            size: template.len() as u16,
            template: self.template(template),
            ..plain(kind)
        }
    }

    /// What leaves, with room in front of the frame; what does not is untouched.
    pub(crate) fn pass(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let mut buffer = vec![0xee; HEADROOM];
        buffer.extend(frame);
        buffer.extend([0xdd; 32]);
        let range = HEADROOM..HEADROOM + frame.len();
        let verdict = self
            .engine
            .forward_in(&mut buffer, range.clone(), INGRESS, 0);
        assert_eq!(buffer[range.end..], [0xdd; 32], "wrote behind the frame");
        match verdict {
            Verdict::Forward { start, len, .. } => (verdict, buffer[start..start + len].to_vec()),
            _ => {
                assert_eq!(&buffer[range], frame, "{verdict:?} changed the frame");
                (verdict, frame.to_vec())
            }
        }
    }

    /// The packet that leaves by this adjacency, without its Ethernet header, which is checked.
    #[track_caller]
    pub(crate) fn forwards(&mut self, frame: &[u8], adjacency: u32) -> Vec<u8> {
        let (verdict, sent) = self.pass(frame);
        match verdict {
            Verdict::Forward {
                index,
                adjacency: chosen,
                ..
            } => assert_eq!((index, chosen), (OUT + adjacency, adjacency)),
            other => panic!("not forwarded: {other:?}"),
        }
        assert_eq!(sent[..6], neighbour(adjacency));
        assert_eq!(sent[6..12], mac(OUT + adjacency));
        let kind: [u8; 2] = match sent[14] >> 4 {
            4 => [0x08, 0x00],
            _ => [0x86, 0xdd],
        };
        assert_eq!(sent[12..14], kind);
        sent[14..].to_vec()
    }

    #[track_caller]
    pub(crate) fn drops(&mut self, frame: &[u8], reason: Reason) {
        assert_eq!(self.pass(frame).0, Verdict::Drop(reason));
    }

    #[track_caller]
    pub(crate) fn punts(&mut self, frame: &[u8], reason: Reason) {
        assert_eq!(self.pass(frame).0, Verdict::Kernel(reason));
    }
}

/// A segment that looks up in the link's tables.
pub(crate) fn plain(kind: u8) -> Segment {
    Segment {
        kind,
        table4: LINK_TABLE,
        table6: LINK_TABLE,
        ..Segment::default()
    }
}

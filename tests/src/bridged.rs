//! Hosts behind ports of a bridge, and frames from and to them.

use std::collections::BTreeSet;

use crate::compared::Burst;
use crate::frame::{self, Addresses};
use crate::networks::{self, behind4, behind6, hosts, network_of, sources};
use crate::tags::{Tag, tagged};
use crate::{BRIDGE_MAC, Random, World, gateway_mac};

/// A network of the router's.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// The link that has its addresses.
    pub link: &'static str,
    /// Its number, see [`World::networks`].
    pub net: u8,
    /// By which link its gateway is reached: 0 is the source's, others are parallel ones, from 1.
    pub at: u32,
    /// Tags that frames of the gateway's have there.
    pub tags: &'static [Tag],
    /// The bridge learns where the gateway is. Otherwise nobody says, or it is set.
    pub learnt: bool,
    /// Raddle sends there.
    pub engine: bool,
}

/// A network whose gateway is learnt, and that raddle sends to.
pub const fn net(link: &'static str, net: u8, at: u32, tags: &'static [Tag]) -> Net {
    Net {
        link,
        net,
        at,
        tags,
        learnt: true,
        engine: true,
    }
}

impl Net {
    /// Nothing is learnt of its gateway.
    pub const fn untold(self) -> Net {
        Net {
            learnt: false,
            ..self
        }
    }

    /// Raddle need not send there.
    pub const fn kernels(self) -> Net {
        Net {
            engine: false,
            ..self
        }
    }
}

/// Which MAC address frames are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The gateway of the network that their source is of.
    Gateway,
    /// One that nobody has heard of, another of each frame; they are sent again when that has been learnt.
    Nobody,
    /// Of no network's.
    Mac([u8; 6]),
}

/// How frames come in.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// For people.
    pub kind: &'static str,
    /// By which link, as in [`Net::at`].
    pub by: u32,
    /// The tags that they have.
    pub tags: &'static [Tag],
    /// The network that their sources are of.
    pub net: u8,
    /// The MAC address that they are to.
    pub to: [u8; 6],
    /// And from.
    pub from: From,
    /// Raddle forwards what can be forwarded at all.
    pub engine: bool,
}

/// Frames to the bridge that raddle has to forward.
pub const fn way(kind: &'static str, by: u32, tags: &'static [Tag], net: u8) -> Way {
    Way {
        kind,
        by,
        tags,
        net,
        to: BRIDGE_MAC,
        from: From::Gateway,
        engine: true,
    }
}

/// For the kernel to take, or nobody.
pub const fn odd(kind: &'static str, by: u32, tags: &'static [Tag], net: u8) -> Way {
    Way {
        engine: false,
        ..way(kind, by, tags, net)
    }
}

impl Way {
    /// To another MAC address than the bridge's.
    pub const fn to(self, to: [u8; 6]) -> Way {
        Way { to, ..self }
    }

    /// From another MAC address than the gateway's.
    pub const fn from(self, from: From) -> Way {
        Way { from, ..self }
    }
}

/// The gateway of a network, which from some moment on is elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The network.
    pub net: u8,
    /// By which link it is reached then.
    pub to: u32,
    /// With which tags.
    pub tags: &'static [Tag],
}

/// The gateway of a network goes to this link, where its frames have these tags.
pub const fn moved(net: u8, to: u32, tags: &'static [Tag]) -> Move {
    Move { net, to, tags }
}

/// Frames of all ways to all networks.
#[derive(Debug)]
pub struct Drawing<'a> {
    /// The networks.
    pub nets: &'a [Net],
    /// The ways.
    pub ways: &'a [Way],
    /// Gateways that move.
    pub moves: &'a [Move],
    /// About how many frames.
    pub count: usize,
}

impl Drawing<'_> {
    /// Says hello from each gateway; then sends frames by each way; then those again that were from nobody; then, for each gateway that
    /// moves, says hello from there and sends frames from and to it.
    pub fn bursts(&self, rng: &mut Random) -> Vec<Burst> {
        let mut bursts = self.hellos();
        let mut again = Vec::new();
        for by in 0..=self.last() {
            let mut burst = Burst::by(by);
            for way in self.ways.iter().filter(|way| way.by == by) {
                self.frames(rng, way, None, &mut burst, &mut again);
            }
            bursts.push(burst);
        }
        settle(&mut bursts);
        bursts.extend(again);
        for moved in self.moves {
            settle(&mut bursts);
            bursts.extend(self.moved(rng, moved));
        }
        bursts.retain(|burst| !burst.frames.is_empty());
        bursts
    }

    fn last(&self) -> u32 {
        let ways = self.ways.iter().map(|way| way.by);
        let nets = self.nets.iter().map(|net| net.at);
        ways.chain(nets).max().unwrap_or(0)
    }

    fn net(&self, number: u8) -> &Net {
        let mut nets = self.nets.iter();
        nets.find(|net| net.net == number).unwrap()
    }

    /// What is learnt of them leaves no other trace.
    fn hellos(&self) -> Vec<Burst> {
        let told = self.nets.iter().filter(|net| net.learnt);
        let told = told.map(|net| (net.at, net.tags, net.net));
        let ways = self.ways.iter();
        let ways = ways.filter(|way| way.engine && way.from == From::Gateway);
        let ways = ways.map(|way| (way.by, way.tags, way.net));
        let mut seen = BTreeSet::new();
        let mut bursts: Vec<Burst> = (0..=self.last()).map(Burst::by).collect();
        for (by, tags, net) in told.chain(ways) {
            let frame = hello(net, tags);
            if seen.insert((by, frame.clone())) {
                bursts[by as usize].add("hello", frame, false);
            }
        }
        bursts.retain(|burst| !burst.frames.is_empty());
        settle(&mut bursts);
        bursts
    }

    /// Frames of a way to all networks, or to one.
    fn frames(
        &self,
        rng: &mut Random,
        way: &Way,
        only: Option<u8>,
        burst: &mut Burst,
        again: &mut Vec<Burst>,
    ) {
        // Most of them by ways that raddle has to take.
        let each = self.count / self.ways.len() * if way.engine { 3 } else { 1 } / 2;
        let each = each.max(4);
        let numbers: Vec<u8> = match only {
            Some(net) => vec![net],
            None => self.nets.iter().map(|net| net.net).collect(),
        };
        let mut anew = Burst::by(way.by);
        let from = match way.from {
            From::Gateway => gateway_mac(way.net),
            From::Nobody => [0; 6],
            From::Mac(mac) => mac,
        };
        let between = |numbers: &[u8]| Addresses {
            macs: [way.to, from],
            v4: [sources(way.net).0, hosts(numbers).0],
            v6: [sources(way.net).1, hosts(numbers).1],
            tunnels: 0,
        };
        let addresses = between(&numbers);
        let mut frames = frame::random(rng, &addresses, each / 2);
        // Of the others nothing keeps anybody from forwarding them.
        let sent: Vec<u8> = numbers
            .iter()
            .copied()
            .filter(|to| self.is_sent_to(way.net, *to))
            .collect();
        let easy = if sent.is_empty() {
            addresses.clone()
        } else {
            between(&sent)
        };
        for n in 0..each - each / 2 {
            let flow = networks::flow(rng, &easy, n % 2 == 0);
            let bytes = frame::drawn(rng, addresses.macs, &flow);
            frames.push(crate::Crafted {
                bytes,
                kind: "drawn",
                flow: Some(flow),
            });
        }
        for mut frame in frames {
            let to = network_of(&frame);
            let engine = way.engine && to.is_some_and(|to| self.is_sent_to(way.net, to));
            if way.from == From::Nobody {
                frame.bytes[6..12].copy_from_slice(&rng.bytes(6));
                frame.bytes[6] = 2;
                let bytes = tagged(&frame.bytes, way.tags);
                burst.add(way.kind, bytes, false);
                // The same packet would not be told apart from the first.
                let Some(flow) = frame.flow else { continue };
                let macs = [&bytes_of(&frame.bytes[..6]), &bytes_of(&frame.bytes[6..12])];
                let packet = frame::drawn(rng, macs.map(|mac| *mac), &flow);
                anew.add(
                    "its source has been learnt",
                    tagged(&packet, way.tags),
                    engine,
                );
                continue;
            }
            let mut bytes = tagged(&frame.bytes, way.tags);
            if bytes.len() < 64 && rng.once_in(2) {
                let padding = rng.bytes(64 - bytes.len());
                bytes.extend(padding);
            }
            burst.add(way.kind, bytes, engine);
        }
        again.push(anew);
    }

    /// Whether raddle sends packets from one network to another: not where they would leave by the link that they came in on.
    fn is_sent_to(&self, from: u8, to: u8) -> bool {
        let to = self.net(to);
        to.engine && to.link != self.net(from).link
    }

    fn moved(&self, rng: &mut Random, moved: &Move) -> Vec<Burst> {
        let net = self.net(moved.net);
        let there = way("from where it has moved", moved.to, moved.tags, moved.net);
        let mut first = Burst::by(moved.to);
        first.add("hello", hello(moved.net, moved.tags), false);
        first.settles = true;
        let mut from = Burst::by(moved.to);
        self.frames(rng, &there, None, &mut from, &mut Vec::new());
        let mut bursts = vec![first, from];
        let others = self.ways.iter().filter(|way| {
            way.engine
                && way.net != moved.net
                && way.from == From::Gateway
                && self.net(way.net).link != net.link
        });
        for way in others {
            let mut to = Burst::by(way.by);
            let way = Way {
                kind: "to where it has moved",
                ..*way
            };
            self.frames(rng, &way, Some(moved.net), &mut to, &mut Vec::new());
            bursts.push(to);
        }
        // A packet says as well where its sender is.
        settle(&mut bursts);
        let back = way("moves back with this", net.at, net.tags, moved.net);
        let mut teaches = Burst::by(net.at);
        self.frames(
            rng,
            &Way {
                engine: false,
                ..back
            },
            None,
            &mut teaches,
            &mut Vec::new(),
        );
        teaches.settles = true;
        let mut again = Burst::by(net.at);
        let back = Way {
            kind: "has moved back",
            ..back
        };
        self.frames(rng, &back, None, &mut again, &mut Vec::new());
        bursts.extend([teaches, again]);
        bursts
    }

    /// Packets about as large as what the networks' links may have as their `mtu`, of both families, in IPv4 also with "don't fragment".
    /// Of some networks there is less room.
    pub fn sized(
        &self,
        rng: &mut Random,
        ways: &[Way],
        mtu: usize,
        less: &[(u8, usize)],
    ) -> Vec<Burst> {
        let mut bursts = Vec::new();
        for way in ways {
            let mut burst = Burst::by(way.by);
            let macs = [way.to, gateway_mac(way.net)];
            for net in self.nets {
                let room = less
                    .iter()
                    .find(|(number, _)| *number == net.net)
                    .map_or(0, |(_, room)| *room);
                for size in [mtu - 100, mtu - 8, mtu - 4, mtu - 3, mtu, mtu + 1, mtu + 5] {
                    for family in ["IPv4", "IPv4, not to be fragmented", "IPv6"] {
                        let (src, dst) = match family {
                            "IPv6" => (sources(way.net).1[0].into(), behind6(net.net, 9).into()),
                            _ => (sources(way.net).0[0].into(), behind4(net.net, 9).into()),
                        };
                        let number = rng.bits();
                        let flow = frame::Flow {
                            src,
                            dst,
                            proto: 17,
                            sport: number as u16,
                            dport: 9,
                        };
                        let header = if family == "IPv6" { 48 } else { 28 };
                        let mut bytes = frame::udp(macs, &flow, number, size - header);
                        if family == "IPv4, not to be fragmented" {
                            bytes[20] = 0x40;
                            frame::seal(&mut bytes[14..34]);
                        }
                        let engine = size + room <= mtu && self.is_sent_to(way.net, net.net);
                        burst.add("of this size", tagged(&bytes, way.tags), engine);
                    }
                }
            }
            bursts.push(burst);
        }
        bursts
    }
}

fn bytes_of(mac: &[u8]) -> [u8; 6] {
    mac.try_into().unwrap()
}

fn settle(bursts: &mut [Burst]) {
    if let Some(last) = bursts.last_mut() {
        last.settles = true;
    }
}

/// A frame to the bridge that says where the gateway of a network is, and nothing else.
pub fn hello(net: u8, tags: &[Tag]) -> Vec<u8> {
    let mac = gateway_mac(net);
    // An EtherType for experiments.
    let frame = [&BRIDGE_MAC, &mac, &[0x88, 0xb5][..], &mac, &[0; 40]].concat();
    tagged(&frame, tags)
}

/// Has the router all these networks, upon links that are there.
pub fn route(world: &World, nets: &[Net], more: &str) {
    let all: Vec<_> = nets.iter().map(|net| (net.link, net.net)).collect();
    world.networks(&all, more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::identity;

    #[test]
    fn no_two_frames_are_taken_for_one() {
        let nets = [
            net("br0", 1, 0, &[]),
            net("br0", 2, 1, &[]),
            net("sink-3", 3, 3, &[]),
        ];
        let ways = [
            way("known", 0, &[], 1),
            odd("unlearnt", 1, &[], 2).from(From::Nobody),
        ];
        let moves = [moved(1, 1, &[])];
        let drawing = Drawing {
            nets: &nets,
            ways: &ways,
            moves: &moves,
            count: 400,
        };
        let bursts = drawing.bursts(&mut Random::new(7));
        let frames = bursts.iter().flat_map(|burst| &burst.frames);
        let frames = frames.filter(|frame| frame.kind != "hello");
        let all: Vec<_> = frames.map(|frame| identity(&frame.bytes)).collect();
        let different: BTreeSet<_> = all.iter().collect();
        assert!(
            all.len() > 500 && different.len() == all.len(),
            "{}",
            all.len()
        );
        assert!(
            bursts.iter().any(|burst| burst.settles)
                && bursts.iter().any(|burst| burst.engine.contains(&true))
        );
    }
}

//! What the kernel's firewall may judge of the packets that are forwarded: those are the kernel's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// By family; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    /// IPv4.
    pub v4: Guarded,
    /// IPv6.
    pub v6: Guarded,
    /// Packets for SRv6 segments, by whichever pair: there is something that they may meet on links that they neither came in by
    /// nor leave by (a VRF's, a tunnel's).
    pub segments: bool,
    /// Tunnels, by index: what comes in by them. Other links: what comes in by any tunnel and is carried by packets that come in there.
    pub tunnels: BTreeSet<u32>,
}

/// What of one family's packets is punted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// Pairs of in-link and out-link, by index, of which all packets are.
    pub pairs: Pairs,
    /// Packets of some addresses on other pairs.
    pub ranges: Vec<Range>,
    /// Fragments, by whichever pair.
    pub fragments: bool,
    /// ICMP and ICMPv6 errors, by whichever pair: they may belong to a flow that is translated.
    pub icmp_errors: bool,
}

/// Packets from and to these addresses, on these pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// First and last source, both included, of the family.
    pub src: (IpAddr, IpAddr),
    /// First and last destination.
    pub dst: (IpAddr, IpAddr),
    /// In-links by index.
    pub ins: BTreeSet<u32>,
    /// Out-links by index.
    pub outs: BTreeSet<u32>,
}

/// Pairs of in-link and out-link, by index: so many in-links with so many out-links each, as a thousand links that are alike have a million
/// pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Vec<Block>);

/// All pairs of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// In-links by index.
    pub ins: BTreeSet<u32>,
    /// Out-links by index.
    pub outs: BTreeSet<u32>,
}

impl Pairs {
    /// Those of blocks of which no two have a pair in common.
    pub fn of_blocks(blocks: impl IntoIterator<Item = Block>) -> Pairs {
        let blocks = blocks.into_iter();
        Pairs(
            blocks
                .filter(|block| !block.ins.is_empty() && !block.outs.is_empty())
                .collect(),
        )
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.0
    }

    /// Whether a pair is among them. Costs a look at each block.
    pub fn contains(&self, (from, to): &(u32, u32)) -> bool {
        let mut blocks = self.0.iter();
        blocks.any(|block| block.ins.contains(from) && block.outs.contains(to))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let blocks = self.0.iter();
        blocks.map(|block| block.ins.len() * block.outs.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let row = |block: &'_ Block, from: u32| {
            block
                .outs
                .iter()
                .map(move |to| (from, *to))
                .collect::<Vec<_>>()
        };
        self.0
            .iter()
            .flat_map(move |block| block.ins.iter().flat_map(move |from| row(block, *from)))
    }
}

/// In-links that have the same out-links are a block.
impl FromIterator<(u32, u32)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(pairs: I) -> Pairs {
        let mut rows: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (from, to) in pairs {
            rows.entry(from).or_default().insert(to);
        }
        let mut alike: BTreeMap<BTreeSet<u32>, BTreeSet<u32>> = BTreeMap::new();
        for (from, outs) in rows {
            alike.entry(outs).or_default().insert(from);
        }
        Pairs::of_blocks(alike.into_iter().map(|(outs, ins)| Block { ins, outs }))
    }
}

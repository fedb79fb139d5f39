//! What nftables and iptables have in common: chains of rules, rules of steps.

use std::collections::BTreeMap;

use raddle_netlink::probe::nft::Side;

/// First and last, both included.
pub(super) type Interval = (u128, u128);

/// A condition of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// By the name of a link, its 16 bytes as a number.
    Name(Side, Vec<Interval>, bool),
    /// By the index of a link.
    Index(Side, Vec<Interval>, bool),
    /// By an address; inverted where true.
    Address(Side, Vec<Interval>, bool),
    /// Only packets to this machine.
    Local {
        /// All others.
        inverted: bool,
        /// A kernel may look in the table of the packet's VRF, and not in table local.
        by_vrf: bool,
    },
    /// By the protocol behind the IP header; inverted where true.
    Protocol(Vec<Interval>, bool),
    /// By the destination port of UDP, where the rule has tested the protocol; inverted where true.
    DestinationPort(Vec<Interval>, bool),
    /// By the packet's connection: may hold or not, by what went before it, in the other direction as well.
    Connection,
    /// The same for all packets.
    Constant(bool),
    /// May hold or not.
    Unknown,
}

/// Where a rule leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

/// One step of a rule; the next one is taken only by packets that pass it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Test(Test),
    /// The packet would be changed, counted, held or lost.
    Effect,
    /// It would be lost if its transport header is cut short, or part of a fragment (`hotdrop`).
    Strict,
    /// The same, and its connection's other packets are changed with it, in both directions.
    Translation,
    Verdict(Verdict),
    /// A map: the verdict of whichever element matches.
    Map(Vec<(Test, Option<Verdict>)>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) steps: Vec<Step>,
    /// In the words of its tool.
    pub(super) text: String,
}

/// A chain that is hooked in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) chain: String,
    pub(super) stage: Stage,
    /// The rule that is there for what nothing else decided.
    pub(super) policy_drop: bool,
    pub(super) text: String,
}

/// What is known where a chain stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The in-link.
    Prerouting,
    /// Both links.
    Forward,
    /// The out-link.
    Postrouting,
    /// The in-link of packets to this machine, which none is that is forwarded.
    Input,
    /// The out-link of packets from this machine, likewise.
    Output,
    /// All packets that come in by, or leave by, these links (a trailing `*` stands for any suffix).
    Device(Side, Vec<String>),
    /// Nobody knows: all packets meet it.
    Anywhere,
}

/// What is translated, whichever chain says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Translations {
    /// There is any.
    pub(super) any: bool,
    /// Packets from or to these addresses are translated back; all packets where it is not known.
    pub(super) back: Vec<(Side, Option<Interval>, String)>,
    /// A rule that sends packets to this machine which are to others (`redirect`): what is sent back is translated back.
    pub(super) redirects: Option<String>,
}

/// The rules of one IP version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) bases: Vec<Base>,
    pub(super) chains: BTreeMap<String, Vec<Rule>>,
    pub(super) translations: Translations,
}

impl Rules {
    pub(super) fn append(&mut self, other: Rules) {
        self.bases.extend(other.bases);
        self.chains.extend(other.chains);
        self.translations.any |= other.translations.any;
        self.translations.back.extend(other.translations.back);
        let redirects = &mut self.translations.redirects;
        *redirects = redirects.take().or(other.translations.redirects);
    }
}

/// The same values in order, without overlaps.
pub(super) fn tidy(mut within: Vec<Interval>) -> Vec<Interval> {
    within.sort_unstable();
    let mut tidied: Vec<Interval> = Vec::with_capacity(within.len());
    for (first, last) in within {
        match tidied.last_mut() {
            Some(before) if first <= before.1 || first == before.1 + 1 => {
                before.1 = before.1.max(last);
            }
            _ => tidied.push((first, last)),
        }
    }
    tidied
}

/// Bytes as a number, the first ones highest.
pub(super) fn number(bytes: &[u8]) -> Option<u128> {
    (bytes.len() <= 16).then(|| bytes.iter().fold(0, |n, &b| n << 8 | u128::from(b)))
}

/// All values of `size` bytes that begin with `bits` bits of `value`, itself of `size` bytes.
pub(super) fn prefix(value: u128, bits: u32, size: usize) -> Interval {
    let host = 8 * size as u32 - bits.min(8 * size as u32);
    let low = match host {
        128.. => u128::MAX,
        n => (1 << n) - 1,
    };
    (value & !low, value | low)
}

/// The values that agree with `value` where `mask` has ones, if the ones come first.
pub(super) fn masked(value: &[u8], mask: &[u8]) -> Option<Interval> {
    let (size, ones) = (mask.len(), number(mask)?);
    if value.len() != size || size == 0 {
        return None;
    }
    let bits = ones.count_ones();
    let (first, last) = prefix(0, bits, size);
    debug_assert_eq!(first, 0);
    let contiguous = ones == prefix(0, 0, size).1 & !last;
    contiguous.then(|| prefix(number(value).unwrap_or_default(), bits, size))
}

/// A link's name as its 16 bytes.
pub(super) fn name(text: &str) -> u128 {
    let mut bytes = [0; 16];
    let length = text.len().min(15);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u128::from_be_bytes(bytes)
}

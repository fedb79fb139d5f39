//! All rules of a table.

use super::{EXTENSION, Entry, Family, entry, extension_name, half};
use crate::codec::DecodeError;

/// `IPT_F_FRAG`.
const FRAGMENT: u8 = 1;

/// A match, or a target that is neither a verdict nor a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// Its revision.
    pub revision: u32,
    /// Its data.
    pub info: Vec<u8>,
}

/// A value under a mask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masked {
    /// The value.
    pub value: Vec<u8>,
    /// The bits of it that count.
    pub mask: Vec<u8>,
    /// Whatever differs from it.
    pub inverted: bool,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Ends the built-in chain.
    Accept,
    /// Ends everything.
    Drop,
    /// Back to where the chain was called from; for a built-in chain, to its policy.
    Return,
    /// Nothing: counts.
    Nothing,
    /// The chain that begins at this offset, and then back here unless it is gone to.
    Chain {
        /// Offset of its first rule.
        at: usize,
        /// Does not come back here.
        goto: bool,
    },
    /// Another verdict (queue).
    Verdict(i32),
    /// An extension.
    Extension(Extension),
}

/// A rule, or the policy at the end of a built-in chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its offset in the table.
    pub at: usize,
    /// In-link and out-link, 16 bytes.
    pub links: [Masked; 2],
    /// Source and destination.
    pub addresses: [Masked; 2],
    /// The protocol that it asks for, and whether it asks for all others.
    pub protocol: Option<(u16, bool)>,
    /// It also asks for fragments, or for a traffic class.
    pub asks_more: bool,
    /// Its matches.
    pub matches: Vec<Extension>,
    /// What it does.
    pub target: Target,
    /// About as `iptables -S` would put it.
    pub text: String,
}

/// All rules of a table, in order, and where user chains begin. The last head is the table's end.
pub(super) fn rules(
    family: Family,
    entries: &[u8],
) -> Result<(Vec<Rule>, Vec<usize>), DecodeError> {
    let (mut rules, mut user_chains) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < entries.len() {
        let found = entry(family, entries, at)?;
        let next = at + found.length;
        match extension_name(found.target).as_deref() {
            Some("ERROR") => user_chains.push(next),
            _ => rules.push(rule(family, &found, at, next)),
        }
        // Never 0: the fixed part lies in between.
        at = next;
    }
    Ok((rules, user_chains))
}

fn rule(family: Family, entry: &Entry<'_>, at: usize, next: usize) -> Rule {
    // The last one is IPT_F_GOTO, IP6T_F_GOTO.
    let (size, protocol, flags, inverted, goto) = match family {
        Family::Ipv4 => (4, 80, 82, 83, 2),
        Family::Ipv6 => (16, 128, 131, 132, 4),
    };
    let links = 4 * size;
    let byte = |at: usize| entry.selector.get(at).copied().unwrap_or_default();
    let masked = |value: usize, mask: usize, size: usize, bit: u8| {
        let bytes = |at: usize| {
            entry
                .selector
                .get(at..at + size)
                .unwrap_or_default()
                .to_vec()
        };
        Masked {
            value: bytes(value),
            mask: bytes(mask),
            inverted: byte(inverted) & bit != 0,
        }
    };
    let target = match entry.verdict() {
        Some(-1) => Target::Drop,
        Some(-2) => Target::Accept,
        Some(-5) => Target::Return,
        Some(to) if usize::try_from(to) == Ok(next) => Target::Nothing,
        Some(to) => match usize::try_from(to) {
            Ok(at) => Target::Chain {
                at,
                goto: byte(flags) & goto != 0,
            },
            Err(_) => Target::Verdict(to),
        },
        None => Target::Extension(extension(entry.target)),
    };
    let mut matches = Vec::new();
    let mut rest = entry.matches;
    while let Some(size) = half(rest, 0).map(usize::from).filter(|&s| s > 0) {
        let (this, next) = rest.split_at(size.min(rest.len()));
        matches.push(extension(this));
        rest = next;
    }
    // FRAGMENT of IPv4, IP6T_F_TOS of IPv6.
    let more = match family {
        Family::Ipv4 => FRAGMENT,
        Family::Ipv6 => 2,
    };
    let more = byte(flags) & more != 0;
    Rule {
        at,
        links: [
            masked(links, links + 32, 16, 1),
            masked(links + 16, links + 48, 16, 2),
        ],
        addresses: [
            masked(0, 2 * size, size, 8),
            masked(size, 3 * size, size, 16),
        ],
        // IPT_INV_PROTO, IP6T_INV_PROTO.
        protocol: half(entry.selector, protocol)
            .filter(|protocol| *protocol != 0)
            .map(|protocol| (protocol, byte(inverted) & 0x40 != 0)),
        asks_more: more,
        matches,
        target,
        text: entry.text(family),
    }
}

fn extension(bytes: &[u8]) -> Extension {
    // Its revision is the last byte of its head.
    Extension {
        name: extension_name(bytes).unwrap_or_default(),
        revision: bytes.get(EXTENSION - 1).copied().unwrap_or_default().into(),
        info: bytes.get(EXTENSION..).unwrap_or_default().to_vec(),
    }
}

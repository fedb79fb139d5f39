//! Walks chains with all packets of a pair at once.

use raddle_netlink::probe::nft::Side;

use super::Version;
use super::model::{Interval, Rules, Stage, Step, Test, Verdict};

/// Rules walked for one pair before it is given up, and chains within chains.
const MOST_RULES: usize = 200_000;
const DEEPEST: usize = 64;

/// Packets by their addresses: any of the sources with any of the destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) src: Vec<Interval>,
    pub(super) dst: Vec<Interval>,
}

impl Area {
    /// All packets of a family.
    pub(super) fn all(version: Version) -> Area {
        let all = vec![(0, version.last())];
        Area {
            src: all.clone(),
            dst: all,
        }
    }

    fn of(&mut self, side: Side) -> &mut Vec<Interval> {
        match side {
            Side::From => &mut self.src,
            Side::To => &mut self.dst,
        }
    }
}

/// What a link is called where rules see it: by one index and name; by several where one of them
/// is seen, but not which.
pub(super) type Identity = Vec<(u32, u128)>;

/// What a rule does to packets of the pair.
pub(super) struct Found {
    pub(super) area: Area,
    pub(super) rule: String,
    /// It translates.
    pub(super) translates: bool,
}

/// Whether a packet goes on behind a rule or chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// Some may.
    Continues,
    /// None does.
    Ends,
    /// None does, but all go on where the chain was called from.
    Returns,
}

pub(super) struct Walk<'a> {
    /// Packets have tags, so that no test is decided.
    pub(super) tagged: bool,
    pub(super) rules: &'a Rules,
    pub(super) version: Version,
    /// None where not known.
    pub(super) links: [Option<&'a Identity>; 2],
    /// None where it may be any.
    pub(super) protocol: Option<u8>,
    /// The destination port, likewise.
    pub(super) port: Option<u16>,
    /// They are to this machine.
    pub(super) to_this: bool,
    /// All packets are looked up in table local before all others, also those of VRFs: none to an address in it is forwarded.
    pub(super) local_first: bool,
    /// A link may belong to a VRF.
    pub(super) vrfs: bool,
    pub(super) found: Vec<Found>,
    /// Whether a rule that packets may meet asks for their connection.
    pub(super) asks_connection: bool,
    /// A rule that they may meet and that drops what it cannot read.
    pub(super) strict: Option<String>,
    pub(super) walked: usize,
}

/// Of the packets that meet a test, those that pass.
enum Passes {
    All,
    None,
    Some,
}

impl Walk<'_> {
    /// All base chains of a stage.
    pub(super) fn bases(&mut self, stage: &Stage) {
        self.bases_of(stage, &Area::all(self.version));
    }

    /// Likewise, with packets of this area.
    pub(super) fn bases_of(&mut self, stage: &Stage, area: &Area) {
        let rules = self.rules;
        for base in rules.bases.iter().filter(|base| base.stage == *stage) {
            let flow = self.chain(&base.chain, area, 0);
            if flow != Flow::Ends && base.policy_drop {
                self.effect(area, &format!("{} has policy drop", base.text));
            }
        }
    }

    fn effect(&mut self, area: &Area, rule: &str) {
        self.found.push(Found {
            area: area.clone(),
            rule: rule.to_owned(),
            translates: false,
        });
    }

    fn chain(&mut self, name: &str, area: &Area, depth: usize) -> Flow {
        let rules = self.rules;
        let Some(chain) = rules.chains.get(name) else {
            return Flow::Continues; // it has no rules
        };
        if depth > DEEPEST {
            self.effect(area, &format!("{name}: chains are too deep to be followed"));
            return Flow::Continues;
        }
        for rule in chain {
            self.walked += 1;
            if self.walked > MOST_RULES {
                if self.walked == MOST_RULES + 1 {
                    let all = Area::all(self.version);
                    self.effect(&all, &format!("{name}: too many rules to be followed"));
                }
                return Flow::Continues;
            }
            let flow = self.rule(&rule.steps, &rule.text, area.clone(), depth);
            match flow {
                Flow::Continues => {}
                Flow::Ends => return Flow::Ends,
                Flow::Returns => return Flow::Continues,
            }
        }
        Flow::Continues
    }

    fn rule(&mut self, steps: &[Step], text: &str, mut area: Area, depth: usize) -> Flow {
        // Whether all packets that meet the rule get as far as this step.
        let mut all = true;
        for step in steps {
            match step {
                Step::Test(Test::Connection) => {
                    self.asks_connection = true;
                    all = false;
                }
                Step::Test(test) => match self.test(test, &mut area) {
                    Passes::All => {}
                    Passes::None => return Flow::Continues,
                    Passes::Some => all = false,
                },
                Step::Effect => self.effect(&area, text),
                Step::Strict => {
                    self.strict.get_or_insert_with(|| text.to_owned());
                }
                Step::Translation => self.found.push(Found {
                    area: area.clone(),
                    rule: text.to_owned(),
                    translates: true,
                }),
                Step::Verdict(verdict) => {
                    let flow = self.verdict(verdict, text, &area, depth);
                    return if all { flow } else { Flow::Continues };
                }
                Step::Map(elements) => {
                    for (test, verdict) in elements {
                        let mut within = area.clone();
                        let passes = self.test(test, &mut within);
                        let Some(verdict) = verdict else { continue };
                        match passes {
                            Passes::None => {}
                            Passes::All => {
                                let flow = self.verdict(verdict, text, &within, depth);
                                if all {
                                    return flow;
                                }
                                return Flow::Continues;
                            }
                            Passes::Some => {
                                self.verdict(verdict, text, &within, depth);
                            }
                        }
                    }
                    // What is in no element goes no further in this rule, which as a rule ends here.
                    all = false;
                }
            }
        }
        Flow::Continues
    }

    fn verdict(&mut self, verdict: &Verdict, text: &str, area: &Area, depth: usize) -> Flow {
        match verdict {
            Verdict::Accept => Flow::Ends,
            Verdict::Drop => {
                self.effect(area, text);
                Flow::Ends
            }
            Verdict::Return => Flow::Returns,
            Verdict::Jump(chain) => self.chain(chain, area, depth + 1),
            // What comes to the end of a chain that was gone to returns to the one that was called.
            Verdict::Goto(chain) => match self.chain(chain, area, depth + 1) {
                Flow::Ends => Flow::Ends,
                _ => Flow::Returns,
            },
        }
    }

    /// Narrows the area to the packets that may pass.
    fn test(&self, test: &Test, area: &mut Area) -> Passes {
        if self.tagged {
            return Passes::Some;
        }
        let (passes, inverted) = match test {
            Test::Name(side, within, inverted) => {
                (self.link(*side, within, |link| link.1), *inverted)
            }
            Test::Index(side, within, inverted) => {
                let passes = self.link(*side, within, |link| link.0.into());
                (passes, *inverted)
            }
            Test::Address(side, within, inverted) => {
                let part = area.of(*side);
                let rest = intersect(part, within);
                let passes = if rest.is_empty() {
                    Passes::None
                } else if covered(part, within) {
                    Passes::All
                } else {
                    Passes::Some
                };
                // What is left of an inverted test is not a few intervals: all that came may pass.
                if !inverted && !rest.is_empty() {
                    *part = rest;
                }
                (passes, *inverted)
            }
            Test::Local { inverted, by_vrf }
                if (self.local_first || self.to_this)
                    // Of IPv6, addrtype asks all rules (`match_lookup_rt6`), which may lead VRFs' packets elsewhere.
                    && !((*by_vrf || self.version == Version::V6) && self.vrfs) =>
            {
                let passes = match self.to_this {
                    true => Passes::All,
                    false => Passes::None,
                };
                (passes, *inverted)
            }
            Test::Protocol(within, inverted) => match self.protocol {
                Some(protocol) => {
                    let is_in = |i: &Interval| (i.0..=i.1).contains(&protocol.into());
                    let passes = match within.iter().any(is_in) {
                        true => Passes::All,
                        false => Passes::None,
                    };
                    (passes, *inverted)
                }
                None => (Passes::Some, false),
            },
            Test::DestinationPort(within, inverted) => match self.port {
                Some(port) => {
                    let is_in = |i: &Interval| (i.0..=i.1).contains(&port.into());
                    let passes = match within.iter().any(is_in) {
                        true => Passes::All,
                        false => Passes::None,
                    };
                    (passes, *inverted)
                }
                None => (Passes::Some, false),
            },
            Test::Constant(passes) => match passes {
                true => (Passes::All, false),
                false => (Passes::None, false),
            },
            Test::Local { .. } | Test::Connection | Test::Unknown => (Passes::Some, false),
        };
        match (passes, inverted) {
            (Passes::All, true) => Passes::None,
            (Passes::None, true) => Passes::All,
            (passes, _) => passes,
        }
    }

    fn link(&self, side: Side, within: &[Interval], of: impl Fn(&(u32, u128)) -> u128) -> Passes {
        let Some(identity) = self.links[usize::from(side == Side::To)] else {
            return Passes::Some;
        };
        let is_in = |link| within.iter().any(|i| (i.0..=i.1).contains(&of(link)));
        match identity.iter().filter(|link| is_in(link)).count() {
            0 => Passes::None,
            n if n == identity.len() => Passes::All,
            _ => Passes::Some,
        }
    }
}

/// What two lists have in common, both in order and without overlaps.
fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut both = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (first, last) = (x.0.max(y.0), x.1.min(y.1));
        if first <= last {
            both.push((first, last));
        }
        match x.1 <= y.1 {
            true => i += 1,
            false => j += 1,
        }
    }
    both
}

/// Whether one of `by` holds each of `parts` whole; lists as above.
fn covered(parts: &[Interval], by: &[Interval]) -> bool {
    parts.iter().all(|part| {
        let behind = by.partition_point(|interval| interval.0 <= part.0);
        behind > 0 && part.1 <= by[behind - 1].1
    })
}

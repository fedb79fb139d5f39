//! nftables' rules as steps.

mod sets;
mod words;

use std::collections::BTreeMap;

use raddle_netlink::probe::iptables::HOOKS;
use raddle_netlink::probe::nft::{
    BaseChain, Family, Hook, Load, Program, Ruleset, Side, Term, Verdict as Said,
};

use super::Version;
use super::model::{
    Base, Interval, Rule, Rules, Stage, Step, Test, Translations, Verdict, masked, number, prefix,
    tidy,
};
use super::xt;
use words::{braces, link_word, list, names_text};

/// The tables of libvirt's networks, from libvirt 10.4 on, and of Docker's, from Docker 29 on where it is told to use nftables.
const COUNT_ALL: [&str; 2] = ["libvirt_network", "docker-bridges"];
/// What names of VyOS's tables begin with, and, in any case, those of its own chains in others.
const VYOS: &str = "vyos_";
const TABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// The rules that packets of `version` can meet.
pub(super) fn lower(ruleset: &Ruleset, version: Version) -> Rules {
    let mut rules = Rules {
        bases: ruleset
            .chains
            .iter()
            .filter_map(|c| base(c, version))
            .collect(),
        ..Rules::default()
    };
    for (family, program) in &ruleset.rules {
        if !concerns(*family, version) {
            continue;
        }
        let mut lowered = Lowering {
            ruleset,
            family: *family,
            program,
            version,
            registers: BTreeMap::new(),
            rule: Rule::default(),
            words: Vec::new(),
            translations: &mut rules.translations,
        };
        lowered.run();
        let rule = lowered.rule;
        let chain = key(*family, &program.table, &program.chain);
        rules.chains.entry(chain).or_default().push(rule);
    }
    rules
}

fn key(family: Family, table: &str, chain: &str) -> String {
    format!("nft {family} {table} {chain}")
}

/// Chains of ARP are never met, and those of bridges between a port and its bridge only ([`crate::bridged`]); others whose family is not
/// known may be.
fn concerns(family: Family, version: Version) -> bool {
    match family {
        Family::Ip => version == Version::V4,
        Family::Ip6 => version == Version::V6,
        Family::Bridge | Family::Arp => false,
        Family::Inet | Family::Netdev | Family::Other(_) => true,
    }
}

fn base(chain: &BaseChain, version: Version) -> Option<Base> {
    if !concerns(chain.family, version) {
        return None;
    }
    let stage = match chain.hook {
        Hook::Input => Stage::Input,
        Hook::Output => Stage::Output,
        Hook::Prerouting => Stage::Prerouting,
        Hook::Forward => Stage::Forward,
        Hook::Postrouting => Stage::Postrouting,
        Hook::Ingress => Stage::Device(Side::From, chain.devices.clone()),
        Hook::Egress => Stage::Device(Side::To, chain.devices.clone()),
        Hook::Other(_) => Stage::Anywhere,
    };
    let chain_key = key(chain.family, &chain.table, &chain.name);
    Some(Base {
        text: chain_key.clone(),
        chain: chain_key,
        stage,
        policy_drop: chain.policy_drop,
    })
}

/// What a register holds.
#[derive(Clone)]
enum Value {
    Loaded(Load),
    /// Under a mask.
    Masked(Load, Vec<u8>),
    Constant(Vec<u8>),
}

struct Lowering<'a> {
    ruleset: &'a Ruleset,
    family: Family,
    program: &'a Program,
    version: Version,
    /// By their first 4 bytes.
    registers: BTreeMap<u32, Value>,
    rule: Rule,
    words: Vec<String>,
    translations: &'a mut Translations,
}

/// Registers 1 to 4 are 16 bytes each, those from 8 on the same bytes by fours.
fn place(register: u32) -> u32 {
    match register {
        0..=7 => register.saturating_sub(1).saturating_mul(4),
        n => n - 8,
    }
}

impl Lowering<'_> {
    fn run(&mut self) {
        let program = self.program;
        let implicit = self.is_of_iptables();
        for term in &program.terms {
            self.term(term, implicit);
        }
        // That is what a rule of iptables without a target is for: to count.
        let decides = |term: &Term| match term {
            Term::Extension { target, .. } => *target,
            Term::Verdict(_) | Term::Nat { .. } | Term::Fills { .. } | Term::Other(_) => true,
            Term::Lookup { to, .. } => *to == Some(0),
            _ => false,
        };
        let counts = program.terms.contains(&Term::Counter);
        if implicit && counts && !program.terms.iter().any(decides) {
            self.step(Step::Effect, "");
        }
        let comment = match &program.comment {
            Some(comment) => format!(" \"{comment}\""),
            None => String::new(),
        };
        self.rule.text = format!(
            "{} handle {}{comment}: {}",
            key(self.family, &program.table, &program.chain),
            program.handle,
            self.words.join(" ")
        );
        // What is translated back is told by the rule that does it.
        for back in &mut self.translations.back {
            if back.2.is_empty() {
                back.2.clone_from(&self.rule.text);
            }
        }
    }

    /// Whether it is a rule of iptables, libvirt, Docker or VyOS, which count all packets without having been asked to: it has an extension,
    /// or is in a table of libvirt, Docker or VyOS, or in a chain of VyOS, or in a table whose base chains all have iptables' names.
    fn is_of_iptables(&self) -> bool {
        let table = &self.program.table;
        let compat = |term: &Term| matches!(term, Term::Extension { .. });
        let is_theirs = |chain: &BaseChain| {
            (chain.family, &chain.table) != (self.family, table)
                || HOOKS.contains(&chain.name.as_str())
        };
        self.program.terms.iter().any(compat)
            || COUNT_ALL.contains(&table.as_str())
            || table.starts_with(VYOS)
            || self.program.chain.to_ascii_lowercase().starts_with(VYOS)
            || (matches!(self.family, Family::Ip | Family::Ip6)
                && TABLES.contains(&table.as_str())
                && self.ruleset.chains.iter().all(is_theirs))
    }

    fn step(&mut self, step: Step, words: impl Into<String>) {
        self.rule.steps.push(step);
        let words = words.into();
        if !words.is_empty() {
            self.words.push(words);
        }
    }

    fn put(&mut self, register: u32, value: Value) {
        let at = place(register);
        // A value is at most 16 bytes long.
        let length = match &value {
            Value::Loaded(Load::LinkName(_)) => 4,
            Value::Loaded(Load::Network { length, .. }) => length.div_ceil(4),
            Value::Constant(bytes) => bytes.len().div_ceil(4) as u32,
            Value::Masked(_, mask) => mask.len().div_ceil(4) as u32,
            Value::Loaded(_) => 1,
        };
        let reaches = |from: u32, value: &Value| match value {
            Value::Loaded(Load::LinkName(_)) => from + 4 > at,
            Value::Loaded(Load::Network { length, .. }) => from + length.div_ceil(4) > at,
            Value::Constant(bytes) | Value::Masked(_, bytes) => {
                from + bytes.len().div_ceil(4) as u32 > at
            }
            Value::Loaded(_) => from + 1 > at,
        };
        self.registers
            .retain(|&from, old| from >= at + length || !reaches(from, old));
        self.registers.insert(at, value);
    }

    fn get(&self, register: u32) -> Option<&Value> {
        self.registers.get(&place(register))
    }

    fn term(&mut self, term: &Term, implicit: bool) {
        match term {
            Term::Load { to, what, name } => match (to, what) {
                (Some(to), what) if *what != Load::Other => self.put(*to, Value::Loaded(*what)),
                // How much of the registers this fills is not known.
                _ => {
                    self.registers.clear();
                    if name == "ct" {
                        self.rule.steps.push(Step::Test(Test::Connection));
                    }
                    self.words.push(name.clone());
                }
            },
            Term::Mask { from, to, mask } => match (self.get(*from).cloned(), mask) {
                (Some(Value::Loaded(what)), Some(mask)) => {
                    self.put(*to, Value::Masked(what, mask.clone()));
                }
                _ => self.registers.clear(),
            },
            Term::Constant { to, value } => self.put(*to, Value::Constant(value.clone())),
            Term::Compare {
                register,
                operator,
                value,
            } => {
                let (test, words) = self.compare(*register, *operator, value);
                self.step(Step::Test(test), words);
            }
            Term::Range {
                register,
                inverted,
                from,
                to,
            } => {
                let within = number(from).zip(number(to)).map(|range| vec![range]);
                let (test, words) = self.among(*register, from.len(), within, *inverted);
                self.step(Step::Test(test), words);
            }
            Term::Lookup {
                register,
                inverted,
                set,
                to,
            } => self.lookup(*register, *inverted, set, *to),
            Term::Verdict(verdict) => match self.verdict(verdict) {
                Some(verdict) => {
                    let words = match &verdict {
                        Verdict::Accept => "accept".to_owned(),
                        Verdict::Drop => "drop".to_owned(),
                        Verdict::Return => "return".to_owned(),
                        Verdict::Jump(_) | Verdict::Goto(_) => match verdict_target(self.program) {
                            Some(words) => words,
                            None => "jump".to_owned(),
                        },
                    };
                    self.step(Step::Verdict(verdict), words);
                }
                None if *verdict == Said::Continue => {}
                None => self.step(Step::Effect, "queue"),
            },
            Term::Extension {
                target,
                name,
                revision,
                info,
            } => self.extension(*target, name, *revision, info),
            Term::Counter if implicit => {}
            Term::Counter => self.step(Step::Effect, "counter"),
            Term::Nat {
                destination,
                addresses,
            } => self.nat(*destination, *addresses),
            Term::Fills { set } => self.step(Step::Effect, format!("add @{set}")),
            Term::Other(name) => self.other(name),
        }
    }

    fn other(&mut self, name: &str) {
        let words = match name {
            // Connections that are not tracked: packets are as they were.
            "notrack" => return self.words.push(name.to_owned()),
            "masq" => "masquerade",
            "redir" => "redirect",
            "flow_offload" => "flow add",
            "objref" => "counter, quota or limit by name",
            other => other,
        };
        // Replies to both are for this machine, not forwarded.
        let translates = matches!(name, "masq" | "redir");
        self.translations.any |= translates;
        if name == "redir" {
            self.redirects();
        }
        let step = if translates {
            Step::Translation
        } else {
            Step::Effect
        };
        self.step(step, words);
    }

    fn nat(&mut self, destination: bool, addresses: Option<(u32, u32)>) {
        let constant = |register| match self.get(register) {
            Some(Value::Constant(bytes)) => number(bytes),
            _ => None,
        };
        let of_this = |register| match self.get(register) {
            Some(Value::Constant(bytes)) => bytes.len() == self.version.size(),
            _ => true,
        };
        let range = addresses.and_then(|(a, b)| constant(a).zip(constant(b)));
        // To addresses of the other version it translates no packet of this one.
        if addresses.is_none_or(|(a, b)| of_this(a) && of_this(b)) {
            self.translate(destination, range);
        }
        self.step(Step::Translation, if destination { "dnat" } else { "snat" });
    }

    /// Its text is not complete yet.
    fn redirects(&mut self) {
        let program = self.program;
        let text = format!(
            "{} handle {}: redirect",
            key(self.family, &program.table, &program.chain),
            program.handle
        );
        self.translations.redirects.get_or_insert(text);
    }

    fn translate(&mut self, destination: bool, range: Option<Interval>) {
        // Replies come from where packets were sent to, and go to where they were said to be from.
        let side = if destination { Side::From } else { Side::To };
        self.translations.any = true;
        self.translations.back.push((side, range, String::new()));
    }

    fn extension(&mut self, target: bool, name: &str, revision: u32, info: &[u8]) {
        if !target {
            if !xt::is_pure(name, info) {
                self.step(Step::Effect, "");
            }
            if xt::is_strict(name) {
                self.step(Step::Strict, "");
            }
            return self.step(Step::Test(xt::test(name, revision, info)), name);
        }
        match xt::effect(name, revision, info, self.version) {
            xt::Effect::None => self.words.push(name.to_owned()),
            xt::Effect::Touches => self.step(Step::Effect, name),
            xt::Effect::Local => {
                self.translations.any = true;
                if name == "REDIRECT" {
                    self.redirects();
                }
                self.step(Step::Translation, name);
            }
            xt::Effect::Translates { destination, range } => {
                self.translate(destination, range);
                self.step(Step::Translation, name);
            }
        }
    }

    /// None for one that goes on, and for one that is not known.
    fn verdict(&self, verdict: &Said) -> Option<Verdict> {
        let chain = |name: &str| key(self.family, &self.program.table, name);
        Some(match verdict {
            Said::Accept => Verdict::Accept,
            Said::Drop => Verdict::Drop,
            Said::Return => Verdict::Return,
            Said::Jump(name) => Verdict::Jump(chain(name)),
            Said::Goto(name) => Verdict::Goto(chain(name)),
            Said::Continue | Said::Other(_) => return None,
        })
    }

    fn compare(&self, register: u32, operator: u32, value: &[u8]) -> (Test, String) {
        let size = value.len();
        let within = number(value).and_then(|n| {
            let last = prefix(0, 0, size).1;
            Some(match operator {
                0 | 1 => (n, n),
                2 => (0, n.checked_sub(1)?),
                3 => (0, n),
                4 => (n.checked_add(1).filter(|n| *n <= last)?, last),
                5 => (n, last),
                _ => return None,
            })
        });
        self.among(register, size, within.map(|w| vec![w]), operator == 1)
    }

    /// Whether a register's first `size` bytes are in intervals; none if these are not known.
    fn among(
        &self,
        register: u32,
        size: usize,
        within: Option<Vec<Interval>>,
        inverted: bool,
    ) -> (Test, String) {
        let not = if inverted { "!= " } else { "" };
        let Some((value, within)) = self.get(register).zip(within) else {
            return (Test::Unknown, "...".to_owned());
        };
        let unknown = |what: &str| (Test::Unknown, what.to_owned());
        match value {
            Value::Constant(_) => unknown("..."),
            Value::Loaded(Load::LinkName(side)) if size <= 16 && size > 0 => {
                let shift = 8 * (16 - size as u32);
                let widen = |&(a, b): &Interval| {
                    let low = if shift == 0 { 0 } else { (1 << shift) - 1 };
                    let up = |n: u128| n.checked_shl(shift).unwrap_or(0);
                    (up(a), up(b) | low)
                };
                let names: Vec<_> = within.iter().map(widen).collect();
                let words = format!("{} {not}{}", link_word(*side, "name"), names_text(&names));
                (Test::Name(*side, names, inverted), words)
            }
            Value::Loaded(Load::LinkIndex(side)) if size == 4 => {
                // Only single values: the host's byte order is not the order of indices.
                let host = |n: u128| u128::from(u32::from_ne_bytes((n as u32).to_be_bytes()));
                if within.iter().any(|(a, b)| a != b) {
                    return unknown(link_word(*side, ""));
                }
                let indices: Vec<_> = within.iter().map(|w| (host(w.0), host(w.1))).collect();
                let words = format!("{} {not}{}", link_word(*side, ""), list(&indices));
                (Test::Index(*side, indices, inverted), words)
            }
            Value::Loaded(Load::Version) if size == 1 => {
                let is = within
                    .iter()
                    .any(|w| (w.0..=w.1).contains(&self.version.nfproto()));
                (Test::Constant(is != inverted), String::new())
            }
            Value::Loaded(Load::Protocol) if size == 1 => {
                let words = format!("meta l4proto {not}{}", list(&within));
                (Test::Protocol(within, inverted), words)
            }
            Value::Loaded(Load::DestinationPort) if size == 2 => {
                let words = format!("dport {not}{}", list(&within));
                (Test::DestinationPort(within, inverted), words)
            }
            Value::Loaded(Load::Network {
                offset: 9,
                length: 1,
            }) if size == 1 && self.version == Version::V4 => {
                let words = format!("ip protocol {not}{}", list(&within));
                (Test::Protocol(within, inverted), words)
            }
            Value::Loaded(Load::Mark) | Value::Masked(Load::Mark, _) if size == 4 => {
                // Rule 2: 0, under whichever mask.
                let is = within.iter().any(|w| w.0 == 0);
                (Test::Constant(is != inverted), "meta mark".to_owned())
            }
            Value::Loaded(Load::EtherType) if size == 2 => {
                let is = within
                    .iter()
                    .any(|w| (w.0..=w.1).contains(&self.version.ether()));
                // A link-layer type that is not set makes no packet of the other family.
                (Test::Constant(is != inverted), String::new())
            }
            Value::Loaded(Load::DestinationType) if size == 4 => {
                let local = u128::from(u32::from_be_bytes(2u32.to_ne_bytes()));
                match within[..] {
                    [one] if one == (local, local) => (
                        Test::Local {
                            inverted,
                            by_vrf: true,
                        },
                        format!("fib daddr type {not}local"),
                    ),
                    _ => unknown("fib daddr type"),
                }
            }
            Value::Loaded(Load::Network { offset, length }) => {
                let Some((side, whole)) = self.version.address_at(*offset) else {
                    return unknown("payload");
                };
                let read = (*length as usize).min(whole);
                if *length as usize > whole || size > read || size == 0 {
                    return unknown("payload");
                }
                let shift = 8 * (whole - size) as u32;
                let low = if shift == 0 { 0 } else { (1u128 << shift) - 1 };
                let addresses: Vec<_> = within
                    .iter()
                    .map(|w| (w.0 << shift, w.1 << shift | low))
                    .collect();
                self.addresses(side, addresses, inverted)
            }
            Value::Masked(Load::Network { offset, length }, mask) => {
                let Some((side, whole)) = self.version.address_at(*offset) else {
                    return unknown("payload");
                };
                let full = *length as usize == whole && mask.len() == whole && size == whole;
                let one = within.first().filter(|w| w.0 == w.1 && within.len() == 1);
                let range = one.filter(|_| full).and_then(|w| {
                    let value = w.0.to_be_bytes();
                    masked(&value[16 - whole..], mask)
                });
                match range {
                    Some(range) => self.addresses(side, vec![range], inverted),
                    None => unknown("payload"),
                }
            }
            Value::Masked(..) | Value::Loaded(_) => unknown("..."),
        }
    }

    fn addresses(&self, side: Side, within: Vec<Interval>, inverted: bool) -> (Test, String) {
        let ip = match self.version {
            Version::V4 => "ip",
            Version::V6 => "ip6",
        };
        let not = if inverted { "!= " } else { "" };
        let word = if side == Side::From { "saddr" } else { "daddr" };
        let shown: Vec<_> = within.iter().map(|w| self.version.show(*w)).collect();
        let words = format!("{ip} {word} {not}{}", braces(&shown));
        (Test::Address(side, tidy(within), inverted), words)
    }
}

fn verdict_target(program: &Program) -> Option<String> {
    program.terms.iter().find_map(|term| match term {
        Term::Verdict(Said::Jump(chain)) => Some(format!("jump {chain}")),
        Term::Verdict(Said::Goto(chain)) => Some(format!("goto {chain}")),
        _ => None,
    })
}

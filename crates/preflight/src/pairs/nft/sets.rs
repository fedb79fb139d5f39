//! Sets and maps that rules look registers up in.

use raddle_netlink::probe::nft::{Contents, Load, Verdict as Said};

use super::super::model::{Interval, Step, Test, number, prefix};
use super::{Lowering, Value};

impl Lowering<'_> {
    pub(super) fn lookup(&mut self, register: u32, inverted: bool, set: &str, to: Option<u32>) {
        let is = |c: &&Contents| {
            c.family == self.family && c.table == self.program.table && c.name == set
        };
        let Some(found) = self.ruleset.sets.iter().find(is) else {
            self.registers.clear();
            return self.step(Step::Effect, format!("@{set}"));
        };
        // Before the lookup: a map that decides leaves the rule.
        if found.keeps {
            self.step(Step::Effect, format!("(@{set} counts by element)"));
        }
        let size = found.key_length as usize;
        match to {
            None => {
                let within = intervals(found);
                let (test, words) = self.among(register, size, within, inverted);
                // A set of some size for a key of another is of several keys.
                let test = if self.fits(register, size) {
                    test
                } else {
                    Test::Unknown
                };
                self.step(Step::Test(test), words);
            }
            Some(0) => {
                let step = self.map(register, found);
                self.step(step, format!("vmap @{set}"));
            }
            Some(_) => {
                self.registers.clear();
                self.step(Step::Test(Test::Unknown), format!("map @{set}"));
            }
        }
    }

    /// Whether the register holds one value of `size` bytes, and the set's keys are such.
    fn fits(&self, register: u32, size: usize) -> bool {
        match self.get(register) {
            Some(Value::Loaded(Load::LinkName(_))) => size == 16,
            Some(Value::Loaded(Load::Network { length, .. })) => *length as usize == size,
            Some(Value::Masked(_, mask)) => mask.len() == size,
            Some(Value::Loaded(Load::Version | Load::Protocol)) => size == 1,
            Some(Value::Loaded(Load::EtherType | Load::DestinationPort)) => size == 2,
            Some(Value::Loaded(_)) => size == 4,
            _ => false,
        }
    }

    fn map(&self, register: u32, set: &Contents) -> Step {
        let size = set.key_length as usize;
        let known = self.fits(register, size) && !set.intervals;
        let Some(elements) = &set.elements else {
            return Step::Effect;
        };
        let mut map = Vec::new();
        for element in elements.iter().filter(|e| !e.end) {
            let Some(said) = &element.verdict else {
                continue;
            };
            let verdict = self.verdict(said);
            if verdict.is_none() && *said != Said::Continue {
                return Step::Effect;
            }
            let key = element.key.as_ref().filter(|_| known);
            let within = key.and_then(|k| number(k)).map(|n| vec![(n, n)]);
            let (test, _) = self.among(register, size, within, false);
            map.push((test, verdict));
        }
        // What is in no element comes last.
        map.sort_by_key(|(test, _)| *test == Test::Unknown);
        Step::Map(map)
    }
}

/// What a set's elements make up; none where that is not known.
fn intervals(set: &Contents) -> Option<Vec<Interval>> {
    // A key of several is longer than a number.
    let size = set.key_length as usize;
    let last = (size <= 16).then(|| prefix(0, 0, size).1)?;
    let elements = set.elements.as_ref()?;
    let mut bounds = Vec::new();
    for element in elements {
        let key = element.key.as_ref()?;
        if key.len() != set.key_length as usize {
            return None;
        }
        bounds.push((number(key)?, !element.end));
    }
    if !set.intervals {
        return Some(bounds.into_iter().map(|(n, _)| (n, n)).collect());
    }
    // An end goes before a beginning at the same place.
    bounds.sort_unstable();
    let (mut within, mut open) = (Vec::new(), None);
    for (at, begins) in bounds {
        match (begins, open.take()) {
            (true, None) => open = Some(at),
            (true, Some(_)) => return None,
            (false, Some(first)) => within.push((first, at.checked_sub(1)?)),
            // nft puts an end at 0 in front.
            (false, None) if at == 0 => {}
            (false, None) => return None,
        }
    }
    within.extend(open.map(|first| (first, last)));
    Some(within)
}

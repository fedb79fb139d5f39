//! What is lost of what XDP programs have sent to links, raddle's or others, by the names of these links.

use std::collections::{BTreeMap, HashMap};

use raddle_control::LinkLoss;
use raddle_rib::Rib;
use raddle_xdp::{Engine, Loss};

/// Names that are told apart.
const NAMES_MOST: usize = 1024;

/// Counts what is lost, where the kernel lets it.
#[derive(Debug)]
pub(super) struct Losses {
    counting: Result<raddle_xdp::Losses, String>,
    ledger: Ledger,
}

impl Losses {
    /// Counts from now on. Where that cannot be it says so, and nothing else is worse for it.
    pub(super) fn count(engine: &Engine) -> Losses {
        let counting = raddle_xdp::Losses::attach(engine).map_err(|why| why.to_string());
        if let Err(why) = &counting {
            tracing::warn!("what the drivers of out-links lose is not counted: {why}");
        }
        Losses {
            counting,
            ledger: Ledger::default(),
        }
    }

    /// Why nothing is counted, if it is so.
    pub(super) fn not_counted(&self) -> Option<String> {
        self.counting.as_ref().err().cloned()
    }

    /// Sees what has been lost since it was called last.
    pub(super) fn look(&mut self, rib: &Rib) {
        if let Ok(counting) = &self.counting {
            let name = |index| rib.link(index).map(|link| &*link.name);
            self.ledger.take_in(counting.read(), name);
        }
    }

    /// What links have lost, those that have lost anything, by name.
    pub(super) fn by_link(&self) -> Vec<LinkLoss> {
        self.ledger.by_name.values().cloned().collect()
    }
}

/// Whose the counts of an index were.
///
/// 1. What an index has counted since the last look is the link's that has the index now. Looks are a second apart at most.
/// 2. Where no link has it, the one's that was seen to have it last, if it had lost anything before.
/// 3. A link is what bears its name: one that is renamed leaves what it has lost to its old name, and a new link of a name goes on from
///    what the last one has lost.
/// 4. Nothing is forgotten; what links lose whose names are not known, and those after the first [`NAMES_MOST`] names, is told
///    together, by no name.
#[derive(Debug, Default)]
struct Ledger {
    /// What each index had counted, and the name that its link had.
    seen: HashMap<u32, (Loss, String)>,
    by_name: BTreeMap<String, LinkLoss>,
}

impl Ledger {
    fn take_in<'a>(
        &mut self,
        counts: impl Iterator<Item = (u32, Loss)>,
        name: impl Fn(u32) -> Option<&'a str>,
    ) {
        for (index, now) in counts {
            let (last, last_name) = self.seen.entry(index).or_default();
            // 1 to 3
            if let Some(name) = name(index).filter(|name| name != last_name) {
                name.clone_into(last_name);
            }
            let lost = now.lost.saturating_sub(last.lost);
            let aborted = now.aborted.saturating_sub(last.aborted);
            *last = now;
            if lost == 0 && aborted == 0 {
                continue;
            }
            // 4
            let has_room = self.by_name.len() < NAMES_MOST || self.by_name.contains_key(last_name);
            let dev = if has_room { &**last_name } else { "" };
            let of = self.by_name.entry(dev.to_owned());
            let of = of.or_insert_with(|| LinkLoss {
                dev: dev.to_owned(),
                ..LinkLoss::default()
            });
            of.lost += lost;
            of.aborted += aborted;
            if lost > 0 {
                of.errno = now.error;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(lost: u64, aborted: u64, error: Option<i32>) -> Loss {
        Loss {
            lost,
            aborted,
            error,
        }
    }

    /// The counts of a look, and the names of the indices 1 and 2 at that time.
    type Look<'a> = (&'a [(u32, Loss)], [Option<&'a str>; 2]);

    /// What is told after these looks.
    fn told(looks: &[Look<'_>]) -> Vec<(String, u64, u64, Option<i32>)> {
        let mut ledger = Ledger::default();
        for (counts, names) in looks {
            ledger.take_in(counts.iter().copied(), |index| names[index as usize - 1]);
        }
        let told = ledger.by_name.into_values();
        told.map(|of| (of.dev, of.lost, of.aborted, of.errno))
            .collect()
    }

    #[test]
    fn an_index_counts_for_the_link_that_has_it() {
        let both = [Some("a"), Some("b")];
        let swapped = [Some("b"), Some("a")];
        let one = [(1, loss(3, 0, Some(6))), (2, loss(0, 2, None))];
        let more = [(1, loss(5, 0, None)), (2, loss(1, 2, Some(90)))];
        let row = |name: &str, lost, aborted, error| (name.to_owned(), lost, aborted, error);
        let rows = [row("a", 5, 0, None), row("b", 1, 2, Some(90))];
        assert_eq!(told(&[(&one, both), (&one, both), (&more, both)]), rows);
        // What was lost under a name stays there; what is lost from then on is the new one's.
        let rows = [row("a", 4, 0, Some(90)), row("b", 2, 2, None)];
        assert_eq!(
            told(&[(&one, both), (&one, swapped), (&more, swapped)]),
            rows
        );
    }

    #[test]
    fn links_that_have_gone_are_told() {
        let none = [None, None];
        let row = |name: &str, lost| (name.to_owned(), lost, 0, None);
        let counts = |first, second| [(1, loss(first, 0, None)), (2, loss(second, 0, None))];
        let looks = told(&[(&counts(3, 0), [Some("a"), None]), (&counts(4, 7), none)]);
        // One whose name was never seen has none.
        assert_eq!(looks, [row("", 7), row("a", 4)]);
        // Its index is another's now.
        let looks = told(&[
            (&counts(3, 0), [Some("a"), None]),
            (&counts(3, 0), [Some("c"), None]),
            (&counts(5, 0), [Some("c"), None]),
        ]);
        assert_eq!(looks, [row("a", 3), row("c", 2)]);
    }

    #[test]
    fn names_are_not_remembered_without_end() {
        let mut ledger = Ledger::default();
        let names: Vec<String> = (0..2 * NAMES_MOST).map(|n| format!("v{n}")).collect();
        for (lost, name) in (1..).zip(&names) {
            ledger.take_in([(1, loss(lost, 0, None))].into_iter(), |_| Some(name));
        }
        assert_eq!(ledger.by_name.len(), NAMES_MOST + 1);
        assert_eq!(ledger.by_name[""].lost, NAMES_MOST as u64);
        let all: u64 = ledger.by_name.values().map(|of| of.lost).sum();
        assert_eq!(all, names.len() as u64);
    }
}

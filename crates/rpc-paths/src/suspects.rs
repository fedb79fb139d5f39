//! Which links may have gone silent, as connections that went by them have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a link counts as one that may be silent; by then it has been asked, or nobody wants it.
const LATELY: Duration = Duration::from_secs(5);

/// Connections that have gone silent lately, and links that work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects {
    /// When, and the links out and back.
    silent: Vec<(Instant, BTreeSet<String>)>,
    /// Links that something has come by, and when.
    work: BTreeMap<String, Instant>,
    /// Whether there were any.
    were: bool,
    /// Those that have been named to be asked.
    asked: BTreeSet<String>,
    /// When links, routes or addresses have changed last.
    changed: Option<Instant>,
}

impl Suspects {
    /// A connection by these links, out and back, has gone silent. Shortly after a change that says nothing
    /// about them.
    pub(crate) fn lost(&mut self, links: impl IntoIterator<Item = String>, now: Instant) {
        let lately = |at: Instant| now.saturating_duration_since(at) < LATELY;
        if self.changed.is_some_and(lately) {
            return;
        }
        self.silent.push((now, links.into_iter().collect()));
    }

    /// Something has just come by a link, or in answer to what went by it.
    pub(crate) fn works(&mut self, link: &str, now: Instant) {
        self.work.insert(link.to_owned(), now);
    }

    /// Links, routes or addresses have changed: all may work again, and connections fall silent for a moment
    /// as packets find their new way.
    pub(crate) fn changed(&mut self, now: Instant) {
        *self = Suspects {
            changed: Some(now),
            ..Suspects::default()
        };
    }

    /// Suspects that have not been named before: they are to be asked.
    pub(crate) fn next_to_ask(&mut self, now: Instant) -> Vec<String> {
        let links = self.links(now);
        let new = links.difference(&self.asked).cloned().collect();
        self.asked = links;
        new
    }

    /// Whether the last suspects have ceased to be any since this was asked last.
    pub(crate) fn have_ended(&mut self, now: Instant) -> bool {
        let are = !self.links(now).is_empty();
        std::mem::replace(&mut self.were, are) && !are
    }

    /// The links that may be silent.
    ///
    /// 1. One that has worked since is not.
    /// 2. Of the others it is those that the most silent connections went by, out or back: one link that is dead
    ///    takes along all that go by it, and they have no other in common.
    pub(crate) fn links(&mut self, now: Instant) -> BTreeSet<String> {
        let lately = |at: Instant| now.saturating_duration_since(at) < LATELY;
        self.silent.retain(|(at, _)| lately(*at));
        self.work.retain(|_, at| lately(*at));
        let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
        for (at, links) in &self.silent {
            for link in links {
                if self.work.get(link).is_none_or(|since| since < at) {
                    *counts.entry(link).or_default() += 1;
                }
            }
        }
        let most = counts.values().copied().max();
        let those = counts.iter().filter(|(_, count)| Some(**count) == most);
        those.map(|(link, _)| (*link).clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_silent_connections_share_is_the_suspect() {
        let mut suspects = Suspects::default();
        let now = Instant::now();
        let links = |of: &[&str]| of.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        let set = |of: &[&str]| links(of).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(suspects.links(now), set(&[]));
        suspects.lost(links(&["a", "d"]), now);
        assert_eq!(suspects.links(now), set(&["a", "d"]));
        suspects.lost(links(&["d", "b"]), now);
        assert_eq!(suspects.links(now), set(&["d"]));
        suspects.works("d", now + Duration::from_millis(1));
        assert_eq!(suspects.links(now), set(&["a", "b"]));
        assert_eq!(suspects.next_to_ask(now), links(&["a", "b"]));
        assert_eq!(suspects.next_to_ask(now), links(&[]));
        assert!(!suspects.have_ended(now));
        assert_eq!(suspects.links(now + LATELY), set(&[]));
        assert!(suspects.have_ended(now + LATELY));
        assert!(!suspects.have_ended(now + LATELY));
        suspects.changed(now);
        suspects.lost(links(&["a"]), now);
        assert_eq!(suspects.links(now), set(&[]));
        suspects.lost(links(&["a"]), now + LATELY);
        assert_eq!(suspects.links(now + LATELY), set(&["a"]));
    }
}

//! Which addresses of a server answer, by which links: those that do not are left alone for a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long one that does not answer is left alone, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// An address of a server, and a link to it.
pub(crate) type Way = (SocketAddr, String);

/// What is wrong with a way.
#[derive(Clone, Debug)]
struct Ill {
    why: String,
    /// Whether it was logged.
    told: bool,
    until: Instant,
    pause: Duration,
}

/// The ways that do not answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    ill: BTreeMap<Way, Ill>,
}

impl Health {
    /// There was no answer: it is left alone for 10 s, and twice as long each time, at most 160 s.
    pub(crate) fn failed(&mut self, way: Way, why: String, now: Instant) {
        let before = self.ill.get(&way).map(|ill| ill.pause);
        let pause = before.map_or(PAUSES.0, |pause| (2 * pause).min(PAUSES.1));
        let until = now + pause;
        let told = self.ill.get(&way).is_some_and(|ill| ill.told);
        let ill = Ill {
            why,
            told,
            until,
            pause,
        };
        self.ill.insert(way, ill);
    }

    /// There was one. Whether it was logged that there was none.
    pub(crate) fn answered(&mut self, way: &Way) -> bool {
        self.ill.remove(way).is_some_and(|ill| ill.told)
    }

    /// What is wrong and was not logged yet; it counts as logged then.
    pub(crate) fn untold(&mut self) -> Vec<(Way, String)> {
        let untold = self.ill.iter_mut().filter(|(_, ill)| !ill.told);
        let told = untold.map(|(way, ill)| {
            ill.told = true;
            (way.clone(), ill.why.clone())
        });
        told.collect()
    }

    /// Links, routes or addresses have changed: all may answer again.
    pub(crate) fn forget(&mut self) {
        for ill in self.ill.values_mut() {
            (ill.until, ill.pause) = (Instant::now(), PAUSES.0);
        }
    }

    /// Whether it did not answer when it was asked last.
    pub(crate) fn is_ill(&self, server: SocketAddr, link: &str) -> bool {
        self.ill
            .keys()
            .any(|(s, l)| *s == server && l.as_str() == link)
    }

    /// One that is to be asked again; it is not named again before it has had the time to answer.
    pub(crate) fn next_to_ask(&mut self, now: Instant) -> Option<Way> {
        let (way, ill) = self.ill.iter_mut().find(|(_, ill)| ill.until <= now)?;
        ill.until = now + PAUSES.0;
        Some(way.clone())
    }

    /// What is wrong, for people.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.ill
            .iter()
            .map(|((server, link), ill)| format!("{server} by {link} is not used: {}", ill.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_is_asked_less_and_less_often() {
        let way: Way = ("10.0.0.2:2049".parse().unwrap(), "eth0".into());
        let mut now = Instant::now();
        let mut health = Health::default();
        for seconds in [10, 20, 40, 80, 160, 160] {
            health.failed(way.clone(), "connection refused".into(), now);
            assert!(health.is_ill(way.0, "eth0") && !health.is_ill(way.0, "eth1"));
            let most = Duration::from_secs(seconds);
            assert_eq!(
                health.next_to_ask(now + most - Duration::from_millis(1)),
                None
            );
            now += most;
            assert_eq!(health.next_to_ask(now), Some(way.clone()));
            assert_eq!(health.next_to_ask(now), None);
        }
        let notes: Vec<String> = health.notes().collect();
        assert_eq!(
            notes,
            ["10.0.0.2:2049 by eth0 is not used: connection refused"]
        );
        let told = vec![(way.clone(), "connection refused".to_owned())];
        assert_eq!(health.untold(), told);
        health.failed(way.clone(), "connection refused".into(), now);
        assert_eq!(health.untold(), []);
        assert!(health.answered(&way));
        assert!(!health.is_ill(way.0, "eth0"));
        health.failed(way.clone(), "connection refused".into(), now);
        assert!(!health.answered(&way));
    }
}

//! What is measured, in which order, and from which ports.

use std::collections::BTreeMap;

use raddle_lab::HashPolicy;
use serde::Serialize;

/// TCP streams of each measurement.
pub(super) const STREAMS: u16 = 3;
/// Where chosen source ports are looked for: below those that the system picks from.
const SEARCHED: std::ops::Range<u16> = 20_000..32_000;

/// Who forwards on leaves and spines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Forwarder {
    /// The kernel alone.
    Kernel,
    /// `raddle run` on every leaf and spine.
    Raddle,
}

/// Where the streams' source ports come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ports {
    /// The sender's kernel picks them, as for any connection.
    System,
    /// Prediction picks them, to cover every link.
    Chosen,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Measurement {
    /// Who forwards.
    pub forwarder: Forwarder,
    /// What is hashed.
    pub policy: HashPolicy,
    /// Where source ports come from.
    pub ports: Ports,
}

impl Forwarder {
    pub(super) fn name(self) -> &'static str {
        match self {
            Forwarder::Kernel => "kernel",
            Forwarder::Raddle => "raddle",
        }
    }
}

impl Ports {
    pub(super) fn name(self) -> &'static str {
        match self {
            Ports::System => "system",
            Ports::Chosen => "chosen",
        }
    }
}

/// The policy as people write it.
pub(super) fn policy_name(policy: HashPolicy) -> &'static str {
    match policy {
        HashPolicy::L3 => "L3",
        HashPolicy::L4 => "L4",
        HashPolicy::Inner => "inner",
        HashPolicy::Custom => "custom",
    }
}

/// All measurements, those of one forwarder together.
pub(super) fn measurements() -> impl Iterator<Item = Measurement> {
    let traffic = [
        (HashPolicy::L3, Ports::System),
        (HashPolicy::L4, Ports::System),
        (HashPolicy::L4, Ports::Chosen),
    ];
    [Forwarder::Kernel, Forwarder::Raddle]
        .into_iter()
        .flat_map(move |forwarder| {
            traffic.map(|(policy, ports)| Measurement {
                forwarder,
                policy,
                ports,
            })
        })
}

/// The first of `streams` consecutive source ports that spread as evenly as can be over `links`
/// links, by what `predict` says of each port. `None` when no run of ports does.
///
/// A run is even when the numbers of streams on any two links, unused ones included, differ by at
/// most one.
pub(super) fn choose_ports<E>(
    streams: u16,
    links: usize,
    mut predict: impl FnMut(u16) -> Result<String, E>,
) -> Result<Option<u16>, E> {
    let length = usize::from(streams);
    let mut window: Vec<String> = Vec::new();
    for port in SEARCHED {
        window.push(predict(port)?);
        if window.len() > length {
            window.remove(0);
        }
        if window.len() == length && is_even(&window, links) {
            return Ok(Some(port + 1 - streams));
        }
    }
    Ok(None)
}

fn is_even(taken: &[String], links: usize) -> bool {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for link in taken {
        *counts.entry(link).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let least = if counts.len() < links {
        0
    } else {
        counts.values().copied().min().unwrap_or(0)
    };
    most - least <= 1
}

/// Of how many runs one has all streams on the same link by chance, when each link is as likely.
pub(super) fn one_in(streams: u16, links: usize) -> u64 {
    (links as u64).saturating_pow(u32::from(streams.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn choose(links: usize, taken: &str) -> Option<u16> {
        let letters: Vec<char> = taken.chars().collect();
        let predict = |port: u16| {
            let at = usize::from(port - SEARCHED.start).min(letters.len() - 1);
            Ok::<_, Infallible>(letters[at].to_string())
        };
        choose_ports(3, links, predict)
            .unwrap()
            .map(|port| port - SEARCHED.start)
    }

    #[test]
    fn ports_cover_the_links() {
        assert_eq!(choose(2, "aaaabab"), Some(2));
        assert_eq!(choose(2, "aba"), Some(0));
        assert_eq!(choose(3, "aabbacb"), Some(3));
        assert_eq!(choose(2, "a"), None);
        // More links than streams: none of them twice.
        assert_eq!(choose(4, "aabad"), Some(2));
    }

    #[test]
    fn chance() {
        assert_eq!(one_in(3, 2), 4);
        assert_eq!(one_in(3, 4), 16);
        assert_eq!(one_in(1, 2), 1);
    }

    #[test]
    fn both_forwarders_get_the_same_traffic() {
        let all: Vec<_> = measurements().collect();
        let of = |forwarder| {
            let mine = all.iter().filter(move |m| m.forwarder == forwarder);
            mine.map(|m| (m.policy, m.ports)).collect::<Vec<_>>()
        };
        assert_eq!(all.len(), 6);
        assert_eq!(of(Forwarder::Kernel), of(Forwarder::Raddle));
    }
}

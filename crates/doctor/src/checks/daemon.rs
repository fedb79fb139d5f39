//! What a running daemon leaves to the kernel, in shares of the traffic that it might forward.

use super::super::facts::{Facts, Need, Punts};
use super::super::finding::{Found, Severity};
use super::Check;
use raddle_image::Reason;

pub(super) const CHECKS: &[Check] = &[Check {
    id: "left-to-kernel",
    title: "packets that a running raddle leaves to the kernel, with their shares",
    source: "raddle counters, raddle status",
    needs: &[Need::Daemon],
    run: left_to_kernel,
}];

/// Of fewer packets a share says little.
const FEW: u64 = 100;

/// Reasons of packets that no engine ever forwards: they are for this machine, for many, or of no protocol that is routed.
const NOT_TRANSIT: [Reason; 8] = [
    Reason::NotEnabled,
    Reason::NotIp,
    Reason::OtherMac,
    Reason::Local,
    Reason::Broadcast,
    Reason::Multicast,
    Reason::Anycast,
    Reason::LinkLocal,
];

/// One finding for each reason.
///
/// 1. Shares are of the packets that came in to be forwarded, since the daemon started: those that it forwarded or dropped, and
///    those that it left to the kernel, but for [`NOT_TRANSIT`].
/// 2. A tenth or more is a warning, a hundredth a note; less is not told.
/// 3. The rules by which packets are left so are its evidence.
fn left_to_kernel(facts: &Facts) -> Vec<Found> {
    let Some(punts) = &facts.punts else {
        return Vec::new();
    };
    let of_transit = |reason: &Reason| !NOT_TRANSIT.contains(reason);
    let by_reason = punts.by_reason.iter().filter_map(|(name, packets)| {
        let reason = Reason::ALL.iter().find(|reason| reason.name() == name)?;
        of_transit(reason).then_some((*reason, *packets))
    });
    let mut by_reason: Vec<(Reason, u64)> = by_reason.collect();
    by_reason.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
    let left: u64 = by_reason.iter().map(|(_, packets)| packets).sum();
    let all = left + punts.forwarded;
    if all < FEW {
        return Vec::new();
    }
    let told = by_reason.into_iter().filter_map(|(reason, packets)| {
        let severity = match packets.saturating_mul(100) / all {
            0 => return None,
            1..10 => Severity::Note,
            _ => Severity::Warning,
        };
        Some(one(punts, reason, (packets, all), severity))
    });
    told.collect()
}

fn one(punts: &Punts, reason: Reason, (packets, all): (u64, u64), severity: Severity) -> Found {
    let share = packets as f64 * 100.0 / all as f64;
    let effect = format!(
        "the kernel forwards them at its own speed: {}",
        read_out(reason.means())
    );
    let found = Found::new(
        severity,
        format!("raddle leaves {share:.1} % of the packets to the kernel: {reason}"),
        effect,
    );
    let counted = format!("{packets} of {all} packets since it started");
    let rules = punts.rules.iter().filter(|(of, _)| *of == reason.name());
    let rules = rules.map(|(_, rule)| rule.clone());
    let found = found.evidence(std::iter::once(counted).chain(rules));
    match reason.advice() {
        "" => found,
        advice => found.advice(read_out(advice)),
    }
}

/// A line of the book, for a terminal: without marks of code, and of links only what they say.
fn read_out(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some(at) = rest.find(['`', '[']) {
        text += &rest[..at];
        let link = rest[at..].strip_prefix('[').and_then(|link| {
            let (said, target) = link.split_once("](")?;
            Some((said, target.split_once(')')?.1))
        });
        rest = match link {
            Some((said, behind)) => {
                text += said;
                behind
            }
            None => &rest[at + 1..],
        };
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    fn seen(forwarded: u64, by_reason: &[(&str, u64)]) -> Vec<(Severity, String)> {
        let mut facts = healthy();
        let by_reason = by_reason.iter();
        facts.punts = Some(Punts {
            forwarded,
            by_reason: by_reason.map(|(of, n)| ((*of).to_owned(), *n)).collect(),
            rules: vec![("rules".into(), "IPv4 packets from 10.0.0.5/32".into())],
        });
        let found = left_to_kernel(&facts).into_iter();
        let mut all = found.map(|f| (f.severity, format!("{}; {:?}", f.what, f.evidence)));
        all.by_ref().collect()
    }

    #[test]
    fn the_book_is_read_out() {
        let said =
            read_out("`raddle status` names the rules ([firewalls](firewalls.md)), and so [on");
        assert_eq!(said, "raddle status names the rules (firewalls), and so on");
    }

    #[test]
    fn shares_are_of_what_is_there_to_be_forwarded() {
        assert!(seen(0, &[("firewall", 99)]).is_empty(), "too few");
        assert!(seen(10_000, &[("rules", 90), ("local", 10_000)]).is_empty());
        let found = seen(800, &[("local", 5_000), ("rules", 50), ("firewall", 150)]);
        let expected = [
            (
                Severity::Warning,
                "raddle leaves 15.0 % of the packets to the kernel: firewall; [\"150 of 1000 packets since it started\"]",
            ),
            (
                Severity::Note,
                "raddle leaves 5.0 % of the packets to the kernel: rules; [\"50 of 1000 packets since it started\", \
                 \"IPv4 packets from 10.0.0.5/32\"]",
            ),
        ];
        assert_eq!(
            found,
            expected.map(|(severity, said)| (severity, said.to_owned()))
        );
        // One that this version does not know.
        assert!(seen(1_000, &[("of-tomorrow", 900)]).is_empty());
    }
}

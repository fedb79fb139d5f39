//! The daemon: whether it answers, and what it leaves to the kernel, in shares of the traffic that it might forward.

use super::super::facts::{Daemon, Facts, Need, Punts};
use super::super::finding::{Found, Severity};
use super::Check;
use raddle_image::Reason;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "daemon-silent",
        title: "a raddle daemon that does not answer",
        source: "raddle status",
        needs: &[],
        run: silent,
    },
    Check {
        id: "programs-left",
        title: "XDP programs of a raddle daemon that does not run any more",
        source: "raddle status",
        needs: &[],
        run: left_behind,
    },
    Check {
        id: "left-to-kernel",
        title: "packets that a running raddle leaves to the kernel, with their shares",
        source: "raddle counters, raddle status",
        needs: &[Need::Daemon],
        run: left_to_kernel,
    },
];

/// Of fewer packets a share says little.
const FEW: u64 = 100;

/// Its programs forward by what it wrote last, until its deadline.
fn silent(facts: &Facts) -> Vec<Found> {
    let Daemon::Silent(why) = &facts.daemon else {
        return Vec::new();
    };
    let effect = "no change of routes, links or firewall counts for what raddle forwards; once its deadline has passed, its programs \
                  leave everything to the kernel";
    let found = Found::new(
        Severity::Warning,
        "the raddle daemon does not answer",
        effect,
    );
    let advice = "its log says what it did last (journalctl -u raddle); a process that is stopped goes on with kill -CONT, and one \
                  that hangs is restarted (systemctl restart raddle)";
    vec![found.evidence([why.as_str()]).advice(advice)]
}

/// What `on-exit = "keep"` has left: for a while they forward, and then nothing is.
fn left_behind(facts: &Facts) -> Vec<Found> {
    let Daemon::Gone { links, seconds } = &facts.daemon else {
        return Vec::new();
    };
    let (severity, effect) = match seconds {
        Some(0) => (
            Severity::Warning,
            "nobody has renewed their deadline, so that they leave everything to the kernel".to_owned(),
        ),
        Some(left) => (
            Severity::Note,
            format!(
                "for {left} s more they forward by the state of when their daemon ended, and then leave everything to the kernel"
            ),
        ),
        None => (
            Severity::Warning,
            "they forward by the state of when their daemon ended, until its deadline, and then leave everything to the kernel"
                .to_owned(),
        ),
    };
    let found = Found::new(
        severity,
        "XDP programs of a raddle daemon are attached, and no daemon runs",
        effect,
    );
    let found = found.evidence([format!("links: {}", links.join(", "))]);
    vec![found.fix("raddle detach").advice(
        "raddle run takes over what can be seen from where it starts; raddle detach removes it",
    )]
}

/// One finding for each reason.
///
/// 1. Shares are of the packets that came in to be forwarded, since the daemon started: those that it forwarded or dropped, and
///    those that it left to the kernel, if they were to be forwarded ([`Reason::is_transit`]).
/// 2. A tenth or more is a warning, a hundredth a note; less is not told.
/// 3. The rules by which packets are left so are its evidence.
/// 4. Beside such findings one more names the links that have left a hundredth or more of all that came in, where there are several.
fn left_to_kernel(facts: &Facts) -> Vec<Found> {
    let Daemon::Runs(punts) = &facts.daemon else {
        return Vec::new();
    };
    let by_reason = punts.by_reason.iter().filter_map(|(name, packets)| {
        let reason = Reason::ALL.iter().find(|reason| reason.name() == name)?;
        reason.is_transit().then_some((*reason, *packets))
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
    let mut told: Vec<Found> = told.collect();
    told.extend(by_link(punts).filter(|_| !told.is_empty()));
    told
}

/// Rule 4.
fn by_link(punts: &Punts) -> Option<Found> {
    if punts.by_link.len() < 2 {
        return None;
    }
    let share = |(_, received, left): &&(String, u64, u64)| {
        *left as f64 * 100.0 / (*received).max(1) as f64
    };
    let mut links: Vec<_> = punts
        .by_link
        .iter()
        .filter(|link| share(link) >= 1.0)
        .collect();
    links.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let told = links.iter().map(|link| {
        let (name, received, left) = link;
        format!(
            "{name}: {:.1} %, {left} of {received} packets that came in",
            share(link)
        )
    });
    let found = Found::new(
        Severity::Note,
        "by which links the packets come in that raddle leaves to the kernel".to_owned(),
        "shares are of everything that came in by the link, also what was for this machine; links that are not named here have \
         left less than a hundredth of that",
    );
    (!links.is_empty()).then(|| found.evidence(told))
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
        facts.daemon = Daemon::Runs(Punts {
            forwarded,
            by_reason: by_reason.map(|(of, n)| ((*of).to_owned(), *n)).collect(),
            by_link: vec![],
            rules: vec![("rules".into(), "IPv4 packets from 10.0.0.5/32".into())],
            lost: vec![],
        });
        let found = left_to_kernel(&facts).into_iter();
        let mut all = found.map(|f| (f.severity, format!("{}; {:?}", f.what, f.evidence)));
        all.by_ref().collect()
    }

    #[test]
    fn links_are_named_with_their_shares() {
        let mut facts = healthy();
        let link = |name: &str, received, left| (name.to_owned(), received, left);
        facts.daemon = Daemon::Runs(Punts {
            forwarded: 900,
            by_reason: vec![("firewall".into(), 100)],
            by_link: vec![
                link("eth0", 600, 3),
                link("eth1", 300, 30),
                link("eth2", 150, 67),
            ],
            rules: vec![],
            lost: vec![],
        });
        let found = left_to_kernel(&facts);
        let expected = [
            "eth2: 44.7 %, 67 of 150 packets that came in",
            "eth1: 10.0 %, 30 of 300 packets that came in",
        ];
        assert_eq!(found[1].evidence, expected);
        // One link has them all.
        let Daemon::Runs(punts) = &mut facts.daemon else {
            unreachable!("it was made so");
        };
        punts.by_link.truncate(1);
        assert_eq!(left_to_kernel(&facts).len(), 1);
    }

    #[test]
    fn a_daemon_that_does_not_do_its_work_is_told() {
        let mut facts = healthy();
        assert!(silent(&facts).is_empty() && left_behind(&facts).is_empty());
        facts.daemon = Daemon::Silent("it hangs".to_owned());
        let found = silent(&facts);
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(found[0].evidence, ["it hangs"]);
        let mut left = |seconds| {
            let links = vec!["eth0".to_owned(), "eth1".to_owned()];
            facts.daemon = Daemon::Gone { links, seconds };
            left_behind(&facts).remove(0)
        };
        assert_eq!(left(Some(9)).severity, Severity::Note);
        assert!(left(Some(9)).effect.contains("for 9 s more"));
        assert_eq!(left(Some(0)).severity, Severity::Warning);
        assert_eq!(left(None).evidence, ["links: eth0, eth1"]);
        assert_eq!(left(None).fix.as_deref(), Some("raddle detach"));
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

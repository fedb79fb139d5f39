//! The hash seed: set, and right beside those of other routers.

use super::super::facts::{Facts, Need, OwnKey};
use super::super::finding::{Found, Severity};
use super::Check;
use raddle_preflight::seed;
use raddle_select::KernelVersion;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "seed-unset",
        title: "no hash seed is set, so choices cannot be predicted",
        source: "fib_multipath_hash_from_keys; 4ee2a8cace3f (Linux 6.11)",
        needs: &[Need::Kernel],
        run: seed_unset,
    },
    Check {
        id: "seed-shared",
        title: "routers of neighbouring tiers have the same seed (polarisation)",
        source: "fib_multipath_hash_from_keys; the random seed is one for all namespaces",
        needs: &[Need::Namespaces],
        run: seed_shared,
    },
    Check {
        id: "seed-differs",
        title: "seeds differ where both directions should take the same way (--symmetric)",
        source: "__flow_hash_consistentify puts both directions in one order; the seed must be \
                 equal too",
        needs: &[],
        run: seed_differs,
    },
];

const RANDOM: &str =
    "sysctl -w net.ipv4.fib_multipath_hash_seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')";

/// What there is to do about a seed that cannot be set.
fn newer() -> String {
    format!("this kernel {}", seed::CANNOT_BE_SET)
}

/// 1. Only where routes have several paths, and the seed reads 0.
/// 2. The kernel's own key could be read: a note.
/// 3. A kernel older than 6.11 has no such setting: a note.
/// 4. Otherwise a warning.
fn seed_unset(facts: &Facts) -> Vec<Found> {
    if facts.settings.hash_seed != 0 || !facts.has_multipath() {
        return Vec::new();
    }
    if facts.own_key == OwnKey::Known {
        let effect = "the kernel's own key, which it draws at boot, could be read: raddle goes by it and moves no flow; \
                      choices change with every reboot, and who is not root has to look for the key before predicting them \
                      (raddle key find, from Linux 6.11 on)";
        let found = Found::new(Severity::Note, "the hash seed is not set", effect);
        let found = found.evidence(["net.ipv4.fib_multipath_hash_seed reads 0 or is not there"]);
        return vec![match KernelVersion::may_have_hash_seed(facts.kernel) {
            true => found.fix(RANDOM).advice(
                "only where others have to know it: setting it moves flows once; a file in /etc/sysctl.d makes it last",
            ),
            false => found,
        }];
    }
    let effect = "the key is the kernel's own, drawn at boot, and has not been read: which path a flow takes \
                  cannot be predicted here and changes with every reboot; a daemon that cannot read it either leaves such choices to the kernel";
    let why = match &facts.own_key {
        OwnKey::Unknown(why) => Some(why.clone()),
        _ => None,
    };
    match facts.kernel {
        Some(version) if !KernelVersion::may_have_hash_seed(Some(version)) => {
            let what = "this kernel has no hash seed that could be set";
            let found = Found::new(Severity::Note, what, effect);
            let evidence = [format!("Linux {version}; the setting came with 6.11")];
            vec![found.evidence(evidence.into_iter().chain(why))]
        }
        _ => {
            let found = Found::new(Severity::Warning, "the hash seed is not set", effect);
            let evidence = ["net.ipv4.fib_multipath_hash_seed = 0".to_owned()];
            let found = found.evidence(evidence.into_iter().chain(why));
            let advice = "as root the key can be read, and a daemon does; raddle key find looks for it without privilege; \
                          setting a seed moves flows once, and a file in /etc/sysctl.d makes it last";
            vec![found.fix(RANDOM).advice(advice)]
        }
    }
}

/// 1. Where routes have several paths, and no symmetry is asked for.
/// 2. A seed that the user named for a router of the next tier is ours: serious.
/// 3. Another namespace of this machine forwards with our seed: a warning; a note where both are
///    0, which is the same random key for all namespaces.
fn seed_shared(facts: &Facts) -> Vec<Found> {
    if facts.asked.symmetric || !facts.has_multipath() {
        return Vec::new();
    }
    let ours = facts.settings.hash_seed;
    let told = facts
        .asked
        .peer_seeds
        .iter()
        .filter(|seed| **seed == ours && ours != 0)
        .count();
    let others = facts.others.iter().filter(|other| other.seed == ours);
    let others: Vec<String> = others
        .map(|other| {
            let (place, policy) = (&other.place, other.policy4);
            format!("{place}: seed {}, IPv4 hash policy {policy}", other.seed)
        })
        .collect();
    let severity = match (told, others.is_empty(), ours) {
        (1.., ..) => Severity::Serious,
        (0, true, _) => return Vec::new(),
        (0, false, 0) => Severity::Note,
        (0, false, _) => Severity::Warning,
    };
    let what = match ours {
        0 => "other namespaces share the random seed of this kernel".to_owned(),
        _ => format!("routers next to this one have its hash seed, {ours}"),
    };
    let effect = "a router behind this one sees only flows that chose alike here, and with the same \
                  seed and policy they choose alike again: some of its paths carry nothing \
                  (polarisation)";
    let mut evidence = vec![format!(
        "here: seed {ours}, IPv4 hash policy {}",
        facts.policy(4)
    )];
    if told > 0 {
        evidence.push(format!("told by --peers-seed: {ours}"));
    }
    evidence.extend(others);
    let found = Found::new(severity, what, effect).evidence(evidence);
    if ours == 0 && !KernelVersion::may_have_hash_seed(facts.kernel) {
        return vec![found.advice(newer())];
    }
    let advice = "each tier wants a seed of its own; routers of one tier may share one";
    vec![found.fix(RANDOM).advice(advice)]
}

/// With `--symmetric`:
///
/// 1. No seed is set here: it cannot equal any other machine's. Serious.
/// 2. A seed that the user named is not ours: serious.
fn seed_differs(facts: &Facts) -> Vec<Found> {
    if !facts.asked.symmetric {
        return Vec::new();
    }
    let ours = facts.settings.hash_seed;
    let peers = &facts.asked.peer_seeds;
    let what = match (ours, peers.iter().any(|seed| *seed != ours)) {
        (0, _) => "symmetry is wanted, but the hash seed is not set",
        (_, true) => "symmetry is wanted, but hash seeds differ",
        (_, false) => return Vec::new(),
    };
    let mut evidence = vec![format!("here: {ours}")];
    evidence.extend(
        peers
            .iter()
            .map(|seed| format!("told by --peers-seed: {seed}")),
    );
    let found = Found::new(
        Severity::Serious,
        what,
        "the two directions of a flow take different ways, and firewalls in between see half of it",
    );
    let found = found.evidence(evidence);
    if ours == 0 && !KernelVersion::may_have_hash_seed(facts.kernel) {
        return vec![found.advice(newer())];
    }
    let first = peers.iter().copied().find(|seed| *seed != 0);
    let wanted = first.unwrap_or(ours.max(1));
    let fix = format!("sysctl -w net.ipv4.fib_multipath_hash_seed={wanted}");
    let found = found.fix(fix);
    vec![found.advice("on both sides of what needs symmetry")]
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use crate::facts::Other;
    use raddle_select::KernelVersion;

    #[test]
    fn a_seed_wants_to_be_set_where_it_can() {
        let mut facts = multipath();
        assert_clean("seed-unset", &facts);
        facts.settings.hash_seed = 0;
        assert_found(
            "seed-unset",
            &facts,
            Severity::Warning,
            &["hash_seed = 0", "sysctl -w"],
        );
        facts.kernel = Some(KernelVersion::new(6, 10, 9));
        assert_found("seed-unset", &facts, Severity::Note, &["6.10.9"]);
        facts.kernel = None;
        assert_found("seed-unset", &facts, Severity::Warning, &[]);
        facts.own_key = OwnKey::Unknown("CAP_BPF is missing".into());
        assert_found("seed-unset", &facts, Severity::Warning, &["CAP_BPF"]);
        facts.own_key = OwnKey::Known;
        assert_found("seed-unset", &facts, Severity::Note, &["reads 0"]);
        assert_clean("seed-unset", &with(facts, &[]));
    }

    #[test]
    fn equal_seeds_polarise() {
        let mut facts = multipath();
        facts.asked.peer_seeds = vec![5, 78];
        let other = |seed| Other {
            place: "namespace leaf2".into(),
            seed,
            policy4: 1,
        };
        facts.others = vec![other(5)];
        assert_clean("seed-shared", &facts);
        facts.others.push(other(77));
        assert_found(
            "seed-shared",
            &facts,
            Severity::Warning,
            &["leaf2", "seed 77"],
        );
        facts.asked.peer_seeds.push(77);
        assert_found(
            "seed-shared",
            &facts,
            Severity::Serious,
            &["--peers-seed: 77"],
        );
        facts.asked.symmetric = true;
        assert_clean("seed-shared", &facts);
    }

    #[test]
    fn a_seed_that_cannot_be_set_is_not_advised() {
        let mut facts = multipath();
        facts.kernel = Some(KernelVersion::new(6, 1, 192));
        facts.settings.hash_seed = 0;
        facts.asked.symmetric = true;
        facts.asked.peer_seeds = vec![78];
        let shared = Other {
            place: "namespace leaf2".into(),
            seed: 0,
            policy4: 1,
        };
        for symmetric in [true, false] {
            facts.asked.symmetric = symmetric;
            facts.others = vec![shared.clone()];
            for check in super::super::all() {
                for found in (check.run)(&facts) {
                    let fix = found.fix.unwrap_or_default();
                    assert!(!fix.contains("hash_seed"), "{}: {fix}", check.id);
                }
            }
        }
        facts.asked.symmetric = true;
        assert_found("seed-differs", &facts, Severity::Serious, &["Linux 6.11"]);
    }

    #[test]
    fn an_unset_seed_is_shared_by_namespaces_only() {
        let mut facts = multipath();
        facts.settings.hash_seed = 0;
        facts.asked.peer_seeds = vec![0];
        assert_clean("seed-shared", &facts);
        facts.others = vec![Other {
            place: "namespace a".into(),
            seed: 0,
            policy4: 0,
        }];
        assert_found("seed-shared", &facts, Severity::Note, &["random seed"]);
    }

    #[test]
    fn unequal_seeds_break_symmetry() {
        let mut facts = multipath();
        facts.asked.peer_seeds = vec![78];
        assert_clean("seed-differs", &facts);
        facts.asked.symmetric = true;
        assert_found(
            "seed-differs",
            &facts,
            Severity::Serious,
            &["here: 77", "78", "seed=78"],
        );
        facts.asked.peer_seeds = vec![77, 77];
        assert_clean("seed-differs", &facts);
        facts.settings.hash_seed = 0;
        assert_found(
            "seed-differs",
            &facts,
            Severity::Serious,
            &["not set", "seed=77"],
        );
    }
}

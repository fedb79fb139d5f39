//! Packets that come with a hash: policy 1 then takes it, and looks at nothing else.

use super::super::facts::{Facts, Need};
use super::super::finding::{Found, Severity, count};
use super::Check;

const SOURCE: &str =
    "fib_multipath_hash (policy 1: skb->l4_hash), skb_get_hash, skb_set_hash_from_sk";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rps-hash",
        title: "receive packet steering supplies the hash of policy 1",
        source: SOURCE,
        needs: &[Need::Steering],
        run: rps_hash,
    },
    Check {
        id: "nic-hash",
        title: "the NIC's receive hash is the hash of policy 1",
        source: SOURCE,
        needs: &[Need::Offloads],
        run: nic_hash,
    },
    Check {
        id: "veth-hash",
        title: "veth links carry the hashes of sockets at their far end",
        source: SOURCE,
        needs: &[],
        run: veth_hash,
    },
];

/// The names of links that packets are forwarded from, of these, where policy 1 chooses for a family
/// with several paths.
fn concerned(facts: &Facts, is_one: impl Fn(u32) -> bool) -> Vec<String> {
    let l4 = [4, 6]
        .iter()
        .any(|f| facts.policy(*f) == 1 && facts.multipath_routes(*f) > 0);
    let links = facts.receivers().filter(|link| l4 && is_one(link.index));
    links.map(|link| link.name.clone()).collect()
}

const UNPREDICTABLE: &str = "the kernel chooses by that hash in place of the seed and the fields: a flow \
    still keeps to one path, but which one changes with that hash's key; raddle explain says which, where it can read the key";

fn rps_hash(facts: &Facts) -> Vec<Found> {
    let links = concerned(facts, |index| facts.receive.steered.contains(&index));
    let Some(first) = links.first() else {
        return Vec::new();
    };
    let found = Found::new(
        Severity::Warning,
        format!(
            "receive packet steering (RPS) is on, on {}",
            count(links.len(), "link")
        ),
        UNPREDICTABLE,
    );
    let fix = format!("for f in /sys/class/net/{first}/queues/rx-*/rps_*; do echo 0 > $f; done");
    vec![
        found
            .evidence(
                links
                    .iter()
                    .map(|name| format!("{name}: rps_cpus or rps_flow_cnt is set")),
            )
            .fix(fix),
    ]
}

fn nic_hash(facts: &Facts) -> Vec<Found> {
    let links = concerned(facts, |index| facts.receive.hashed.contains(&index));
    let Some(first) = links.first() else {
        return Vec::new();
    };
    let found = Found::new(
        Severity::Warning,
        format!(
            "the NIC gives its receive hash with packets, on {}",
            count(links.len(), "link")
        ),
        UNPREDICTABLE,
    );
    let fix = format!("ethtool -K {first} rxhash off");
    vec![
        found
            .evidence(
                links
                    .iter()
                    .map(|name| format!("{name}: receive-hashing: on")),
            )
            .fix(fix),
    ]
}

/// A note for veth links: whether there are sockets at the far end, nobody tells.
fn veth_hash(facts: &Facts) -> Vec<Found> {
    let is_veth = |index| {
        facts
            .links
            .get(&index)
            .is_some_and(|l| l.kind.as_deref() == Some("veth"))
    };
    let links = concerned(facts, is_veth);
    if links.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        format!(
            "packets may bring a socket's hash with them, on {}",
            count(links.len(), "veth link")
        ),
        "what a TCP or connected UDP socket at the far end sends is chosen for by the socket's random \
         hash, not by seed and fields; packets from beyond the far end are not concerned",
    );
    vec![found.evidence(links)]
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    #[test]
    fn hashes_that_come_along_matter_with_policy_1() {
        let mut facts = multipath();
        for id in ["rps-hash", "nic-hash", "veth-hash"] {
            assert_clean(id, &facts);
        }
        facts.receive.steered = vec![1, 9];
        facts.receive.hashed = vec![2, 3];
        facts.links.get_mut(&1).unwrap().kind = Some("veth".into());
        assert_found(
            "rps-hash",
            &facts,
            Severity::Warning,
            &["1 link", "eth1/queues"],
        );
        assert_found(
            "nic-hash",
            &facts,
            Severity::Warning,
            &["2 links", "ethtool -K eth2 rxhash off"],
        );
        assert_found(
            "veth-hash",
            &facts,
            Severity::Note,
            &["1 veth link", "eth1"],
        );
        let mut l3 = facts.clone();
        (l3.settings.hash_policy4, l3.settings.hash_policy6) = (0, 2);
        let mut host = facts.clone();
        host.devices.clear();
        for facts in [l3, host, with(facts, &[])] {
            for id in ["rps-hash", "nic-hash", "veth-hash"] {
                assert_clean(id, &facts);
            }
        }
    }
}

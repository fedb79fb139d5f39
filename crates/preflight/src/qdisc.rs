//! Queueing disciplines: a redirect by XDP goes straight to the driver, past the qdisc of the link
//! it leaves by. For most that costs fairness under congestion; some exist to limit what is sent,
//! and such a limit would be gone.

use std::collections::BTreeMap;

use raddle_netlink::probe::tc::Qdisc;
use raddle_rib::event::Link;

use super::{Finding, Role, Severity};

/// What a qdisc would no longer do to what is sent through its link; none for one that only
/// queues.
///
/// | qdisc | |
/// |---|---|
/// | tbf, htb, hfsc, cbq | limit the rate |
/// | cake with `bandwidth`, fq with `maxrate`, mqprio with `shaper bw_rlimit` | limit the rate |
/// | taprio, cbs, etf | keep to a time table, or to reserved rates |
/// | netem, blackhole, plug | delay, lose or hold packets: that is their purpose |
/// | teql | spreads packets over links by itself |
/// | noqueue, pfifo, bfifo, pfifo_fast, pfifo_head_drop, mq, multiq, mqprio | queue only |
/// | fq, cake without a rate, fq_codel, fq_pie, codel, pie, dualpi2, red, gred, sfb, choke, hhf, sfq, skbprio | queue fairly, keep queues short |
/// | prio, drr, ets, qfq | order between classes; their children are looked at as well |
/// | ingress, clsact | no queue |
/// | any other | unknown, so taken for one that limits |
///
/// Priority between classes is lost to XDP as well, but only matters when the link is congested,
/// and no packet is sent that would not have been.
fn bypassed(qdisc: &Qdisc) -> Option<&'static str> {
    match qdisc.kind.as_str() {
        "tbf" | "htb" | "hfsc" | "cbq" => Some("limits the rate"),
        "fq" | "cake" | "mqprio" => qdisc.limits_rate.then_some("limits the rate"),
        "taprio" | "cbs" | "etf" => Some("keeps to a time table or reserved rates"),
        "netem" | "blackhole" | "plug" => Some("delays, loses or holds packets"),
        "noqueue" | "pfifo" | "bfifo" | "pfifo_fast" | "pfifo_head_drop" | "mq" | "multiq"
        | "fq_codel" | "fq_pie" | "codel" | "pie" | "dualpi2" | "red" | "gred" | "sfb"
        | "choke" | "hhf" | "sfq" | "skbprio" | "prio" | "drr" | "ets" | "qfq" | "ingress"
        | "clsact" => None,
        kind if kind.starts_with("teql") => Some("spreads packets over links by itself"),
        _ => Some("is unknown to raddle and may limit the rate"),
    }
}

/// Rejects links as out-links for any qdisc of theirs, the root or one below it, that [`bypassed`]
/// names, unless the user allows it.
pub(super) fn judge(links: &[Link], qdiscs: &[Qdisc], allowed: &[String]) -> Vec<Finding> {
    let named = links.iter().map(|l| (l.index, l.name.clone())).collect();
    judge_named(&named, qdiscs, allowed)
}

/// As [`judge`], for links by index.
pub(super) fn judge_named(
    links: &BTreeMap<u32, String>,
    qdiscs: &[Qdisc],
    allowed: &[String],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, name) in links.iter().filter(|(_, name)| !allowed.contains(name)) {
        let worst = qdiscs
            .iter()
            .filter(|q| q.index == *index)
            .find_map(|q| Some((q, bypassed(q)?)));
        if let Some((qdisc, does)) = worst {
            let why = format!(
                "XDP would send past it, so the kernel sends there; to send past it all the \
                 same: --allow-qdisc {name}"
            );
            let what = format!("qdisc {} {does}", qdisc.kind);
            findings.push(Finding::new(Severity::LinkRejected, what, why).on(name, Role::Out));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qdisc(index: u32, kind: &str, limits_rate: bool) -> Qdisc {
        Qdisc {
            index,
            kind: kind.into(),
            limits_rate,
            ..Qdisc::default()
        }
    }

    #[test]
    fn what_limits_is_told_from_what_queues() {
        for kind in [
            "tbf",
            "htb",
            "hfsc",
            "netem",
            "taprio",
            "etf",
            "teql0",
            "brand_new",
        ] {
            assert!(bypassed(&qdisc(1, kind, false)).is_some(), "{kind}");
        }
        for kind in [
            "noqueue",
            "mq",
            "fq_codel",
            "pfifo_fast",
            "prio",
            "ets",
            "drr",
            "clsact",
        ] {
            assert!(bypassed(&qdisc(1, kind, false)).is_none(), "{kind}");
        }
        for kind in ["fq", "cake", "mqprio"] {
            assert!(bypassed(&qdisc(1, kind, true)).is_some(), "{kind}");
            assert!(bypassed(&qdisc(1, kind, false)).is_none(), "{kind}");
        }
    }

    #[test]
    fn a_child_counts_and_a_name_allows() {
        let links: BTreeMap<_, _> = [(1, "a"), (2, "b"), (3, "c")]
            .map(|(i, n)| (i, n.into()))
            .into();
        let qdiscs = [
            qdisc(1, "mq", false),
            qdisc(1, "fq", true),
            qdisc(2, "mq", false),
            qdisc(2, "fq", false),
            qdisc(3, "tbf", false),
        ];
        let rejected = |allowed: &[String]| -> Vec<_> {
            let findings = judge_named(&links, &qdiscs, allowed);
            assert!(findings.iter().all(|f| f.role == Role::Out));
            findings.into_iter().filter_map(|f| f.link).collect()
        };
        assert_eq!(rejected(&[]), ["a", "c"]);
        assert_eq!(rejected(&["c".into()]), ["a"]);
    }
}

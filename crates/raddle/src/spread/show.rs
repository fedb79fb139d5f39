//! What `raddle spread` found, as text and as a chart.

use std::fmt::Write;

use super::{LinkLoad, Links, Report, TURNS, TierReport};
use crate::error::Failure;
use raddle_plan::paths::percent;

/// Loads by link, or what each tier leaves.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    if let Some(links) = &report.links {
        let total: u64 = links.loads.iter().map(|link| link.load).sum();
        let _ = writeln!(out, "{} flows, load {total}", report.flows);
        let wide = links
            .loads
            .iter()
            .map(|link| link.dev.len())
            .max()
            .unwrap_or(0)
            .max(4);
        let _ = writeln!(
            out,
            "\n{:wide$}  {:>12}  {:>9}  {:>9}",
            "link", "load", "share", "expected"
        );
        for link in &links.loads {
            let (dev, load) = (&link.dev, link.load);
            let is = percent(load as f64 / total.max(1) as f64);
            let expected = percent(link.expected / of_expected(links));
            let _ = writeln!(out, "{dev:wide$}  {load:>12}  {is:>9}  {expected:>9}");
        }
        if let Some(even) = links.evenness.as_ref().filter(|_| total > 0) {
            let _ = writeln!(
                out,
                "\n{} of {} links in use, as good as {:.2} equally loaded ones; the fullest has {:.3} times the mean",
                even.used, even.paths, even.effective, even.imbalance
            );
        }
        for (reason, count) in &links.elsewhere {
            let what = match *reason == TURNS {
                true => "have no path of their own: their packets take turns, by weight",
                false => "have no path here",
            };
            let _ = writeln!(out, "{count} of the flows {what}: {reason}");
        }
    }
    if let Some(tiers) = &report.tiers {
        let _ = writeln!(out, "{} flows through {} tiers", report.flows, tiers.len());
        let _ = writeln!(
            out,
            "\ntier  policy        seed  width  in use  expected   paths  used  effective  expected  max/mean  expected"
        );
        for (i, tier) in tiers.iter().enumerate() {
            let (counted, expected) = (&tier.counted, &tier.expected);
            let _ = writeln!(
                out,
                "{:>4}  {:>6}  {:>10}  {:>5}  {:>4.0} %  {:>6.0} %  {:>6}  {:>4}  {:>9.2}  {:>8.2}  {:>8.3}  {:>8.3}",
                i + 1,
                tier.tier.policy,
                tier.tier.seed,
                tier.tier.width,
                counted.in_use * 100.0,
                expected.in_use * 100.0,
                counted.links.paths,
                counted.links.used,
                counted.links.effective,
                expected.links.effective,
                counted.links.imbalance,
                expected.links.imbalance
            );
        }
        verdict(&mut out, tiers);
    }
    out
}

/// The load that is expected of all links: that of flows without a path of their own is part of it.
fn of_expected(links: &Links) -> f64 {
    let sum: f64 = links.loads.iter().map(|link| link.expected).sum();
    if sum > 0.0 { sum } else { 1.0 }
}

/// Names the tiers whose hash an earlier one has used up.
fn verdict(out: &mut String, tiers: &[TierReport]) {
    for (i, tier) in tiers.iter().enumerate() {
        if tier.expected.in_use > 1.0 - 1e-9 {
            continue;
        }
        let same = |t: &TierReport| t.tier.hash() == tier.tier.hash();
        if let Some(first) = tiers[..i].iter().position(same) {
            let _ = writeln!(
                out,
                "\ntier {} is polarised: it hashes as tier {} (policy {}, seed {}), and its routers use {:.0} % of \
                 their links; give it a seed of its own",
                i + 1,
                first + 1,
                tier.tier.policy,
                tier.tier.seed,
                tier.expected.in_use * 100.0
            );
        }
    }
}

/// Draws the loads, or the share of links in use by tier.
pub(super) fn draw(report: &Report, file: &std::path::Path) -> Result<(), Failure> {
    let bars =
        |pairs: [(&str, f64); 2]| pairs.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let (title, unit, groups): (_, _, Vec<raddle_plot::Group>) =
        match (&report.links, &report.tiers) {
            (Some(links), _) => {
                let total = links.loads.iter().map(|link| link.load).sum::<u64>().max(1) as f64;
                let group = |link: &LinkLoad| {
                    let both = [
                        ("load", link.load as f64 / total * 100.0),
                        ("expected", link.expected / of_expected(links) * 100.0),
                    ];
                    (link.dev.clone(), bars(both))
                };
                (
                    "Load by link",
                    "% of the load",
                    links.loads.iter().map(group).collect(),
                )
            }
            (None, tiers) => {
                let group = |(i, tier): (usize, &TierReport)| {
                    let both = [
                        ("counted", tier.counted.in_use * 100.0),
                        ("expected", tier.expected.in_use * 100.0),
                    ];
                    (
                        format!("tier {}\nseed {}", i + 1, tier.tier.seed),
                        bars(both),
                    )
                };
                let tiers = tiers.iter().flatten().enumerate().map(group);
                (
                    "Links in use at routers that flows reach",
                    "% of links in use",
                    tiers.collect(),
                )
            }
        };
    raddle_plot::bars(file, title, &groups, unit).map_err(|e| Failure::system(e.to_string()))
}

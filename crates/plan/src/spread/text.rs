//! How flows lie, as text and as a chart.

use std::fmt;

use super::{LinkLoad, Links, NO_MEMBER, ROUND_ROBIN, Report, TierReport};
use crate::chart::Chart;
use crate::paths::percent;

/// Loads by link, or what each tier leaves.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(links) = &self.links {
            let total: u64 = links.loads.iter().map(|link| link.load).sum();
            writeln!(out, "{} flows, load {total}", self.flows)?;
            let wide = links
                .loads
                .iter()
                .map(|link| link.text().len())
                .max()
                .unwrap_or(0)
                .max(4);
            writeln!(
                out,
                "\n{:wide$}  {:>12}  {:>9}  {:>9}",
                "link", "load", "share", "expected"
            )?;
            for link in &links.loads {
                let (dev, load) = (link.text(), link.load);
                let is = percent(load as f64 / total.max(1) as f64);
                let expected = percent(link.expected / of_expected(links));
                writeln!(out, "{dev:wide$}  {load:>12}  {is:>9}  {expected:>9}")?;
            }
            if let Some(even) = links.evenness.as_ref().filter(|_| total > 0) {
                writeln!(
                    out,
                    "\n{} of {} links in use, as good as {:.2} equally loaded ones; the fullest has {:.3} times the mean",
                    even.used, even.paths, even.effective, even.imbalance
                )?;
            }
            for (reason, count) in &links.elsewhere {
                let what = match *reason {
                    ROUND_ROBIN => {
                        "have no path of their own: their packets go round robin, by weight"
                    }
                    NO_MEMBER => "leave by a member of a bond that is not known of such flows",
                    _ => "have no path here",
                };
                writeln!(out, "{count} of the flows {what}: {reason}")?;
            }
            links
                .bonds
                .iter()
                .try_for_each(|bond| writeln!(out, "{bond}"))?;
        }
        if let Some(tiers) = &self.tiers {
            let s = if tiers.len() == 1 { "" } else { "s" };
            writeln!(out, "{} flows through {} tier{s}", self.flows, tiers.len())?;
            writeln!(
                out,
                "\ntier  policy        seed  width  in use  expected   paths  used  effective  expected  max/mean  expected"
            )?;
            for (i, tier) in tiers.iter().enumerate() {
                let (counted, expected) = (&tier.counted, &tier.expected);
                writeln!(
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
                )?;
            }
            verdict(out, tiers)?;
        }
        Ok(())
    }
}

/// The load that is expected of all links: that of flows without a path of their own is part of it.
fn of_expected(links: &Links) -> f64 {
    let sum: f64 = links.loads.iter().map(|link| link.expected).sum();
    if sum > 0.0 { sum } else { 1.0 }
}

/// Names the tiers whose hash an earlier one has used up.
fn verdict(out: &mut fmt::Formatter<'_>, tiers: &[TierReport]) -> fmt::Result {
    for (i, tier) in tiers.iter().enumerate() {
        if tier.expected.in_use > 1.0 - 1e-9 {
            continue;
        }
        let same = |t: &TierReport| t.tier.hash() == tier.tier.hash();
        if let Some(first) = tiers[..i].iter().position(same) {
            writeln!(
                out,
                "\ntier {} is polarised: it hashes as tier {} (policy {}, seed {}), and its routers use {:.0} % of \
                 their links; give it a seed of its own",
                i + 1,
                first + 1,
                tier.tier.policy,
                tier.tier.seed,
                tier.expected.in_use * 100.0
            )?;
        }
    }
    Ok(())
}

impl LinkLoad {
    /// `eth1`, `eth2 of bond0`.
    fn text(&self) -> String {
        match &self.member {
            Some(member) => format!("{member} of {}", self.dev),
            None => self.dev.clone(),
        }
    }
}

impl Report {
    /// The loads, or the share of links in use by tier.
    pub fn chart(&self) -> Chart {
        let bars =
            |pairs: [(&str, f64); 2]| pairs.map(|(name, value)| (name.to_owned(), value)).to_vec();
        if let Some(links) = &self.links {
            let total = links.loads.iter().map(|link| link.load).sum::<u64>().max(1) as f64;
            let group = |link: &LinkLoad| {
                let both = [
                    ("load", link.load as f64 / total * 100.0),
                    ("expected", link.expected / of_expected(links) * 100.0),
                ];
                (link.text(), bars(both))
            };
            return Chart {
                title: "Load by link".to_owned(),
                unit: "% of the load",
                groups: links.loads.iter().map(group).collect(),
            };
        }
        let group = |(i, tier): (usize, &TierReport)| {
            let both = [
                ("counted", tier.counted.in_use * 100.0),
                ("expected", tier.expected.in_use * 100.0),
            ];
            let label = format!("tier {}\nseed {}", i + 1, tier.tier.seed);
            (label, bars(both))
        };
        let tiers = self.tiers.iter().flatten().enumerate();
        Chart {
            title: "Links in use at routers that flows reach".to_owned(),
            unit: "% of links in use",
            groups: tiers.map(group).collect(),
        }
    }
}

//! What a change would move, for people.

use std::fmt::Write;

use super::report::{Flows, PathShare, Report};
use crate::chart::Chart;
use crate::paths::{Named, percent};

/// Flows and moves that are listed without `--all`.
const FEW: usize = 20;

impl Report {
    /// Shares, what moves from where to where, the least possible, the best order, flows: the first ones, or `all`.
    pub fn text(&self, all: bool) -> String {
        render(self, all)
    }

    /// Why the change is beyond the budget, where it is.
    pub fn over_budget(&self) -> Option<String> {
        let budget = self.budget.filter(|_| self.within_budget == Some(false))?;
        Some(format!(
            "{} would move, which is more than the budget of {}",
            percent(self.most()),
            percent(budget)
        ))
    }

    /// The shares before and after.
    pub fn chart(&self) -> Chart {
        let group = |share: &PathShare| {
            let label = match share.path.via {
                Some(via) => format!("{}\n{via}", share.path.link()),
                None => share.path.link().to_owned(),
            };
            let bars = [("before", share.before), ("after", share.after)];
            let bars = bars.map(|(name, share)| (name.to_owned(), share * 100.0));
            (label, bars.to_vec())
        };
        Chart {
            title: format!("{}: {} moves", self.changes.join(", "), percent(self.moved)),
            unit: "% of the hash space",
            groups: self.paths.iter().map(group).collect(),
        }
    }
}

fn render(report: &Report, all: bool) -> String {
    let mut out = String::new();
    let iif = report
        .iif
        .as_ref()
        .map_or(String::new(), |iif| format!(" iif {iif}"));
    let changes = report.changes.join(", ");
    let _ = writeln!(
        out,
        "{}{iif}: {}; what if {changes}",
        report.dst, report.route
    );
    if report.route_after != report.route {
        let _ = writeln!(out, "then {}", report.route_after);
    }
    for bond in &report.bonds {
        let _ = writeln!(out, "{bond}");
    }
    let others = report.bonds_after.iter();
    for bond in others.filter(|bond| !report.bonds.contains(bond)) {
        let _ = writeln!(out, "then {bond}");
    }
    let moved = percent(report.moved);
    let _ = match report.moved_hashes {
        None if report.by_member => writeln!(
            out,
            "moves {moved} of flows, as expected of very many, whose hash shares bonds out evenly"
        ),
        Some(hashes) => writeln!(
            out,
            "moves {moved} of the hash space ({hashes} of 2147483648 hashes)"
        ),
        None => writeln!(
            out,
            "moves {moved} of flows, as expected of hashes that are drawn anew"
        ),
    };
    let _ = writeln!(out, "at least {} would have to", percent(report.least));
    if let Some(end) = report.in_the_end.filter(|end| *end > report.moved) {
        let _ = writeln!(
            out,
            "and {} in the end, when buckets {}",
            percent(end),
            match report.forced {
                true => "are idle or the unbalanced timer has run out",
                false => "are idle: flows in use stay",
            }
        );
    }
    let most = FEW.max(report.paths.len());
    let wide = width(report);
    let _ = writeln!(out, "\n{:wide$}  {:>9}  {:>9}", "path", "before", "after");
    for share in &report.paths {
        let (before, after) = (percent(share.before), percent(share.after));
        let _ = writeln!(out, "{:wide$}  {before:>9}  {after:>9}", share.path.text());
    }
    if !report.moves.is_empty() {
        let _ = writeln!(out, "\n{:wide$}  {:wide$}  {:>9}", "from", "to", "moves");
    }
    let shown = if all { report.moves.len() } else { most };
    for step in report.moves.iter().take(shown) {
        let (from, to) = (place(step.from.as_ref()), place(step.to.as_ref()));
        let share = percent(step.share);
        let _ = writeln!(out, "{from:wide$}  {to:wide$}  {share:>9}");
    }
    more(&mut out, report.moves.len(), shown);
    if let Some(order) = &report.order {
        let members: Vec<String> = order.members.iter().map(Named::text).collect();
        let best = if order.proven {
            "the best order"
        } else {
            "a better order"
        };
        let _ = writeln!(
            out,
            "\nin {best} of members {} would move (choose it when the group is made: to change the \
             order moves flows too):\n  {}",
            percent(order.moved),
            members.join(", ")
        );
    }
    if let Some(flows) = &report.flows {
        list(&mut out, flows, all);
    }
    out
}

fn list(out: &mut String, flows: &Flows, all: bool) {
    let _ = writeln!(
        out,
        "\n{} of {} flows on the route move ({}); {} were given",
        flows.moved,
        flows.on_route,
        percent(flows.share()),
        flows.given
    );
    if flows.load != flows.on_route as u64 {
        let _ = writeln!(out, "{} of {} bytes", flows.moved_load, flows.load);
    }
    let shown = if all { flows.list.len() } else { FEW };
    for flow in flows.list.iter().take(shown) {
        let (from, to) = (place(flow.from.as_ref()), place(flow.to.as_ref()));
        let _ = writeln!(out, "  {}: {from} => {to}", flow.flow);
    }
    more(out, flows.list.len(), shown);
}

fn more(out: &mut String, count: usize, shown: usize) {
    if count > shown {
        let _ = writeln!(out, "  and {} more (--all, -j)", count - shown);
    }
}

fn place(path: Option<&Named>) -> String {
    path.map_or_else(|| "nowhere".to_owned(), Named::text)
}

fn width(report: &Report) -> usize {
    let paths = report.paths.iter().map(|share| share.path.text().len());
    paths.chain(["nowhere".len()]).max().unwrap_or(0)
}

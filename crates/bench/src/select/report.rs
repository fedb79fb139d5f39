//! The results of `raddle-bench select`, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::choices::{self, How, WIDTHS};
use super::decisions::{self, ROUTES};
use super::{Results, median, ratio, xdp};
use raddle_text::Table;

/// Width 512 over width 2.
const WIDTH_GOAL: f64 = 1.5;
/// Cycles of a whole decision in batch.
const CYCLES_GOAL: f64 = 60.0;
/// Nanoseconds that L4 selection adds in the XDP program.
const XDP_GOAL: f64 = 25.0;

/// Tables, and what was aimed at.
pub(super) fn text(results: &Results) -> String {
    let mut out = String::new();
    for v6 in [false, true] {
        choices_text(&mut out, &results.choices, v6);
    }
    let _ = write!(out, "width 512 over width 2, goal at most {WIDTH_GOAL}");
    for how in [How::Single, How::Batch] {
        let worst = worst_width(&results.choices, how);
        let met = verdict(worst <= WIDTH_GOAL);
        let _ = write!(out, "; {}: up to {worst:.2}, {met}", how.name());
    }
    out += "\n\n";
    decisions_text(&mut out, &results.decisions);
    match &results.xdp {
        Some(cells) => xdp_text(&mut out, cells),
        None => out += "skipped: the XDP program: test runs need root\n",
    }
    let _ = writeln!(out, "medians of {} interleaved rounds", results.rounds);
    out
}

/// How a goal stands.
fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn family(v6: bool) -> &'static str {
    if v6 { "IPv6" } else { "IPv4" }
}

fn policy_name(policy: u8) -> String {
    let name = raddle_select::Policy::from_number(policy);
    name.map_or_else(String::new, |name| format!("{policy} {name}"))
}

fn choices_text(out: &mut String, cells: &[choices::Cell], v6: bool) {
    let mut headings = vec![
        format!("{}, ns a choice", family(v6)),
        "members:".to_owned(),
    ];
    headings.extend(WIDTHS.map(|width| width.to_string()));
    headings.push("512/2".to_owned());
    let mut table = Table::new(headings);
    for policy in 0..4 {
        let ours = || cells.iter().filter(|c| c.v6 == v6 && c.policy == policy);
        for (i, how) in How::ALL.into_iter().enumerate() {
            let mut row = vec![policy_name(policy), how.name().to_owned()];
            row.extend(ours().map(|cell| format!("{:.1}", median(&cell.ns[i]))));
            row.push(format!("{:.2}", widths(cells, v6, policy, i)));
            table.row(row);
        }
        let mut row = vec![policy_name(policy), "scan/single".to_owned()];
        row.extend(ours().map(|cell| format!("{:.2}", ratio(&cell.ns[2], &cell.ns[0]))));
        table.row(row);
    }
    let _ = writeln!(out, "{}", table.render());
}

/// How much more width 512 costs than width 2, by place in [`How::ALL`].
fn widths(cells: &[choices::Cell], v6: bool, policy: u8, how: usize) -> f64 {
    let of = |width| {
        let same = |c: &&choices::Cell| (c.v6, c.policy, c.width) == (v6, policy, width);
        cells.iter().find(same).map(|cell| &cell.ns[how])
    };
    let ends = (WIDTHS.last().and_then(|last| of(*last)), of(WIDTHS[0]));
    match ends {
        (Some(wide), Some(narrow)) => ratio(wide, narrow),
        _ => f64::NAN,
    }
}

/// The largest ratio of all families and policies.
fn worst_width(cells: &[choices::Cell], how: How) -> f64 {
    let place = How::ALL.iter().position(|h| *h == how).unwrap_or(0);
    let rows = cells.iter().map(|cell| (cell.v6, cell.policy));
    rows.map(|(v6, policy)| widths(cells, v6, policy, place))
        .fold(0.0, f64::max)
}

fn decisions_text(out: &mut String, cells: &[decisions::Cell]) {
    let mut table = Table::new([
        "IPv4, whole decision in batch",
        "members",
        "cycles",
        "ns",
        "Linux patches of 2015, cycles",
        "goal, below",
        "",
    ]);
    for cell in cells {
        let cycles = median(&cell.cycles);
        let (shown, met) = match cell.cycles.is_empty() {
            true => ("-".to_owned(), ""),
            false => (
                format!("{cycles:.1}"),
                if cycles < CYCLES_GOAL {
                    "met"
                } else {
                    "missed"
                },
            ),
        };
        table.row([
            cell.selection.name().to_owned(),
            cell.width.to_string(),
            shown,
            format!("{:.1}", median(&cell.ns)),
            cell.selection.in_2015().to_string(),
            format!("{CYCLES_GOAL:.0}"),
            met.to_owned(),
        ]);
    }
    *out += &table.render();
    let _ = writeln!(
        out,
        "from a packet to an adjacency, {} routes; cycles of the time stamp counter; another machine in 2015\n",
        2 * ROUTES
    );
}

/// Nanoseconds that selection adds, round by round.
fn added(with: &[f64], one: &[f64]) -> f64 {
    median(&with.iter().zip(one).map(|(a, b)| a - b).collect::<Vec<_>>())
}

fn xdp_text(out: &mut String, cells: &[xdp::Cell]) {
    let mut table = Table::new([
        "XDP program, test runs, ns a packet",
        "one nexthop",
        "L4 among 2 adds",
        "L4 among 64 adds",
        "goal, at most",
        "",
    ]);
    for cell in cells {
        let adds = [&cell.of_2, &cell.of_64].map(|with| added(with, &cell.one));
        let met = adds.iter().all(|ns| *ns <= XDP_GOAL);
        table.row([
            family(cell.v6).to_owned(),
            format!("{:.0}", added(&cell.one, &cell.floor)),
            format!("{:.0}", adds[0]),
            format!("{:.0}", adds[1]),
            format!("{XDP_GOAL:.0}"),
            verdict(met).to_owned(),
        ]);
    }
    let _ = writeln!(out, "{}", table.render());
}

/// The same as JSON, with every round.
pub(super) fn json(results: &Results) -> Value {
    let choice = |cell: &choices::Cell| {
        json!({
            "family": if cell.v6 { "inet6" } else { "inet" },
            "policy": cell.policy,
            "members": cell.width,
            "single_ns": cell.ns[0],
            "batch_ns": cell.ns[1],
            "linear_scan_ns": cell.ns[2],
            "scan_to_single": ratio(&cell.ns[2], &cell.ns[0]),
        })
    };
    let decision = |cell: &decisions::Cell| {
        json!({
            "selection": cell.selection.name(),
            "members": cell.width,
            "ns": cell.ns,
            "cycles": cell.cycles,
            "cycles_2015": cell.selection.in_2015(),
        })
    };
    let test_runs = |cell: &xdp::Cell| {
        json!({
            "family": if cell.v6 { "inet6" } else { "inet" },
            "floor_ns": cell.floor,
            "one_nexthop_ns": cell.one,
            "l4_of_2_ns": cell.of_2,
            "l4_of_64_ns": cell.of_64,
            "l4_of_2_adds_ns": added(&cell.of_2, &cell.one),
            "l4_of_64_adds_ns": added(&cell.of_64, &cell.one),
        })
    };
    let xdp = results.xdp.as_deref();
    json!({
        "rounds": results.rounds,
        "routes": 2 * ROUTES,
        "choices": results.choices.iter().map(choice).collect::<Vec<_>>(),
        "worst_width_512_to_2": {
            "single": worst_width(&results.choices, How::Single),
            "batch": worst_width(&results.choices, How::Batch),
        },
        "decisions": results.decisions.iter().map(decision).collect::<Vec<_>>(),
        "xdp": xdp.map(|cells| cells.iter().map(test_runs).collect::<Vec<_>>()),
        "goals": {
            "width_512_to_2": WIDTH_GOAL,
            "decision_cycles": CYCLES_GOAL,
            "xdp_adds_ns": XDP_GOAL,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::decisions::Selection;
    use super::*;

    fn results() -> Results {
        let choices = [false, true].into_iter().flat_map(|v6| {
            (0..4).flat_map(move |policy| {
                WIDTHS.map(|width| {
                    let ns = 10.0 + width as f64 / 256.0;
                    choices::Cell {
                        v6,
                        policy,
                        width,
                        ns: [vec![ns], vec![ns / 2.0], vec![ns * width as f64]],
                    }
                })
            })
        });
        let decision = |(selection, cycles): (Selection, Vec<f64>)| decisions::Cell {
            selection,
            width: 64,
            ns: vec![9.0],
            cycles,
        };
        let decisions = [
            (Selection::RoundRobin, vec![30.0, 90.0, 20.0]),
            (Selection::L4, vec![70.0]),
            (Selection::L3, vec![]),
        ];
        Results {
            rounds: 3,
            choices: choices.collect(),
            decisions: decisions.map(decision).into(),
            xdp: Some(vec![xdp::Cell {
                v6: false,
                floor: vec![20.0],
                one: vec![50.0, 60.0, 70.0],
                of_2: vec![70.0, 100.0, 90.0],
                of_64: vec![90.0, 91.0, 111.0],
            }]),
        }
    }

    #[test]
    fn goals_are_held_against_medians() {
        let said = text(&results());
        let line = |begin: &str| -> String {
            let line = said.lines().find(|line| line.starts_with(begin));
            let words = line.unwrap_or_default().split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            line("width 512"),
            "width 512 over width 2, goal at most 1.5; single: up to 1.20, met; batch: up to 1.20, met"
        );
        assert_eq!(line("round-robin"), "round-robin 64 30.0 9.0 75 60 met");
        assert_eq!(line("L4"), "L4 64 70.0 9.0 129 60 missed");
        assert_eq!(line("L3"), "L3 64 - 9.0 108 60");
        let xdp = said.lines().rfind(|line| line.starts_with("IPv4"));
        let words: Vec<&str> = xdp.unwrap_or_default().split_whitespace().collect();
        assert_eq!(words, ["IPv4", "30", "20", "40", "25", "missed"]);
        assert!(said.contains("scan/single"), "{said}");
    }

    #[test]
    fn a_dearer_width_misses_the_goal() {
        let mut results = results();
        results.choices[8].ns[1] = vec![50.0];
        results.xdp = None;
        let said = text(&results);
        assert!(said.contains("batch: up to 9.99, missed"), "{said}");
        assert!(said.contains("skipped: the XDP program"), "{said}");
        let json = json(&results);
        assert_eq!(json["worst_width_512_to_2"]["batch"], 50.0 / 5.00390625);
        assert_eq!(json["xdp"], Value::Null);
        assert_eq!(json["decisions"][1]["cycles_2015"], 129);
    }
}

//! The results, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::measure::{Cell, Column, Results, Row};
use crate::select::{self, median};
use raddle_text::Table;

fn rates(cell: &Cell, row: Row) -> &[f64] {
    let place = Row::ALL.iter().position(|r| *r == row);
    place.map_or(&[], |place| &cell.rates[place])
}

fn rate(cell: &Cell, row: Row) -> f64 {
    median(rates(cell, row))
}

fn ratio(cell: &Cell, row: Row, to: Row) -> f64 {
    select::ratio(rates(cell, row), rates(cell, to))
}

/// The same without what the generator costs, which every row has in it.
fn ratio_alone(cell: &Cell, row: Row, to: Row) -> f64 {
    select::ratio_without(rates(cell, row), rates(cell, to), rates(cell, Row::Absorb))
}

fn title(cell: &Cell, routes: u32) -> String {
    let family = if cell.v6 { "IPv6" } else { "IPv4" };
    match cell.column {
        Column::One => format!("{family}, one nexthop"),
        Column::Ecmp2 => format!("{family}, 2-way ECMP L4"),
        Column::Ecmp64 => format!("{family}, 64-way ECMP L4"),
        Column::RpLoose => format!("{family}, 2-way, rp_filter loose"),
        Column::RpStrict => format!("{family}, 2-way, rp_filter strict"),
        Column::Firewall => format!("{family}, 2-way, beside a firewall"),
        Column::Rules => format!("{family}, 2-way, by a routing rule"),
        Column::Vrf => format!("{family}, 2-way, in a VRF"),
        Column::Bond => format!("{family}, by a bond of two links"),
        Column::VlanIn => format!("{family}, in by a VLAN"),
        Column::VlanOut => format!("{family}, out by a VLAN"),
        Column::Vlan => format!("{family}, in and out by VLANs"),
        Column::BridgeIn => format!("{family}, in by a bridge"),
        Column::BridgeOut => format!("{family}, out by a bridge"),
        Column::VxlanOut => format!("{family}, out through a VXLAN"),
        Column::GreOut => format!("{family}, out through GRE"),
        Column::Full => format!("{family}, {routes} routes, random destinations"),
    }
}

/// A table of rates and ratios.
pub(super) fn text(results: &Results) -> String {
    let mut table = Table::new([
        "Mpps, one core",
        "kernel",
        "fib_lookup",
        "raddle",
        "bare",
        "generator",
        "raddle/kernel",
        "raddle/fib_lookup",
        "raddle/bare",
        "alone/kernel",
        "alone/fib_lookup",
    ]);
    for cell in &results.cells {
        let mut row = vec![title(cell, results.routes)];
        row.extend(Row::ALL.map(|r| format!("{:.3}", rate(cell, r))));
        for to in [Row::Kernel, Row::FibLookup, Row::Redirect] {
            row.push(format!("{:.2}", ratio(cell, Row::Raddle, to)));
        }
        for to in [Row::Kernel, Row::FibLookup] {
            row.push(format!("{:.2}", ratio_alone(cell, Row::Raddle, to)));
        }
        table.row(row);
    }
    let mut out = table.render();
    for cell in results.cells.iter().filter(|c| !c.punted.is_empty()) {
        let reasons = cell.punted.iter();
        let reasons: Vec<String> = reasons.map(|(r, n)| format!("{n} {r}")).collect();
        let _ = writeln!(
            out,
            "not a measurement of raddle: {}: the kernel got packets of its row ({})",
            title(cell, results.routes),
            reasons.join(", ")
        );
    }
    for (column, why) in &results.skipped {
        let _ = writeln!(out, "skipped: {column}: {why}");
    }
    if let Some((wide, narrow)) = widths(results) {
        let _ = writeln!(out, "64-way over 2-way ECMP: {:.2}", wide / narrow);
    }
    if let Some(took) = results.mirrored {
        let _ = writeln!(
            out,
            "mirroring {} routes: {:.2} s",
            results.routes,
            took.as_secs_f64()
        );
    }
    if let Some(took) = results.changed {
        let milliseconds = took.as_secs_f64() * 1e3;
        let _ = writeln!(
            out,
            "one nexthop group change behind them: {milliseconds:.2} ms"
        );
    }
    let _ = writeln!(
        out,
        "medians of {} interleaved rounds of {} packets; generator and sink on the same core\n\
         alone: without what generator, sink and one of the two links take together, which are not the router",
        results.rounds,
        count(results.packets)
    );
    out
}

/// Millions where it is so many.
fn count(packets: u32) -> String {
    match packets % 1_000_000 {
        0 => format!("{} million", packets / 1_000_000),
        _ => packets.to_string(),
    }
}

/// raddle's IPv4 rates over 64 and over 2 nexthops.
fn widths(results: &Results) -> Option<(f64, f64)> {
    let of = |column| {
        let cell = results
            .cells
            .iter()
            .find(|cell| cell.column == column && !cell.v6)?;
        Some(rate(cell, Row::Raddle))
    };
    Some((of(Column::Ecmp64)?, of(Column::Ecmp2)?))
}

/// The same as JSON, with every round.
pub(super) fn json(results: &Results) -> Value {
    let cells: Vec<Value> = results
        .cells
        .iter()
        .map(|cell| {
            let rows: serde_json::Map<String, Value> = Row::ALL
                .iter()
                .zip(&cell.rates)
                .map(|(row, rates)| (row.name().to_owned(), json!(rates)))
                .collect();
            json!({
                "column": cell.column.name(),
                "family": if cell.v6 { "inet6" } else { "inet" },
                "mpps": rows,
                "punted": cell.punted,
                "raddle_to_kernel": ratio(cell, Row::Raddle, Row::Kernel),
                "raddle_to_fib_lookup": ratio(cell, Row::Raddle, Row::FibLookup),
                "raddle_to_bare": ratio(cell, Row::Raddle, Row::Redirect),
                "raddle_alone_to_kernel": ratio_alone(cell, Row::Raddle, Row::Kernel),
                "raddle_alone_to_fib_lookup": ratio_alone(cell, Row::Raddle, Row::FibLookup),
            })
        })
        .collect();
    json!({
        "rounds": results.rounds,
        "packets": results.packets,
        "skipped": results.skipped.iter().map(|(column, why)| json!({ "column": column, "why": why })).collect::<Vec<_>>(),
        "routes": results.routes,
        "cells": cells,
        "mirror_seconds": results.mirrored.map(|d| d.as_secs_f64()),
        "group_change_seconds": results.changed.map(|d| d.as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let rates = [
            vec![1.0, 10.0, 2.0],
            vec![2.0, 20.0, 4.0],
            vec![4.0, 40.0, 8.0],
            vec![8.0, 80.0, 16.0],
            vec![8.0, 80.0, 16.0],
        ];
        let cell = Cell {
            column: Column::Ecmp2,
            v6: false,
            rates,
            punted: BTreeMap::new(),
        };
        assert_eq!(ratio(&cell, Row::Raddle, Row::Kernel), 4.0);
        assert_eq!(ratio(&cell, Row::Raddle, Row::Redirect), 0.5);
        // 7/8 of a microsecond over 1/8 of one.
        assert_eq!(ratio_alone(&cell, Row::Raddle, Row::Kernel), 7.0);
        assert_eq!(rate(&cell, Row::Kernel), 2.0);
        let results = Results {
            cells: vec![cell.clone()],
            skipped: vec![("vrf", "there are none".to_owned())],
            rounds: 3,
            packets: 2_000_000,
            ..Results::default()
        };
        assert!(!text(&results).contains("not a measurement"));
        assert!(text(&results).contains("skipped: vrf: there are none\n"));
        assert!(text(&results).contains("3 interleaved rounds of 2 million packets"));
        assert_eq!(json(&results)["skipped"][0]["column"], "vrf");
        assert_eq!(count(20_000), "20000");
        assert!(text(&results).contains("IPv4, 2-way ECMP L4"));
        assert_eq!(json(&results)["cells"][0]["raddle_to_fib_lookup"], 2.0);
        let punted = [("seed-unknown", 7)].into();
        let results = Results {
            cells: vec![Cell { punted, ..cell }],
            ..results
        };
        let said = text(&results);
        let line = "not a measurement of raddle: IPv4, 2-way ECMP L4: the kernel got packets of \
                    its row (7 seed-unknown)\n";
        assert!(said.contains(line), "{said}");
        assert_eq!(json(&results)["cells"][0]["punted"]["seed-unknown"], 7);
    }
}

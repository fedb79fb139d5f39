//! The results, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::network::{Counting, What};
use super::{Rates, Results};
use crate::select::{median, ratio, ratio_without};
use raddle_text::Table;

/// raddle over the kernel.
const BESIDE_GOAL: f64 = 4.0;
/// Share of the rate that counters may cost.
const LOSS_GOAL: f64 = 0.005;
/// Many SIDs over one.
const MANY_GOAL: f64 = 0.8;

/// Million packets a second in memory.
fn memory_goal(what: What) -> f64 {
    if what == What::Encaps { 25.0 } else { 40.0 }
}

/// How a goal stands.
fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// The lower and the upper quartile.
fn quartiles(values: &[f64]) -> [f64; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| {
        let place = (sorted.len().saturating_sub(1) * part + 2) / 4;
        sorted.get(place).copied().unwrap_or(f64::NAN)
    };
    [at(1), at(3)]
}

fn pairs(a: &Rates, b: &Rates) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

/// What is lost with counters, beside those that are off or absent: median and quartiles of the pairs.
struct Loss {
    name: &'static str,
    against: &'static str,
    median: f64,
    spread: [f64; 2],
}

impl Loss {
    /// Whether it is within the goal, or the noise hides it.
    fn met(&self) -> bool {
        self.median <= LOSS_GOAL
    }
}

fn losses(results: &Results) -> Vec<Loss> {
    let [absent, off, on] = &results.counting;
    let names = Counting::ALL.map(Counting::name);
    [(2, on, 0, absent), (2, on, 1, off), (1, off, 0, absent)]
        .into_iter()
        .map(|(name, with, against, without)| {
            let pairs = pairs(with, without);
            let [low, high] = quartiles(&pairs);
            Loss {
                name: names[name],
                against: names[against],
                median: 1.0 - median(&pairs),
                spread: [1.0 - high, 1.0 - low],
            }
        })
        .collect()
}

/// Tables of what was measured, and what was aimed at.
pub(super) fn text(results: &Results) -> String {
    let mut out = String::new();
    let tables = [
        (results.counting[0].is_empty(), counters(results)),
        (results.beside.is_empty(), behaviours(results)),
        (results.memory.is_empty(), memory(results)),
    ];
    for (_, table) in tables.iter().filter(|(absent, _)| !absent) {
        let _ = writeln!(out, "{}", table.render());
    }
    let [one, many] = &results.many;
    if !many.is_empty() {
        let share = ratio(many, one);
        let _ = writeln!(
            out,
            "End.DX2 in XDP, {} SIDs over one: {share:.2} ({:.3} and {:.3} Mpps), goal >= {MANY_GOAL}: {}",
            results.sids,
            median(many),
            median(one),
            verdict(share >= MANY_GOAL)
        );
    }
    for (reason, packets) in &results.punted {
        let _ = writeln!(
            out,
            "not a measurement of raddle: the kernel got packets of its rows ({packets} {reason})"
        );
    }
    let _ = writeln!(
        out,
        "medians of {} interleaved rounds of {} million packets; generator and sink on the same core",
        results.rounds,
        results.packets / 1_000_000
    );
    if !results.beside.is_empty() {
        let _ = writeln!(
            out,
            "alone: without what generator, sink and one of the two links take together, which are not the router"
        );
    }
    out
}

fn counters(results: &Results) -> Table {
    let mut table = Table::new([
        "End.DX2 in XDP, counters",
        "Mpps",
        "lost, median",
        "quartiles",
        "goal",
    ]);
    for (counting, rates) in Counting::ALL.iter().zip(&results.counting) {
        table.row([counting.name().to_owned(), format!("{:.3}", median(rates))]);
    }
    for loss in losses(results) {
        let percent = |part: f64| format!("{:.2} %", part * 100.0);
        table.row([
            format!("{} against {}", loss.name, loss.against),
            String::new(),
            percent(loss.median),
            format!("{} to {}", percent(loss.spread[0]), percent(loss.spread[1])),
            format!("<= {}: {}", percent(LOSS_GOAL), verdict(loss.met())),
        ]);
    }
    table
}

fn behaviours(results: &Results) -> Table {
    let mut table = Table::new([
        "Mpps, one core",
        "kernel",
        "raddle",
        "bare",
        "generator",
        "raddle/kernel",
        "raddle/bare",
        "alone/kernel",
        "goal",
    ]);
    for (what, [kernel, raddle, bare, generator]) in &results.beside {
        let times = ratio_without(raddle, kernel, generator);
        table.row([
            what.name().to_owned(),
            format!("{:.3}", median(kernel)),
            format!("{:.3}", median(raddle)),
            format!("{:.3}", median(bare)),
            format!("{:.3}", median(generator)),
            format!("{:.2}", ratio(raddle, kernel)),
            format!("{:.2}", ratio(raddle, bare)),
            format!("{times:.2}"),
            format!(">= {BESIDE_GOAL}: {}", verdict(times >= BESIDE_GOAL)),
        ]);
    }
    table
}

fn memory(results: &Results) -> Table {
    let mut table = Table::new(["in memory, one core, one SID", "Mpps", "goal"]);
    for (what, rates) in &results.memory {
        let (rate, goal) = (median(rates), memory_goal(*what));
        table.row([
            what.name().to_owned(),
            format!("{rate:.1}"),
            format!(">= {goal}: {}", verdict(rate >= goal)),
        ]);
    }
    table
}

/// The same as JSON, with every round.
pub(super) fn json(results: &Results) -> Value {
    let counting = Counting::ALL.iter().zip(&results.counting);
    let counting: serde_json::Map<String, Value> = counting
        .map(|(counting, rates)| (counting.name().to_owned(), json!(rates)))
        .collect();
    let losses = losses(results).into_iter().map(|loss| {
        json!({
            "counters": loss.name, "against": loss.against, "lost": loss.median,
            "quartiles": loss.spread, "met": loss.met(),
        })
    });
    let beside = results.beside.iter();
    let beside = beside.map(|(what, [kernel, raddle, bare, generator])| {
        json!({
            "behaviour": what.name(), "kernel": kernel, "raddle": raddle, "bare": bare,
            "generator": generator,
            "raddle_to_kernel": ratio(raddle, kernel),
            "raddle_alone_to_kernel": ratio_without(raddle, kernel, generator),
        })
    });
    let memory = results.memory.iter().map(
        |(what, rates)| json!({"behaviour": what.name(), "mpps": rates, "median": median(rates)}),
    );
    let [one, many] = &results.many;
    json!({
        "rounds": results.rounds,
        "packets": results.packets,
        "counters": counting,
        "losses": losses.collect::<Vec<_>>(),
        "beside_kernel": beside.collect::<Vec<_>>(),
        "memory": memory.collect::<Vec<_>>(),
        "sids": results.sids,
        "one_sid": one,
        "many_sids": many,
        "many_to_one": ratio(many, one),
        "punted": results.punted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_of_pairs() {
        let results = Results {
            rounds: 4,
            packets: 1_000_000,
            sids: 10,
            counting: [
                vec![2.0, 4.0, 2.0, 4.0],
                vec![2.0, 4.0, 2.0, 4.0],
                vec![1.98, 3.96, 1.98, 3.96],
            ],
            beside: vec![(What::End, [vec![1.0], vec![3.0], vec![4.0], vec![6.0]])],
            memory: vec![(What::Encaps, vec![30.0])],
            many: [vec![2.0], vec![1.9]],
            punted: [("srv6", 3)].into(),
        };
        let text = text(&results);
        for (about, said) in [
            ("on against off", "1.00 %"),
            ("on against absent", "<= 0.50 %: missed"),
            ("off against absent", "<= 0.50 %: met"),
            ("End  ", "3.00"),
            ("End  ", "5.00  >= 4: met"),
            ("H.Encaps", ">= 25: met"),
            ("10 SIDs over one", "0.95"),
            ("the kernel got packets", "3 srv6"),
        ] {
            let line = text.lines().find(|line| line.contains(about));
            assert!(
                line.is_some_and(|line| line.contains(said)),
                "{about}:\n{text}"
            );
        }
        assert_eq!(json(&results)["beside_kernel"][0]["raddle_to_kernel"], 3.0);
    }
}

//! `raddle bench rpc`, in short.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_e2e::{root, run};
use serde_json::Value;

/// The results; whether bars are missed, of which a busy machine may miss some, has to show in the exit code.
fn fine(arguments: &[&str]) -> Value {
    let outcome = run(arguments);
    let results: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
    let rows = results["rows"].as_array();
    let rows = rows.unwrap_or_else(|| panic!("{arguments:?}: {}", outcome.stderr));
    let missed = rows.iter().any(|row| row["met"] == false);
    assert_eq!(
        outcome.code,
        Some(missed.into()),
        "{arguments:?}: {}",
        outcome.stderr
    );
    assert_eq!(missed, outcome.stderr.contains("missed: "));
    results
}

#[test]
fn the_benchmark_fills_its_links() {
    if !root("the_benchmark_fills_its_links") {
        return;
    }
    let results = fine(&[
        "bench",
        "rpc",
        "-j",
        "--trials",
        "1",
        "--seconds",
        "1",
        "--rate",
        "20mbit",
        "--server",
        "own",
        "--only",
        "loopback,latency,eight",
    ]);
    let json = &results;
    let rows = results["rows"].as_array().unwrap();
    let of = |row: &str| -> Vec<f64> {
        let of = rows.iter().filter(|line| line["row"] == row);
        of.map(|line| line["mean"].as_f64().unwrap()).collect()
    };
    // What a busy machine gives is no matter of this test.
    assert_eq!(of("latency").len(), 6, "{json}");
    assert!(of("latency").iter().all(|figure| *figure > 0.0), "{json}");
    let notes = results["notes"].to_string();
    let one_cpu = notes.contains("there is only one CPU");
    assert!(one_cpu || of("loopback")[0] > 0.1, "{json}");
    if of("eight")[0] > 0.0 {
        assert_eq!(of("eight")[..2], [8.0, 8.0], "{json}");
    }
    let outcome = run(&["bench", "rpc", "--only", "fast"]);
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("reads, after-one"),
        "{}",
        outcome.stderr
    );
}

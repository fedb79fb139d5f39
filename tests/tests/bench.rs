//! `raddle-bench`: its benchmark of the proxy, in short, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::process::Command;

use raddle_e2e::{Outcome, raddle_bench, readable, root};
use serde_json::Value;

/// Runs `raddle-bench` with these arguments to its end.
fn run(arguments: &[&str]) -> Outcome {
    Outcome::of(Command::new(raddle_bench()).args(arguments))
}

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
    let outcome = run(&["rpc", "--only", "fast"]);
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("reads, after-one"),
        "{}",
        outcome.stderr
    );
}

/// What is told, followed and polled, once each.
#[test]
fn how_soon_a_change_counts_is_measured() {
    if !root("how_soon_a_change_counts_is_measured") {
        return;
    }
    let kinds = ["nft-rule", "route", "rp-filter", "hash-policy"];
    let only = kinds.join(",");
    let outcome = run(&["watch", "-j", "--rounds", "1", "--only", &only]);
    // What a busy machine gives is no matter of this test.
    assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:?}");
    let results: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let rows = results["kinds"].as_array().unwrap();
    let measured = |kind: &&str| rows.iter().any(|row| row["kind"] == *kind);
    assert!(kinds.iter().all(measured), "{results:#}");
    let outcome = run(&["watch", "--only", "weather"]);
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn an_ordinary_user_is_told_what_it_takes() {
    if !root("an_ordinary_user_is_told_what_it_takes") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = readable(raddle_bench(), folder.path());
    for command in ["demo", "forward", "srv6", "watch", "rpc"] {
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        let outcome = Outcome::of(nobody.arg(&program).arg(command));
        assert_eq!(outcome.code, Some(3), "{command}: {outcome:?}");
        for said in ["raddle-bench: ", "needs root", "sudo"] {
            assert!(outcome.stderr.contains(said), "{command}: {outcome:?}");
        }
        assert_eq!(outcome.stdout, "", "{command}");
    }
}

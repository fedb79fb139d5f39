//! Charts have what they are told to show.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::fs;
use std::path::PathBuf;

use raddle_plot::{Error, Group, NotAChart, bars, file, lines};

fn group(label: &str, values: &[(&str, f64)]) -> Group {
    let values = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    (label.to_owned(), values.collect())
}

#[test]
fn bars_have_their_heights_and_labels() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bars.svg");
    let groups = [
        group(
            "L3 policy\nkernel",
            &[("spine 1 & co", 940.0), ("spine 2", 0.0)],
        ),
        group(
            "L4 policy\nraddle",
            &[("spine 1 & co", 470.0), ("spine 2", 938.25)],
        ),
    ];
    bars(&path, "Mbit/s per link", &groups, "Mbit/s").unwrap();
    let svg = fs::read_to_string(&path).unwrap();
    for text in [
        "Mbit/s per link",
        "spine 1 &amp; co",
        "L4 policy",
        "raddle",
        "940",
        "938",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    // Heights are in proportion: pixels of the first bar's rectangle and of half of it.
    let blue = svg
        .lines()
        .filter(|line| line.contains("#0072B2") && line.contains("<rect"));
    let heights: Vec<f64> = blue
        .filter_map(|line| {
            line.split("height=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(heights.len(), 3, "{heights:?}");
    assert!((heights[1] / heights[2] - 2.0).abs() < 0.02, "{heights:?}");
}

#[test]
fn a_chart_is_svg_or_png() {
    for name in ["a.svg", "b.png", "dir/c.d.PNG"] {
        assert_eq!(file(name), Ok(PathBuf::from(name)));
    }
    for name in ["a.gif", "a", "png", "a.svg.gz", ""] {
        assert_eq!(file(name), Err(NotAChart), "{name}");
    }
}

#[test]
fn lines_and_odd_values() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.svg");
    let points = (0..50)
        .map(|x| (f64::from(x) / 5.0, f64::from(x * x % 97)))
        .collect();
    let series = [("eth1".to_owned(), points), ("eth2".to_owned(), Vec::new())];
    lines(&path, "Over time", &series, "seconds", "Mbit/s").unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("<polyline"));
    bars(&path, "nothing", &[], "").unwrap();
    bars(&path, "zero", &[group("a", &[("b", 0.0)])], "").unwrap();
    lines(&path, "nothing", &[], "", "").unwrap();
    for odd in [f64::NAN, f64::INFINITY, -1.0] {
        let error = bars(&path, "", &[group("a", &[("b", odd)])], "").unwrap_err();
        assert!(matches!(error, Error::Draw { .. }), "{error}");
    }
    let error = lines(
        &path,
        "",
        &[("a".to_owned(), vec![(f64::NAN, 1.0)])],
        "",
        "",
    );
    assert!(error.is_err());
    let error = bars(&dir.path().join("no/where.svg"), "", &[], "").unwrap_err();
    assert!(matches!(error, Error::Write { .. }), "{error}");
}

//! Answers as JSON and as charts.

use std::path::Path;

use raddle_plan::Chart;
use serde::Serialize;

use crate::error::Failure;

/// On one line.
pub(crate) fn json(answer: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(answer).map_err(|e| Failure::system(e.to_string()))
}

/// On many lines.
pub(crate) fn pretty_json(answer: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(answer).map_err(|e| Failure::system(e.to_string()))
}

/// Draws a chart, where a file was named for it.
pub(crate) fn draw(file: Option<&Path>, chart: impl FnOnce() -> Chart) -> Result<(), Failure> {
    let Some(file) = file else {
        return Ok(());
    };
    let Chart {
        title,
        unit,
        groups,
    } = chart();
    raddle_plot::bars(file, &title, &groups, unit).map_err(|e| Failure::system(e.to_string()))
}

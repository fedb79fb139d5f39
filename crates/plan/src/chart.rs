//! What can be drawn of an answer.

/// Groups of bars, for whoever draws them: `raddle_plot::bars` takes them as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the values are.
    pub unit: &'static str,
    /// Groups: a label, and a value for each series.
    pub groups: Vec<(String, Vec<(String, f64)>)>,
}

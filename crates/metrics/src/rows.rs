//! What every metric is written by: a name, a help text, and a value for each set of labels.

use std::borrow::Cow;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The labels of a value, by name.
pub(crate) type Labels = Vec<(String, String)>;

/// Labels and a value for each row.
pub(crate) type Values = Vec<(Labels, u64)>;

/// A label.
pub(crate) fn label(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// A value that goes up and down.
pub(crate) fn gauge(name: &'static str, help: &'static str, rows: Values) -> Rows {
    Rows {
        name,
        help: help.into(),
        counter: false,
        rows,
    }
}

/// A value that only grows.
pub(crate) fn counter(name: &'static str, help: &'static str, rows: Values) -> Rows {
    Rows {
        counter: true,
        ..gauge(name, help, rows)
    }
}

/// One metric with its labelled values.
#[derive(Debug)]
pub(crate) struct Rows {
    /// Its name, without prefix and `_total`.
    pub name: &'static str,
    /// What it says.
    pub help: Cow<'static, str>,
    /// Whether it only grows.
    pub counter: bool,
    /// Labels and value.
    pub rows: Values,
}

impl prometheus_client::collector::Collector for Rows {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let kind = if self.counter {
            MetricType::Counter
        } else {
            MetricType::Gauge
        };
        let mut family = encoder.encode_descriptor(self.name, &self.help, None, kind)?;
        let put = |value: u64, metric: MetricEncoder<'_>| match self.counter {
            true => ConstCounter::new(value).encode(metric),
            false => ConstGauge::new(value as i64).encode(metric),
        };
        for (labels, value) in &self.rows {
            if labels.is_empty() {
                // Without labels there is one value, and no empty pair of braces.
                return put(*value, family);
            }
            put(*value, family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

/// The exposition text.
pub(crate) fn text_of(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    text
}

//! The histogram of how far the image is behind the kernel.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use serde_json::Value;

/// As `status` tells it.
#[derive(Debug)]
pub(super) struct Lag(Value);

impl Lag {
    pub(super) fn of(status: &Value) -> Lag {
        Lag(status["lag"].clone())
    }
}

fn seconds(micros: &Value) -> f64 {
    micros.as_u64().unwrap_or(0) as f64 / 1e6
}

impl Collector for Lag {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Lag(lag) = self;
        let list = lag["buckets"].as_array().map_or(&[][..], Vec::as_slice);
        let count = lag["count"].as_u64().unwrap_or(0);
        let mut longer = count;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(list.len() + 1);
        for bucket in list {
            let count = bucket["count"].as_u64().unwrap_or(0);
            longer = longer.saturating_sub(count);
            buckets.push((seconds(&bucket["up_to_microseconds"]), count));
        }
        buckets.push((f64::INFINITY, longer));
        let help = "Seconds from the kernel's word of a change until packets went by it";
        let mut metric =
            encoder.encode_descriptor("publish_lag_seconds", help, None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(
            seconds(&lag["sum_microseconds"]),
            count,
            &buckets,
            None,
        )
    }
}

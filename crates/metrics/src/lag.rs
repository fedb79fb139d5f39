//! The histogram of how far the image is behind the kernel.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use raddle_control::status;

/// As `status` tells it.
#[derive(Debug)]
pub(crate) struct Lag(pub(crate) status::Lag);

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl Collector for Lag {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Lag(lag) = self;
        let mut longer = lag.count;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(lag.buckets.len() + 1);
        for bucket in &lag.buckets {
            longer = longer.saturating_sub(bucket.count);
            buckets.push((seconds(bucket.up_to_microseconds), bucket.count));
        }
        buckets.push((f64::INFINITY, longer));
        let help = "Seconds from the kernel's word of a change until packets went by it";
        let mut metric =
            encoder.encode_descriptor("publish_lag_seconds", help, None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(
            seconds(lag.sum_microseconds),
            lag.count,
            &buckets,
            None,
        )
    }
}

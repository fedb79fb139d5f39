//! Predictions by flow: one core, batches of 4096. `cargo bench -p raddle-sim`.

#![allow(clippy::unwrap_used, reason = "a benchmark's way to fail")]

use divan::Bencher;
use divan::counter::ItemsCount;
use raddle_select::{Flow, compile_threshold, upper_bounds};
use raddle_sim::{Asker, Hashing, Layout, Predictor, sample};

const FLOWS: usize = 4096;

fn main() {
    divan::main();
}

fn flows(v6: bool) -> Vec<Flow> {
    let (hosts, dst) = match v6 {
        false => ("10.0.0.0/8", "198.51.100.1"),
        true => ("fd00::/48", "2001:db8::1"),
    };
    let dst = dst.parse().unwrap();
    sample::synthetic(hosts.parse().unwrap(), Some(dst), FLOWS, 1).unwrap()
}

fn predict(bencher: Bencher<'_, '_>, policy: u8, width: usize, v6: bool) {
    let uppers = upper_bounds(&vec![Some(1); width]);
    let layout = Layout::ranges(compile_threshold(&uppers, |_| true));
    let predictor = Predictor::new(
        Hashing::new(policy, 0x37, 1, Asker::Router).unwrap(),
        layout,
    );
    let flows = flows(v6);
    let mut paths = Vec::with_capacity(FLOWS);
    bencher
        .counter(ItemsCount::new(FLOWS))
        .bench_local(|| predictor.flows(divan::black_box(&flows), &mut paths));
}

#[divan::bench(args = [2, 8, 64, 512])]
fn ipv4_l4(bencher: Bencher<'_, '_>, width: usize) {
    predict(bencher, 1, width, false);
}

#[divan::bench(args = [2, 512])]
fn ipv4_l3(bencher: Bencher<'_, '_>, width: usize) {
    predict(bencher, 0, width, false);
}

#[divan::bench(args = [2, 512])]
fn ipv6_l4(bencher: Bencher<'_, '_>, width: usize) {
    predict(bencher, 1, width, true);
}

#[divan::bench(args = [2, 512])]
fn ipv4_custom(bencher: Bencher<'_, '_>, width: usize) {
    predict(bencher, 3, width, false);
}

#[divan::bench(args = [128, 4096])]
fn ipv4_l4_resilient(bencher: Bencher<'_, '_>, buckets: usize) {
    let layout = Layout::buckets((0..buckets).map(|bucket| bucket % 8).collect());
    let predictor = Predictor::new(Hashing::new(1, 7, 1, Asker::Router).unwrap(), layout);
    let flows = flows(false);
    let mut paths = Vec::with_capacity(FLOWS);
    bencher
        .counter(ItemsCount::new(FLOWS))
        .bench_local(|| predictor.flows(divan::black_box(&flows), &mut paths));
}

//! What the proxies' answer comes to as metrics.

#[path = "common/proxies.rs"]
mod proxies;

use proxies::proxies;
use raddle_metrics::proxies_text;

#[test]
fn prometheus_gets_every_transport() {
    let said = proxies_text(&proxies());
    let of = "server=\"nas\",service=\"0\",number=\"0\",lane=\"false\"";
    for line in [
        format!("raddle_rpc_up{{{of}}} 1"),
        "raddle_rpc_received_bytes_total{server=\"nas\",service=\"0\",number=\"1\",lane=\"true\"} 25000000".into(),
        format!("raddle_rpc_placement{{{of},out=\"l0\",back=\"l1\"}} 1"),
        "raddle_rpc_held_calls{server=\"nas\"} 1".into(),
        "raddle_rpc_resent_calls_total{server=\"nas\"} 2".into(),
        "raddle_rpc_held_calls{server=\"other\"} 0".into(),
        "raddle_rpc_served{server=\"other\"} 1".into(),
        "raddle_rpc_config_refused 0".into(),
        "raddle_rpc_config_read_seconds 7".into(),
        "# TYPE raddle_rpc_call_seconds histogram".into(),
        format!("raddle_rpc_call_seconds_count{{{of},size=\"small\"}} 100"),
        format!("raddle_rpc_call_seconds_sum{{{of},size=\"small\"}} 0.0149"),
        format!("raddle_rpc_call_seconds_bucket{{le=\"0.000016\",{of},size=\"small\"}} 0"),
        format!("raddle_rpc_call_seconds_bucket{{le=\"0.000128\",{of},size=\"small\"}} 99"),
        format!("raddle_rpc_call_seconds_bucket{{le=\"+Inf\",{of},size=\"small\"}} 100"),
        format!("raddle_rpc_call_seconds_count{{{of},size=\"large\"}} 0"),
    ] {
        assert!(said.lines().any(|l| l == line), "{line}\n{said}");
    }
    for line in said.lines().filter(|line| line.starts_with("# HELP")) {
        assert!(line.contains("label"), "{line}");
    }
}

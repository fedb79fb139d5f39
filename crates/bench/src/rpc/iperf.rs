//! What the links carry: iperf3 at its best.

use serde_json::Value;

use super::load::Kind;
use super::stage::{Stage, tool};
use raddle_exit::Failure;

/// Streams of a run: with so many, hardly a link is left out.
const STREAMS: &str = "16";

/// Bytes a second of payload that arrive, in one run.
pub(super) fn run(stage: &Stage, kind: Kind, seconds: u32) -> Result<f64, Failure> {
    let mut server = tool(&stage.lab, "server", &["iperf3", "-s", "-1"], "iperf3")?;
    let (address, seconds) = (stage.ip.to_string(), seconds.to_string());
    let mut words = vec!["iperf3", "-J", "-O", "1", "-P", STREAMS];
    words.extend(["-t", &seconds, "-c", &address]);
    if kind == Kind::Read {
        words.push("-R");
    }
    let mut last = String::new();
    // It may not listen yet.
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let output = tool(&stage.lab, "client", &words, "iperf3")?.wait_with_output()?;
        match received(&output.stdout) {
            Ok(rate) => {
                let _ = server.wait();
                return Ok(rate);
            }
            Err(why) => last = why,
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    Err(Failure::system(format!("iperf3: {last}")))
}

/// Bytes a second of a report.
fn received(report: &[u8]) -> Result<f64, String> {
    let report: Value = serde_json::from_slice(report).map_err(|e| e.to_string())?;
    if let Some(error) = report["error"].as_str() {
        return Err(error.to_owned());
    }
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 8.0)
        .ok_or_else(|| "no figures in its report".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_rate_or_a_reason() {
        let report = br#"{"end": {"sum_received": {"bits_per_second": 8e8}}}"#;
        assert_eq!(received(report), Ok(1e8));
        assert_eq!(
            received(br#"{"error": "unable to connect"}"#),
            Err("unable to connect".into())
        );
        assert!(received(b"").is_err());
    }
}

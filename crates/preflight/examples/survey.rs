//! Prints what would keep packets from being forwarded past the kernel on this machine, and what
//! would be bypassed or lost: `cargo run -p raddle-preflight --example survey`, as root. Changes
//! nothing.

use std::collections::BTreeSet;
use std::error::Error;
use std::process::ExitCode;

use raddle_preflight::{Options, Scene, Severity, inspect, seed};
use raddle_rib::Rib;

fn main() -> ExitCode {
    match survey() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("survey: {e}");
            ExitCode::FAILURE
        }
    }
}

fn survey() -> Result<(), Box<dyn Error>> {
    let mut rib = Rib::detached();
    for event in raddle_netlink::mirror::snapshot()? {
        rib.apply(event);
    }
    let scene = Scene::of(&rib, BTreeSet::new(), raddle_xdp::can_receive_redirects);
    let options = Options {
        can_set_seed: seed::can_be_set(),
        ..Options::default()
    };
    let report = inspect(&scene, &options)?;
    for finding in &report.findings {
        let follows = match finding.severity {
            Severity::Punted => "left to the kernel",
            Severity::Refuse => "refused",
            Severity::LinkRejected => "not used",
            Severity::Warning => "warning",
        };
        println!("{follows}: {finding}");
    }
    if report.findings.is_empty() {
        println!("nothing is in the way");
    }
    Ok(())
}

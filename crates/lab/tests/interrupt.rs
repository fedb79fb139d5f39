//! A signal during `up`. On its own, because a signal is for the whole process.

#[path = "common/traces.rs"]
mod traces;

use nix::sys::signal::{Signal, raise};
use raddle_lab::{Chain, Lab, LabError, Progress, UpOptions};
use traces::{is_root, name, traces};

#[test]
fn an_interrupted_up_leaves_nothing() {
    if !is_root("an_interrupted_up_leaves_nothing") {
        return;
    }
    let mut interrupt = |step| {
        if let Progress::Links(_) = step {
            // Not SIGINT: a shell has what it runs in the background ignore that.
            raise(Signal::SIGTERM).unwrap();
        }
    };
    let options = UpOptions {
        progress: Some(&mut interrupt),
        ..UpOptions::default()
    };
    let result = Lab::up(&name("int"), &Chain::default().topology().unwrap(), options);
    assert!(matches!(result, Err(LabError::Interrupted)));
    assert_eq!(traces(&name("int")), [""; 0]);
}

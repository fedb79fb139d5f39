//! Programs that outlive their daemon, and their network namespace.

use std::process::Command;

use raddle_e2e::{Outcome, raddle, root};

/// The nodes of labs have a bpffs each. Namespaces that share one, as those of a machine do, are made by a script, which has
/// mounts and processes of its own, so that nothing of them is left however it ends.
#[test]
fn what_was_kept_in_a_namespace_that_is_gone_is_removed() {
    if !root("what_was_kept_in_a_namespace_that_is_gone_is_removed") {
        return;
    }
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kept_gone.sh"),
    ]);
    command.arg(raddle());
    let outcome = Outcome::of(&mut command);
    assert_eq!(
        outcome.code,
        Some(0),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
}

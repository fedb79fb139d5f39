//! Whether a test can run, what its lab is called, and what is left of it.

#![expect(clippy::unwrap_used, reason = "a test's way to fail")]

use std::fs;
use std::io::Write as _;

/// Whether the test can run; says so if not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        // Not eprintln!, which the test harness keeps to itself.
        let line = format!("skipped: {test} needs root (it makes network namespaces)\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    root
}

/// A name for a lab of this test run alone.
pub(crate) fn name(test: &str) -> String {
    format!("t{}-{test}", std::process::id())
}

/// Everything that exists on this machine of the lab of this name: namespaces, files, mounts, and
/// processes whose command line names its directory.
pub(crate) fn traces(lab: &str) -> Vec<String> {
    let dir = format!("/run/raddle/lab/{lab}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let netns = entry.file_name().into_string().unwrap();
        found.extend(netns.starts_with(&format!("rdl-{lab}-")).then_some(netns));
    }
    found.extend(fs::exists(&dir).unwrap().then(|| dir.clone()));
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    found.extend(
        mounts
            .lines()
            .filter(|l| l.contains(&dir))
            .map(String::from),
    );
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        found.extend(line.contains(&dir).then(|| line.replace('\0', " ")));
    }
    found
}

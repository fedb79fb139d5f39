//! What the lab's tests share.

#![expect(clippy::unwrap_used, reason = "a test's way to fail")]

use std::{
    fs,
    io::Write as _,
    net::{IpAddr, UdpSocket},
    thread,
    time::Duration,
};

use raddle_lab::{Lab, ScopedLab, Topology, UpOptions};

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

pub(crate) fn up(test: &str, topology: &Topology) -> ScopedLab {
    Lab::up(&name(test), topology, UpOptions::default())
        .unwrap()
        .scoped()
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

/// Whether a packet goes from one node to an address of another, and an answer comes back.
pub(crate) fn echo(lab: &Lab, from: &str, to: &str, address: IpAddr) -> bool {
    let server = lab
        .within(to, || UdpSocket::bind((address, 7)))
        .unwrap()
        .unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(4)))
        .unwrap();
    let answer = thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, peer)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..length], peer).unwrap();
            if &buffer[..length] == b"end" {
                return;
            }
        }
    });
    let any: IpAddr = if address.is_ipv4() {
        [0; 4].into()
    } else {
        [0; 16].into()
    };
    let client = lab
        .within(from, || UdpSocket::bind((any, 0)))
        .unwrap()
        .unwrap();
    client.connect((address, 7)).unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut buffer = [0; 64];
    // The first packet may be lost while neighbours are being found.
    let answered = (0..6).any(|_| {
        let _ = client.send(b"ping");
        client.recv(&mut buffer).is_ok()
    });
    let _ = client.send(b"end");
    answer.join().unwrap();
    answered
}

/// The standard output of a command in a node.
pub(crate) fn output(lab: &Lab, node: &str, argv: &[&str]) -> String {
    let output = lab.output(node, argv).unwrap();
    assert!(
        output.status.success(),
        "{argv:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

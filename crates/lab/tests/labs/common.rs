//! What the tests of labs share.

use std::{
    net::{IpAddr, UdpSocket},
    thread,
    time::Duration,
};

use raddle_lab::{Lab, ScopedLab, Topology, UpOptions};

use crate::traces::name;

pub(crate) fn up(test: &str, topology: &Topology) -> ScopedLab {
    Lab::up(&name(test), topology, UpOptions::default())
        .unwrap()
        .scoped()
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

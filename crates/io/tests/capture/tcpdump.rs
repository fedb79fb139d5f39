//! What tcpdump makes of our files, and we of its.

use std::io::Write as _;
use std::process::{Command, Stdio};

use raddle_io::Resolution;

use crate::files::{frames, open, read, swapped, write};
use crate::ng::Ng;

/// Has tcpdump read `bytes` and write them again as classic pcap; none if it is not installed.
fn through_tcpdump(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut child = match Command::new("tcpdump")
        .args(["--nano", "-r", "-", "-w", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(_) => {
            eprintln!("skipped: {name} needs tcpdump (apt-get install tcpdump)");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "tcpdump: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(output.stdout)
}

#[test]
fn tcpdump_reads_ours_and_we_read_tcpdumps() {
    let ours = write(&frames(), Resolution::Nano);
    let Some(theirs) = through_tcpdump("tcpdump_reads_ours_and_we_read_tcpdumps", &ours) else {
        return;
    };
    let reader = open(&theirs).unwrap();
    assert_eq!(reader.resolution(), Resolution::Nano);
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), frames());
    // The other byte order, which tcpdump reads too.
    let theirs = through_tcpdump("tcpdump_swapped", &swapped(&ours)).unwrap();
    assert_eq!(read(&theirs).unwrap(), read(&swapped(&ours)).unwrap());
}

#[test]
fn tcpdump_agrees_about_pcapng() {
    for big_endian in [false, true] {
        let mut ng = Ng::new(big_endian);
        let nano = ng.option(9, &[9]);
        ng.interface(1, 262_144, &[nano]);
        for (i, frame) in frames().iter().enumerate() {
            ng.packet(0, frame.ts_ns + i as u64, frame.original_len, &frame.data);
        }
        ng.block(5, &[0; 12]).block(0x0bad, &[1, 2, 3]);
        let ours = read(&ng.bytes).unwrap();
        assert_eq!(ours.len(), 3);
        assert_eq!(ours[2].ts_ns, frames()[2].ts_ns + 2);
        let Some(theirs) = through_tcpdump("tcpdump_agrees_about_pcapng", &ng.bytes) else {
            return;
        };
        assert_eq!(read(&theirs).unwrap(), ours);
    }
}

//! Frames of 9000 bytes are forwarded by XDP in the driver, in several buffers.

use raddle_e2e::frame::{self, ip_end};
use raddle_e2e::{Crafted, Daemon, World, root};

#[test]
fn large_frames_are_forwarded_in_the_driver() {
    if !root("large_frames_are_forwarded_in_the_driver") {
        return;
    }
    let world = World::with_mtu("jumbo", 2, 9000);
    world.ip("link set sink-2 mtu 4000");
    // The kernel's key decides which of them sink-2 gets. Twenty are of the largest size:
    // that one of these takes sink-1 is as good as certain.
    let flows = world.flows(20 * 13);
    // Payloads around what fits a page, a buffer, either MTU.
    let sizes = [
        20, 1400, 1500, 3400, 3958, 3960, 3972, 3973, 4100, 8000, 8952, 8971, 8972,
    ];
    let mut frames = Vec::new();
    for (n, flow) in flows.iter().enumerate() {
        let header = if flow.dst.is_ipv4() { 28 } else { 48 };
        let payload = sizes[n % sizes.len()].min(9000 - header);
        let bytes = frame::udp(world.frame_macs(), flow, n as u64, payload);
        frames.push(Crafted {
            bytes,
            kind: "UDP",
            flow: Some(*flow),
        });
    }
    let kernel = world.transmit(&frames);
    let daemon = Daemon::start(&world, &[]);
    let links = daemon.status()["links"].clone();
    for link in links.as_array().unwrap() {
        assert_eq!(link["mode"], "native", "{links}");
    }
    let ours = world.transmit(&frames);
    let (mut whole, mut largest) = (0, 0);
    for ((frame, kernel), ours) in frames.iter().zip(&kernel).zip(&ours) {
        // The kernel fragments what is too large for sink-2: these are other packets then.
        assert_eq!(
            kernel,
            ours,
            "{} bytes of {:?}",
            frame.bytes.len(),
            frame.flow
        );
        for arrival in ours {
            assert_eq!(ip_end(&arrival.frame), frame.bytes.len());
            whole += 1;
            largest = largest.max(arrival.frame.len());
        }
    }
    eprintln!(
        "{whole} of {} frames arrived whole, up to {largest} bytes",
        frames.len()
    );
    assert_eq!(largest, 9014);
    assert_eq!(daemon.forwarded(), whole, "all of them by raddle");
    assert_eq!(
        daemon.reason("mtu"),
        frames.len() as u64 - whole,
        "the rest is too large"
    );
    let sent = frames.len() as u64;
    assert!(whole > sent / 2 && whole < sent);
}

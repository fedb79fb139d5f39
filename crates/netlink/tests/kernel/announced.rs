//! What the kernel announces of firewalls, tc and xfrm.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use raddle_netlink::Announced;

use crate::support::{in_namespace, ip};

fn run(line: &str) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

/// What is called has happened before the count is read: whoever sees the old count has seen all that came before.
#[test]
fn changes_are_announced() {
    in_namespace("changes_are_announced", || {
        ip("link add va type veth peer name vb");
        let doubts = Arc::new(AtomicU64::new(0));
        let doubt = {
            let doubts = doubts.clone();
            move || {
                doubts.fetch_add(1, Ordering::SeqCst);
            }
        };
        let announced = Announced::open(doubt).unwrap();
        for change in [
            "nft add table inet t",
            "nft add chain inet t c { type filter hook forward priority 0 ; }",
            "nft add rule inet t c drop",
            "nft flush chain inet t c",
            "tc qdisc add dev va clsact",
            "tc qdisc add dev vb root pfifo",
            "ip xfrm policy add dir fwd src 10.0.0.0/8 dst 10.0.0.0/8 action block",
            "ip xfrm policy flush",
        ] {
            let before = (announced.count(), doubts.load(Ordering::SeqCst));
            run(change);
            let until = Instant::now() + Duration::from_secs(60);
            while announced.count() == before.0 || doubts.load(Ordering::SeqCst) == before.1 {
                assert!(Instant::now() < until, "not announced: {change}");
                std::thread::yield_now();
            }
            announced.taken();
        }
        drop(announced);
    });
}

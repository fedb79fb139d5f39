//! The programs that place connections pass the verifier.

use raddle_image::Capacity;
use raddle_xdp::Placer;
use raddle_xdp_testing as _;

#[test]
fn loads() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let placer = Placer::load(&Capacity::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(placer.outcomes().iter().all(|(_, count)| *count == 0));
    assert_eq!(placer.live(), 0);
}

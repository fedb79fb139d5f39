//! Helpers for the end-to-end tests: a small network of namespaces, raw frames, and the daemon as a
//! user would start it.
//!
//! Everything panics with a message on failure, as is right in tests only. The network is
//! [`raddle_lab::Chain`]: `source -- router == sink`; frames are sent on the source's link as they
//! are and taken in on the sink's links, so that what the router did with each is seen bit by bit.

#![allow(clippy::unwrap_used)] // a test helper's way to fail

pub mod agreement;
mod binary;
pub mod bridged;
pub mod changing;
pub mod compared;
mod connections;
mod daemon;
pub mod explained;
pub mod frame;
pub mod in_memory;
mod leftovers;
mod load;
pub mod loopback;
pub mod loss;
pub mod networks;
pub mod once;
mod other_xdp;
mod packet_socket;
pub mod rpc;
pub mod srv6;
mod support;
pub mod tagged;
pub mod tags;
mod traffic;
pub mod tunnelled;
pub mod volume;
mod world;

pub use binary::{raddle, raddle_bench};
pub use daemon::{Daemon, Outcome, PATIENT, fine, run};
pub use frame::Crafted;
pub use leftovers::lab_name;
pub use load::Load;
pub use other_xdp::OtherXdp;
pub use packet_socket::PacketSocket;
pub use traffic::{Arrival, Stream, StreamReport, StreamState};
pub use volume::{Volume, links};
pub use world::{BRIDGE_MAC, World, gateway, gateway_mac, quiet};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Whether this process may make namespaces; says that `name` is skipped where it may not.
pub fn root(name: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        // In one piece, which other tests' lines cannot come between.
        let line = format!("skipped: {name} needs root (network namespaces, XDP)\n");
        eprint!("{line}");
    }
    root
}

/// Asks until there is an answer, every few milliseconds, and says how long that took.
///
/// # Panics
/// After `limit`, with what was said last.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Result<T, String>) -> (T, Duration) {
    let start = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return (answer, start.elapsed()),
            Err(why) if start.elapsed() > limit => panic!("not within {limit:?}: {why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// A copy of the program in `folder` that every user may run: the target directory may be in root's
/// home.
pub fn readable_raddle(folder: &Path) -> PathBuf {
    readable(raddle(), folder)
}

/// The same of any program.
pub fn readable(program: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(program.file_name().unwrap());
    // Not by this process: a child that another test forks meanwhile would keep it open for writing.
    let paths = [program, &copy].map(|path| path.to_str().unwrap().to_owned());
    let copied = Outcome::of(Command::new("cp").args(paths));
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    let chmod = Outcome::of(Command::new("chmod").arg("755").arg(folder));
    assert_eq!(chmod.code, Some(0), "{}", chmod.stderr);
    copy
}

/// Reproducible random numbers (SplitMix64); nothing but tests depends on their quality.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that are the same for the same seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}

//! Every program, loaded by the running kernel. What its verifier makes of them differs from version to version:
//! `make test-kernels` runs this on those of Debian.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_xdp::bench::Bench;
use raddle_xdp::{AttachedMode, Engine, Error, LoadOptions, Losses, Mode, offers_rx_hash};
use raddle_xdp_testing::net::{in_namespace, index_of, veth};

/// The most steps that the verifier may take over a program. It gives up at a million, and takes up to half more for what another clang
/// makes of the same lines, or on another kernel.
const MOST_VERIFIED: u32 = 750_000;

/// An engine as the daemon loads it, or the verifier's last words.
fn loaded(what: &str, load: impl FnOnce() -> Result<Engine, Error>) -> Engine {
    let engine = load().unwrap_or_else(|error| match error {
        Error::Verifier { source, log } => panic!("{what}: {source}\n{log}"),
        error => panic!("{what}: {error}"),
    });
    for size in engine.sizes().unwrap() {
        eprintln!(
            "{what}: {} verified over {} instructions, {} translated, {} bytes of machine code",
            size.name,
            size.verified,
            size.translated / 8,
            size.compiled
        );
        assert!(size.verified > 0 && size.translated > 0);
        assert!(size.verified <= MOST_VERIFIED, "{what}: {}", size.name);
    }
    engine
}

#[test]
fn the_plain_program() {
    in_namespace("the_plain_program", || {
        let engine = loaded("plain", || Engine::load(&LoadOptions::default()));
        assert!(!engine.has_srv6());
    });
}

#[test]
fn the_programs_for_srv6() {
    in_namespace("the_programs_for_srv6", || {
        for (what, counting) in [("srv6", true), ("srv6 uncounted", false)] {
            let engine = loaded(what, || {
                let mut engine = Engine::load(&LoadOptions::default())?;
                match counting {
                    true => engine.load_srv6()?,
                    false => engine.load_srv6_uncounted()?,
                }
                Ok(engine)
            });
            assert!(engine.has_srv6());
        }
    });
}

#[test]
fn the_program_that_reads_the_drivers_hash() {
    let name = "the_program_that_reads_the_drivers_hash";
    in_namespace(name, move || {
        veth("in0", "src0", 1500);
        let index = index_of("in0");
        if !offers_rx_hash(index).unwrap() {
            eprintln!("skipped: {name} needs Linux 6.8");
            return;
        }
        let mut engine = Engine::load(&LoadOptions::default()).unwrap();
        engine.attach(index, Mode::Native).unwrap();
        engine.set_rx_hash(index, true).unwrap();
        assert!(engine.reads_rx_hash(index));
    });
}

#[test]
fn the_programs_that_count_what_drivers_lose() {
    in_namespace("the_programs_that_count_what_drivers_lose", || {
        let engine = Engine::load(&LoadOptions::default()).unwrap();
        let losses = Losses::attach(&engine).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(losses.read().count(), 0);
    });
}

#[test]
fn the_programs_that_measure() {
    in_namespace("the_programs_that_measure", || {
        Bench::load(1).unwrap();
    });
}

/// Attaches what there is to a link of the namespace that this thread is in.
fn attaches(name: &str) {
    let index = index_of(name);
    let mut engine = Engine::load(&LoadOptions::default()).unwrap();
    let mode = engine.attach(index, Mode::Native).unwrap();
    assert_eq!(mode, AttachedMode::Native, "{name}");
    engine.load_srv6().unwrap();
    engine.detach(index).unwrap();
}

/// On a veth; and on links of this namespace that `RADDLE_LINKS` names, which must have nothing to lose.
#[test]
fn programs_attach_in_the_driver() {
    in_namespace("programs_attach_in_the_driver", || {
        veth("in0", "src0", 1500);
        attaches("in0");
    });
    if let Ok(links) = std::env::var("RADDLE_LINKS") {
        links.split(',').for_each(attaches);
    }
}

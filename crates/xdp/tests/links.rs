//! The program on real links: veths in a namespace, frames through packet sockets.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use raddle_image::{Group, Memory, Reason};
use raddle_xdp::bench::{Attachment, Bench, Program};
use raddle_xdp::{AttachedMode, Engine, Error, Mode, features, has_own_program};
use raddle_xdp_testing::bench::{DST_MAC, SRC_MAC};
use raddle_xdp_testing::frames::{IN_MAC, udp4};
use raddle_xdp_testing::image::{adjacency, config, link, load};
use raddle_xdp_testing::net::{Wire, in_namespace, index_of, private_mounts, run, veth};
use raddle_xdp_testing::tables::Tables4;

/// A generous limit: machines are busy.
const LIMIT: Duration = Duration::from_secs(60);
const SRC4: [u8; 4] = [10, 0, 0, 1];
const DST4: [u8; 4] = [192, 0, 2, 7];

/// One route from `in0` to `out0`.
fn fill(memory: &Memory) {
    memory.store_link(index_of("in0"), &link(index_of("in0"), IN_MAC, 5));
    let out = index_of("out0");
    memory.store_adjacency(0, &adjacency(out, DST_MAC, SRC_MAC, 9000));
    memory.store_group(0, Group::Kernel(Reason::NoRoute));
    memory.store_group(1, Group::Single(0));
    let route = (u32::from_be_bytes([192, 0, 2, 0]), 24, 1);
    Tables4::new(memory).table(0, 3, &[route]);
    memory.store_config(&config(7, 1, 1));
}

/// `src0` - `in0` [engine] `out0` - `dst0`, with an empty program on `dst0` so that the engine can
/// send to it natively.
struct Path {
    engine: Engine,
    memory: Arc<Memory>,
    src: Wire,
    dst: Wire,
    _bench: Bench,
    _pass: Attachment,
}

fn path() -> Path {
    veth("src0", "in0", 9000);
    veth("dst0", "out0", 9000);
    let engine = load();
    engine.set_out_link(index_of("out0")).unwrap();
    let memory = engine.memory();
    fill(&memory);
    let bench = Bench::load(1).unwrap();
    let pass = bench
        .attach(Program::Pass, index_of("dst0"), AttachedMode::Native)
        .unwrap();
    Path {
        engine,
        memory,
        src: Wire::open("src0"),
        dst: Wire::open("dst0"),
        _bench: bench,
        _pass: pass,
    }
}

impl Path {
    /// Sends a packet with a payload of this length and expects it at the other end.
    #[track_caller]
    fn passes(&self, payload: usize) {
        let frame = udp4(SRC4, DST4, (1000, 2000), payload);
        self.src.send(&frame);
        let got = self.dst.receive().expect("nothing came out");
        assert_eq!(got[..6], DST_MAC);
        assert_eq!(got[6..12], SRC_MAC);
        assert_eq!(got[22], 63);
        assert_eq!(got.len(), frame.len());
        assert_eq!(got[34..], frame[34..]);
    }

    /// Sends a packet that the engine does not forward.
    #[track_caller]
    fn stops(&self) {
        self.src.send(&udp4(SRC4, DST4, (1000, 2000), 40));
        assert_eq!(self.dst.receive(), None);
    }
}

#[test]
fn forwards_natively() {
    in_namespace("forwards_natively", || {
        let mut path = path();
        let mode = path.engine.attach(index_of("in0"), Mode::Auto).unwrap();
        assert_eq!(mode, AttachedMode::Native);
        for payload in [18, 40, 1000, 1472, 3000, 4000, 5000, 9000 - 28] {
            path.passes(payload);
        }
        let counters = path.engine.counters();
        assert_eq!(counters.link(5).packets, 8);
        assert_eq!(counters.adjacency(0).packets, 8);
        assert_eq!(counters.adjacency(0).bytes, counters.link(5).bytes);
        // Attached twice is attached once.
        path.engine.attach(index_of("in0"), Mode::Native).unwrap();
        assert_eq!(path.engine.attached().count(), 1);
        path.engine.remove_out_link(index_of("out0")).unwrap();
        path.stops();
        let counters = path.engine.counters();
        assert_eq!(counters.reason(Reason::RedirectFailed).packets, 1);
        path.engine.set_out_link(index_of("out0")).unwrap();
        path.passes(40);
        path.engine.detach(index_of("in0")).unwrap();
        path.stops();
        let again = path.engine.detach(index_of("in0"));
        assert!(matches!(again, Err(Error::NotAttached { .. })));
        drop(path.memory);
    });
}

#[test]
fn forwards_generically() {
    in_namespace("forwards_generically", || {
        let mut path = path();
        let mode = path.engine.attach(index_of("in0"), Mode::Generic).unwrap();
        assert_eq!(mode, AttachedMode::Generic);
        for payload in [18, 40, 1472, 9000 - 28] {
            path.passes(payload);
        }
    });
}

#[test]
fn falls_back_where_the_driver_cannot() {
    in_namespace("falls_back_where_the_driver_cannot", || {
        run("ip", &["link", "add", "br0", "type", "bridge"]);
        let index = index_of("br0");
        let mut engine = load();
        let native = engine.attach(index, Mode::Native);
        assert!(
            matches!(native, Err(Error::NativeUnsupported { .. })),
            "{native:?}"
        );
        assert_eq!(engine.attached().count(), 0);
        assert_eq!(
            engine.attach(index, Mode::Auto).unwrap(),
            AttachedMode::Generic
        );
    });
}

/// Attaches a program where one was until now: a child that another test has just started holds all links until it is what it is to
/// be.
fn patiently<T>(mut attach: impl FnMut() -> Result<T, Error>) -> T {
    let began = Instant::now();
    loop {
        match attach() {
            Err(Error::AlreadyAttached { .. }) if began.elapsed() < LIMIT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            attached => break attached.unwrap(),
        }
    }
}

#[test]
fn another_program_is_never_replaced() {
    in_namespace("another_program_is_never_replaced", || {
        veth("src0", "in0", 1500);
        let bench = Bench::load(1).unwrap();
        let mut engine = load();
        for theirs in [AttachedMode::Native, AttachedMode::Generic] {
            let _held = patiently(|| bench.attach(Program::Pass, index_of("in0"), theirs));
            for ours in [Mode::Auto, Mode::Native, Mode::Generic] {
                let error = engine.attach(index_of("in0"), ours).unwrap_err();
                assert!(matches!(error, Error::AlreadyAttached { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains("(pass, id "), "{text}");
                assert_eq!(engine.attached().count(), 0);
            }
        }
        patiently(|| engine.attach(index_of("in0"), Mode::Auto));
        let missing = engine.attach(9999, Mode::Auto);
        assert!(
            matches!(missing, Err(Error::NoSuchLink { index: 9999 })),
            "{missing:?}"
        );
        let high = engine.attach(1 << 20, Mode::Auto);
        assert!(matches!(high, Err(Error::LinkIndex { .. })), "{high:?}");
    });
}

#[test]
fn ends_with_the_engine() {
    in_namespace("ends_with_the_engine", || {
        let mut path = path();
        path.engine.attach(index_of("in0"), Mode::Auto).unwrap();
        path.passes(40);
        path.engine = load();
        path.stops();
        // The memory outlives the engine for whoever still holds it.
        assert_eq!(path.memory.config().seed, 7);
    });
}

#[test]
fn pinned_links_go_on() {
    in_namespace("pinned_links_go_on", || {
        private_mounts();
        let folder = std::path::PathBuf::from("/sys/fs/bpf/raddle-test");
        let mut path = path();
        assert!(Engine::recover(&folder).unwrap().is_none());
        path.engine.attach(index_of("in0"), Mode::Auto).unwrap();
        path.engine.pin(&folder).unwrap();
        path.passes(40);
        let taken = load().pin(&folder);
        assert!(matches!(taken, Err(Error::Pin { .. })), "{taken:?}");

        path.engine = load();
        path.passes(41);
        path.passes(42);
        path.engine = Engine::recover(&folder).unwrap().unwrap();
        assert_eq!(path.engine.memory().config().seed, 7);
        let attached: Vec<_> = path.engine.attached().collect();
        assert_eq!(attached, [(index_of("in0"), AttachedMode::Native)]);
        path.passes(43);
        // The counters went on too.
        assert_eq!(path.engine.counters().link(5).packets, 4);
        // What the new engine writes is what the program reads.
        path.engine
            .memory()
            .store_group(1, Group::Kernel(Reason::Unreachable));
        path.stops();
        assert_eq!(
            path.engine.counters().reason(Reason::Unreachable).packets,
            1
        );
        path.engine.memory().store_group(1, Group::Single(0));

        // Nobody keeps it in step, and the deadline passes: to the kernel.
        let mut expired = config(7, 1, 1);
        expired.deadline = 1;
        path.engine.memory().store_config(&expired);
        path.engine = load();
        path.stops();
        path.engine = Engine::recover(&folder).unwrap().unwrap();
        path.engine.memory().store_config(&config(7, 1, 1));
        path.passes(44);

        path.engine.detach(index_of("in0")).unwrap();
        path.stops();
        path.engine.attach(index_of("in0"), Mode::Auto).unwrap();
        path.engine.unpin().unwrap();
        assert!(!folder.exists());
        path.passes(45);
        path.engine = load();
        path.stops();
    });
}

/// What the engine has attached to is the device, not its index, which another one may have by now.
#[test]
fn a_device_that_takes_anothers_index_has_no_program() {
    in_namespace("a_device_that_takes_anothers_index", || {
        veth("src0", "in0", 1500);
        let index = index_of("in0");
        let mut engine = load();
        engine.attach(index, Mode::Native).unwrap();
        assert_eq!(engine.forget_detached(), [0; 0]);
        run("ip", &["link", "del", "in0"]);
        let number = index.to_string();
        let again = [
            "link", "add", "in0", "index", &number, "type", "veth", "peer", "name", "src0",
        ];
        run("ip", &again);
        assert_eq!(engine.forget_detached(), [index]);
        assert_eq!(engine.attached().count(), 0);
        let mode = engine.attach(index, Mode::Native).unwrap();
        assert_eq!(mode, AttachedMode::Native);
        assert!(has_own_program(index));
    });
}

/// A map that an earlier version did not have.
#[test]
fn pins_without_a_map_do_not_fit() {
    in_namespace("pins_without_a_map", || {
        private_mounts();
        let folder = std::path::PathBuf::from("/sys/fs/bpf/raddle-older");
        let mut engine = load();
        engine.pin(&folder).unwrap();
        std::fs::remove_file(folder.join("maps/segment_failures")).unwrap();
        let error = Engine::recover(&folder).unwrap_err();
        assert!(matches!(error, Error::Incompatible { .. }), "{error}");
        assert!(error.to_string().contains("`segment_failures`"), "{error}");
    });
}

#[test]
fn pins_need_a_bpffs() {
    in_namespace("pins_need_a_bpffs", || {
        let folder = tempfile::tempdir().unwrap();
        let error = load().pin(&folder.path().join("pins")).unwrap_err();
        assert!(error.to_string().contains("not on a bpffs"), "{error}");
        assert!(!folder.path().join("pins").exists());
    });
}

#[test]
fn features_of_veths() {
    in_namespace("features_of_veths", || {
        veth("src0", "in0", 1500);
        let Some(before) = features(index_of("in0")).unwrap() else {
            eprintln!("skipped: features_of_veths needs Linux 6.3 (netlink family netdev)");
            return;
        };
        assert!(before.native() && before.can_redirect());
        assert!(
            !before.can_receive_redirects(),
            "neither a program nor GRO on the peer"
        );
        let bench = Bench::load(1).unwrap();
        let held = bench.attach(Program::Pass, index_of("src0"), AttachedMode::Native);
        let with = features(index_of("in0")).unwrap().unwrap();
        assert!(with.can_receive_redirects());
        drop(held.unwrap());
        assert!(matches!(features(9999), Err(Error::NoSuchLink { .. })));
    });
}

//! What drivers lose after the engine's verdict, on veths that cannot take what they are given.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::{Duration, Instant};

use raddle_image::{Group, Memory, Reason};
use raddle_xdp::bench::{Attachment, Bench, Program};
use raddle_xdp::{AttachedMode, Engine, Loss, Losses, Mode};
use raddle_xdp_testing::bench::{DST_MAC, SRC_MAC};
use raddle_xdp_testing::frames::{IN_MAC, udp4};
use raddle_xdp_testing::image::{adjacency, config, link, load};
use raddle_xdp_testing::net::{Wire, in_namespace, index_of, run, veth};
use raddle_xdp_testing::tables::Tables4;

/// A generous limit: machines are busy.
const LIMIT: Duration = Duration::from_secs(60);
/// A payload that no link refuses, and one that only a link with a large MTU takes.
const SHORT: usize = 40;
const LONG: usize = 2000;

/// One route from `in0` to `out0`, for packets of up to 9000 bytes.
fn fill(memory: &Memory) {
    memory.store_link(index_of("in0"), &link(index_of("in0"), IN_MAC, 5));
    memory.store_adjacency(0, &adjacency(index_of("out0"), DST_MAC, SRC_MAC, 9000));
    memory.store_group(0, Group::Kernel(Reason::NoRoute));
    memory.store_group(1, Group::Single(0));
    let route = (u32::from_be_bytes([192, 0, 2, 0]), 24, 1);
    Tables4::new(memory).table(0, 3, &[route]);
    memory.store_config(&config(7, 1, 1));
}

/// `src0` - `in0` [engine] `out0` - `dst0`, whose driver takes what is redirected to `out0` if it is short enough.
struct Path {
    src: Wire,
    dst: Wire,
    engine: Engine,
    losses: Losses,
    _bench: Bench,
    taken: Option<Attachment>,
}

impl Path {
    fn open(mode: Mode) -> Path {
        veth("src0", "in0", 9000);
        veth("dst0", "out0", 9000);
        let mut engine = load();
        engine.set_out_link(index_of("out0")).unwrap();
        fill(&engine.memory());
        let bench = Bench::load(1).unwrap();
        let taken = bench
            .attach(Program::Pass, index_of("dst0"), AttachedMode::Native)
            .unwrap();
        run("ip", &["link", "set", "dst0", "mtu", "1500"]);
        engine.attach(index_of("in0"), mode).unwrap();
        Path {
            src: Wire::open("src0"),
            dst: Wire::open("dst0"),
            losses: Losses::attach(&engine).unwrap(),
            engine,
            _bench: bench,
            taken: Some(taken),
        }
    }

    fn send(&self, payload: usize) {
        let frame = udp4([10, 0, 0, 1], [192, 0, 2, 7], (1000, 2000), payload);
        self.src.send(&frame);
    }

    /// What `out0` has lost, once that is so many frames.
    #[track_caller]
    fn loses(&self, frames: u64) -> Loss {
        let began = Instant::now();
        loop {
            let all: Vec<(u32, Loss)> = self.losses.read().collect();
            match *all {
                [(index, loss)] if loss.lost >= frames => {
                    assert_eq!(
                        (index, loss.lost, loss.aborted),
                        (index_of("out0"), frames, 0)
                    );
                    return loss;
                }
                _ if began.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(1)),
                _ => panic!("{frames} frames should be lost: {all:?}"),
            }
        }
    }
}

#[test]
fn what_a_driver_does_not_take_is_counted_by_link() {
    in_namespace("what_a_driver_does_not_take_is_counted_by_link", || {
        let mut path = Path::open(Mode::Native);
        path.send(SHORT);
        assert!(path.dst.receive().is_some());
        assert_eq!(path.losses.read().count(), 0);
        // The far end's MTU is what veth_xdp_xmit goes by.
        for sent in 1..=3 {
            path.send(LONG);
            assert_eq!(path.loses(sent).error, None);
        }
        // Frames through it count as forwarded all the same.
        assert_eq!(path.engine.counters().adjacency(0).packets, 4);
        // Without a program at the far end nothing is taken: the driver says so, or since Linux 6.3 the kernel for it.
        path.taken = None;
        path.send(SHORT);
        let error = path.loses(4).error;
        assert!(
            matches!(error, Some(libc::ENXIO | libc::EOPNOTSUPP)),
            "{error:?}"
        );
    });
}

#[test]
fn what_no_driver_is_given_is_counted_by_link() {
    for (name, mode) in [("native", Mode::Native), ("generic", Mode::Generic)] {
        in_namespace(name, move || {
            let path = Path::open(mode);
            // Below the MTU that the image has.
            run("ip", &["link", "set", "out0", "mtu", "1500"]);
            path.send(LONG);
            assert_eq!(path.loses(1).error, Some(libc::EMSGSIZE));
        });
    }
}

#[test]
fn what_a_program_aborts_is_counted_by_the_link_that_it_came_in_by() {
    in_namespace("what_a_program_aborts_is_counted", || {
        let path = Path::open(Mode::Native);
        let bench = Bench::load(1).unwrap();
        veth("src1", "in1", 1500);
        let _aborts = bench
            .attach(Program::Abort, index_of("in1"), AttachedMode::Native)
            .unwrap();
        Wire::open("src1").send(&[0; 60]);
        let began = Instant::now();
        while path.losses.read().next().is_none() && began.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let aborted = Loss {
            aborted: 1,
            ..Loss::default()
        };
        let all: Vec<_> = path.losses.read().collect();
        assert_eq!(all, [(index_of("in1"), aborted)]);
    });
}

#[test]
fn other_namespaces_have_their_own() {
    in_namespace("other_namespaces_have_their_own", || {
        let ours = Path::open(Mode::Native);
        let out = index_of("out0");
        in_namespace("another", move || {
            let theirs = Path::open(Mode::Native);
            assert_eq!(index_of("out0"), out, "it has the same index");
            theirs.send(LONG);
            theirs.loses(1);
            // Nor does the key of another engine's map count.
            run("ip", &["link", "set", "out0", "mtu", "1500"]);
            theirs.send(LONG);
            theirs.loses(2);
        });
        assert_eq!(ours.losses.read().count(), 0);
        ours.send(LONG);
        ours.loses(1);
    });
}

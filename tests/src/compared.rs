//! The same frames through a router without raddle and with it, and what has to come of them.

use crate::tags::{CameOut, Look, about_neighbours};
use crate::{Arrival, Crafted, Daemon, PATIENT, Random, World, quiet, support, volume};

/// Frames that are sent one after the other by one link.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    /// 0: the source's; otherwise a parallel one, from 1.
    pub by: u32,
    /// The frames.
    pub frames: Vec<Crafted>,
    /// For each frame, whether raddle has to forward it if the kernel does.
    pub engine: Vec<bool>,
    /// What is sent next may depend on what these leave behind: it waits until nothing more comes of them.
    pub settles: bool,
}

impl Burst {
    /// Nothing yet, by this link.
    pub fn by(by: u32) -> Burst {
        Burst {
            by,
            ..Burst::default()
        }
    }

    /// Adds a frame.
    pub fn add(&mut self, kind: &'static str, bytes: Vec<u8>, engine: bool) {
        self.frames.push(Crafted {
            bytes,
            kind,
            flow: None,
        });
        self.engine.push(engine);
    }
}

/// What a comparison saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What came out of the router, without raddle and with it.
    pub arrived: [Vec<Arrival>; 2],
    /// Packets that raddle forwarded.
    pub forwarded: u64,
}

/// What was compared so far.
#[derive(Debug)]
pub struct Compared {
    kind: &'static str,
    rng: Random,
    /// How what comes out is looked at.
    pub look: Look,
    /// About how many frames a trial shall have.
    pub each: usize,
    frames: usize,
    through: usize,
    forwarded: u64,
    /// What came out otherwise with raddle, for people.
    pub wrong: Vec<String>,
    /// Where raddle forwarded less than it has to.
    short: Vec<String>,
}

impl Compared {
    /// For so many trials, which together send as many frames as `RADDLE_FRAMES` says, and at least so many each.
    /// `RADDLE_SEED` says which.
    pub fn new(kind: &'static str, trials: usize, least: usize) -> Compared {
        let seed = volume::seed();
        let each = volume::frames(0).div_ceil(trials).max(least);
        eprintln!("{kind}: about {each} frames in each of {trials} trials, RADDLE_SEED={seed}");
        Compared {
            kind,
            rng: Random::new(seed),
            look: Look::PLAIN,
            each,
            frames: 0,
            through: 0,
            forwarded: 0,
            wrong: Vec::new(),
            short: Vec::new(),
        }
    }

    /// Random numbers for one more trial.
    pub fn random(&mut self) -> Random {
        Random::new(self.rng.bits())
    }

    /// Sends the frames without raddle and with it, each time after `before`, which has the router forget what it has learnt.
    pub fn compare(
        &mut self,
        about: &str,
        world: &World,
        bursts: &[Burst],
        arguments: &[&str],
        before: &dyn Fn(),
    ) -> Seen {
        let frames: Vec<Crafted> = bursts.iter().flat_map(|b| b.frames.clone()).collect();
        let engine: Vec<bool> = bursts.iter().flat_map(|b| b.engine.clone()).collect();
        let counted = |arrived: &[Arrival]| {
            let inner = |a: &Arrival| (self.look.inner)(&a.frame);
            let is_counted =
                |a: &&Arrival| !about_neighbours(&a.frame) && !about_neighbours(&inner(a));
            arrived.iter().filter(is_counted).count()
        };
        before();
        let without = world.exchange_bursts(bursts, quiet(), |_| true);
        let kernel = CameOut::of(&frames, &without, self.look);
        before();
        let arguments: Vec<&str> = PATIENT.iter().chain(arguments).copied().collect();
        let daemon = Daemon::start(world, &arguments);
        let with = world.exchange_bursts(bursts, quiet(), |a| counted(a) >= kernel.count());
        let ours = CameOut::of(&frames, &with, self.look);
        let forwarded = daemon.forwarded();
        let through = kernel.forwarded.len();
        let has_to = kernel.forwarded.iter().filter(|n| engine[**n]).count();
        let differ = kernel.differences(&ours, &frames);
        eprintln!(
            "{about}: {} frames, {} differ; the kernel forwards {through}, raddle {forwarded}, and has to {has_to}",
            frames.len(),
            differ.len()
        );
        if forwarded + split(&daemon) < has_to as u64 {
            self.short.push(format!(
                "{about}: raddle forwarded {forwarded}, not {has_to}: {:?}",
                punted(&daemon)
            ));
        }
        self.frames += frames.len();
        self.through += through;
        self.forwarded += forwarded;
        for what in differ.iter().take(4) {
            eprintln!("{what}");
        }
        let differ = differ.iter().map(|what| format!("{about}: {what}"));
        self.wrong.extend(differ);
        daemon.terminate();
        Seen {
            arrived: [without, with],
            forwarded,
        }
    }

    /// Says what was compared.
    ///
    /// # Panics
    /// Where anything differed, or raddle forwarded too little.
    pub fn right(&self) {
        let share = 100.0 * self.forwarded as f64 / (self.through as f64).max(1.0);
        let told = format!(
            "{}: {} frames compared, {} differ; the kernel forwards {} of them, raddle {} ({share:.2} %)",
            self.kind,
            self.frames,
            self.wrong.len(),
            self.through,
            self.forwarded
        );
        eprintln!("{told}");
        let counted = [self.frames, self.wrong.len(), self.through];
        let [frames, differ, through] = counted.map(|n| n as u64);
        support::tell(self.kind, [frames, differ, through, self.forwarded]);
        let sample: Vec<&str> = self.wrong.iter().take(20).map(|what| &**what).collect();
        assert!(sample.is_empty(), "{told}\n{}", sample.join("\n"));
        assert!(self.short.is_empty(), "{told}\n{}", self.short.join("\n"));
    }
}

/// Packets in several buffers that were punted as such, which the kernel takes from XDP from Linux 6.3 on.
fn split(daemon: &Daemon) -> u64 {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let old = ["6.1.", "6.2."].iter().any(|old| release.starts_with(old));
    if old {
        daemon.reason("several-buffers")
    } else {
        0
    }
}

/// What was punted or dropped, and why.
fn punted(daemon: &Daemon) -> Vec<String> {
    let counters = daemon.counters();
    let reasons = counters["reasons"].as_array().unwrap().iter();
    let reasons = reasons.filter(|reason| reason["packets"] != 0);
    reasons
        .map(|reason| format!("{} {}", reason["packets"], reason["reason"]))
        .collect()
}

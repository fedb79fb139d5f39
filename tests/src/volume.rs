//! How many frames tests compare, frames that are drawn for that, and what came of it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::frame::{self, Flow};
use crate::{Arrival, Crafted, Random, World, agreement, support};

/// So many frames a kind of traffic: what `RADDLE_FRAMES` says, otherwise `usual`.
pub fn frames(usual: usize) -> usize {
    std::env::var("RADDLE_FRAMES").map_or(usual, |n| n.parse().unwrap())
}

/// Which frames are drawn: what `RADDLE_SEED` says, otherwise 1.
pub fn seed() -> u64 {
    std::env::var("RADDLE_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// Protocols with ports, and some that the kernel looks into or has no ports of.
const PROTOCOLS: [u8; 8] = [17, 6, 17, 6, 132, 33, 47, 50];

/// The frames of a test's trials, and what came of them.
#[derive(Debug)]
pub struct Volume {
    kind: &'static str,
    each: usize,
    rng: Random,
    compared: usize,
    through: u64,
    forwarded: u64,
    differ: Vec<String>,
}

impl Volume {
    /// For so many trials, which together send as many frames as `RADDLE_FRAMES` says. `RADDLE_SEED` says which.
    pub fn of(kind: &'static str, trials: usize) -> Volume {
        let seed = seed();
        let each = frames(0).div_ceil(trials);
        if each > 0 {
            eprintln!("{kind}: {each} frames in each of {trials} trials, RADDLE_SEED={seed}");
        }
        Volume {
            kind,
            each,
            rng: Random::new(seed),
            compared: 0,
            through: 0,
            forwarded: 0,
            differ: Vec::new(),
        }
    }

    /// The flows that a test lists, and behind them others of hosts near theirs until there are enough for a trial, with
    /// a frame for each: of another protocol, TOS, TTL and length, and with other ports.
    pub fn frames(&mut self, world: &World, listed: &[Flow]) -> (Vec<Flow>, Vec<Crafted>) {
        self.frames_like(world, listed, listed)
    }

    /// The same, with others like `drawn_from` only.
    pub fn frames_like(
        &mut self,
        world: &World,
        listed: &[Flow],
        drawn_from: &[Flow],
    ) -> (Vec<Flow>, Vec<Crafted>) {
        let mut flows = listed.to_vec();
        let mut frames = world.frames(listed);
        self.extend(world, &mut flows, &mut frames, drawn_from);
        (flows, frames)
    }

    /// Adds others to flows and their frames.
    pub fn extend(
        &mut self,
        world: &World,
        flows: &mut Vec<Flow>,
        frames: &mut Vec<Crafted>,
        drawn_from: &[Flow],
    ) {
        while frames.len() < self.each {
            let like = *self.rng.pick(drawn_from);
            let flow = self.near(like);
            let bytes = frame::drawn(&mut self.rng, world.frame_macs(), &flow);
            flows.push(flow);
            frames.push(Crafted {
                bytes,
                kind: "drawn",
                flow: None,
            });
        }
    }

    fn near(&mut self, flow: Flow) -> Flow {
        let rng = &mut self.rng;
        let mut host = |address: IpAddr| match address {
            // No address of the router's, of a network's, or of a broadcast.
            IpAddr::V4(address) => {
                let network = address.to_bits() & !0x3f;
                Ipv4Addr::from_bits(network | (2 + rng.below(60)) as u32).into()
            }
            IpAddr::V6(address) => {
                let network = address.to_bits() & !0xffff;
                Ipv6Addr::from_bits(network | (0x100 + rng.below(0xff00)) as u128).into()
            }
        };
        let (src, dst) = (host(flow.src), host(flow.dst));
        Flow {
            src,
            dst,
            proto: *rng.pick(&PROTOCOLS),
            sport: rng.bits() as u16,
            dport: rng.bits() as u16,
        }
    }

    /// Compares what the kernel did with a frame of each flow and what raddle did, of which it forwarded so many itself.
    /// Where they differ is said at the end: [`Volume::right`].
    pub fn compare(
        &mut self,
        about: &str,
        flows: &[Flow],
        arrived: [&[Vec<Arrival>]; 2],
        forwarded: u64,
    ) {
        let names = flows.iter().map(|flow| format!("{flow:?}"));
        self.compare_named(about, names, arrived, forwarded);
    }

    /// The same for frames of any kind.
    pub fn compare_frames(
        &mut self,
        about: &str,
        frames: &[Crafted],
        arrived: [&[Vec<Arrival>]; 2],
        forwarded: u64,
    ) {
        let names = frames.iter();
        let names = names.map(|frame| format!("{} {}", frame.kind, agreement::hex(&frame.bytes)));
        self.compare_named(about, names, arrived, forwarded);
    }

    fn compare_named(
        &mut self,
        about: &str,
        names: impl ExactSizeIterator<Item = String>,
        [kernel, ours]: [&[Vec<Arrival>]; 2],
        forwarded: u64,
    ) {
        self.compared += names.len();
        self.forwarded += forwarded;
        for (name, (kernel, ours)) in names.zip(kernel.iter().zip(ours)) {
            let [kernel, ours] = [kernel, ours].map(|arrivals| links(arrivals));
            self.through += kernel.len() as u64;
            if kernel != ours {
                self.differ.push(format!(
                    "{about}: {name}: by {kernel:?} without raddle, by {ours:?} with it"
                ));
            }
        }
    }

    /// The part of the packets that the kernel forwards, which raddle forwarded itself.
    pub fn share(&self) -> f64 {
        self.forwarded as f64 / (self.through as f64).max(1.0)
    }

    /// Says what was compared.
    ///
    /// # Panics
    /// Where anything differed.
    pub fn right(&self) {
        eprintln!("{self}");
        let (compared, differ) = (self.compared as u64, self.differ.len() as u64);
        support::tell(self.kind, [compared, differ, self.through, self.forwarded]);
        let sample: Vec<&str> = self.differ.iter().take(20).map(|d| &**d).collect();
        assert!(sample.is_empty(), "{self}\n{}", sample.join("\n"));
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100.0 * self.share();
        let (kind, compared, through) = (self.kind, self.compared, self.through);
        let (forwarded, differ) = (self.forwarded, self.differ.len());
        write!(
            f,
            "{kind}: {compared} frames compared, {differ} differ; the kernel forwards {through} of them, \
             raddle {forwarded} ({share:.2} %)"
        )
    }
}

/// The links that a frame left by.
pub fn links(arrivals: &[Arrival]) -> Vec<&str> {
    arrivals.iter().map(|arrival| &*arrival.link).collect()
}

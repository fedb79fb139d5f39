//! Frames that are sent, each with what became of it.

use std::collections::HashMap;
use std::io::{Read as _, Seek as _};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{World, lock, quiet};
use crate::compared::Burst;
use crate::frame::identity;
use crate::{Arrival, Crafted, PacketSocket};

/// The part of [`quiet`] for which nothing may come any more once all has come that is expected.
const PART: u32 = 6;

/// For how long nothing comes where something is expected, until it is taken for lost.
const LOST: Duration = Duration::from_secs(5);

/// For how long nothing comes until what frames leave behind is known to all that have to hear of it, on a busy machine.
const SETTLED: Duration = Duration::from_millis(400);

/// The far ends of the router's links.
struct Ends<'a> {
    source: MutexGuard<'a, PacketSocket>,
    sinks: MutexGuard<'a, Vec<PacketSocket>>,
}

impl Ends<'_> {
    /// 0: the source's; otherwise that of a parallel link.
    fn socket(&self, by: u32) -> &PacketSocket {
        match by {
            0 => &self.source,
            n => &self.sinks[n as usize - 1],
        }
    }

    /// Takes what has come, of each link; says whether there was anything.
    fn take(&mut self, world: &World, arrived: &mut Vec<Arrival>) -> bool {
        let before = arrived.len();
        let back = [("source".to_owned(), &mut *self.source)].into_iter();
        let out = (1..).map(|n| world.out(n)).zip(self.sinks.iter_mut());
        for (link, socket) in back.chain(out) {
            while let Some(frame) = socket.receive().unwrap() {
                let (link, frame) = (link.clone(), frame.to_vec());
                arrived.push(Arrival { link, frame });
            }
        }
        arrived.len() > before
    }
}

impl World {
    /// Sends these frames and returns all that comes out of the router meanwhile, by whichever link,
    /// also back to the source, until nothing has come for `quiet`. The link of what came back is
    /// `source`.
    pub fn exchange(&self, frames: &[Crafted], quiet: Duration) -> Vec<Arrival> {
        self.exchange_again(frames, quiet, |_| true)
    }

    /// The same, but also until `enough` has come, or not for a long time.
    pub fn exchange_again(
        &self,
        frames: &[Crafted],
        quiet: Duration,
        enough: impl Fn(&[Arrival]) -> bool,
    ) -> Vec<Arrival> {
        let burst = Burst {
            frames: frames.to_vec(),
            ..Burst::by(0)
        };
        self.exchange_bursts(&[burst], quiet, enough)
    }

    /// The same with frames that are sent by several links.
    pub fn exchange_bursts(
        &self,
        bursts: &[Burst],
        quiet: Duration,
        enough: impl Fn(&[Arrival]) -> bool,
    ) -> Vec<Arrival> {
        let mut ends = self.ends();
        let mut arrived = Vec::new();
        ends.take(self, &mut Vec::new());
        let mut last = Instant::now();
        for burst in bursts {
            self.send(&mut ends, burst.by, &burst.frames, |ends| {
                ends.take(self, &mut arrived);
            });
            last = Instant::now();
            while burst.settles && last.elapsed() < quiet.max(SETTLED) {
                if ends.take(self, &mut arrived) {
                    last = Instant::now();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        while last.elapsed() < quiet || last.elapsed() < LOST && !enough(&arrived) {
            if ends.take(self, &mut arrived) {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        arrived
    }

    /// Sends the frames and says for each where and how it came out of the router. A frame that
    /// comes out twice has two arrivals.
    ///
    /// What does not come is waited for until nothing has come for [`quiet`]. Once each frame has come, only a sixth of
    /// that is waited for others. What comes later nevertheless is counted: [`World::late`].
    pub fn transmit(&self, frames: &[Crafted]) -> Vec<Vec<Arrival>> {
        self.transmitted(frames, quiet(), |_| 1)
    }

    /// As [`World::transmit`], but once as much has come of each frame as `before`, when it was sent for the first time,
    /// what has not come is waited for no longer than other things.
    pub fn transmit_again(&self, frames: &[Crafted], before: &[Vec<Arrival>]) -> Vec<Vec<Arrival>> {
        self.transmitted(frames, quiet(), |n| before[n].len())
    }

    /// As [`World::transmit`], until nothing has come for `quiet`, whatever has come.
    pub fn transmit_for(&self, frames: &[Crafted], quiet: Duration) -> Vec<Vec<Arrival>> {
        self.transmitted(frames, quiet, |_| usize::MAX)
    }

    /// How many frames came only when the transmission that they were of was taken for over.
    pub fn late(&self) -> usize {
        std::thread::sleep(quiet());
        self.drain();
        self.late.load(Ordering::Relaxed)
    }

    fn ends(&self) -> Ends<'_> {
        Ends {
            source: lock(&self.source),
            sinks: lock(&self.sinks),
        }
    }

    fn drain(&self) {
        let latest = lock(&self.latest);
        for sink in lock(&self.sinks).iter_mut() {
            while let Some(frame) = sink.receive().unwrap() {
                let late = latest.contains(&identity(&self.inside(frame)));
                self.late.fetch_add(usize::from(late), Ordering::Relaxed);
            }
        }
    }

    fn transmitted(
        &self,
        frames: &[Crafted],
        quiet: Duration,
        expected: impl Fn(usize) -> usize,
    ) -> Vec<Vec<Arrival>> {
        self.drain();
        let mut ends = self.ends();
        let sent: HashMap<Vec<u8>, usize> = frames
            .iter()
            .enumerate()
            .map(|(i, f)| (identity(&self.inside(&f.bytes)), i))
            .collect();
        let links: Vec<String> = (1..=self.links).map(|n| self.out(n)).collect();
        let mut arrived = vec![Vec::new(); frames.len()];
        // Frames of which less has come than is expected.
        let mut missing = (0..frames.len()).filter(|n| expected(*n) > 0).count();
        let mut take = |ends: &mut Ends, missing: &mut usize| {
            let mut any = false;
            for (link, sink) in links.iter().zip(ends.sinks.iter_mut()) {
                while let Some(frame) = sink.receive().unwrap() {
                    let Some(index) = sent.get(&identity(&self.inside(frame))) else {
                        continue;
                    };
                    let (link, frame) = (link.clone(), frame.to_vec());
                    arrived[*index].push(Arrival { link, frame });
                    *missing -= usize::from(arrived[*index].len() == expected(*index));
                    any = true;
                }
            }
            any
        };
        // However many there are, they are taken out as they come.
        self.send(&mut ends, 0, frames, |ends| {
            take(ends, &mut missing);
        });
        let mut last = Instant::now();
        while last.elapsed() < (if missing == 0 { quiet / PART } else { quiet }) {
            if take(&mut ends, &mut missing) {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        *lock(&self.latest) = sent.into_keys().collect();
        arrived
    }

    /// Sends frames in bursts, each when the router has taken in those before: rings are short, and what they have no
    /// room for is lost. There is something to do after each.
    fn send<'a>(
        &self,
        ends: &mut Ends<'a>,
        by: u32,
        frames: &[Crafted],
        mut between: impl FnMut(&mut Ends<'a>),
    ) {
        let mut before = self.taken_in_by(by);
        // Not where it does not count: its link is down, say.
        let mut counts = true;
        let mut sent = 0;
        for burst in frames.chunks(32) {
            for frame in burst {
                let sent = ends.socket(by).send(&frame.bytes);
                sent.unwrap_or_else(|e| panic!("{}: {e}", frame.kind));
            }
            sent += burst.len() as u64;
            let start = Instant::now();
            while counts && self.taken_in_by(by).saturating_sub(before) < sent {
                if start.elapsed() >= quiet() {
                    // What was lost on the way is not waited for again.
                    let now = self.taken_in_by(by);
                    counts = now > before;
                    (before, sent) = (now, 0);
                    break;
                }
                between(ends);
                std::thread::sleep(Duration::from_micros(100));
            }
            if !counts {
                std::thread::sleep(Duration::from_millis(1));
            }
            between(ends);
        }
    }

    /// How many frames the router has taken off its link's ring so far: a veth that polls, as a lab's all do, counts
    /// them then, also those that XDP took (`veth_xdp_rcv`).
    pub(crate) fn taken_in(&self) -> u64 {
        self.taken_in_by(0)
    }

    /// The same of any link.
    fn taken_in_by(&self, by: u32) -> u64 {
        let entry = match by {
            0 => self.entry.to_owned(),
            n => self.out(n),
        };
        let mut file = lock(&self.counters);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| {
            let (name, counters) = line.split_once(':')?;
            (name.trim() == entry).then_some(counters)
        });
        // Bytes, then packets.
        let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        packets.unwrap_or(0)
    }
}

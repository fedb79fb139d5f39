//! Frames that are sent, each with what became of it.

use std::collections::HashMap;
use std::io::{Read as _, Seek as _};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{World, lock, quiet};
use crate::frame::identity;
use crate::{Arrival, Crafted, PacketSocket};

/// The part of [`quiet`] for which nothing may come any more once all has come that is expected.
const PART: u32 = 6;

impl World {
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

    fn drain(&self) {
        let latest = lock(&self.latest);
        for sink in lock(&self.sinks).iter_mut() {
            while let Some(frame) = sink.receive().unwrap() {
                let late = latest.contains(&identity(frame));
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
        let mut source = lock(&self.source);
        self.drain();
        let mut sinks = lock(&self.sinks);
        let sent: HashMap<Vec<u8>, usize> = frames
            .iter()
            .enumerate()
            .map(|(i, f)| (identity(&f.bytes), i))
            .collect();
        let links: Vec<String> = (1..=self.links).map(|n| self.out(n)).collect();
        let mut arrived = vec![Vec::new(); frames.len()];
        // Frames of which less has come than is expected.
        let mut missing = (0..frames.len()).filter(|n| expected(*n) > 0).count();
        let mut take = |missing: &mut usize| {
            let mut any = false;
            for (link, sink) in links.iter().zip(sinks.iter_mut()) {
                while let Some(frame) = sink.receive().unwrap() {
                    let Some(index) = sent.get(&identity(frame)) else {
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
        self.send(&mut source, frames, |_| {
            take(&mut missing);
        });
        let mut last = Instant::now();
        while last.elapsed() < (if missing == 0 { quiet / PART } else { quiet }) {
            if take(&mut missing) {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        *lock(&self.latest) = sent.into_keys().collect();
        arrived
    }
    /// Sends frames in bursts, each when the router has taken in those before: rings are short, and what they have no
    /// room for is lost. There is something to do after each.
    pub(super) fn send(
        &self,
        source: &mut PacketSocket,
        frames: &[Crafted],
        mut between: impl FnMut(&mut PacketSocket),
    ) {
        let mut before = self.taken_in();
        // Not where it does not count: its link is down, say.
        let mut counts = true;
        let mut sent = 0;
        for burst in frames.chunks(32) {
            for frame in burst {
                source
                    .send(&frame.bytes)
                    .unwrap_or_else(|e| panic!("{}: {e}", frame.kind));
            }
            sent += burst.len() as u64;
            let start = Instant::now();
            while counts && self.taken_in().saturating_sub(before) < sent {
                if start.elapsed() >= quiet() {
                    // What was lost on the way is not waited for again.
                    let now = self.taken_in();
                    counts = now > before;
                    (before, sent) = (now, 0);
                    break;
                }
                between(source);
                std::thread::sleep(Duration::from_micros(100));
            }
            if !counts {
                std::thread::sleep(Duration::from_millis(1));
            }
            between(source);
        }
    }

    /// How many frames the router has taken off its link's ring so far: a veth that polls, as a lab's all do, counts
    /// them then, also those that XDP took (`veth_xdp_rcv`).
    pub(crate) fn taken_in(&self) -> u64 {
        let mut file = lock(&self.counters);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| {
            let (name, counters) = line.split_once(':')?;
            (name.trim() == self.entry).then_some(counters)
        });
        // Bytes, then packets.
        let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        packets.unwrap_or(0)
    }
}

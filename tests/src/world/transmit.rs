//! Frames that are sent, each with what became of it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{World, lock, quiet, send};
use crate::frame::identity;
use crate::{Arrival, Crafted};

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
        send(&mut source, frames, |_| {
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
}

//! What is lost of a fast stream when something changes in the middle of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::World;
use crate::frame::{self, Flow};

/// How long a stream goes on before the change, and behind it.
const BEFORE: Duration = Duration::from_millis(150);
const BEHIND: Duration = Duration::from_millis(350);
/// After this long without a frame none comes any more.
const QUIET: Duration = Duration::from_millis(200);

/// What became of a stream during which something changed.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Packets a second.
    pub per_second: u32,
    /// Packets sent.
    pub sent: usize,
    /// How many of them had been sent when the change began.
    pub changed_at: usize,
    /// Numbers of those that did not arrive.
    pub lost: Vec<usize>,
}

impl Loss {
    /// For how long one path of `paths` has lost all its packets, if all that was lost is that.
    pub fn outage(&self, paths: u32) -> Duration {
        let packets = self.lost.len() as f64 * f64::from(paths);
        Duration::from_secs_f64(packets / f64::from(self.per_second))
    }
}

/// Sends the flows in turn, has `change` happen in the middle, and accounts for every packet.
pub fn across(world: &World, flows: &[Flow], per_second: u32, change: impl FnOnce()) -> Loss {
    let count = ((BEFORE + BEHIND).as_secs_f64() * f64::from(per_second)) as usize;
    let frames: Vec<Vec<u8>> = (0..count)
        .map(|tag| {
            let flow = &flows[tag % flows.len()];
            frame::udp(world.frame_macs(), flow, tag as u64, 20)
        })
        .collect();
    let (source, mut sinks) = world.sockets();
    for sink in sinks.iter_mut() {
        while sink.receive().unwrap().is_some() {}
    }
    let sent = AtomicUsize::new(0);
    let changed_at = std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            let mut next = 0;
            while next < count {
                let due = (start.elapsed().as_secs_f64() * f64::from(per_second)) as usize;
                // After a pause for which others had the processor, not all at once: rings are short.
                let burst = due.saturating_sub(next).min(16).min(count - next);
                for frame in &frames[next..next + burst] {
                    source.send(frame).unwrap();
                }
                next += burst;
                sent.store(next, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let middle = (BEFORE.as_secs_f64() * f64::from(per_second)) as usize;
        while sent.load(Ordering::Relaxed) < middle {
            std::thread::sleep(Duration::from_millis(1));
        }
        let changed_at = sent.load(Ordering::Relaxed);
        change();
        changed_at
    });
    let mut arrived = vec![false; count];
    let mut last = Instant::now();
    while last.elapsed() < QUIET {
        for sink in sinks.iter_mut() {
            while let Some(frame) = sink.receive().unwrap() {
                let tag = frame::tag(frame).and_then(|tag| usize::try_from(tag).ok());
                if let Some(arrived) = tag.and_then(|tag| arrived.get_mut(tag)) {
                    *arrived = true;
                    last = Instant::now();
                }
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Loss {
        per_second,
        sent: count,
        changed_at,
        lost: (0..count).filter(|tag| !arrived[*tag]).collect(),
    }
}

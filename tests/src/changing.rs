//! Frames that flow while the router's state changes again and again: when each was sent, and where it went.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::frame::{self, Flow};
use crate::tags::tags;
use crate::tunnelled::far_end;
use crate::{Arrival, World, quiet};

/// A frame that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When, since the start.
    pub at: Duration,
    /// Numbers of the ways that it came out by, see [`way`].
    pub links: Vec<u32>,
}

/// A change of the state, which was in effect for some moment between its beginning and its end at the latest.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When it began.
    pub begun: Duration,
    /// When it had been made.
    pub ended: Duration,
    /// Which of two states it was to.
    pub on: bool,
}

/// The number of the way that a frame came out by: that of a link, and another for each VLAN upon it and each far end of a tunnel by it.
pub fn way(world: &World, arrival: &Arrival) -> Option<u32> {
    let link = (1..=world.links()).find(|n| world.out(*n) == arrival.link)?;
    Some(numbered(link, &arrival.frame))
}

fn numbered(link: u32, frame: &[u8]) -> u32 {
    let ids = tags(frame)
        .into_iter()
        .map(|tag| u32::from(tag.tci & 0xfff));
    link + 100 * ids.sum::<u32>() + 1_000_000 * u32::from(far_end(frame).unwrap_or(0))
}

/// Frames and changes.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Frame `n` is of flow `n` modulo the number of flows.
    pub sent: Vec<Sent>,
    /// In their order. Before the first the state is off.
    pub changes: Vec<Change>,
}

/// What comes out of a record that is held against what the kernel does in either state.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Frames that went as in no state that they may have met, for people.
    pub wrong: Vec<String>,
    /// For how long after a change a frame went as in the state before.
    pub longest: Duration,
    /// Frames that were lost while a link was taken down by a change.
    pub moved: usize,
    /// For how long after such a change.
    pub gap: Duration,
}

/// Sends the flows in turn, so many a second, and meanwhile makes changes, each after a while, until there are `least` of
/// them and `frames` frames. The state is off in the end.
pub fn record(
    world: &World,
    flows: &[Flow],
    (per_second, frames): (u32, usize),
    (least, dwells): (usize, &[Duration]),
    mut change: impl FnMut(bool),
) -> Record {
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(world, flows, per_second, start, (&stop, &count)));
        // Also where a change fails: the scope waits for the sender.
        let stopping = Stopping(&stop);
        let mut changes = Vec::new();
        for (n, dwell) in dwells.iter().cycle().enumerate() {
            std::thread::sleep(*dwell);
            let enough = n >= least && n % 2 == 0 && count.load(Ordering::Relaxed) >= frames;
            if enough || sender.is_finished() {
                break;
            }
            let (begun, on) = (start.elapsed(), n % 2 == 0);
            change(on);
            let ended = start.elapsed();
            changes.push(Change { begun, ended, on });
        }
        drop(stopping);
        let sent = sender.join().unwrap();
        Record { sent, changes }
    })
}

/// Ends the sender when it goes.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Frames that may be on their way to the router: fewer than its ring has room for.
const ON_THE_WAY: u64 = 128;

fn send(
    world: &World,
    flows: &[Flow],
    per_second: u32,
    start: Instant,
    (stop, count): (&AtomicBool, &AtomicUsize),
) -> Vec<Sent> {
    let (source, mut sinks) = world.sockets();
    let mut sent: Vec<Sent> = Vec::new();
    let mut take = |sent: &mut Vec<Sent>| {
        let mut any = false;
        for (link, sink) in (1..).zip(sinks.iter_mut()) {
            while let Some(frame) = sink.receive().unwrap() {
                let tag =
                    frame::tag(&world.inside(frame)).and_then(|tag| usize::try_from(tag).ok());
                if let Some(sent) = tag.and_then(|tag| sent.get_mut(tag)) {
                    sent.links.push(numbered(link, frame));
                    any = true;
                }
            }
        }
        any
    };
    // What the router had taken in when so many had been sent, and when it was last seen to keep up.
    let (mut before, mut counted, mut kept_up) = (world.taken_in(), 0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(per_second)) as usize;
        let taken = world.taken_in().saturating_sub(before);
        let on_the_way = (sent.len() as u64 - counted).saturating_sub(taken);
        if on_the_way <= ON_THE_WAY {
            kept_up = Instant::now();
        } else if kept_up.elapsed() > quiet() {
            // They are lost, with a link that was taken down.
            (before, counted) = (world.taken_in(), sent.len() as u64);
        }
        // After a pause for which others had the processor, not all at once.
        let room = ON_THE_WAY.saturating_sub(on_the_way).min(16) as usize;
        for _ in 0..due.saturating_sub(sent.len()).min(room) {
            let tag = sent.len();
            let flow = &flows[tag % flows.len()];
            source.send(&world.frame(flow, tag as u64)).unwrap();
            // Later than it was: then the state before counts for longer, which is for the deadline to say.
            sent.push(Sent {
                at: start.elapsed(),
                links: Vec::new(),
            });
        }
        count.store(sent.len(), Ordering::Relaxed);
        take(&mut sent);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut last = Instant::now();
    while last.elapsed() < 2 * quiet() {
        if take(&mut sent) {
            last = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    sent
}

impl Record {
    /// Holds each frame against where the kernel sends its flow with the state off and on: it has to go as in a state that
    /// it may have met. These are those that came before its end and, each for `deadline` after the next change, those
    /// before. `slack` is for how long a frame may be on its way to the router. With `gap`, a change
    /// takes a link down, and frames may be lost until so long after its end.
    pub fn judge(
        &self,
        ways: [&[Option<u32>]; 2],
        (deadline, slack): (Duration, Duration),
        gap: Option<Duration>,
    ) -> Judged {
        let mut judged = Judged::default();
        for (n, sent) in self.sent.iter().enumerate() {
            let way = |on: bool| ways[usize::from(on)][n % ways[0].len()];
            let went = sent.links.first().copied();
            let now = self.changes.iter().rfind(|change| change.ended <= sent.at);
            let (state, since) = now.map_or((false, Duration::ZERO), |c| (c.on, c.ended));
            let once = sent.links.len() < 2;
            if once && went == way(state) {
                continue;
            }
            let mut coming = self.changes.iter().filter(|change| change.ended > sent.at);
            let to_come = coming.any(|c| c.begun <= sent.at + slack && way(c.on) == went);
            if once && to_come {
                continue;
            }
            let ago = sent.at - since;
            let mut gone = self
                .changes
                .iter()
                .filter(|change| change.ended <= sent.at && sent.at - change.ended <= deadline);
            // Each change was made from the other state.
            if once && gone.any(|change| way(!change.on) == went) {
                judged.longest = judged.longest.max(ago);
                continue;
            }
            let moving = self.changes.iter().rfind(|c| c.begun <= sent.at + slack);
            if let (Some(gap), Some(change), None) = (gap, moving, went) {
                let behind = sent.at.saturating_sub(change.ended);
                judged.moved += 1;
                judged.gap = judged.gap.max(behind);
                if behind <= gap {
                    continue;
                }
            }
            judged.wrong.push(format!(
                "frame {n}, sent {ago:?} after the state was {state}: by {:?}, not by {:?}; by {:?} before",
                sent.links,
                way(state),
                way(!state)
            ));
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_by_states_that_they_may_have_met() {
        let ms = Duration::from_millis;
        let change = |at, on| Change {
            begun: ms(at),
            ended: ms(at + 10),
            on,
        };
        let of = |at, links: &[u32]| Record {
            sent: vec![Sent {
                at: ms(at),
                links: links.to_vec(),
            }],
            changes: vec![change(1000, true), change(5000, false)],
        };
        let wrong = |at, links: &[u32], gap| {
            let ways = [&[Some(1)][..], &[Some(2)]];
            let judged = of(at, links).judge(ways, (ms(100), ms(5)), gap);
            judged.wrong.len()
        };
        // By link 1 until the first change has begun, and so long after it.
        let by =
            |link: u32| [990, 996, 1005, 1100, 1111, 4990, 4996].map(|at| wrong(at, &[link], None));
        assert_eq!(by(1), [0, 0, 0, 0, 1, 1, 0]);
        assert_eq!(by(2), [1, 0, 0, 0, 0, 0, 0]);
        for at in [500, 1005, 3000, 6000] {
            assert_eq!(wrong(at, &[], None), 1, "lost at {at}");
            assert_eq!(wrong(at, &[3], None), 1, "elsewhere at {at}");
            assert_eq!(wrong(at, &[1, 1], None), 1, "twice at {at}");
        }
        let lost = [900, 1005, 1200, 1300].map(|at| wrong(at, &[], Some(ms(200))));
        assert_eq!(lost, [1, 0, 0, 1]);
    }
}

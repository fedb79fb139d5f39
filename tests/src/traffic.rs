//! A steady stream of packets, every one of which is accounted for.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::frame::{self, Flow};
use crate::{PacketSocket, World};

/// A frame that came out of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The router's link that it left by.
    pub link: String,
    /// All of it.
    pub frame: Vec<u8>,
}

/// A stream that is being sent.
#[derive(Debug)]
pub struct Stream<'scope> {
    sent: &'scope AtomicU64,
    stop: &'scope AtomicBool,
    thread: ScopedJoinHandle<'scope, StreamReport>,
}

/// What became of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamReport {
    /// Packets sent.
    pub sent: u64,
    /// Numbers of those that did not arrive.
    pub lost: Vec<u64>,
    /// How many arrived more than once.
    pub twice: u64,
    /// For each flow, the links that its packets left the router by.
    pub links: Vec<BTreeSet<String>>,
    /// How many overtook another of their flow.
    pub reordered: u64,
}

/// Room for what a stream shares with its thread.
#[derive(Debug, Default)]
pub struct StreamState {
    sent: AtomicU64,
    stop: AtomicBool,
}

impl<'scope> Stream<'scope> {
    /// Starts sending the flows in turn, `per_second` packets in all, until [`Stream::end`].
    pub fn start(
        scope: &'scope std::thread::Scope<'scope, '_>,
        world: &'scope World,
        state: &'scope StreamState,
        flows: &'scope [Flow],
        per_second: u32,
    ) -> Stream<'scope> {
        let thread = scope.spawn(move || run(world, state, flows, per_second));
        Stream {
            sent: &state.sent,
            stop: &state.stop,
            thread,
        }
    }

    /// Packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends it and accounts for every packet.
    pub fn end(self) -> StreamReport {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Account {
    /// Link of each packet, by its number; `u8::MAX` while it has not arrived.
    seen: Vec<u8>,
    latest: Vec<u64>,
    twice: u64,
    reordered: u64,
}

impl Account {
    fn take(&mut self, sinks: &mut [PacketSocket]) -> bool {
        let mut any = false;
        for (link, sink) in sinks.iter_mut().enumerate() {
            while let Some(frame) = sink.receive().unwrap() {
                let Some(tag) = frame::tag(frame).filter(|t| *t < self.seen.len() as u64) else {
                    continue;
                };
                any = true;
                let seen = &mut self.seen[tag as usize];
                self.twice += u64::from(*seen != u8::MAX);
                *seen = link as u8;
                let flow = tag as usize % self.latest.len();
                self.reordered += u64::from(tag < self.latest[flow]);
                self.latest[flow] = self.latest[flow].max(tag);
            }
        }
        any
    }
}

fn run(world: &World, state: &StreamState, flows: &[Flow], per_second: u32) -> StreamReport {
    let (source, mut sinks) = world.sockets();
    let start = Instant::now();
    let mut account = Account {
        seen: Vec::new(),
        latest: vec![0; flows.len()],
        twice: 0,
        reordered: 0,
    };
    while !state.stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
        // After a pause for which others had the processor, not all at once: rings are short.
        let burst = due.saturating_sub(account.seen.len() as u64).min(16);
        for _ in 0..burst {
            let tag = account.seen.len() as u64;
            let flow = &flows[tag as usize % flows.len()];
            source
                .send(&frame::udp(world.frame_macs(), flow, tag, 20))
                .unwrap();
            account.seen.push(u8::MAX);
        }
        state
            .sent
            .store(account.seen.len() as u64, Ordering::Relaxed);
        account.take(&mut sinks);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(150) && account.seen.contains(&u8::MAX) {
        if account.take(&mut sinks) {
            quiet = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut report = StreamReport {
        sent: account.seen.len() as u64,
        lost: Vec::new(),
        twice: account.twice,
        links: vec![BTreeSet::new(); flows.len()],
        reordered: account.reordered,
    };
    for (tag, link) in account.seen.iter().enumerate() {
        match link {
            &u8::MAX => report.lost.push(tag as u64),
            link => {
                report.links[tag % flows.len()].insert(world.out(u32::from(*link) + 1));
            }
        }
    }
    report
}

//! Where the mirror's threads meet: reports to whoever polls the mirror, orders to the thread that
//! dumps.
//!
//! One queue for notifications and dumps keeps their order: what stands behind the beginning of a
//! dump may be newer than it, what stands before is not. Dumped chunks are few at a time, so that
//! a notification never waits long behind them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use raddle_rib::event::KernelHosts;

use super::devices::Alone;
use super::kind::{Dumped, Wanted};
use super::sysctl::Sysctls;
use crate::error::Error;
use crate::socket::Dump;
use crate::wake::Wake;

/// Notifications that may wait, in bytes. Beyond, they are thrown away, which is the same to us as
/// the kernel's own buffer overflowing, but bounds our memory too.
const NOTIFICATIONS_LIMIT: usize = 128 << 20;
/// Chunks of a dump that may wait: some 3000 routes, less than 10 ms of work for the consumer.
const CHUNKS_LIMIT: usize = 8;
/// Buffers kept for the next use.
const POOL_LIMIT: usize = 16;
/// From the first sign that a dump is needed to the dump: such signs come in bursts.
const SETTLE: Duration = Duration::from_millis(5);
/// A dump rests this many times as long as it took before the next.
const REST: u32 = 4;

/// What the threads have to say.
#[derive(Debug)]
pub(super) enum Report {
    /// Notifications, in order, and when the first of them arrived.
    Notifications(Vec<u8>, Instant),
    /// Some are being lost: told as soon as it is known, before those that are still there are received.
    Losing,
    /// Notifications were lost before this point.
    Lost,
    /// A dump of these begins, or begins anew.
    DumpBegin(Dumped),
    /// Part of it, and when the kernel made it, at the earliest.
    DumpChunk(Vec<u8>, Instant),
    /// It is complete.
    DumpEnd(Dumped, Dump),
    /// All dumps that one order asked for are complete; whether these were all that there are.
    RunEnd(bool),
    /// Settings read from `/proc/sys`, and when reading those of devices began.
    Sysctls(Sysctls, Instant),
    /// Those of one device.
    Device(Alone),
    /// Destinations for which the kernel goes by more than routes.
    KernelHosts(KernelHosts),
    /// Members of bonds, by the bond, in their order, none where they cannot be read; and when reading them began.
    Bonds(Vec<(u32, Vec<u32>)>, Instant),
    /// A thread cannot go on.
    Failed(Error),
}

/// What the thread that dumps shall do next.
pub(super) enum Order {
    Dump(Wanted),
    /// Read settings; report them even if they have not changed.
    Settings,
    /// Read the members of these bonds, by index with their names.
    Bonds(BTreeMap<u32, String>),
    /// The time for reading settings has come.
    Timer,
    Stop,
}

#[derive(Debug, Default)]
struct State {
    reports: VecDeque<Report>,
    notification_bytes: usize,
    chunks: usize,
    pool: Vec<Vec<u8>>,
    wanted: Wanted,
    wanted_at: Option<Instant>,
    not_before: Option<Instant>,
    settings_wanted: bool,
    bonds_wanted: BTreeMap<u32, String>,
    stop: bool,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// The dumping thread waits on it: for orders, and for room.
    dumper: Condvar,
    /// Readable while there are reports.
    wake: Wake,
}

impl Queue {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Queue {
            state: Mutex::default(),
            dumper: Condvar::new(),
            wake: Wake::new()?,
        })
    }

    /// A thread that panicked while it held the lock leaves a state that is still whole: every
    /// critical section below is a few plain assignments.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_locked(&self, state: &mut State, report: Report) {
        if state.reports.is_empty() {
            self.wake.set();
        }
        state.reports.push_back(report);
    }

    pub(super) fn push(&self, report: Report) {
        self.push_locked(&mut self.lock(), report);
    }

    /// Queues notifications, together with those queued last where they fit. False when too many
    /// wait and these were thrown away.
    pub(super) fn push_notifications(&self, buffer: Vec<u8>, since: Instant) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(Report::Notifications(last, _)) = state.reports.back_mut()
            && last.capacity() - last.len() >= buffer.len()
        {
            last.extend_from_slice(&buffer);
            recycle(&mut state.pool, buffer);
            return true;
        }
        if state.notification_bytes + buffer.capacity() > NOTIFICATIONS_LIMIT {
            recycle(&mut state.pool, buffer);
            return false;
        }
        state.notification_bytes += buffer.capacity();
        self.push_locked(state, Report::Notifications(buffer, since));
        true
    }

    /// Queues part of a dump; waits for room. False when the mirror is being closed.
    pub(super) fn push_chunk(&self, buffer: Vec<u8>, made: Instant) -> bool {
        let mut state = self.lock();
        while state.chunks >= CHUNKS_LIMIT && !state.stop {
            state = self
                .dumper
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.chunks += 1;
        let going_on = !state.stop;
        self.push_locked(&mut state, Report::DumpChunk(buffer, made));
        going_on
    }

    /// Takes all that there is.
    pub(super) fn take(&self) -> VecDeque<Report> {
        let mut state = self.lock();
        state.notification_bytes = 0;
        state.chunks = 0;
        self.wake.clear();
        self.dumper.notify_one();
        std::mem::take(&mut state.reports)
    }

    /// An empty buffer with whatever capacity it had.
    pub(super) fn buffer(&self) -> Vec<u8> {
        let mut buffer = self.lock().pool.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    pub(super) fn give_back(&self, buffer: Vec<u8>) {
        recycle(&mut self.lock().pool, buffer);
    }

    /// Orders dumps: soon, but not sooner after the last than it took times [`REST`].
    pub(super) fn want(&self, wanted: impl Into<Wanted>) {
        let wanted = wanted.into();
        if wanted.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.wanted.add(wanted);
        state.wanted_at.get_or_insert_with(Instant::now);
        self.dumper.notify_one();
    }

    /// Orders reading of settings, at once.
    pub(super) fn want_settings(&self) {
        self.lock().settings_wanted = true;
        self.dumper.notify_one();
    }

    /// Orders reading of the members of a bond, at once.
    pub(super) fn want_bond(&self, index: u32, name: &str) {
        self.lock().bonds_wanted.insert(index, name.to_owned());
        self.dumper.notify_one();
    }

    /// Waits for the next order; `timer` is when settings are to be read anyway.
    pub(super) fn next_order(&self, timer: Instant) -> Order {
        let mut state = self.lock();
        loop {
            if state.stop {
                return Order::Stop;
            }
            if std::mem::take(&mut state.settings_wanted) {
                return Order::Settings;
            }
            if !state.bonds_wanted.is_empty() {
                return Order::Bonds(std::mem::take(&mut state.bonds_wanted));
            }
            let now = Instant::now();
            let start = state
                .wanted_at
                .map(|at| (at + SETTLE).max(state.not_before.unwrap_or(at)));
            if start.is_some_and(|start| start <= now) {
                state.wanted_at = None;
                return Order::Dump(std::mem::take(&mut state.wanted));
            }
            if timer <= now {
                return Order::Timer;
            }
            let until = start.map_or(timer, |start| start.min(timer));
            state = self
                .dumper
                .wait_timeout(state, until - now)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// An order for dumps, of everything or not, is done; it took this long.
    pub(super) fn run_end(&self, took: Duration, everything: bool) {
        let mut state = self.lock();
        state.not_before = Some(Instant::now() + took * REST);
        self.push_locked(&mut state, Report::RunEnd(everything));
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.dumper.notify_one();
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn recycle(pool: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if pool.len() < POOL_LIMIT {
        pool.push(buffer);
    }
}

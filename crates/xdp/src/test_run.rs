//! Running the program on a frame from user space (`BPF_PROG_TEST_RUN`).

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use raddle_image::{
    ADJ_TUNNEL, ADJACENCY_COUNTERS, REASON_COUNTERS, REASON_DROPPED, Reason, SCRATCH_SENT,
    SCRATCH_SIZE,
};

use crate::engine::Engine;
use crate::mapping::{STATE, region};
use crate::sys;
use crate::{Error, Result};

/// What the program did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Sent out.
    Forward {
        /// The adjacency that was chosen; [`NO_ADJACENCY`] for a frame that End.DX2 took out.
        adjacency: u32,
        /// Its out-link.
        index: u32,
    },
    /// Punted: the kernel has it, untouched.
    Kernel(Reason),
    /// Dropped.
    Drop(Reason),
}

/// Stands for an adjacency where a frame is sent as it is, without a neighbour.
pub const NO_ADJACENCY: u32 = u32::MAX;

/// What came out of [`Engine::test_run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestOutput {
    /// What the program did.
    pub verdict: Verdict,
    /// The frame afterwards.
    pub frame: Vec<u8>,
}

/// Frames grow by less: that much room there is in front of them.
const GROWTH: usize = 256;
/// Where `sent` and `sent_to` are in `struct scratch`, in bytes.
const SENT: usize = SCRATCH_SENT;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

impl Engine {
    /// Runs the program once on `frame`, as if it had come in on link `ingress`, which must exist
    /// in this network namespace. Nothing is sent. Costs a few microseconds.
    ///
    /// The kernel returns the action only; the reason or the adjacency is the counter that moved
    /// meanwhile. So the verdict can be wrong while the engine carries traffic too.
    ///
    /// # Errors
    /// The kernel refuses frames below 14 bytes and those above about 64 KiB, and an `ingress`
    /// that does not exist.
    ///
    /// # Minimum kernel version
    /// 5.18 for frames above a page
    pub fn test_run(&self, frame: &[u8], ingress: u32) -> Result<TestOutput> {
        let reasons = 0..REASON_COUNTERS;
        let adjacencies = ADJACENCY_COUNTERS..self.counter_slots();
        let before = self.packets(0..self.counter_slots());
        let sent = self.sent()?;
        let mut out = vec![0; frame.len() + GROWTH];
        let result = sys::test_run(&mut sys::TestRun {
            program: self.program().as_fd(),
            frame,
            out: &mut out,
            ingress,
            repeat: 1,
            live_batch: None,
        })
        .map_err(|source| Error::system("BPF_PROG_TEST_RUN", "run the XDP program", source))?;
        out.truncate(result.out_len);
        let moved = |slots: std::ops::Range<usize>, counts: &dyn Fn(usize) -> bool| {
            let after = self.packets(slots.clone());
            slots
                .zip(after)
                .find(|&(slot, count)| count != before[slot] && counts(slot))
                .map(|(slot, _)| slot)
        };
        // A tunnel counts, too, and the frame leaves by another.
        let leaves = |slot: usize| {
            let number = (slot - ADJACENCY_COUNTERS) as u32;
            self.memory().adjacency(number).state != ADJ_TUNNEL
        };
        let reason = || {
            moved(reasons.clone(), &|_| true)
                .and_then(|n| Reason::from_number((n % REASON_DROPPED) as u8))
        };
        let verdict = match result.action {
            XDP_REDIRECT => match moved(adjacencies.clone(), &leaves) {
                Some(slot) => {
                    let adjacency = (slot - ADJACENCY_COUNTERS) as u32;
                    let index = self.memory().adjacency(adjacency).index;
                    Some(Verdict::Forward { adjacency, index })
                }
                None => sent
                    .iter()
                    .zip(self.sent()?)
                    .find(|(before, after)| *before != after)
                    .map(|(_, after)| Verdict::Forward {
                        adjacency: NO_ADJACENCY,
                        index: (after >> 32) as u32,
                    }),
            },
            XDP_PASS => reason().map(Verdict::Kernel),
            XDP_DROP => reason().map(Verdict::Drop),
            _ => None,
        };
        let verdict = verdict.ok_or_else(|| Error::System {
            call: "BPF_PROG_TEST_RUN",
            source: std::io::Error::other(format!(
                "the program answered {} and moved no counter that belongs to it",
                result.action
            )),
        })?;
        Ok(TestOutput {
            verdict,
            frame: out,
        })
    }

    /// Mean nanoseconds that the program takes for a frame, over `repeat` runs on the same buffer.
    ///
    /// The buffer is not reset between runs: forwarding lowers its TTL each time and changes its
    /// MAC addresses, so only give frames that the program punts, or at most that many repeats
    /// as the TTL allows and with a neighbour whose MAC address is the in-link's.
    ///
    /// # Errors
    /// As [`Engine::test_run`].
    pub fn test_run_duration(&self, frame: &[u8], ingress: u32, repeat: u32) -> Result<u32> {
        let run = sys::test_run(&mut sys::TestRun {
            program: self.program().as_fd(),
            frame,
            out: &mut [],
            ingress,
            repeat,
            live_batch: None,
        });
        run.map(|result| result.duration)
            .map_err(|source| Error::system("BPF_PROG_TEST_RUN", "run the XDP program", source))
    }

    /// How often each CPU has sent a frame without a neighbour, and in the upper half where to last.
    fn sent(&self) -> Result<Vec<u64>> {
        let scratch = region(self.maps().state[0].as_fd()).map_err(|source| Error::Map {
            name: STATE[0].to_owned(),
            source,
        })?;
        let each = scratch.words().chunks_exact(SCRATCH_SIZE / 8);
        Ok(each
            .map(|words| words[SENT / 8].load(Ordering::Relaxed))
            .collect())
    }

    /// Packets counted in these slots, summed over the CPUs.
    fn packets(&self, slots: std::ops::Range<usize>) -> Vec<u64> {
        let stripe = self.counter_slots() * 2;
        let mut sums = vec![0u64; slots.len()];
        for cpu in self.counter_region().words().chunks_exact(stripe) {
            for (sum, slot) in sums.iter_mut().zip(slots.clone()) {
                *sum = sum.wrapping_add(cpu[2 * slot].load(Ordering::Relaxed));
            }
        }
        sums
    }
}

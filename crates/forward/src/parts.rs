//! What the steps of packets write to, and how a verdict is counted.

use raddle_image::{ADJACENCY_COUNTERS, LinkEntry, REASON_COUNTERS, Reason, verdict_slot};
use raddle_select::KeyBatch;
use raddle_srv6::{Keys, Undo};

use crate::context::{Sent, Verdict};
use crate::counters::Counters;
use crate::state::State;

/// What the steps of packets write to.
pub(crate) struct Parts<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) keys: &'a mut KeyBatch,
    pub(crate) work: &'a mut Work,
    pub(crate) counters: &'a mut Counters,
}

/// What segments keep from packet to packet.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) keys: Keys,
    pub(crate) undo: Undo,
}

impl Parts<'_> {
    #[inline]
    pub(crate) fn count(&mut self, decided: Result<Verdict, Reason>, len: usize) -> Verdict {
        count(self.counters, decided, len)
    }

    /// The verdict, counted.
    #[inline(always)]
    pub(crate) fn sent(&mut self, sent: Sent) -> Verdict {
        let slot = ADJACENCY_COUNTERS + sent.adjacency as usize;
        self.counters.add(slot, sent.len);
        sent.into()
    }

    /// Frames that came in.
    #[inline]
    pub(crate) fn received(&mut self, link: &LinkEntry, packets: usize, bytes: usize) {
        let slot = REASON_COUNTERS + link.slot as usize;
        self.counters.add_all(slot, packets, bytes);
    }

    /// The same, for a shorter time.
    #[inline]
    pub(crate) fn again(&mut self) -> Parts<'_> {
        Parts {
            state: self.state,
            keys: self.keys,
            work: self.work,
            counters: self.counters,
        }
    }
}

/// The verdict, counted; `len` is that of the frame as it came.
#[inline]
pub(crate) fn count(
    counters: &mut Counters,
    decided: Result<Verdict, Reason>,
    len: usize,
) -> Verdict {
    let verdict = match decided {
        Ok(verdict) => verdict,
        Err(reason) if reason.is_drop() => Verdict::Drop(reason),
        Err(reason) => Verdict::Kernel(reason),
    };
    match verdict {
        Verdict::Forward { adjacency, len, .. } => {
            counters.add(ADJACENCY_COUNTERS + adjacency as usize, len);
        }
        Verdict::Kernel(reason) => counters.add(verdict_slot(reason, false), len),
        Verdict::Drop(reason) => counters.add(verdict_slot(reason, true), len),
    }
    verdict
}

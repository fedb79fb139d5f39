//! The engine: one frame or several through all steps, and what it keeps between them.

use std::ops::Range;
use std::sync::Arc;

use raddle_image::{
    Adjacency, ConfigHead, LinkEntry, Memory, Reason, SEGMENT_HEAD, Wanted, config_flags,
    link_flags,
};
use raddle_packet::Family;
use raddle_select::{Hasher, KeyBatch};

use crate::arrive::{Mac, arrive, family};
use crate::context::{Context, Stop, Verdict};
use crate::counters::Counters;
use crate::lookups::VECTOR;
use crate::parts::{Parts, Work, count};
use crate::slots::Slots;
use crate::srv6::{refused, stopped};
use crate::state::State;
use crate::tags::take_off;
use crate::upon::{has_upon, may_be_upon};
use crate::vector::Vector;
use crate::{ipv4, ipv6};

/// Room in front of a frame that is enough for everything that segments can put around it.
pub const HEADROOM: usize = raddle_srv6::MAX_CHAIN * raddle_srv6::MAX_TEMPLATE;

/// The userspace engine: one on each core.
#[derive(Debug)]
pub struct Engine {
    memory: Arc<Memory>,
    counters: Counters,
    state: State,
    /// Made anew when the image's seed changes.
    hasher: Option<(u32, Hasher)>,
    /// Empty between vectors.
    keys: KeyBatch,
    slots: Box<Slots>,
    work: Work,
}

impl Engine {
    /// An engine over this image.
    pub fn new(memory: Arc<Memory>) -> Engine {
        let adjacencies = memory.adjacencies.len() / size_of::<Adjacency>();
        let segments = memory.segments.len() / SEGMENT_HEAD;
        Engine {
            state: State::new(memory.members.len() / 8),
            memory,
            counters: Counters::new(adjacencies, segments),
            work: Work::default(),
            hasher: None,
            keys: KeyBatch::new(),
            slots: Slots::new(),
        }
    }

    /// What this engine has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The keys by which HMACs of SRHs are verified and made; none to begin with.
    pub fn set_hmac_keys(&mut self, keys: raddle_srv6::Keys) {
        self.work.keys = keys;
    }

    /// The neighbours that packets of raddle's own segments were dropped for the lack of since this was last asked,
    /// at most [`raddle_image::WANTED`]: the kernel gets none of these packets, so it is to be asked to
    /// resolve them.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        self.state.take_wanted()
    }

    /// As [`Engine::forward_in`], for a frame without room around it: where something has to be put
    /// around it, the reason is [`Reason::Headroom`].
    #[inline]
    pub fn forward(&mut self, frame: &mut [u8], ingress: u32, now: u64) -> Verdict {
        let range = 0..frame.len();
        self.forward_in(frame, range, ingress, now)
    }

    /// Decides about a frame that came in on link `ingress`, and rewrites it when it is forwarded.
    ///
    /// The frame is the `range` of `buffer`, from its destination MAC address on, without a frame check
    /// sequence; what stands in front of it in the buffer may be overwritten at any verdict. `now` is
    /// `CLOCK_MONOTONIC` in nanoseconds, compared with the image's deadline.
    ///
    /// A range that the buffer does not hold is [`Reason::Truncated`].
    pub fn forward_in(
        &mut self,
        buffer: &mut [u8],
        range: Range<usize>,
        ingress: u32,
        now: u64,
    ) -> Verdict {
        let len = range.len();
        let Some(frame) = buffer.get_mut(range.clone()) else {
            return self.count(Err(Reason::Truncated), 0);
        };
        match self.arrive(ingress, now) {
            Ok((config, link)) => {
                if has_upon(link.flags) && may_be_upon(&self.memory, ingress, frame) {
                    return self.forward_upon(buffer, range, ingress, now);
                }
                self.decide(buffer, range, (config, link), now)
            }
            Err(Reason::NotEnabled)
                if self.has_upon(ingress) && may_be_upon(&self.memory, ingress, frame) =>
            {
                self.forward_upon(buffer, range, ingress, now)
            }
            Err(reason) => self.count(Err(reason), len),
        }
    }

    /// Steps P3 and on of a frame that came in by this link.
    // By itself it is not inlined, and the link's entry is copied.
    #[inline(always)]
    fn decide(
        &mut self,
        buffer: &mut [u8],
        range: Range<usize>,
        (config, link): (ConfigHead, LinkEntry),
        now: u64,
    ) -> Verdict {
        let len = range.len();
        let frame = &mut buffer[range.clone()];
        let (context, mut parts, _) = self.parts(config, link, now);
        parts.received(&context.link, 1, len);
        let decided = match family(frame, context.mac) {
            Ok(Family::V4) => ipv4::forward(&context, parts.state, frame, range.start),
            Ok(Family::V6) => ipv6::forward(&context, parts.state, frame, range.start),
            Err(reason) => Err(reason.into()),
        };
        let decided = match decided {
            Ok(sent) => Ok(sent.into()),
            Err(Stop::Reason(reason)) if reason != Reason::TtlExceeded => {
                refused(&context, &buffer[range], reason)
            }
            Err(stop) => stopped(&context, parts, buffer, range, stop, true),
        };
        self.count(decided, len)
    }

    /// Whether there are links upon this one, enabled or not.
    #[inline]
    fn has_upon(&self, ingress: u32) -> bool {
        has_upon(self.memory.link(ingress).flags)
    }

    /// Decides about a frame that may come in by a link upon the one that it was seen on.
    #[cold]
    fn forward_upon(
        &mut self,
        buffer: &mut [u8],
        range: Range<usize>,
        ingress: u32,
        now: u64,
    ) -> Verdict {
        let (start, len) = (range.start, range.len());
        match take_off(&self.memory, ingress, buffer, range.clone()) {
            Ok((link, taken)) => {
                let inner = start + taken.shift()..range.end;
                let config = self.memory.config_head();
                // Step P2 may have come before this.
                self.follow_seed(&config);
                let verdict = self.decide(buffer, inner, (config, link), now);
                if !matches!(verdict, Verdict::Forward { .. }) {
                    taken.put_back(buffer, start);
                }
                verdict
            }
            Err(reason) => {
                let link = self.memory.link(ingress);
                if link.flags & link_flags::ENABLED != 0 {
                    let (_, mut parts, _) = self.parts(self.memory.config_head(), link, now);
                    parts.received(&link, 1, len);
                }
                self.count(Err(reason), len)
            }
        }
    }

    /// [`Engine::forward`] of several frames that came in on one link, with the same verdicts as one
    /// after the other: frame `i` gets `verdicts[i]`. Where there are fewer verdicts than frames, or the
    /// other way round, the rest is left alone.
    ///
    /// There is no room around these frames, as in [`Engine::forward`].
    ///
    /// Cheaper, since what does not wait for each other is done side by side: all look-ups, all hashes.
    /// Steps P1 and P2 are taken once for every [`VECTOR`] frames.
    pub fn forward_all<F: AsMut<[u8]>>(
        &mut self,
        frames: &mut [F],
        ingress: u32,
        now: u64,
        verdicts: &mut [Verdict],
    ) {
        let whole = |frame: &mut F| 0..frame.as_mut().len();
        self.forward_all_in(frames, whole, ingress, now, verdicts);
    }

    /// [`Engine::forward_all`] for frames in buffers: `range` says where in its buffer a frame is, as for
    /// [`Engine::forward_in`]. It is asked several times for each, and has to give the same answer.
    pub fn forward_all_in<F: AsMut<[u8]>>(
        &mut self,
        frames: &mut [F],
        range: impl Fn(&mut F) -> Range<usize>,
        ingress: u32,
        now: u64,
        verdicts: &mut [Verdict],
    ) {
        for (frames, verdicts) in frames.chunks_mut(VECTOR).zip(verdicts.chunks_mut(VECTOR)) {
            let count = frames.len().min(verdicts.len());
            let frames = &mut frames[..count];
            if self.has_upon(ingress) {
                self.forward_each(frames, &range, (ingress, now), verdicts);
                continue;
            }
            match self.arrive(ingress, now) {
                Ok((config, link)) => {
                    let (context, mut parts, slots) = self.parts(config, link, now);
                    let mut vector = Vector::new(&context, slots, count);
                    let mut bytes = 0;
                    for (at, frame) in frames.iter_mut().enumerate() {
                        let range = range(frame);
                        if let Some(frame) = frame.as_mut().get(range) {
                            bytes += frame.len();
                            vector.check(at, frame);
                        } else {
                            vector.refuse(at);
                        }
                    }
                    parts.received(&context.link, vector.frames(), bytes);
                    vector.look_up();
                    let all = frames.iter_mut().zip(&mut *verdicts);
                    for (at, (frame, verdict)) in all.enumerate() {
                        let range = range(frame);
                        let frame = (frame.as_mut(), range);
                        vector.collect(&mut parts, at, frame, verdict);
                    }
                    for at in vector.look_up_again() {
                        let frame = &mut frames[at];
                        let range = range(frame);
                        let frame = (frame.as_mut(), range);
                        vector.collect_again(&mut parts, at, frame, &mut verdicts[at]);
                    }
                    for at in vector.hash(parts.keys) {
                        let frame = &mut frames[at];
                        let range = range(frame);
                        let to = (&mut *parts.state, &mut *parts.counters);
                        let sent = vector.send(to, at, frame.as_mut(), range.clone());
                        let (stop, plans) = match sent {
                            Ok(sent) => {
                                verdicts[at] = parts.sent(sent);
                                continue;
                            }
                            Err(stop) => stop,
                        };
                        let decided = match stop {
                            Stop::Reason(reason) if reason != Reason::TtlExceeded => {
                                let frame = frame.as_mut().get(range.clone()).unwrap_or_default();
                                refused(&context, frame, reason)
                            }
                            stop => {
                                let buffer = frame.as_mut();
                                stopped(&context, parts.again(), buffer, range.clone(), stop, plans)
                            }
                        };
                        let len = vector.received(at, range.len());
                        verdicts[at] = parts.count(decided, len);
                    }
                }
                Err(reason) => {
                    for (frame, verdict) in frames.iter_mut().zip(verdicts) {
                        let range = range(frame);
                        let held = frame.as_mut().get(range).map(|frame| frame.len());
                        let reason = held.map_or(Reason::Truncated, |_| reason);
                        *verdict = self.count(Err(reason), held.unwrap_or(0));
                    }
                }
            }
        }
    }

    /// Frames of a link with others upon it, one after the other: those of one vector are of one link.
    #[cold]
    #[inline(never)]
    fn forward_each<F: AsMut<[u8]>>(
        &mut self,
        frames: &mut [F],
        range: &impl Fn(&mut F) -> Range<usize>,
        (ingress, now): (u32, u64),
        verdicts: &mut [Verdict],
    ) {
        for (frame, verdict) in frames.iter_mut().zip(verdicts) {
            let range = range(frame);
            *verdict = self.forward_in(frame.as_mut(), range, ingress, now);
        }
    }

    /// Steps P1 and P2, and the seed of the image as it is now.
    #[inline]
    fn arrive(&mut self, ingress: u32, now: u64) -> Result<(ConfigHead, LinkEntry), Reason> {
        let (config, link) = arrive(&self.memory, ingress, now)?;
        self.follow_seed(&config);
        Ok((config, link))
    }

    /// What the further steps read, and what they write.
    #[inline]
    fn parts(
        &mut self,
        config: ConfigHead,
        link: LinkEntry,
        now: u64,
    ) -> (Context<'_>, Parts<'_>, &mut Slots) {
        let context = Context {
            memory: &self.memory,
            config,
            mac: Mac::new(link.mac),
            link,
            hasher: self.hasher.as_ref().map(|(_, hasher)| hasher),
            now,
        };
        let parts = Parts {
            state: &mut self.state,
            keys: &mut self.keys,
            work: &mut self.work,
            counters: &mut self.counters,
        };
        (context, parts, &mut self.slots)
    }

    #[inline]
    fn count(&mut self, decided: Result<Verdict, Reason>, len: usize) -> Verdict {
        count(&mut self.counters, decided, len)
    }

    /// While no seed is known none is used, and the key in the image may be half of another.
    fn follow_seed(&mut self, config: &ConfigHead) {
        let made_of = self.hasher.as_ref().map(|(seed, _)| *seed);
        if made_of != Some(config.seed) && config.flags & config_flags::SEED_KNOWN != 0 {
            let key = self.memory.config().sip_key;
            self.hasher = Some((config.seed, Hasher::of_state(key)));
        }
    }
}

//! What is known of the frames of a vector between its steps.

use raddle_image::{Group, Reason};
use raddle_packet::Family;
use raddle_srv6::{Around, Step};

use crate::context::{Context, Stop};
use crate::detour::{Course, Met};
use crate::lookups::{Lookups, VECTOR};

/// The group's number is in no place, it is in [`Way::value`].
pub(crate) const ELSEWHERE: u8 = u8::MAX;

/// What a frame is under way by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It is not: [`Way::stop`] says why.
    Nothing,
    Route,
    /// A segment with the step in [`Slots::steps`]; once the packet is to be hashed it has taken it, and what is
    /// there leads back.
    Step,
    /// One with the outer header in [`Slots::arounds`].
    Around,
}

/// How far a frame has come. Each part is written by itself where it becomes known: what is put together
/// first and copied then has to wait for its parts.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Way {
    pub(crate) by: By,
    pub(crate) family: Family,
    /// Of the packet from its IP header on.
    pub(crate) len: u32,
    /// Where the group's number is.
    pub(crate) place: u8,
    /// The group's number.
    pub(crate) value: u32,
    pub(crate) group: Group,
    pub(crate) stop: Stop,
}

impl Way {
    const NONE: Way = Way {
        by: By::Nothing,
        family: Family::V6,
        len: 0,
        place: 0,
        value: 0,
        group: Group::Kernel(Reason::NoRoute),
        stop: Stop::Reason(Reason::Held),
    };

    #[inline(always)]
    pub(crate) fn ends(&mut self, stop: Stop) {
        self.by = By::Nothing;
        self.stop = stop;
    }
}

/// What is known of frames between the steps, by frame. Kept from vector to vector, so that nobody has to clear
/// it: what is read of it was written in the same vector.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) ways: [Way; VECTOR],
    pub(crate) lookups4: Lookups<u32>,
    pub(crate) lookups6: Lookups<u128>,
    /// What they say: IPv6 and IPv4.
    pub(crate) values: [[u32; VECTOR]; 2],
    /// Those that were looked up in other tables: at the end of [`Slots::values`].
    others: usize,
    /// The segment that was read last.
    pub(crate) course: Option<Course>,
    /// Behind segments.
    pub(crate) again: Lookups<u128>,
    pub(crate) again_values: [u32; VECTOR],
    pub(crate) met: [Met; VECTOR],
    pub(crate) steps: [Step; VECTOR],
    pub(crate) arounds: [Around; VECTOR],
    pub(crate) hashes: [u32; VECTOR],
}

impl Slots {
    pub(crate) fn new() -> Box<Slots> {
        Box::new(Slots {
            ways: [Way::NONE; VECTOR],
            lookups4: Lookups::new(0),
            lookups6: Lookups::new(0),
            values: [[0; VECTOR]; 2],
            others: 0,
            course: None,
            again: Lookups::new(0),
            again_values: [0; VECTOR],
            met: [Met::default(); VECTOR],
            steps: [Step::default(); VECTOR],
            arounds: [Around::default(); VECTOR],
            hashes: [0; VECTOR],
        })
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.lookups4.clear();
        self.lookups6.clear();
        self.again.clear();
        self.others = 0;
        self.course = None;
    }

    /// Step A8 (B6).
    pub(crate) fn look_up(&mut self, context: &Context<'_>) {
        let [values6, values4] = &mut self.values;
        let (memory, link) = (context.memory, &context.link);
        self.lookups4.look_up(memory, link.table4, values4);
        self.lookups6.look_up(memory, link.table6, values6);
    }

    /// Looks an address up at once, in another table than most; where its value is. From the end on: no more places are in use than
    /// there are frames.
    pub(crate) fn look_up4(&mut self, context: &Context<'_>, table: u32, dst: u32) -> u8 {
        self.others += 1;
        let place = VECTOR - self.others;
        self.values[1][place] = context.memory.route4(table, dst);
        place as u8
    }

    /// The same of IPv6.
    pub(crate) fn look_up6(&mut self, context: &Context<'_>, table: u32, dst: u128) -> u8 {
        self.others += 1;
        let place = VECTOR - self.others;
        self.values[0][place] = context.memory.route6(table, dst);
        place as u8
    }

    /// What was looked up for this place.
    #[inline(always)]
    pub(crate) fn value(&self, place: u8) -> u32 {
        self.values.as_flattened()[usize::from(place) % (2 * VECTOR)]
    }
}

/// Frames of a vector, a bit for each.
#[derive(Clone, Copy)]
pub(crate) struct Frames(pub(crate) u64);

impl Iterator for Frames {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let at = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

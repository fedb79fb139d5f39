//! What one core keeps for groups whose choice is not a function of the packet alone. All of it is
//! bounded by the image, none of it by the traffic.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use raddle_image::{FLOWLETS, ROUND_ROBIN_SLOTS, WANTED, Wanted};

/// A flow's last choice.
#[derive(Clone, Copy, Debug, Default)]
struct Flowlet {
    /// Group in the upper half, hash in the lower; 0 for none, since no group has the number 0.
    flow: u64,
    /// When its last packet came, in units of 2^10 ns.
    last: u32,
    /// The member's place in the group.
    place: u32,
}

/// The state of one core.
#[derive(Debug)]
pub(crate) struct State {
    turns: Vec<u32>,
    flowlets: Vec<Flowlet>,
    /// By place in the members' memory: the stamp of the bucket of which a packet was last shown to the
    /// kernel, and when, in units of 2^20 ns.
    shown: Vec<(u32, u32)>,
    /// Neighbours that were lacking, each at its place.
    wanted: [Option<Wanted>; WANTED],
    /// The identification of the last packet that was put into a tunnel.
    id: u16,
}

impl State {
    pub(crate) fn new(members: usize) -> State {
        State {
            turns: vec![0; ROUND_ROBIN_SLOTS],
            flowlets: vec![Flowlet::default(); FLOWLETS],
            shown: vec![(0, 0); members],
            wanted: [None; WANTED],
            // Engines of several cores would number alike otherwise.
            id: RandomState::new().build_hasher().finish() as u16,
        }
    }

    /// The identification of the next packet that is put into a tunnel.
    pub(crate) fn next_id(&mut self) -> u16 {
        self.id = self.id.wrapping_add(1);
        self.id
    }

    /// Notes a neighbour that is lacking, unless another one waits at its place.
    #[cold]
    pub(crate) fn want(&mut self, wanted: Wanted) {
        self.wanted[wanted.place()].get_or_insert(wanted);
    }

    /// What was noted, and is not from now on.
    pub(crate) fn take_wanted(&mut self) -> Vec<Wanted> {
        let places = std::mem::replace(&mut self.wanted, [None; WANTED]);
        places.into_iter().flatten().collect()
    }

    /// The turn counter of a group.
    pub(crate) fn turn(&mut self, slot: u32) -> &mut u32 {
        let last = ROUND_ROBIN_SLOTS - 1;
        &mut self.turns[(slot as usize).min(last)]
    }

    /// Whether the kernel has seen a packet of this bucket under this stamp lately; when not, this one
    /// is to be shown, and counts as shown.
    pub(crate) fn is_shown(&mut self, place: u32, stamp: u32, interval: u32, now: u64) -> bool {
        let now = (now >> 20) as u32;
        let Some(shown) = self.shown.get_mut(place as usize) else {
            return true;
        };
        if shown.0 == stamp && now.wrapping_sub(shown.1) < interval {
            return true;
        }
        *shown = (stamp, now);
        false
    }

    /// The place that a flow has, if its last packet came less than `gap` ago.
    pub(crate) fn flowlet(&mut self, group: u32, hash31: u32, gap: u32, now: u64) -> Option<u32> {
        let now = (now >> 10) as u32;
        let entry = &mut self.flowlets[index(group, hash31)];
        if entry.flow != flow(group, hash31) || now.wrapping_sub(entry.last) >= gap {
            return None;
        }
        entry.last = now;
        Some(entry.place)
    }

    /// Remembers a flow's place, instead of whoever was there.
    pub(crate) fn remember(&mut self, group: u32, hash31: u32, place: u32, now: u64) {
        self.flowlets[index(group, hash31)] = Flowlet {
            flow: flow(group, hash31),
            last: (now >> 10) as u32,
            place,
        };
    }
}

fn flow(group: u32, hash31: u32) -> u64 {
    u64::from(group) << 32 | u64::from(hash31)
}

fn index(group: u32, hash31: u32) -> usize {
    (hash31 ^ group) as usize % FLOWLETS
}

//! Resilient groups (`NEXTHOP_GRP_TYPE_RES`): a table of buckets that changes as little as it can.
//!
//! [`bucket_of`] is the choice itself. [`ResilientTable`] is the table as the kernel keeps it: how it
//! is filled, and which buckets go to whom when members or weights change and time passes. It predicts
//! the kernel's table; who wants to know it as it is reads it from the kernel.

use std::num::NonZeroU16;
use std::time::Duration;

use thiserror::Error;

/// The least time between two runs of [`ResilientTable::upkeep`]
/// (`NH_RES_UPKEEP_DW_MINIMUM_INTERVAL`).
pub const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);

/// The bucket that a 31-bit hash falls into (`nexthop_select_path_res`). Its owner is taken, whatever
/// the state of its neighbour, and the bucket counts as used.
///
/// # Minimum kernel version
/// 5.13.
#[inline]
pub fn bucket_of(hash31: u32, buckets: NonZeroU16) -> u16 {
    (hash31 % u32::from(buckets.get())) as u16
}

/// How many of `buckets` each member shall own, from the weights in order (`nh_res_group_rebalance`):
/// `round(buckets * sum of weights so far / total)`, rounded to the closest, halves up, less what went
/// before. All of them are wanted by somebody; with weights of 0 only, none is.
pub fn wanted_buckets(weights: &[u32], buckets: NonZeroU16) -> Vec<u16> {
    let total: u64 = weights.iter().copied().map(u64::from).sum();
    let (mut so_far, mut before) = (0, 0);
    let wanted = |weight: &u32| {
        so_far += u64::from(*weight);
        let scaled = u64::from(buckets.get()) * so_far + total / 2;
        // At most the number of buckets, since the sum so far is at most the total.
        let upper = scaled.checked_div(total).unwrap_or(0) as u16;
        upper - std::mem::replace(&mut before, upper)
    };
    weights.iter().map(wanted).collect()
}

/// Why there is no such table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// The kernel deletes a group that loses its last member.
    #[error("a resilient group needs a member with a weight: give it one")]
    NoMember,
    /// The kernel refuses this.
    #[error("nexthop {0} is a member twice: name it once, with the sum of the weights")]
    Twice(u32),
}

/// The timers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// A bucket not used for so long may go to another member (the kernel's default: 120 s).
    pub idle: Duration,
    /// After so long out of balance, buckets go to others though they are in use; zero for never
    /// (the kernel's default).
    pub unbalanced: Duration,
}

#[derive(Clone, Debug)]
struct Member {
    id: u32,
    wants: u16,
    has: u16,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Position of its owner; none when the owner is no member any more.
    owner: Option<usize>,
    used: Duration,
    migrated: Duration,
}

/// The table of a resilient group, as the kernel would keep it. Times are since any one moment. Each
/// change costs a look at every bucket.
#[derive(Clone, Debug)]
pub struct ResilientTable {
    members: Vec<Member>,
    buckets: Vec<Bucket>,
    timers: Timers,
    /// Members that own less than they want: who comes next is last.
    underweight: Vec<usize>,
    unbalanced_since: Duration,
    next_upkeep: Option<Duration>,
}

impl ResilientTable {
    /// The table of a new group of these members (id and weight, in order): no bucket has an owner, and
    /// [`ResilientTable::upkeep`] gives them all one.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn new(
        members: &[(u32, u32)],
        buckets: NonZeroU16,
        timers: Timers,
        now: Duration,
    ) -> Result<Self, TableError> {
        let bucket = Bucket {
            owner: None,
            used: now,
            migrated: now,
        };
        let mut table = ResilientTable {
            members: Vec::new(),
            buckets: vec![bucket; buckets.get().into()],
            timers,
            underweight: Vec::new(),
            unbalanced_since: now,
            next_upkeep: None,
        };
        table.replace(members, timers, now)?;
        Ok(table)
    }

    /// Other members, weights or timers (`replace_nexthop_grp_res`). A member less is the same
    /// (`remove_nh_grp_entry`). The buckets that have moved, ascending.
    ///
    /// 1. Buckets of members that stay are theirs for now; others have no owner.
    /// 2. What each member wants is counted anew ([`wanted_buckets`]). Who has less is underweight;
    ///    among those the last of the group comes first.
    /// 3. The group is unbalanced since now if somebody is underweight, or since before if somebody
    ///    was then, too.
    /// 4. Buckets move at once ([`ResilientTable::upkeep`]). The kernel does not announce these.
    ///
    /// # Errors
    /// [`TableError`]; the table is as it was.
    pub fn replace(
        &mut self,
        members: &[(u32, u32)],
        timers: Timers,
        now: Duration,
    ) -> Result<Vec<u16>, TableError> {
        let weights: Vec<u32> = members.iter().map(|(_, weight)| *weight).collect();
        if weights.iter().all(|weight| *weight == 0) {
            return Err(TableError::NoMember);
        }
        for (i, (id, _)) in members.iter().enumerate() {
            if members[..i].iter().any(|(other, _)| other == id) {
                return Err(TableError::Twice(*id));
            }
        }
        let wants = wanted_buckets(&weights, self.count());
        let place = |id: u32| members.iter().position(|(other, _)| *other == id);
        let places: Vec<_> = self.members.iter().map(|m| place(m.id)).collect();
        let mut has = vec![0; members.len()];
        for bucket in &mut self.buckets {
            bucket.owner = bucket.owner.and_then(|owner| places[owner]);
            if let Some(owner) = bucket.owner {
                has[owner] += 1;
            }
        }
        let ids = members.iter().map(|(id, _)| *id);
        self.members = ids
            .zip(wants.into_iter().zip(has))
            .map(|(id, (wants, has))| Member { id, wants, has })
            .collect();
        self.timers = timers;
        let was_unbalanced = !self.underweight.is_empty();
        self.underweight = (0..self.members.len())
            .filter(|i| self.members[*i].has < self.members[*i].wants)
            .collect();
        if !self.underweight.is_empty() && !was_unbalanced {
            self.unbalanced_since = now;
        }
        Ok(self.upkeep(now))
    }

    /// Gives buckets to members that own less than they want (`nh_res_table_upkeep`): when the group
    /// changes, and at [`ResilientTable::next_upkeep`]. The buckets that have moved, ascending; the
    /// kernel announces those of the second kind.
    ///
    /// Bucket by bucket, in order (`nh_res_bucket_should_migrate`):
    ///
    /// 1. One without an owner moves.
    /// 2. One whose owner has no more than it wants stays.
    /// 3. One that has not been used since it moved last, or not for the idle timer, moves.
    /// 4. With an unbalanced timer: after the group has been unbalanced for longer, it moves.
    /// 5. Otherwise it stays.
    ///
    /// It moves to the first of the underweight, counts as not used since, and who has what it wants
    /// is not underweight any more.
    pub fn upkeep(&mut self, now: Duration) -> Vec<u16> {
        let Timers { idle, unbalanced } = self.timers;
        let forced = (unbalanced != Duration::ZERO).then(|| self.unbalanced_since + unbalanced);
        let mut deadline = now + if forced.is_some() { unbalanced } else { idle };
        let mut moved = Vec::new();
        for (index, bucket) in (0..).zip(&mut self.buckets) {
            if let Some(owner) = bucket.owner {
                if self.members[owner].has <= self.members[owner].wants {
                    continue;
                }
                let idle_at = bucket.used + idle;
                if bucket.used != bucket.migrated
                    && now < idle_at
                    && forced.is_none_or(|at| now <= at)
                {
                    deadline = deadline.min(idle_at).min(forced.unwrap_or(idle_at));
                    continue;
                }
            }
            // What all want together is what there is: while a bucket is to move, somebody wants it.
            let Some(&to) = self.underweight.last() else {
                continue;
            };
            if let Some(owner) = bucket.owner {
                self.members[owner].has -= 1;
            }
            *bucket = Bucket {
                owner: Some(to),
                used: now,
                migrated: now,
            };
            self.members[to].has += 1;
            if self.members[to].has == self.members[to].wants {
                self.underweight.pop();
            }
            moved.push(index);
        }
        self.next_upkeep =
            (!self.underweight.is_empty()).then(|| deadline.max(now + UPKEEP_INTERVAL));
        moved
    }

    /// When [`ResilientTable::upkeep`] is due next: at the first moment at which a bucket may move, but
    /// not sooner than [`UPKEEP_INTERVAL`] after the last. None while all members have what they want.
    pub fn next_upkeep(&self) -> Option<Duration> {
        self.next_upkeep
    }

    /// A packet went by this bucket. (The kernel keeps times in jiffies; one that comes in the jiffy
    /// in which its bucket moved does not count. Neither does it here, to the nanosecond.)
    pub fn used(&mut self, bucket: u16, now: Duration) {
        if let Some(bucket) = self.buckets.get_mut(usize::from(bucket)) {
            bucket.used = now;
        }
    }

    /// The member (its id) that owns each bucket.
    pub fn owners(&self) -> impl Iterator<Item = u32> {
        let id = |owner: usize| self.members[owner].id;
        self.buckets.iter().filter_map(move |b| b.owner.map(id))
    }

    /// The member that a hash leads to, and its bucket.
    pub fn choose(&self, hash31: u32) -> Option<(u16, u32)> {
        let bucket = bucket_of(hash31, self.count());
        let owner = self.buckets.get(usize::from(bucket))?.owner?;
        Some((bucket, self.members[owner].id))
    }

    fn count(&self) -> NonZeroU16 {
        // There were this many when the table was made.
        u16::try_from(self.buckets.len())
            .ok()
            .and_then(NonZeroU16::new)
            .unwrap_or(NonZeroU16::MIN)
    }
}

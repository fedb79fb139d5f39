//! How large the image's maps are, and may be.

use std::collections::HashMap;

use raddle_image as image;
use raddle_image::Lack;
use raddle_image::{
    Adjacency, Capacity, Config, FLOWLETS, LEARNT_BYTES, LOCAL_BITS, LinkEntry, MAX_LINKS,
    MAX_TABLES, ROUND_ROBIN_SLOTS, Ranges, SCRATCH_SIZE, SEGMENT_HEAD, SEGMENT_TARGET, STEP_BYTES,
};

use crate::counters::{self, segment_stripe};
use crate::engine::small;
use crate::mapping::{COUNTERS, SEGMENT_COUNTERS, SEGMENT_FAILURES, STATE};
use crate::{Error, Result};

/// `struct counter` and `struct flowlet`, in bytes.
const COUNTER: usize = 16;
const FLOWLET: usize = 16;
/// The verifier follows offsets into a map up to this many bytes.
const LARGEST: usize = (1 << 29) - 8;

/// Whether an image of this capacity can be loaded on a machine with so many CPUs, as far as sizes go.
///
/// # Errors
/// [`Error::Capacity`]: a part of it would be empty, or larger than the verifier allows.
pub fn check_capacity(capacity: &Capacity, cpus: usize) -> Result<()> {
    sizes(capacity, cpus).map(drop)
}

/// Bytes of every data section, for a capacity. Each has room for something, at least.
pub(crate) fn sizes(capacity: &Capacity, cpus: usize) -> Result<HashMap<&'static str, u32>> {
    let (routes4, routes6) = (Some(Lack::Routes4), Some(Lack::Routes6));
    let (groups, members) = (Some(Lack::Groups), Some(Lack::Members));
    let (adjacencies, sids) = (Some(Lack::Adjacencies), Some(Lack::Sids));
    let counters = counters::slots(capacity.adjacencies) * COUNTER;
    let stripe = segment_stripe(capacity.segments);
    let bytes = [
        ("config", None, size_of::<Config>()),
        ("links", None, MAX_LINKS * size_of::<LinkEntry>()),
        ("steps", None, STEP_BYTES),
        ("learnt", None, LEARNT_BYTES),
        ("local4", None, LOCAL_BITS / 8),
        ("roots4", None, MAX_TABLES * 8),
        ("nodes4", routes4, capacity.nodes4 * 8),
        ("leaves4", routes4, capacity.leaves4.next_multiple_of(4) * 2),
        ("roots6", None, MAX_TABLES * 8),
        ("words6", routes6, capacity.words6 * 8),
        ("groups", groups, capacity.groups * 8),
        ("firewall", None, size_of::<Ranges>()),
        ("ways4", groups, capacity.groups * 8),
        ("members", members, capacity.members * 8),
        (
            "adjacencies",
            adjacencies,
            capacity.adjacencies * size_of::<Adjacency>(),
        ),
        ("segments", sids, capacity.segments * SEGMENT_HEAD),
        ("segment_targets", sids, capacity.segments * SEGMENT_TARGET),
        ("templates", sids, capacity.templates * 8),
        (COUNTERS, adjacencies, counters * cpus),
        (SEGMENT_COUNTERS, sids, stripe * COUNTER * cpus),
        (
            SEGMENT_FAILURES,
            sids,
            stripe * image::SEGMENT_FAILURES * 8 * cpus,
        ),
        (STATE[0], None, SCRATCH_SIZE * cpus),
        (STATE[1], None, ROUND_ROBIN_SLOTS * 4 * cpus),
        (STATE[2], None, FLOWLETS * FLOWLET * cpus),
        (STATE[3], members, capacity.members * 8),
    ];
    let mut sizes = HashMap::new();
    for (name, lack, bytes) in bytes {
        if bytes == 0 || bytes > LARGEST {
            return Err(Error::Capacity {
                name,
                key: lack.and_then(Lack::key),
                bytes,
                limit: LARGEST,
                cpus,
            });
        }
        sizes.insert(name, small(bytes)?);
    }
    Ok(sizes)
}

/// The capacity of existing maps, given how many bytes each has.
pub(crate) fn capacity_of(bytes: impl Fn(&str) -> Result<usize>) -> Result<Capacity> {
    Ok(Capacity {
        nodes4: bytes("nodes4")? / 8,
        leaves4: bytes("leaves4")? / 2,
        words6: bytes("words6")? / 8,
        groups: bytes("groups")? / 8,
        members: bytes("members")? / 8,
        adjacencies: bytes("adjacencies")? / size_of::<Adjacency>(),
        segments: bytes("segments")? / SEGMENT_HEAD,
        templates: bytes("templates")? / 8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would be too large is told with the key that makes it smaller, and with the CPUs where these count.
    #[test]
    fn what_is_too_large_is_told_with_its_key() {
        let default = Capacity::default();
        assert!(check_capacity(&default, 256).is_ok());
        let said = |capacity: Capacity, cpus| {
            check_capacity(&capacity, cpus)
                .map_err(|e| e.to_string())
                .unwrap_err()
        };
        let nodes4 = LARGEST / 8;
        assert!(check_capacity(&Capacity { nodes4, ..default }, 2).is_ok());
        let nodes4 = nodes4 + 1;
        let nodes = said(Capacity { nodes4, ..default }, 2);
        assert!(
            nodes.contains("routes4") && nodes.contains("2 CPUs"),
            "{nodes}"
        );
        let segments = 1_000_000;
        let many = Capacity {
            segments,
            ..default
        };
        assert!(check_capacity(&many, 1).is_ok());
        let sids = said(many, 128);
        assert!(sids.contains("sids") && sids.contains("128 CPUs"), "{sids}");
    }
}

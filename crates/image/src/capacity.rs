//! How much an image holds.

/// How much the image can hold. Fixed when it is made: the memory may be BPF arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// 8-byte nodes of the IPv4 tables.
    pub nodes4: usize,
    /// 16-bit leaves of the IPv4 tables.
    pub leaves4: usize,
    /// 8-byte words of the IPv6 tables.
    pub words6: usize,
    /// Groups.
    pub groups: usize,
    /// Group members.
    pub members: usize,
    /// Adjacencies.
    pub adjacencies: usize,
    /// SRv6 behaviours and encapsulations.
    pub segments: usize,
    /// 8-byte words of the headers that encapsulations put in front of packets.
    pub templates: usize,
}

impl Capacity {
    /// Hardly any: for what needs an image and not its tables, tests before all.
    pub const SMALL: Capacity = Capacity {
        nodes4: 64,
        leaves4: 64,
        words6: 64,
        groups: 1,
        members: 1,
        adjacencies: 1,
        segments: 1,
        templates: 1,
    };
}

impl Default for Capacity {
    /// Enough for a full table of both families with room to rebuild it, about 64 MiB.
    fn default() -> Self {
        Capacity {
            nodes4: 3 << 19,
            leaves4: 4 << 20,
            words6: 3 << 20,
            groups: 1 << 17,
            members: 1 << 18,
            adjacencies: 1 << 14,
            segments: 1 << 12,
            templates: 1 << 16,
        }
    }
}

impl Capacity {
    /// The same with tables for so many routes of each family.
    pub fn for_routes(self, routes4: usize, routes6: usize) -> Capacity {
        Capacity {
            // Two direct roots, so that a table can be rebuilt beside itself, and for each
            // route of unusual length a block of eight nodes in every fourth.
            nodes4: (2 << 19) + 2 * routes4.max(1 << 17),
            leaves4: (4 * routes4).max(1 << 20),
            words6: (16 * routes6).max(1 << 20),
            ..self
        }
    }
}

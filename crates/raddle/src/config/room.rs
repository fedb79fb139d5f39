//! How much room the image makes.

use raddle_rib::image::Capacity;

use super::Config;

/// What `groups`, `members` and `adjacencies` may be at most: group numbers end below values that name segments, and
/// each map has to be smaller than 512 MiB.
const MOST_GROUPS: usize = 1 << 24;
const MOST_MEMBERS: usize = 1 << 25;
const MOST_ADJACENCIES: usize = 1 << 20;

impl Config {
    /// What no image can have room for, or none would do with.
    pub(super) fn check_room(&self) -> Result<(), String> {
        if self.routes4 == 0 || self.routes6 == 0 {
            return Err(
                "routes4 and routes6 are at least 1; leave them out for the default".into(),
            );
        }
        if self.routes4 > 64_000_000 || self.routes6 > 16_000_000 {
            return Err("routes4 is at most 64000000, routes6 at most 16000000".into());
        }
        if self.sids == 0 || self.sids > 1_000_000 {
            return Err("sids is at least 1 and at most 1000000".into());
        }
        for (key, value, most) in [
            ("groups", self.groups, MOST_GROUPS),
            ("members", self.members, MOST_MEMBERS),
            ("adjacencies", self.adjacencies, MOST_ADJACENCIES),
        ] {
            if value < 16 || value > most {
                return Err(format!("{key} is at least 16 and at most {most}"));
            }
        }
        Ok(())
    }

    /// The image that these numbers of routes want.
    pub(crate) fn capacity(&self) -> Capacity {
        let default = Capacity::default();
        Capacity {
            // Two direct roots, so that a table can be rebuilt beside itself, and for each
            // route of unusual length a block of eight nodes in every fourth.
            nodes4: (2 << 19) + 2 * self.routes4.max(1 << 17),
            leaves4: (4 * self.routes4).max(1 << 20),
            words6: (16 * self.routes6).max(1 << 20),
            // Each SID leads there by a group of its own, and up to three segments take 16 words.
            groups: self.groups.max(self.sids + (1 << 16)),
            members: self.members,
            adjacencies: self.adjacencies,
            segments: self.sids,
            templates: default.templates.max(16 * self.sids),
        }
    }
}

//! How much room the image makes.

use raddle_image::Capacity;

use super::{Config, Invalid};

/// What these keys may be at most: group numbers end below values that name segments, and each map has to be smaller
/// than 512 MiB ([`raddle_xdp::check_capacity`]). SIDs and adjacencies have counters on every CPU, so that less of them
/// may fit on a machine with many; loading tells.
const MOST_ROUTES4: usize = 33_000_000;
const MOST_ROUTES6: usize = 4_000_000;
const MOST_SIDS: usize = 1_000_000;
const MOST_GROUPS: usize = 1 << 24;
const MOST_MEMBERS: usize = 1 << 25;
const MOST_ADJACENCIES: usize = 1 << 20;

/// What room is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// IPv4 routes.
    Routes4,
    /// IPv6 routes.
    Routes6,
    /// SIDs and encapsulations.
    Sids,
    /// Groups.
    Groups,
    /// Members of groups.
    Members,
    /// Adjacencies.
    Adjacencies,
}

impl Room {
    /// Its key in the file.
    pub fn name(self) -> &'static str {
        match self {
            Room::Routes4 => "routes4",
            Room::Routes6 => "routes6",
            Room::Sids => "sids",
            Room::Groups => "groups",
            Room::Members => "members",
            Room::Adjacencies => "adjacencies",
        }
    }
}

impl Config {
    /// What no image can have room for, or none would do with.
    pub(super) fn check_room(&self) -> Result<(), Invalid> {
        for (room, value, least, most) in [
            (Room::Routes4, self.routes4, 1, MOST_ROUTES4),
            (Room::Routes6, self.routes6, 1, MOST_ROUTES6),
            (Room::Sids, self.sids, 1, MOST_SIDS),
            (Room::Groups, self.groups, 16, MOST_GROUPS),
            (Room::Members, self.members, 16, MOST_MEMBERS),
            (Room::Adjacencies, self.adjacencies, 16, MOST_ADJACENCIES),
        ] {
            if value < least || value > most {
                return Err(Invalid::Room { room, least, most });
            }
        }
        Ok(())
    }

    /// The image that these numbers of routes want.
    pub fn capacity(&self) -> Capacity {
        let default = Capacity::default();
        let room = Capacity {
            // Each SID leads there by a group of its own, and up to three segments take 16 words.
            groups: self.groups.max(self.sids + (1 << 16)),
            members: self.members,
            adjacencies: self.adjacencies,
            segments: self.sids,
            templates: default.templates.max(16 * self.sids),
            ..default
        };
        room.for_routes(self.routes4, self.routes6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the configuration may say can be loaded; `routes4` and `routes6` allow nearly all that can.
    #[test]
    fn what_may_be_configured_can_be_loaded() {
        let least = Config {
            routes4: 1,
            routes6: 1,
            sids: 1,
            groups: 16,
            members: 16,
            adjacencies: 16,
            ..Config::default()
        };
        let most = Config {
            routes4: MOST_ROUTES4,
            routes6: MOST_ROUTES6,
            sids: MOST_SIDS,
            groups: MOST_GROUPS,
            members: MOST_MEMBERS,
            adjacencies: MOST_ADJACENCIES,
            ..Config::default()
        };
        for config in [&least, &most] {
            config.check().unwrap();
            let loaded = raddle_xdp::check_capacity(&config.capacity(), 1);
            assert!(loaded.is_ok(), "{loaded:?}");
        }
        let changed = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            let loaded = raddle_xdp::check_capacity(&config.capacity(), 1);
            let checked = config.check().map_err(|e| e.to_string());
            (checked, loaded.map_err(|e| e.to_string()))
        };
        for (key, change) in [
            ("routes4", (|c| c.routes4 = 34_000_000) as fn(&mut Config)),
            ("routes6", |c| c.routes6 = 4_200_000),
        ] {
            let (checked, loaded) = changed(change);
            let (checked, loaded) = (checked.unwrap_err(), loaded.unwrap_err());
            assert!(
                checked.contains(key) && checked.contains("at most"),
                "{checked}"
            );
            assert!(loaded.contains(key), "{loaded}");
        }
    }
}

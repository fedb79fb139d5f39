//! What /sys tells of bonds.

use std::path::Path;

use raddle_rib::event::Link;
use raddle_select::{BondMember, BondMembers};

use crate::settings::folder_of;

/// The members of a bond, in the order in which they joined it, from `sys`, which is /sys/class/net. Anybody may read it.
///
/// 1. None where it cannot be seen: /sys shows the network namespace that it was mounted in, which index and address of the
///    bond tell.
/// 2. None where a member is gone while it is asked about.
/// 3. What is no number is none: `N/A` of a member in no aggregator. Aggregators are numbered from 1.
///
/// Read as `bonding_show_slaves`, `bonding_show_ad_aggregator` (bond_sysfs.c) and bond_sysfs_slave.c write it (Linux 6.1 to
/// 6.18). Cost: a file for the bond and three for each member, two more with 802.3ad.
pub fn bond_members(sys: &Path, bond: &Link) -> Option<BondMembers> {
    let folder = folder_of(sys, bond)?.join("bonding");
    let names = std::fs::read_to_string(folder.join("slaves")).ok()?;
    let aggregator = |text: String| text.trim().parse().ok().filter(|number| *number > 0);
    let member = |name: &str| {
        let folder = sys.join(name).join("bonding_slave");
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        Some(BondMember {
            name: name.to_owned(),
            monitored_up: read("mii_status")?.trim() == "up",
            aggregator: read("ad_aggregator_id").and_then(aggregator),
            queue: read("queue_id")?.trim().parse().unwrap_or(0),
        })
    };
    Some(BondMembers {
        members: names
            .split_whitespace()
            .map(member)
            .collect::<Option<_>>()?,
        aggregator: std::fs::read_to_string(folder.join("ad_aggregator"))
            .ok()
            .and_then(aggregator),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_in_their_order() {
        let sys = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = sys.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("bond0/ifindex", "5\n");
        write("bond0/address", "02:00:00:00:00:05\n");
        write("bond0/bonding/slaves", "b0 a0\n");
        write("bond0/bonding/ad_aggregator", "2\n");
        for (name, status, aggregator) in [("a0", "up", "N/A"), ("b0", "going down", "2")] {
            write(
                &format!("{name}/bonding_slave/mii_status"),
                &format!("{status}\n"),
            );
            write(
                &format!("{name}/bonding_slave/ad_aggregator_id"),
                &format!("{aggregator}\n"),
            );
            write(&format!("{name}/bonding_slave/queue_id"), "3\n");
        }
        let mut bond = Link::ethernet(5, "bond0", [2, 0, 0, 0, 0, 5]);
        let member = |name: &str, monitored_up, aggregator| BondMember {
            name: name.into(),
            monitored_up,
            aggregator,
            queue: 3,
        };
        let told = BondMembers {
            members: vec![member("b0", false, Some(2)), member("a0", true, None)],
            aggregator: Some(2),
        };
        assert_eq!(bond_members(sys.path(), &bond), Some(told));
        bond.index = 6;
        assert_eq!(bond_members(sys.path(), &bond), None);
    }
}

//! Which members of a bond can send, by what netlink and the machine itself tell.

use raddle_rib::Rib;
use raddle_rib::event::Link;
use raddle_select::{BondMembers, BondMode};

/// `IFF_LOWER_UP`, which the kernel shows of links that are up and have a carrier (`netif_carrier_ok`).
const LOWER_UP: u32 = 0x1_0000;

/// Members of a bond that can send, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// In the order in which they joined the bond, where that is known, else by index.
    pub names: Vec<String>,
    /// Their order is that in which [`raddle_select::bond_member`] numbers them.
    pub ordered: bool,
}

/// Whether a link is a bond.
pub fn is_bond(link: &Link) -> bool {
    link.kind.as_deref() == Some("bond")
}

/// The links that are part of a bond, by index.
pub fn parts<'a>(rib: &'a Rib, bond: &Link) -> Vec<&'a Link> {
    let mut parts: Vec<_> = rib
        .links()
        .filter(|link| link.master == Some(bond.index))
        .collect();
    parts.sort_by_key(|part| part.index);
    parts
}

/// Of an active-backup bond, the members that are active.
pub fn active_members(rib: &Rib, bond: &Link) -> Vec<String> {
    let parts = parts(rib, bond).into_iter();
    let active = parts.filter(|part| part.bond_active == Some(true));
    active.map(|part| part.name.clone()).collect()
}

/// Of a bond of balance-xor or 802.3ad, the members that can send; `told` is what the machine itself says.
///
/// 1. Those that are up, have a carrier and are no backups, as far as the machine takes them for usable, too
///    ([`BondMembers::usable`]).
/// 2. None where netlink has other members than the machine: they are changing right now.
/// 3. Of a machine that says nothing, as that of a snapshot, the order is not known of several.
pub fn sending_members(
    rib: &Rib,
    bond: &Link,
    told: Option<&BondMembers>,
    mode: BondMode,
) -> Option<Sending> {
    let parts = parts(rib, bond);
    let sends = |part: &Link| can_send(part) && part.bond_active == Some(true);
    let Some(told) = told else {
        let names: Vec<_> = parts
            .iter()
            .filter(|part| sends(part))
            .map(|part| part.name.clone())
            .collect();
        return Some(Sending {
            ordered: names.len() < 2,
            names,
        });
    };
    let same = told.members.len() == parts.len()
        && told
            .members
            .iter()
            .all(|member| parts.iter().any(|part| part.name == member.name));
    if !same {
        return None;
    }
    let by_name = |name: &str| {
        let mut parts = parts.iter();
        parts.any(|part| part.name == name && sends(part))
    };
    let names = told.usable(mode, by_name);
    Some(Sending {
        names: names.into_iter().map(str::to_owned).collect(),
        ordered: true,
    })
}

/// Whether a link is up and has a carrier.
pub fn can_send(link: &Link) -> bool {
    link.is_up() && link.flags & LOWER_UP != 0
}

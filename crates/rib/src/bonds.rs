//! By which members of bonds frames leave that have tags.

use std::collections::BTreeMap;

use raddle_image::{Bonded, Reason, TAG};
use raddle_select::{BondMode, BondPolicy};

use crate::egress::Egress;
use crate::event::Link;
use crate::state::State;

/// The members of bonds in the order in which they joined them, by the bond, as far as that is known.
///
/// Netlink does not tell the order, so it is read apart ([`Event::BondOrder`](crate::event::Event::BondOrder)), and not known from when a
/// member is heard to come or go until it has been read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct BondOrders(BTreeMap<u32, Vec<u32>>);

impl BondOrders {
    /// Whether that is news. An empty order is none.
    pub(crate) fn set(&mut self, bond: u32, members: Vec<u32>) -> bool {
        match members.is_empty() {
            true => self.0.remove(&bond).is_some(),
            false => self.0.insert(bond, members.clone()) != Some(members),
        }
    }

    /// A member of this bond comes or goes, or the bond itself. Whether its order was known.
    pub(crate) fn forget(&mut self, bond: u32) -> bool {
        self.0.remove(&bond).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Vec<u32>)> {
        self.0.iter().map(|(bond, members)| (*bond, members))
    }
}

impl State {
    /// By which members of a bond frames leave, where the bond would not choose as the kernel does; none where it does, and where there is no
    /// bond.
    ///
    /// The kernel carries the outermost tag beside a frame, and the driver of bonds hashes what is in the frame (`bond_xmit_hash`). What
    /// comes by XDP has all tags in it (`bond_xmit_hash_xdp`).
    ///
    /// 1. Without tags the frame is the same, and so is a bond of a mode that does not hash.
    /// 2. With one tag and encap3+4 too: the dissector looks behind tags.
    /// 3. With one tag and layer2, layer2+3 or layer3+4: a hash of the packet ([`raddle_select::bond_hash_of_packet`]) over the members
    ///    that can send. Of those there are no more than an engine chooses among, and they are known ([`State::sending_members`]).
    /// 4. With two and one of these policies the kernel has one tag in the frame, as a VLAN upon a VLAN puts it there
    ///    (`validate_xmit_vlan`): the frame is none of IP to the driver, which hashes both MAC addresses and the EtherType of that tag. That is
    ///    one member for all packets.
    /// 5. All else is the kernel's. (With two tags and a policy that dissects, the kernel dissects from the wrong place.)
    ///
    /// # Errors
    /// [`Reason::OutLink`] where that is not known.
    pub(crate) fn by_bond(
        &self,
        egress: &Egress,
        (to, from): ([u8; 6], [u8; 6]),
    ) -> Result<Option<Bonded>, Reason> {
        let Some((bond, mode, policy)) = self.hashing_bond(egress.lower) else {
            return Ok(None);
        };
        let [_, inner @ ..] = egress.tags.as_slice() else {
            return Ok(None);
        };
        if policy == Some(BondPolicy::Encap34) && inner.is_empty() {
            return Ok(None);
        }
        let computed = [BondPolicy::Layer2, BondPolicy::Layer23, BondPolicy::Layer34];
        let policy = policy.filter(|policy| computed.contains(policy));
        let by = |policy| {
            let members = self.sending_members(bond, mode)?;
            let Some(tag) = inner.first() else {
                return Bonded::new(policy, &members);
            };
            let hash = u32::from(to[5] ^ from[5]) ^ (tag.tag() >> 16);
            let place = raddle_select::bond_member(hash, members.len())?;
            Bonded::new(policy, &[members[place]])
        };
        policy.and_then(by).map(Some).ok_or(Reason::OutLink)
    }

    /// A bond that chooses by a hash, its mode, and its policy where that is known.
    fn hashing_bond(&self, index: u32) -> Option<(&Link, BondMode, Option<BondPolicy>)> {
        let link = self.links.get(&index)?;
        let bond = link.bond?;
        let mode = BondMode::from_number(bond.mode);
        let mode = mode.filter(|mode| matches!(mode, BondMode::Xor | BondMode::Lacp))?;
        Some((link, mode, BondPolicy::from_number(bond.policy)))
    }

    /// The members of a bond that can send, in the order in which the kernel numbers them (`bond_update_slave_arr`); none where that is
    /// not known.
    ///
    /// 1. The order in which they joined is known, and all of them are its members still.
    /// 2. Those that are up, have a carrier, are no backups, and are up for the bond's own monitor (`bond_slave_can_tx`).
    /// 3. With 802.3ad these are all in the active aggregator: the kernel makes a backup of every other. Where one is not, the bond is
    ///    changing, and what is told of it is not of one moment.
    fn sending_members(&self, bond: &Link, mode: BondMode) -> Option<Vec<u32>> {
        const LOWER_UP: u32 = 0x1_0000;
        let aggregator = bond.bond.map_or(0, |bond| bond.aggregator);
        let mut sending = Vec::new();
        for index in self.bond_orders.0.get(&bond.index)? {
            let member = self.links.get(index)?;
            if member.master != Some(bond.index) {
                return None;
            }
            let has_carrier = member.is_up() && member.flags & LOWER_UP != 0;
            if !has_carrier || member.bond_active != Some(true) || member.bond_down {
                continue;
            }
            if mode == BondMode::Lacp && (aggregator == 0 || member.bond_aggregator != aggregator) {
                return None;
            }
            sending.push(*index);
        }
        Some(sending)
    }

    /// The longest packet with so many tags, one at least, that all members take which frames may leave by: see rule 4 of
    /// [`State::egress`].
    pub(crate) fn room_of_members(&self, members: &Bonded, tags: usize) -> u32 {
        let links = members.indices().filter_map(|index| self.links.get(&index));
        let least = links.map(|link| link.mtu).min().unwrap_or(0);
        least.saturating_sub((TAG * tags.saturating_sub(1)) as u32)
    }
}

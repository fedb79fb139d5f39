//! VLANs of bridges and of their ports (`RTM_NEWVLAN`, `RTM_DELVLAN`): several in a message, and those of consecutive
//! identifiers that are otherwise the same as one range.

use std::ops::RangeInclusive;

use raddle_rib::event::{Event, PortVlan};

use super::NESTED;
use super::build::{Builder, EncodeError};
use super::number::BRIDGE;
use super::number::rtm::{RTM_DELVLAN, RTM_NEWVLAN};
use super::wire::{Attribute, DecodeError, Message, read_u16, read_u32};

const BRIDGE_VLANDB_ENTRY: u16 = 1;
const BRIDGE_VLANDB_ENTRY_INFO: u16 = 1;
const BRIDGE_VLANDB_ENTRY_RANGE: u16 = 2;
const BRIDGE_VLANDB_ENTRY_STATE: u16 = 3;
const BRIDGE_VLAN_INFO_PVID: u16 = 1 << 1;
const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 1 << 2;
const BR_STATE_FORWARDING: u8 = 3;
/// The identifiers that VLANs can have.
const IDS: RangeInclusive<u16> = 1..=4094;

/// What a message tells about VLANs: of one bridge or port, in the order of their identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlans {
    is_gone: bool,
    /// The first of each range, and the last identifier.
    ranges: Vec<(PortVlan, u16)>,
}

impl PortVlans {
    /// An event for each VLAN: 4094 at most.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.ranges.iter().flat_map(|(first, last)| {
            (first.id..=*last).map(|id| match self.is_gone {
                true => Event::PortVlanGone(first.index, id),
                false => Event::PortVlan(PortVlan { id, ..*first }),
            })
        })
    }
}

/// None for what has no VLANs: options of the whole bridge (`BRIDGE_VLANDB_GLOBAL_OPTIONS`).
///
/// A VLAN that a bridge has only for its ports it does not tell as its own (`br_vlan_should_use`).
pub(super) fn decode(message: &Message<'_>) -> Result<Option<PortVlans>, DecodeError> {
    let (head, attributes) = message.split::<8>("br_vlan_msg")?;
    if head[0] != BRIDGE {
        return Ok(None);
    }
    let index = read_u32(head, 4);
    let mut ranges: Vec<(PortVlan, u16)> = Vec::new();
    for attribute in attributes {
        let a = attribute?;
        if a.kind == BRIDGE_VLANDB_ENTRY {
            let (vlan, last) = entry(&a, index)?;
            let before = ranges.last().map_or(0, |(_, last)| *last);
            // So that a message can never tell more VLANs than there are.
            if vlan.id <= before || last < vlan.id || !IDS.contains(&last) {
                return Err(DecodeError::BadValue {
                    what: "BRIDGE_VLANDB_ENTRY_RANGE",
                    value: last.into(),
                });
            }
            ranges.push((vlan, last));
        }
    }
    let is_gone = message.kind == RTM_DELVLAN;
    Ok((!ranges.is_empty()).then_some(PortVlans { is_gone, ranges }))
}

/// The first VLAN of an entry, and the last identifier.
fn entry(entry: &Attribute<'_>, index: u32) -> Result<(PortVlan, u16), DecodeError> {
    let (mut info, mut last, mut state) = (None, None, BR_STATE_FORWARDING);
    for attribute in entry.nested() {
        let a = attribute?;
        match a.kind {
            // struct bridge_vlan_info: flags, identifier.
            BRIDGE_VLANDB_ENTRY_INFO => info = Some(a.bytes::<4>("BRIDGE_VLANDB_ENTRY_INFO")?),
            BRIDGE_VLANDB_ENTRY_RANGE => last = Some(a.u16("BRIDGE_VLANDB_ENTRY_RANGE")?),
            BRIDGE_VLANDB_ENTRY_STATE => state = a.u8("BRIDGE_VLANDB_ENTRY_STATE")?,
            _ => {}
        }
    }
    let Some(info) = info else {
        return Err(DecodeError::Missing {
            what: "BRIDGE_VLANDB_ENTRY_INFO",
        });
    };
    let (flags, id) = (read_u16(info, 0), read_u16(info, 2));
    let vlan = PortVlan {
        index,
        id,
        pvid: flags & BRIDGE_VLAN_INFO_PVID != 0,
        untagged: flags & BRIDGE_VLAN_INFO_UNTAGGED != 0,
        state,
    };
    Ok((vlan, last.unwrap_or(id)))
}

pub(super) fn encode(b: &mut Builder, vlan: &PortVlan, flags: u16) -> Result<(), EncodeError> {
    let pvid = u16::from(vlan.pvid) * BRIDGE_VLAN_INFO_PVID;
    let untagged = u16::from(vlan.untagged) * BRIDGE_VLAN_INFO_UNTAGGED;
    let info = pvid | untagged;
    put(
        b,
        RTM_NEWVLAN,
        flags,
        vlan.index,
        [info, vlan.id],
        Some(vlan.state),
    )
}

pub(super) fn encode_gone(
    b: &mut Builder,
    index: u32,
    id: u16,
    flags: u16,
) -> Result<(), EncodeError> {
    put(b, RTM_DELVLAN, flags, index, [0, id], None)
}

fn put(
    b: &mut Builder,
    kind: u16,
    flags: u16,
    index: u32,
    info: [u16; 2],
    state: Option<u8>,
) -> Result<(), EncodeError> {
    let mut head = [0; 8];
    head[0] = BRIDGE;
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    b.begin(kind, flags, &head);
    let entry = b.open(NESTED | BRIDGE_VLANDB_ENTRY);
    let info = info.map(u16::to_ne_bytes).concat();
    b.put(BRIDGE_VLANDB_ENTRY_INFO, &info);
    if let Some(state) = state {
        b.put_u8(BRIDGE_VLANDB_ENTRY_STATE, state);
    }
    b.close(entry);
    b.end()
}

//! Nexthop objects, groups and the buckets of resilient groups (`RTM_NEWNEXTHOP`,
//! `RTM_DELNEXTHOP`, `RTM_NEWNEXTHOPBUCKET`).

use raddle_rib::event::{Bucket, Encap, Event, GroupMember, Nexthop, NexthopKind};

use super::NESTED;
use super::build::{Builder, EncodeError};
use super::number::nlm;
use super::number::rtm::{RTM_DELNEXTHOP, RTM_NEWNEXTHOP, RTM_NEWNEXTHOPBUCKET};
use super::route::EncapView;
use super::route_encode::encapsulation;
use super::wire::{Attribute, DecodeError, Message, read_u32};

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
const NHA_RES_GROUP: u16 = 12;
const NHA_RES_BUCKET: u16 = 13;
const NHA_OP_FLAGS: u16 = 14;

/// `NHA_OP_FLAG_RESP_GRP_RESVD_0`: this kernel clears what it does not use of a group entry.
const RESERVED_IS_CLEAR: u32 = 1 << 31;
const GROUP_TYPE_RESILIENT: u16 = 1;
const RES_GROUP_BUCKETS: u16 = 1;
const RES_GROUP_IDLE_TIMER: u16 = 2;
const RES_GROUP_UNBALANCED_TIMER: u16 = 3;
const RES_GROUP_UNBALANCED_TIME: u16 = 4;
const RES_BUCKET_INDEX: u16 = 1;
const RES_BUCKET_IDLE_TIME: u16 = 2;
const RES_BUCKET_NH_ID: u16 = 3;

#[derive(Default)]
struct Resilient {
    buckets: u16,
    idle_timer: u32,
    unbalanced_timer: u32,
    unbalanced_time: u64,
}

pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<8>("nhmsg")?;
    let [family, scope, protocol, ..] = *head;
    let (mut id, mut group, mut group_type, mut op_flags) = (0, None, 0, 0);
    let (mut index, mut gateway, mut encap_kind, mut encap) = (0, None, 0, None);
    let (mut fdb, mut blackhole, mut resilient) = (false, false, Resilient::default());
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            NHA_ID => id = a.u32("NHA_ID")?,
            NHA_GROUP => group = Some(a.payload),
            NHA_GROUP_TYPE => group_type = a.u16("NHA_GROUP_TYPE")?,
            NHA_BLACKHOLE => blackhole = true,
            NHA_OIF => index = a.u32("NHA_OIF")?,
            NHA_GATEWAY => gateway = Some(a.ip("NHA_GATEWAY")?),
            NHA_ENCAP_TYPE => encap_kind = a.u16("NHA_ENCAP_TYPE")?,
            NHA_ENCAP => encap = Some(a.payload),
            NHA_FDB => fdb = true,
            NHA_RES_GROUP => resilient = resilient_group(&a)?,
            NHA_OP_FLAGS => op_flags = a.u32("NHA_OP_FLAGS")?,
            _ => {}
        }
    }
    if id == 0 {
        return Err(DecodeError::Missing { what: "NHA_ID" });
    }
    if message.kind == RTM_DELNEXTHOP {
        return Ok(Some(Event::NexthopGone(id)));
    }
    // Before 6.12 the kernel left the upper byte of the weight as it found it in memory. Requests
    // (of which FPM streams consist) are written by programs that clear it.
    let high = op_flags & RESERVED_IS_CLEAR != 0 || message.flags & nlm::REQUEST != 0;
    let kind = match group {
        Some(bytes) => {
            let members = members(bytes, high)?;
            if group_type == GROUP_TYPE_RESILIENT {
                let Resilient {
                    buckets,
                    idle_timer,
                    unbalanced_timer,
                    unbalanced_time,
                } = resilient;
                NexthopKind::Resilient {
                    members,
                    buckets,
                    idle_timer,
                    unbalanced_timer,
                    unbalanced_time,
                }
            } else if group_type == 0 {
                NexthopKind::Group(members)
            } else {
                let value = group_type.into();
                return Err(DecodeError::BadValue {
                    what: "NHA_GROUP_TYPE",
                    value,
                });
            }
        }
        None if blackhole => NexthopKind::Blackhole,
        None => {
            let encap = encap.map(|data| Encap {
                kind: encap_kind,
                data: data.to_vec(),
            });
            NexthopKind::Single {
                gateway,
                index,
                encap,
            }
        }
    };
    let flags = read_u32(head, 4);
    Ok(Some(Event::Nexthop(Nexthop {
        id,
        family,
        scope,
        protocol,
        flags,
        kind,
        fdb,
    })))
}

/// The id of a nexthop object with an encapsulation, and that.
pub(crate) fn encap<'a>(
    message: &Message<'a>,
) -> Result<Option<(u32, EncapView<'a>)>, DecodeError> {
    let (_, attributes) = message.split::<8>("nhmsg")?;
    let (mut id, mut kind, mut data) = (0, 0, None);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            NHA_ID => id = a.u32("NHA_ID")?,
            NHA_ENCAP_TYPE => kind = a.u16("NHA_ENCAP_TYPE")?,
            NHA_ENCAP => data = Some(a.payload),
            _ => {}
        }
    }
    Ok(data.map(|data| (id, EncapView { kind, data })))
}

/// `struct nexthop_grp`: id, weight - 1 in two bytes (low, high), two reserved bytes.
fn members(bytes: &[u8], high: bool) -> Result<Vec<GroupMember>, DecodeError> {
    let (entries, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() || entries.is_empty() {
        return Err(DecodeError::BadLength {
            what: "NHA_GROUP",
            length: bytes.len(),
            have: bytes.len(),
        });
    }
    entries
        .iter()
        .map(|entry| {
            let id = read_u32(entry, 0);
            let upper = if high { entry[5] } else { 0 };
            let less_one = u16::from_le_bytes([entry[4], upper]);
            match less_one.checked_add(1) {
                Some(weight) if id != 0 => Ok(GroupMember { id, weight }),
                Some(_) => Err(DecodeError::BadValue {
                    what: "member of NHA_GROUP",
                    value: 0,
                }),
                None => Err(DecodeError::BadValue {
                    what: "weight",
                    value: 65_536,
                }),
            }
        })
        .collect()
}

fn resilient_group(a: &Attribute<'_>) -> Result<Resilient, DecodeError> {
    let mut group = Resilient::default();
    for nested in a.nested() {
        let n = nested?;
        match n.kind {
            RES_GROUP_BUCKETS => group.buckets = n.u16("NHA_RES_GROUP_BUCKETS")?,
            RES_GROUP_IDLE_TIMER => group.idle_timer = n.u32("NHA_RES_GROUP_IDLE_TIMER")?,
            RES_GROUP_UNBALANCED_TIMER => {
                group.unbalanced_timer = n.u32("NHA_RES_GROUP_UNBALANCED_TIMER")?;
            }
            RES_GROUP_UNBALANCED_TIME => {
                group.unbalanced_time = n.u64("NHA_RES_GROUP_UNBALANCED_TIME")?;
            }
            _ => {}
        }
    }
    Ok(group)
}

pub(super) fn decode_bucket(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<8>("nhmsg")?;
    let (mut group, mut index, mut nexthop, mut idle_time) = (0, None, 0, 0);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            NHA_ID => group = a.u32("NHA_ID")?,
            NHA_RES_BUCKET => {
                for nested in a.nested() {
                    let n = nested?;
                    match n.kind {
                        RES_BUCKET_INDEX => index = Some(n.u16("NHA_RES_BUCKET_INDEX")?),
                        RES_BUCKET_IDLE_TIME => idle_time = n.u64("NHA_RES_BUCKET_IDLE_TIME")?,
                        RES_BUCKET_NH_ID => nexthop = n.u32("NHA_RES_BUCKET_NH_ID")?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    match index {
        Some(index) if group != 0 && nexthop != 0 => Ok(Some(Event::Bucket(Bucket {
            group,
            index,
            nexthop,
            idle_time,
            flags: read_u32(head, 4),
        }))),
        _ => Err(DecodeError::Missing {
            what: "NHA_ID or NHA_RES_BUCKET",
        }),
    }
}

pub(super) fn encode(b: &mut Builder, nexthop: &Nexthop, flags: u16) -> Result<(), EncodeError> {
    let mut head = [
        nexthop.family,
        nexthop.scope,
        nexthop.protocol,
        0,
        0,
        0,
        0,
        0,
    ];
    head[4..].copy_from_slice(&nexthop.flags.to_ne_bytes());
    b.begin(RTM_NEWNEXTHOP, flags, &head)
        .put_u32(NHA_ID, nexthop.id);
    match &nexthop.kind {
        NexthopKind::Blackhole => {
            b.put(NHA_BLACKHOLE, &[]);
        }
        NexthopKind::Single {
            gateway,
            index,
            encap,
        } => {
            if *index != 0 {
                b.put_u32(NHA_OIF, *index);
            }
            if let Some(gateway) = gateway {
                b.put_ip(NHA_GATEWAY, *gateway);
            }
            if let Some(encap) = encap {
                encapsulation(b, encap, NHA_ENCAP_TYPE, NHA_ENCAP | NESTED);
            }
        }
        NexthopKind::Group(members) => put_members(b, members, 0),
        NexthopKind::Resilient {
            members,
            buckets,
            idle_timer,
            unbalanced_timer,
            ..
        } => {
            // The time that it has been unbalanced is the kernel's to say.
            put_members(b, members, GROUP_TYPE_RESILIENT);
            let nest = b.open(NHA_RES_GROUP | NESTED);
            b.put_u16(RES_GROUP_BUCKETS, *buckets);
            b.put_u32(RES_GROUP_IDLE_TIMER, *idle_timer);
            b.put_u32(RES_GROUP_UNBALANCED_TIMER, *unbalanced_timer);
            b.close(nest);
        }
    }
    if nexthop.fdb {
        b.put(NHA_FDB, &[]);
    }
    b.end()
}

fn put_members(b: &mut Builder, members: &[GroupMember], group_type: u16) {
    let nest = b.open(NHA_GROUP);
    for member in members {
        let [low, high] = (member.weight.max(1) - 1).to_le_bytes();
        b.put_raw(&member.id.to_ne_bytes())
            .put_raw(&[low, high, 0, 0]);
    }
    b.close(nest);
    b.put_u16(NHA_GROUP_TYPE, group_type);
}

pub(super) fn encode_gone(b: &mut Builder, id: u32, flags: u16) -> Result<(), EncodeError> {
    b.begin(RTM_DELNEXTHOP, flags, &[0; 8])
        .put_u32(NHA_ID, id)
        .end()
}

pub(super) fn encode_bucket(
    b: &mut Builder,
    bucket: &Bucket,
    flags: u16,
) -> Result<(), EncodeError> {
    let mut head = [0; 8];
    head[4..].copy_from_slice(&bucket.flags.to_ne_bytes());
    b.begin(RTM_NEWNEXTHOPBUCKET, flags, &head)
        .put_u32(NHA_ID, bucket.group);
    let nest = b.open(NHA_RES_BUCKET | NESTED);
    b.put_u16(RES_BUCKET_INDEX, bucket.index)
        .put(RES_BUCKET_IDLE_TIME, &bucket.idle_time.to_ne_bytes())
        .put_u32(RES_BUCKET_NH_ID, bucket.nexthop);
    b.close(nest);
    b.end()
}

//! Addresses of this machine (`RTM_NEWADDR`, `RTM_DELADDR`).

use std::net::IpAddr;

use raddle_rib::event::{Address, Event};

use super::build::{Builder, EncodeError};
use super::number::rtm::{RTM_DELADDR, RTM_NEWADDR};
use super::number::{INET, INET6};
use super::wire::{DecodeError, Message, read_u32};
use super::{family_of, prefix_limit};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;

pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<8>("ifaddrmsg")?;
    let [family, prefix_len, short_flags, scope, ..] = *head;
    if family != INET && family != INET6 {
        return Ok(None);
    }
    let (mut local, mut address, mut broadcast, mut label) = (None, None, None, None);
    let mut flags = u32::from(short_flags);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            IFA_ADDRESS => address = Some(a.ip("IFA_ADDRESS")?),
            IFA_LOCAL => local = Some(a.ip("IFA_LOCAL")?),
            IFA_LABEL => label = Some(a.string()),
            IFA_BROADCAST => broadcast = Some(a.ip("IFA_BROADCAST")?),
            IFA_FLAGS => flags = a.u32("IFA_FLAGS")?,
            _ => {}
        }
    }
    // IFA_ADDRESS is the prefix's address: the peer's on a point-to-point link, else our own.
    let Some(own) = local.or(address) else {
        return Err(DecodeError::Missing {
            what: "IFA_ADDRESS",
        });
    };
    if family_of(own) != family || prefix_len > prefix_limit(own) {
        return Err(DecodeError::BadValue {
            what: "ifa_prefixlen",
            value: prefix_len.into(),
        });
    }
    let address = Address {
        index: read_u32(head, 4),
        local: own,
        peer: address.filter(|&a| a != own),
        prefix_len,
        scope,
        flags,
        broadcast,
        label,
    };
    Ok(Some(if message.kind == RTM_DELADDR {
        Event::AddressGone(address)
    } else {
        Event::Address(address)
    }))
}

pub(super) fn encode(
    b: &mut Builder,
    address: &Address,
    gone: bool,
    flags: u16,
) -> Result<(), EncodeError> {
    let kind = if gone { RTM_DELADDR } else { RTM_NEWADDR };
    let mut head = [
        family_of(address.local),
        address.prefix_len,
        address.flags as u8,
        address.scope,
        0,
        0,
        0,
        0,
    ];
    head[4..].copy_from_slice(&address.index.to_ne_bytes());
    b.begin(kind, flags, &head);
    // IPv6 has no IFA_LOCAL of its own unless there is a peer.
    if address.peer.is_some() || matches!(address.local, IpAddr::V4(_)) {
        b.put_ip(IFA_LOCAL, address.local);
    }
    b.put_ip(IFA_ADDRESS, address.peer.unwrap_or(address.local));
    b.put_u32(IFA_FLAGS, address.flags);
    if let Some(broadcast) = address.broadcast {
        b.put_ip(IFA_BROADCAST, broadcast);
    }
    if let Some(label) = &address.label {
        b.put_str(IFA_LABEL, label);
    }
    b.end()
}

//! Settings of devices (`RTM_NEWNETCONF`).
//!
//! Notifications tell one setting at a time, and several that matter (`accept_local`,
//! `send_redirects`) are never told; the mirror takes them as the sign to read `/proc/sys`.

use super::number::{INET, INET6};
use super::wire::{DecodeError, Message};

const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;

/// What one netconf message says; absent settings have not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Netconf {
    /// 4 or 6.
    pub family: u8,
    /// Interface index; -1 is `conf.all`, -2 `conf.default`.
    pub index: i32,
    /// `forwarding`.
    pub forwarding: Option<u32>,
    /// `rp_filter` (IPv4).
    pub rp_filter: Option<u32>,
    /// `ignore_routes_with_linkdown`.
    pub ignore_linkdown: Option<u32>,
}

/// None for families other than IPv4 and IPv6.
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Netconf>, DecodeError> {
    let (head, attributes) = message.split::<1>("netconfmsg")?;
    let family = match head[0] {
        INET => 4,
        INET6 => 6,
        _ => return Ok(None),
    };
    let mut netconf = Netconf {
        family,
        ..Netconf::default()
    };
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            NETCONFA_IFINDEX => netconf.index = a.u32("NETCONFA_IFINDEX")? as i32,
            NETCONFA_FORWARDING => netconf.forwarding = Some(a.u32("NETCONFA_FORWARDING")?),
            NETCONFA_RP_FILTER => netconf.rp_filter = Some(a.u32("NETCONFA_RP_FILTER")?),
            NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => {
                netconf.ignore_linkdown = Some(a.u32("NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN")?);
            }
            _ => {}
        }
    }
    Ok(Some(netconf))
}

//! What a device's driver can do with XDP, and which program it has, asked over netlink.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

use crate::sys;
use crate::{Error, Result};

/// XDP features of a device (`NETDEV_XDP_ACT_*`), as it stands now: a veth gains and loses
/// [`Features::can_receive_redirects`] with its peer's program and GRO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// The driver runs programs (`NETDEV_XDP_ACT_BASIC`).
    pub fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Programs in this driver may redirect (`NETDEV_XDP_ACT_REDIRECT`).
    pub fn can_redirect(self) -> bool {
        self.0 & 2 != 0
    }

    /// Frames may be redirected to this device (`NETDEV_XDP_ACT_NDO_XMIT`). Where this is missing
    /// they are lost without a trace, except for what a program in generic mode redirects.
    pub fn can_receive_redirects(self) -> bool {
        self.0 & 4 != 0
    }

    /// The driver hands over frames of several buffers (`NETDEV_XDP_ACT_RX_SG`).
    pub fn multi_buffer(self) -> bool {
        self.0 & 32 != 0
    }

    /// Frames of several buffers may be redirected to this device (`NETDEV_XDP_ACT_NDO_XMIT_SG`).
    pub fn can_receive_multi_buffer_redirects(self) -> bool {
        self.0 & 64 != 0
    }
}

const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_HEADER: usize = 16;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
/// `NETDEV_XDP_RX_METADATA_HASH`.
const RX_METADATA_HASH: u64 = 2;
const RTM_GETLINK: u16 = 18;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// Asks the kernel for a device's XDP features. None where the kernel does not tell.
///
/// # Errors
/// [`Error::NoSuchLink`], or a netlink socket that does not work.
///
/// # Minimum kernel version
/// 6.3 (netlink family `netdev`); older ones are answered with None.
pub fn features(index: u32) -> Result<Option<Features>> {
    Ok(device_bits(index, NETDEV_A_DEV_XDP_FEATURES)?.map(Features))
}

/// Whether packets that are redirected to a device reach it; none where the kernel does not tell.
///
/// # Minimum kernel version
/// 6.3
pub fn can_receive_redirects(index: u32) -> Option<bool> {
    let features = features(index).ok().flatten()?;
    Some(features.can_receive_redirects())
}

/// Whether a device's driver lets programs read the hash that it gives with a packet. That says nothing
/// of where the driver has it from: veth computes one.
///
/// # Errors
/// As [`features`].
///
/// # Minimum kernel version
/// 6.8; older ones do not tell, which counts as no.
pub fn offers_rx_hash(index: u32) -> Result<bool> {
    let bits = device_bits(index, NETDEV_A_DEV_XDP_RX_METADATA_FEATURES)?;
    Ok(bits.is_some_and(|bits| bits & RX_METADATA_HASH != 0))
}

/// A 64-bit attribute of a device, of those that the kernel's `netdev` family knows.
fn device_bits(index: u32, kind: u16) -> Result<Option<u64>> {
    match ask_device(index, kind) {
        Ok(bits) => Ok(bits),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            Err(Error::NoSuchLink { index })
        }
        Err(source) => Err(Error::System {
            call: "NETDEV_CMD_DEV_GET",
            source,
        }),
    }
}

fn ask_device(index: u32, kind: u16) -> io::Result<Option<u64>> {
    let mut request = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    push_attribute(&mut request, CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let reply = match ask(SockProtocol::NetlinkGeneric, GENL_ID_CTRL, &request) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        other => other?,
    };
    let Some(family) = attribute(reply.get(4..).unwrap_or_default(), CTRL_ATTR_FAMILY_ID)
        .and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)))
    else {
        return Ok(None);
    };
    let mut request = vec![NETDEV_CMD_DEV_GET, 1, 0, 0];
    push_attribute(&mut request, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let reply = ask(SockProtocol::NetlinkGeneric, family, &request)?;
    let bits = attribute(reply.get(4..).unwrap_or_default(), kind);
    Ok(bits
        .and_then(|bits| bits.try_into().ok())
        .map(u64::from_ne_bytes))
}

/// Whether this network namespace has a link with this index; yes when that cannot be told.
pub(crate) fn link_exists(index: u32) -> bool {
    let reply = ask(
        SockProtocol::NetlinkRoute,
        RTM_GETLINK,
        &link_request(index),
    );
    !reply.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
}

/// `struct ifinfomsg`: family, padding, type, index, flags, change mask.
fn link_request(index: u32) -> [u8; 16] {
    let mut request = [0; 16];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    request
}

/// Whether a link has an XDP program just now, in any mode; none where the kernel does not tell. (It
/// tells nobody when a program comes or goes by a BPF link, so what was last heard may be wrong.)
pub fn has_program(index: u32) -> Option<bool> {
    let request = link_request(index);
    let reply = ask(SockProtocol::NetlinkRoute, RTM_GETLINK, &request).ok()?;
    let xdp = attribute(reply.get(16..)?, IFLA_XDP)?;
    Some(attribute(xdp, IFLA_XDP_ATTACHED)? != [0])
}

/// Whether the XDP program on a link is raddle's, as far as its name tells; not where the kernel does not tell, as without
/// privilege.
pub fn has_own_program(index: u32) -> bool {
    attached_program(index).is_some_and(|(_, name)| name == "raddle")
}

/// Id and name of the XDP program on a link, where there is one and the kernel tells.
pub(crate) fn attached_program(index: u32) -> Option<(u32, String)> {
    let reply = ask(
        SockProtocol::NetlinkRoute,
        RTM_GETLINK,
        &link_request(index),
    )
    .ok()?;
    let xdp = attribute(reply.get(16..)?, IFLA_XDP)?;
    let id = u32::from_ne_bytes(attribute(xdp, IFLA_XDP_PROG_ID)?.try_into().ok()?);
    let name = sys::program_name(id).unwrap_or_else(|_| "name unknown".to_owned());
    Some((id, name))
}

fn push_attribute(request: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = (4 + value.len()) as u16;
    request.extend_from_slice(&len.to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(value);
    request.resize(request.len().next_multiple_of(4), 0);
}

/// The first attribute of a kind in a run of attributes.
fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    while bytes.len() >= 4 {
        let len = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        // The top bits are flags: nested, byte order.
        let found = u16::from_ne_bytes([bytes[2], bytes[3]]) & 0x3fff;
        let value = bytes.get(4..len)?;
        if found == kind {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
    None
}

/// One question, one answer: the payload of the reply.
fn ask(protocol: SockProtocol, kind: u16, payload: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(2, 0))?;
    let len = NLMSG_HEADER + payload.len();
    let mut message = Vec::with_capacity(len);
    message.extend_from_slice(&(len as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(payload);
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut buffer = vec![0; 65536];
    let got = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    buffer.truncate(got);
    let short = || io::Error::other("the netlink reply is too short");
    let header = buffer.get(..NLMSG_HEADER).ok_or_else(short)?;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let body = buffer.get(NLMSG_HEADER..).ok_or_else(short)?;
    if kind == NLMSG_ERROR {
        let code = body.get(..4).and_then(|code| code.try_into().ok());
        let code = i32::from_ne_bytes(code.ok_or_else(short)?);
        return Err(io::Error::from_raw_os_error(-code));
    }
    Ok(body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 5, b"abc");
        push_attribute(&mut bytes, 7, b"wxyz");
        assert_eq!(attribute(&bytes, 7), Some(&b"wxyz"[..]));
        assert_eq!(attribute(&bytes, 5), Some(&b"abc"[..]));
        assert_eq!(attribute(&bytes, 6), None);
        // A length that does not fit ends the search.
        assert_eq!(attribute(&[3, 0, 7, 0], 7), None);
        assert_eq!(attribute(&[9, 0, 7, 0, 1], 7), None);
    }
}

//! xfrm (IPsec) policies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Error;
use super::talk::Talk;
use crate::codec::{Builder, DecodeError, Message};

const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRMA_IF_ID: u16 = 31;
/// Bytes in `struct xfrm_userpolicy_info`, padded as its 64-bit counters are aligned.
const POLICY: usize = if align_of::<u64>() == 8 { 168 } else { 164 };
/// Bytes in `struct xfrm_userpolicy_id`.
const POLICY_ID: usize = 64;
const DEFAULT_BLOCK: u8 = 1;

/// Which packets a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To this machine.
    In,
    /// Out of any link, forwarded packets included.
    Out,
    /// Through this machine.
    Forward,
    /// One socket's own.
    Socket,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::Forward => "fwd",
            Direction::Socket => "socket",
        })
    }
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which packets it is for.
    pub direction: Direction,
    /// Source prefix.
    pub src: (IpAddr, u8),
    /// Destination prefix.
    pub dst: (IpAddr, u8),
    /// Upper-layer protocol; 0 for any.
    pub protocol: u8,
    /// Blocks what it matches.
    pub blocks: bool,
    /// The xfrm interface that it belongs to; 0 for none. Only packets through that interface
    /// meet it.
    pub if_id: u32,
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (src, dst) = (self.src, self.dst);
        write!(f, "src {}/{} dst {}/{}", src.0, src.1, dst.0, dst.1)?;
        if self.protocol != 0 {
            write!(f, " proto {}", self.protocol)?;
        }
        write!(f, " dir {}", self.direction)?;
        if self.blocks {
            f.write_str(" action block")
        } else {
            Ok(())
        }
    }
}

/// What happens to packets that no policy matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Those to this machine are dropped.
    pub block_in: bool,
    /// Those that leave are dropped.
    pub block_out: bool,
    /// Those that are forwarded are dropped.
    pub block_forward: bool,
}

/// The namespace's policies; none without xfrm.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN`; [`Error::Decode`] for an answer that makes no sense.
pub fn policies() -> Result<Vec<Policy>, Error> {
    let what = "list xfrm policies";
    let Some(mut talk) = Talk::open(libc::NETLINK_XFRM, what)? else {
        return Ok(Vec::new());
    };
    let mut request = Builder::new();
    request
        .begin(XFRM_MSG_GETPOLICY, 0, &[0; POLICY_ID])
        .end()?;
    talk.dump(&mut request, what, decode_policy)
}

/// The namespace's defaults.
///
/// # Minimum kernel version
/// 5.15; older ones accept.
///
/// # Errors
/// As [`policies`].
pub fn defaults() -> Result<Defaults, Error> {
    let what = "ask for the xfrm default policy";
    let Some(mut talk) = Talk::open(libc::NETLINK_XFRM, what)? else {
        return Ok(Defaults::default());
    };
    let mut request = Builder::new();
    request.begin(XFRM_MSG_GETDEFAULT, 0, &[0; 4]).end()?;
    match talk.ask(&mut request, what, |message| {
        let (head, _) = message.split::<3>("xfrm_userpolicy_default")?;
        Ok(Some(Defaults {
            block_in: head[0] == DEFAULT_BLOCK,
            block_forward: head[1] == DEFAULT_BLOCK,
            block_out: head[2] == DEFAULT_BLOCK,
        }))
    }) {
        Ok(defaults) => Ok(defaults.unwrap_or_default()),
        Err(e) if matches!(e.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Ok(Defaults::default())
        }
        Err(e) => Err(e),
    }
}

pub(super) fn decode_policy(message: &Message<'_>) -> Result<Option<Policy>, DecodeError> {
    if message.kind != XFRM_MSG_NEWPOLICY {
        return Ok(None);
    }
    let (head, attributes) = message.split::<POLICY>("xfrm_userpolicy_info")?;
    // The selector: destination, source, ports, family, prefix lengths, protocol, ...
    let family = u16::from_ne_bytes([head[40], head[41]]);
    let mut policy = Policy {
        direction: match head[160] {
            0 => Direction::In,
            1 => Direction::Out,
            2 => Direction::Forward,
            _ => Direction::Socket,
        },
        dst: (address(family, head, 0), head[42]),
        src: (address(family, head, 16), head[43]),
        protocol: head[44],
        blocks: head[161] == 1,
        if_id: 0,
    };
    for a in attributes {
        let a = a?;
        if a.kind == XFRMA_IF_ID {
            policy.if_id = a.u32("XFRMA_IF_ID")?;
        }
    }
    Ok(Some(policy))
}

/// `xfrm_address_t`: 16 bytes, of which IPv4 uses the first four.
fn address(family: u16, head: &[u8; POLICY], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    if i32::from(family) == libc::AF_INET6 {
        return IpAddr::V6(Ipv6Addr::from(octets));
    }
    IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
}

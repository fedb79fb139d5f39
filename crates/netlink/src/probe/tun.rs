//! Taps, by which frames of virtual machines come in: with `vnet_hdr` these say beside a frame that its checksum is unfinished.

use super::Error;
use super::talk::Talk;
use crate::codec::number::rtm::RTM_GETLINK;
use crate::codec::{Builder, DecodeError, Message};

const RTM_NEWLINK: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_TUN_VNET_HDR: u16 = 5;

/// A tun or tap device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tun {
    /// Interface index.
    pub index: u32,
    /// Whether frames come with a header that tells of unfinished checksums (`IFF_VNET_HDR`).
    pub vnet_hdr: bool,
}

/// The tun and tap devices of the namespace. Costs one dump of links.
///
/// # Minimum kernel version
/// 4.19, which tells of `IFF_VNET_HDR`; of what is not told it is taken to be on.
///
/// # Errors
/// [`Error::Decode`] for an answer that makes no sense.
pub fn tuns() -> Result<Vec<Tun>, Error> {
    let what = "list taps";
    let Some(mut talk) = Talk::open(libc::NETLINK_ROUTE, what)? else {
        return Ok(Vec::new());
    };
    let mut request = Builder::new();
    request.begin(RTM_GETLINK, 0, &[0; 16]).end()?;
    talk.dump(&mut request, what, decode_tun)
}

pub(super) fn decode_tun(message: &Message<'_>) -> Result<Option<Tun>, DecodeError> {
    if message.kind != RTM_NEWLINK {
        return Ok(None);
    }
    let (head, attributes) = message.split::<16>("ifinfomsg")?;
    let index = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    let (mut is_tun, mut vnet_hdr) = (false, true);
    for a in attributes {
        let a = a?;
        if a.kind != IFLA_LINKINFO {
            continue;
        }
        for a in a.nested() {
            let a = a?;
            match a.kind {
                IFLA_INFO_KIND => is_tun = a.string() == "tun",
                IFLA_INFO_DATA if is_tun => {
                    for a in a.nested() {
                        let a = a?;
                        if a.kind == IFLA_TUN_VNET_HDR {
                            vnet_hdr = *a.bytes::<1>("IFLA_TUN_VNET_HDR")? != [0];
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(is_tun.then_some(Tun { index, vnet_hdr }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Messages;

    fn told(kind: &str, vnet_hdr: Option<u8>) -> Option<Tun> {
        let mut head = [0; 16];
        head[4..8].copy_from_slice(&7u32.to_ne_bytes());
        let mut b = Builder::new();
        b.begin(RTM_NEWLINK, 0, &head);
        let info = b.open(IFLA_LINKINFO);
        b.put_str(IFLA_INFO_KIND, kind);
        let data = b.open(IFLA_INFO_DATA);
        if let Some(vnet_hdr) = vnet_hdr {
            b.put(IFLA_TUN_VNET_HDR, &[vnet_hdr]);
        }
        b.close(data);
        b.close(info);
        b.end().unwrap();
        decode_tun(&Messages::new(b.as_bytes()).next().unwrap().unwrap()).unwrap()
    }

    #[test]
    fn taps_tell_of_their_headers() {
        let tun = |vnet_hdr| Some(Tun { index: 7, vnet_hdr });
        assert_eq!(told("tun", Some(0)), tun(false));
        assert_eq!(told("tun", Some(1)), tun(true));
        assert_eq!(told("tun", None), tun(true), "an older kernel");
        assert_eq!(told("veth", Some(1)), None);
    }
}

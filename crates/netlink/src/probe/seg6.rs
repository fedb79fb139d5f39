//! What generic netlink tells of SRv6: the source of encapsulations (`ip sr tunsrc`) and the keys of HMACs
//! (`ip sr hmac`). Neither is ever announced.

use std::net::Ipv6Addr;

use raddle_rib::event::{HmacAlgorithm, HmacKey};

use super::Error;
use super::talk::Talk;
use crate::codec::{Attributes, Builder, DecodeError, Message};

/// `GENL_ID_CTRL`.
const CONTROL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const SEG6_CMD_DUMPHMAC: u8 = 2;
const SEG6_CMD_GET_TUNSRC: u8 = 4;
const SEG6_ATTR_DST: u16 = 1;
const SEG6_ATTR_HMACKEYID: u16 = 3;
const SEG6_ATTR_SECRET: u16 = 4;
const SEG6_ATTR_ALGID: u16 = 6;

/// A connection to the kernel's SRv6 settings, of the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Seg6 {
    talk: Talk,
    family: u16,
}

impl Seg6 {
    /// Opens one; none if the kernel was built without SRv6.
    ///
    /// # Errors
    /// [`Error`] when the kernel could not be asked.
    pub fn open() -> Result<Option<Seg6>, Error> {
        let what = "ask for SRv6 settings";
        let Some(mut talk) = Talk::open(libc::NETLINK_GENERIC, what)? else {
            return Ok(None);
        };
        let mut request = Builder::new();
        request
            .begin(CONTROL, 0, &[CTRL_CMD_GETFAMILY, 1, 0, 0])
            .put(CTRL_ATTR_FAMILY_NAME, b"SEG6\0")
            .end()?;
        match talk.ask(&mut request, what, decode_family) {
            Ok(family) => Ok(family.map(|family| Seg6 { talk, family })),
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The source of outer headers (`SEG6_CMD_GET_TUNSRC`); none when it is chosen by the destination.
    ///
    /// # Errors
    /// [`Error::Denied`] without `CAP_NET_ADMIN`, else another [`Error`].
    pub fn source(&mut self) -> Result<Option<Ipv6Addr>, Error> {
        let mut request = self.request(SEG6_CMD_GET_TUNSRC)?;
        let what = "read the source of SRv6 encapsulations";
        let source = self.talk.ask(&mut request, what, decode_source)?;
        Ok(source.filter(|source| !source.is_unspecified()))
    }

    /// The keys of HMACs (`SEG6_CMD_DUMPHMAC`), by number.
    ///
    /// # Errors
    /// As [`Seg6::source`].
    pub fn keys(&mut self) -> Result<Vec<HmacKey>, Error> {
        let mut request = self.request(SEG6_CMD_DUMPHMAC)?;
        let what = "read the keys of SRv6 HMACs";
        let mut keys = self.talk.dump(&mut request, what, decode_key)?;
        keys.sort_unstable_by_key(|key| key.id);
        Ok(keys)
    }

    fn request(&self, command: u8) -> Result<Builder, Error> {
        let mut request = Builder::new();
        request.begin(self.family, 0, &[command, 1, 0, 0]).end()?;
        Ok(request)
    }
}

/// The attributes behind `genlmsghdr`.
fn attributes<'a>(message: &Message<'a>) -> Result<Attributes<'a>, DecodeError> {
    let (_, attributes) = message.split::<4>("genlmsghdr")?;
    Ok(attributes)
}

/// The number of a family of generic netlink.
pub(super) fn decode_family(message: &Message<'_>) -> Result<Option<u16>, DecodeError> {
    let mut family = None;
    for attribute in attributes(message)? {
        let attribute = attribute?;
        if attribute.kind == CTRL_ATTR_FAMILY_ID {
            family = Some(attribute.u16("CTRL_ATTR_FAMILY_ID")?);
        }
    }
    Ok(family)
}

pub(super) fn decode_source(message: &Message<'_>) -> Result<Option<Ipv6Addr>, DecodeError> {
    let mut source = None;
    for attribute in attributes(message)? {
        let attribute = attribute?;
        if attribute.kind == SEG6_ATTR_DST {
            source = <[u8; 16]>::try_from(attribute.payload).ok();
        }
    }
    Ok(source.map(Ipv6Addr::from))
}

/// A key; none where its algorithm is unknown.
pub(super) fn decode_key(message: &Message<'_>) -> Result<Option<HmacKey>, DecodeError> {
    let (mut id, mut algorithm, mut secret) = (0, None, Vec::new());
    for attribute in attributes(message)? {
        let attribute = attribute?;
        match attribute.kind {
            SEG6_ATTR_HMACKEYID => id = attribute.u32("SEG6_ATTR_HMACKEYID")?,
            SEG6_ATTR_SECRET => secret = attribute.payload.to_vec(),
            SEG6_ATTR_ALGID => {
                algorithm = HmacAlgorithm::from_number(attribute.u8("SEG6_ATTR_ALGID")?);
            }
            _ => {}
        }
    }
    Ok(algorithm.map(|algorithm| HmacKey {
        id,
        algorithm,
        secret,
    }))
}

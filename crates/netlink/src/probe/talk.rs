//! Questions and answers over any netlink protocol. The crate's `Socket` is rtnetlink's alone.

use std::fs::File;
use std::io::{Read, Write};

use super::Error;
use crate::codec::number::nlm;
use crate::codec::{Builder, DecodeError, Decoded, Message, Messages, Outcome, decode_message};
use crate::socket::{is_missing, raw};

/// The kernel fills at most 32 KiB per read of a dump.
const CHUNK: usize = 64 << 10;
/// How often a dump is begun again because its table changed meanwhile.
const ATTEMPTS: usize = 8;

/// A netlink socket of some protocol, in the namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Talk {
    socket: File,
    sequence: u32,
}

impl Talk {
    /// Opens a socket of `protocol`; none if the kernel was built without it.
    pub(super) fn open(protocol: libc::c_int, what: &'static str) -> Result<Option<Talk>, Error> {
        let socket = match raw(protocol) {
            Ok(socket) => socket,
            Err(e) if is_missing(&e) => return Ok(None),
            Err(e) => return Err(Error::io(what, e)),
        };
        Ok(Some(Talk {
            socket: File::from(socket),
            sequence: 0,
        }))
    }

    /// Everything that a dump of `request` (one message) tells, through `decode`.
    ///
    /// A dump that its table changed under is begun again, a few times; the last one stands.
    pub(super) fn dump<T>(
        &mut self,
        request: &mut Builder,
        what: &'static str,
        decode: impl Fn(&Message<'_>) -> Result<Option<T>, DecodeError>,
    ) -> Result<Vec<T>, Error> {
        let mut facts = Vec::new();
        for _ in 0..ATTEMPTS {
            facts.clear();
            let flags = nlm::REQUEST | nlm::DUMP;
            let interrupted = self.exchange(request, flags, what, |message| {
                facts.extend(decode(message)?);
                Ok(())
            })?;
            if !interrupted {
                break;
            }
        }
        Ok(facts)
    }

    /// The one answer to `request`, through `decode`.
    pub(super) fn ask<T>(
        &mut self,
        request: &mut Builder,
        what: &'static str,
        decode: impl Fn(&Message<'_>) -> Result<Option<T>, DecodeError>,
    ) -> Result<Option<T>, Error> {
        let mut fact = None;
        self.exchange(request, nlm::REQUEST | nlm::ACK, what, |message| {
            fact = decode(message)?;
            Ok(())
        })?;
        Ok(fact)
    }

    /// Sends, and hands on answers until the end of the dump or the acknowledgement. Returns
    /// whether the dump was interrupted.
    fn exchange(
        &mut self,
        request: &mut Builder,
        flags: u16,
        what: &'static str,
        mut take: impl FnMut(&Message<'_>) -> Result<(), DecodeError>,
    ) -> Result<bool, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        request.stamp(self.sequence, flags);
        self.socket
            .write_all(request.as_bytes())
            .map_err(|e| Error::io(what, e))?;
        let undecodable = |source| Error::Decode { what, source };
        let mut interrupted = false;
        let mut buffer = vec![0; CHUNK];
        loop {
            let length = match self.socket.read(&mut buffer) {
                Ok(0) => return Err(Error::io(what, std::io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => length,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io(what, e)),
            };
            for message in Messages::new(&buffer[..length]) {
                let message = message.map_err(undecodable)?;
                if message.sequence != self.sequence {
                    continue; // late answers to a request that failed
                }
                interrupted |= message.flags & nlm::DUMP_INTR != 0;
                match outcome(&message).map_err(undecodable)? {
                    None => take(&message).map_err(undecodable)?,
                    Some(Outcome::Done) => return Ok(interrupted),
                    Some(Outcome::Failed(error)) => return Err(Error::refused(what, error)),
                }
            }
        }
    }
}

/// The outcome, if the message is one; types from 16 on belong to the protocol.
fn outcome(message: &Message<'_>) -> Result<Option<Outcome>, DecodeError> {
    if message.kind >= libc::NLMSG_MIN_TYPE as u16 {
        return Ok(None);
    }
    match decode_message(message)? {
        Decoded::Outcome(outcome) => Ok(Some(outcome)),
        _ => Ok(None),
    }
}

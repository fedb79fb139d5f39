//! An rtnetlink socket.
//!
//! It belongs to the network namespace that its creating thread was in, for good; the thread may
//! move on afterwards.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::codec::number::nlm;
use crate::codec::{Builder, Decoded, Message, Messages, Outcome, decode_message};
use crate::error::Error;

/// Receive buffer that a mirror asks for, in bytes: room for about 100,000 notifications.
pub const RECEIVE_BUFFER: usize = 64 << 20;
/// The kernel fills at most 32 KiB per `recv` of a dump.
pub(crate) const DUMP_CHUNK: usize = 64 << 10;

const NETLINK_EXT_ACK: libc::c_int = 11;
const NETLINK_CAP_ACK: libc::c_int = 10;
const NETLINK_GET_STRICT_CHK: libc::c_int = 12;

/// A netlink socket of this protocol, as the system gives it.
pub(crate) fn raw(protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    let raw = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol,
        )
    };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `raw` is a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Whether [`raw`] says that the kernel was built without the protocol.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT)
    )
}

/// How a dump went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// It is a consistent picture, or the kernel did not notice otherwise.
    Consistent,
    /// The table changed meanwhile (`NLM_F_DUMP_INTR`): objects may be missing or twice.
    Interrupted,
}

/// An rtnetlink socket with strict checking and extended errors.
///
/// # Minimum kernel version
/// 4.20 for strict checking; older ones ignore the filters of dumps.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::Io`] when the system allows no more sockets.
    pub fn open() -> Result<Self, Error> {
        let missing = || io::Error::from_raw_os_error(libc::EPROTONOSUPPORT);
        let socket = Self::open_for(libc::NETLINK_ROUTE)?.ok_or_else(|| Error::Io {
            what: "open a socket",
            source: missing(),
        })?;
        socket.set_conveniences();
        Ok(socket)
    }

    /// The same of a descriptor that another process has opened in its network namespace, as `socket(AF_NETLINK, SOCK_RAW,
    /// NETLINK_ROUTE)` gives it.
    ///
    /// # Errors
    /// [`Error::Io`] when it is no such socket.
    pub fn from_descriptor(fd: OwnedFd) -> Result<Self, Error> {
        let socket = Socket { fd, sequence: 0 };
        socket.bind()?;
        socket.set_conveniences();
        Ok(socket)
    }

    /// Each is one that the kernel may be too old for.
    fn set_conveniences(&self) {
        for option in [NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK] {
            let _ = self.set(libc::SOL_NETLINK, option, 1);
        }
    }

    /// A socket of another netlink protocol (`NETLINK_*`); none where the kernel was built without it.
    pub(crate) fn open_for(protocol: libc::c_int) -> Result<Option<Self>, Error> {
        let fd = match raw(protocol) {
            Ok(fd) => fd,
            Err(e) if is_missing(&e) => return Ok(None),
            Err(source) => {
                return Err(Error::Io {
                    what: "open a socket",
                    source,
                });
            }
        };
        let socket = Socket { fd, sequence: 0 };
        socket.bind()?;
        Ok(Some(socket))
    }

    fn bind(&self) -> Result<(), Error> {
        // SAFETY: sockaddr_nl is plain numbers, for which all zeroes are valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        // SAFETY: `address` lives through the call and its size is passed with it.
        let result = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_nl>() as libc::socklen_t,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(Error::io("bind a socket"))
        }
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: `value` lives through the call and its size is passed with it.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Joins a multicast group (`RTNLGRP_*`, see [`crate::codec::number::group`]).
    ///
    /// # Errors
    /// [`Error::Io`] when the kernel does not know the group.
    pub fn join(&self, group: u32) -> Result<(), Error> {
        self.set(
            libc::SOL_NETLINK,
            libc::NETLINK_ADD_MEMBERSHIP,
            group as libc::c_int,
        )
        .map_err(|source| Error::Io {
            what: "join a multicast group",
            source,
        })
    }

    /// Asks for a receive buffer of `bytes`; with `CAP_NET_ADMIN` beyond the system's limit
    /// (`net.core.rmem_max`), without it up to the limit.
    ///
    /// # Errors
    /// [`Error::Io`] when neither is possible.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<(), Error> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
            .map_err(|source| Error::Io {
                what: "set the receive buffer",
                source,
            })
    }

    /// Sends the messages as they are.
    ///
    /// # Errors
    /// [`Error::Io`] when the kernel does not take them.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: pointer and length are of one live slice.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 {
            Err(Error::io("send a request"))
        } else {
            Ok(())
        }
    }

    /// Receives one datagram into the spare capacity of `buffer`, behind what it holds. `None`
    /// when there is nothing and `wait` is false.
    ///
    /// # Errors
    /// [`Error::Overrun`] for `ENOBUFS`; [`Error::Oversized`] when the datagram did not fit.
    pub fn receive(&self, buffer: &mut Vec<u8>, wait: bool) -> Result<Option<usize>, Error> {
        let flags = libc::MSG_TRUNC | if wait { 0 } else { libc::MSG_DONTWAIT };
        loop {
            let spare = buffer.spare_capacity_mut();
            // SAFETY: pointer and length are of one live slice that the kernel writes into.
            let got = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    spare.as_mut_ptr().cast(),
                    spare.len(),
                    flags,
                )
            };
            if let Ok(length) = usize::try_from(got) {
                if length > spare.len() {
                    return Err(Error::Oversized(length)); // MSG_TRUNC tells the real length
                }
                let end = buffer.len() + length;
                // SAFETY: the kernel has initialised `length` bytes of the spare capacity.
                unsafe { buffer.set_len(end) };
                return Ok(Some(length));
            }
            let source = io::Error::last_os_error();
            match source.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Ok(None),
                Some(libc::ENOBUFS) => return Err(Error::Overrun),
                _ => {
                    return Err(Error::Io {
                        what: "receive",
                        source,
                    });
                }
            }
        }
    }

    fn next_sequence(&mut self, count: u32) -> u32 {
        let first = self.sequence.wrapping_add(1);
        self.sequence = self.sequence.wrapping_add(count.max(1));
        first
    }

    /// Sends the messages in `request` in one go and waits until the kernel has acknowledged each;
    /// `what` says in an error what was to be done.
    ///
    /// The kernel carries on behind a message that it refuses.
    ///
    /// # Errors
    /// [`Error::Refused`] with the first refusal.
    pub fn request(&mut self, request: &mut Builder, what: &'static str) -> Result<(), Error> {
        let first = self.sequence.wrapping_add(1);
        let count = request.stamp(first, nlm::REQUEST | nlm::ACK);
        self.next_sequence(count);
        self.send(request.as_bytes())?;
        let mut refused = None;
        let mut waiting = count;
        self.answers(first, count, |message| match decode_outcome(message)? {
            Some(outcome) => {
                if let Outcome::Failed(error) = outcome {
                    refused.get_or_insert(error);
                }
                waiting -= 1;
                Ok(waiting == 0)
            }
            None => Ok(false),
        })?;
        refused.map_or(Ok(()), |error| Err(Error::Refused { what, error }))
    }

    /// Sends many messages, of which only the last asks for an acknowledgement, and waits for it.
    /// Refusals of the others come before it.
    pub(crate) fn send_batch(&mut self, request: &mut Builder) -> Result<(), Error> {
        let first = self.sequence.wrapping_add(1);
        let count = request.stamp(first, nlm::REQUEST);
        self.next_sequence(count);
        self.send(request.as_bytes())?;
        let mut refused = None;
        self.answers(first, count, |message| {
            if let Some(Outcome::Failed(error)) = decode_outcome(message)? {
                refused.get_or_insert(error);
            }
            Ok(message.sequence == first.wrapping_add(count - 1))
        })?;
        refused.map_or(Ok(()), |error| {
            Err(Error::Refused {
                what: "install routes",
                error,
            })
        })
    }

    /// Sends one message and hands its answer (not an acknowledgement) to `take`.
    ///
    /// # Errors
    /// [`Error::Refused`] when the kernel has no answer; whatever `take` returns.
    pub(crate) fn query<T>(
        &mut self,
        request: &mut Builder,
        what: &'static str,
        take: impl FnOnce(&Message<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let first = self.next_sequence(1);
        request.stamp(first, nlm::REQUEST);
        self.send(request.as_bytes())?;
        let mut take = Some(take);
        let mut answer = None;
        self.answers(first, 1, |message| {
            match decode_outcome(message)? {
                Some(Outcome::Failed(error)) => return Err(Error::Refused { what, error }),
                Some(Outcome::Done) => {}
                None => {
                    if let Some(take) = take.take() {
                        answer = Some(take(message)?);
                    }
                }
            }
            Ok(true)
        })?;
        answer.ok_or(Error::NoAnswer(what))
    }

    /// Hands on messages whose sequence number is one of `count` from `first`, until `take` says
    /// that it has what it wants. Late answers to earlier requests are passed over.
    fn answers(
        &self,
        first: u32,
        count: u32,
        mut take: impl FnMut(&Message<'_>) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut buffer = Vec::with_capacity(DUMP_CHUNK);
        loop {
            buffer.clear();
            self.receive(&mut buffer, true)?;
            for message in Messages::new(&buffer) {
                let message = message?;
                if message.sequence.wrapping_sub(first) < count && take(&message)? {
                    return Ok(());
                }
            }
        }
    }

    /// Dumps what `request` (one message) asks for; each buffer of messages goes to `sink` as it
    /// comes.
    ///
    /// # Errors
    /// [`Error::Refused`] when the kernel refuses; whatever `sink` returns.
    pub(crate) fn dump(
        &mut self,
        request: &mut Builder,
        what: &'static str,
        sink: &mut impl DumpSink,
    ) -> Result<Dump, Error> {
        let sequence = self.next_sequence(1);
        request.stamp(sequence, nlm::REQUEST | nlm::DUMP);
        self.send(request.as_bytes())?;
        let mut quality = Dump::Consistent;
        loop {
            let mut buffer = sink.buffer();
            buffer.clear();
            buffer.reserve(DUMP_CHUNK);
            self.receive(&mut buffer, true)?;
            let mut done = None;
            for message in Messages::new(&buffer) {
                let message = message?;
                if message.sequence != sequence {
                    continue;
                }
                if message.flags & nlm::DUMP_INTR != 0 {
                    quality = Dump::Interrupted;
                }
                if let Some(outcome) = decode_outcome(&message)? {
                    done = Some(outcome);
                }
            }
            sink.take(buffer)?;
            match done {
                None => {}
                Some(Outcome::Done) => return Ok(quality),
                Some(Outcome::Failed(error)) => return Err(Error::Refused { what, error }),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where the buffers of a dump go.
pub(crate) trait DumpSink {
    /// A buffer to receive into; its contents do not matter.
    fn buffer(&mut self) -> Vec<u8>;
    /// Takes a filled buffer.
    fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error>;
}

/// The outcome, if the message is one.
fn decode_outcome(message: &Message<'_>) -> Result<Option<Outcome>, Error> {
    if message.kind >= libc::NLMSG_MIN_TYPE as u16 {
        return Ok(None);
    }
    match decode_message(message)? {
        Decoded::Outcome(outcome) => Ok(Some(outcome)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::KernelError;
    use crate::codec::number::rtm;

    #[test]
    fn refusals_carry_the_kernels_words() {
        let mut socket = Socket::open().unwrap();
        let mut request = Builder::new();
        // Strict checking: a dump of routes must not name a prefix length.
        request.begin(
            rtm::RTM_GETROUTE,
            nlm::DUMP,
            &[2, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        request.end().unwrap();
        let error = socket.request(&mut request, "dump by prefix").unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        // In which words is up to the kernel.
        assert!(matches!(
            error,
            Error::Refused {
                error: KernelError { text: Some(_), .. },
                ..
            }
        ));
    }

    #[test]
    fn a_dump_ends_and_the_socket_can_be_used_again() {
        struct Count(usize);
        impl DumpSink for Count {
            fn buffer(&mut self) -> Vec<u8> {
                Vec::new()
            }
            fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
                self.0 += Messages::new(&buffer).count();
                Ok(())
            }
        }
        let mut socket = Socket::open().unwrap();
        for _ in 0..2 {
            let mut request = Builder::new();
            request.begin(rtm::RTM_GETLINK, 0, &[0; 16]).end().unwrap();
            let mut count = Count(0);
            assert_eq!(
                socket.dump(&mut request, "dump links", &mut count).unwrap(),
                Dump::Consistent
            );
            assert!(count.0 >= 2, "at least lo and the end of the dump");
        }
    }
}

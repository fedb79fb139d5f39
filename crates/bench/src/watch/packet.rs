//! Frames on a link, as they are: many at a time, as fast as it goes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;

/// Room for what arrives while nobody reads.
const BUFFER: libc::c_int = 256 << 20;
/// Frames that are handed to the kernel at once.
pub(super) const BURST: usize = 32;
/// More than any of our frames.
const FRAME: usize = 2048;

/// An `AF_PACKET` socket on one link.
pub(super) struct Packets {
    fd: OwnedFd,
}

impl Packets {
    /// On a link of this thread's network namespace.
    pub(super) fn open(link: &str) -> io::Result<Packets> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        for (level, option, value) in [
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER),
            (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER),
            // Otherwise it also takes in what this host sends.
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1),
        ] {
            // SAFETY: the value lives through the call and is as long as said.
            check(unsafe {
                libc::setsockopt(
                    fd.as_raw_fd(),
                    level,
                    option,
                    (&raw const value).cast(),
                    size_of_val(&value) as libc::socklen_t,
                )
            })?;
        }
        // SAFETY: all-zero is a valid value of this structure of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = if_nametoindex(link)? as libc::c_int;
        // SAFETY: `address` lives through the call and is as long as said.
        check(unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        })?;
        Ok(Packets { fd })
    }

    /// Sends these frames, [`BURST`] at most; what the kernel has no room for is not sent again.
    pub(super) fn send(&self, frames: &mut [Vec<u8>]) -> io::Result<()> {
        let mut parts: Vec<libc::iovec> = frames
            .iter_mut()
            .map(|frame| libc::iovec {
                iov_base: frame.as_mut_ptr().cast(),
                iov_len: frame.len(),
            })
            .collect();
        // SAFETY: all-zero is a valid value of this structure of integers and pointers.
        let mut messages: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
        let count = parts.len().min(BURST);
        for (message, part) in messages.iter_mut().zip(&mut parts) {
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: as many messages as said, whose parts live through the call and are as long as they say.
        let sent = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                count as libc::c_uint,
                0,
            )
        };
        match check(sent) {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => Err(e),
            _ => Ok(()),
        }
    }

    /// Hands over all frames that have arrived.
    pub(super) fn take(&self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = [0; FRAME];
        loop {
            // SAFETY: the buffer lives through the call and is as long as said.
            let got = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                )
            };
            if let Ok(len) = usize::try_from(got) {
                each(&buffer[..len.min(FRAME)]);
                continue;
            }
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                // The link went down for a moment: that is said once.
                Some(libc::EAGAIN | libc::ENETDOWN) => Ok(()),
                _ => Err(error),
            };
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

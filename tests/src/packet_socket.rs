//! Raw frames on a link.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// Room for what arrives while nobody reads: 100,000 small frames and more.
const BUFFER: libc::c_int = 128 << 20;

/// An `AF_PACKET` socket on one link: sends frames as they are, and takes in all that arrive.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl PacketSocket {
    /// On a link of this thread's network namespace.
    pub fn open(link: &str) -> io::Result<PacketSocket> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no memory is passed.
        let fd = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
        set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
        // Otherwise it also takes in what this node sends.
        set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // SAFETY: all-zero is a valid value of this structure of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = if_nametoindex(link)? as libc::c_int;
        // SAFETY: `address` lives through the call and is as long as said.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PacketSocket {
            fd,
            buffer: vec![0; 70_000],
        })
    }

    /// Sends one frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            // SAFETY: the bytes live through the call and are as many as said.
            let sent =
                unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS) => self.wait(PollFlags::POLLOUT, 10),
                _ => return Err(error),
            };
        }
    }

    /// The next frame that has arrived, if there is one.
    pub fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        // SAFETY: the buffer lives through the call and is as long as said.
        let got = unsafe {
            libc::recv(
                self.fd.as_raw_fd(),
                self.buffer.as_mut_ptr().cast(),
                self.buffer.len(),
                libc::MSG_TRUNC,
            )
        };
        if got >= 0 {
            let len = (got as usize).min(self.buffer.len());
            return Ok(Some(&self.buffer[..len]));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The link went down for a moment: that is said once, and then it goes on.
            Some(libc::EAGAIN | libc::ENETDOWN) => Ok(None),
            _ => Err(error),
        }
    }

    /// Waits until a frame has arrived.
    pub fn wait_for_frame(&self, limit: Duration) {
        let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        self.wait(PollFlags::POLLIN, millis);
    }

    fn wait(&self, what: PollFlags, millis: u16) {
        let mut fds = [PollFd::new(self.fd.as_fd(), what)];
        // Interrupted or not, the caller tries again.
        let _ = poll(&mut fds, PollTimeout::from(millis));
    }
}

fn set(
    fd: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value lives through the call and is as long as said.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

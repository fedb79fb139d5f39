//! Raw frames on a link.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// Room for what arrives while nobody reads: 100,000 small frames and more.
const BUFFER: libc::c_int = 128 << 20;

/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// Room for what the kernel says beside a frame.
const BESIDE: usize = 128;

/// An `AF_PACKET` socket on one link: sends frames as they are, and takes in all that arrive.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    tags: bool,
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
            tags: false,
        })
    }

    /// From now on frames that arrive have their outer VLAN tag again, which the kernel takes out of them before anybody
    /// sees them.
    pub fn see_tags(&mut self) -> io::Result<()> {
        set(&self.fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        self.tags = true;
        Ok(())
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
        let room = &mut self.buffer[TAG..];
        let mut frame = libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: room.len(),
        };
        // Aligned as what is put there.
        let mut beside = [0_u64; BESIDE / 8];
        // SAFETY: all-zero is a valid value of this structure of integers and pointers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut frame;
        message.msg_iovlen = 1;
        if self.tags {
            message.msg_control = beside.as_mut_ptr().cast();
            message.msg_controllen = BESIDE as _;
        }
        // SAFETY: what the message points to lives through the call and is as long as said.
        let got = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        if got >= 0 {
            let len = (got as usize).min(self.buffer.len() - TAG);
            // SAFETY: the message is as the kernel has filled it in, and `beside` is there.
            let Some(tag) = (unsafe { tag(&message) }) else {
                return Ok(Some(&self.buffer[TAG..TAG + len]));
            };
            // As it came: between the addresses and the EtherType.
            self.buffer.copy_within(TAG..TAG + 12, 0);
            self.buffer[12..12 + TAG].copy_from_slice(&tag);
            return Ok(Some(&self.buffer[..TAG + len]));
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

/// The VLAN tag that the kernel has taken out of a frame, as it stood there.
///
/// # Safety
/// `message` is one that `recvmsg` has filled in, and where it put what is beside the frame can be read.
unsafe fn tag(message: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: the caller's promise; null where nothing came.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: headers that these macros give lie within the message.
        let header = unsafe { &*next };
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            // SAFETY: the kernel puts this structure behind such a header.
            let said = unsafe {
                libc::CMSG_DATA(next)
                    .cast::<libc::tpacket_auxdata>()
                    .read_unaligned()
            };
            let (there, which) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
            let kind = match said.tp_status & which {
                0 => 0x8100,
                _ => said.tp_vlan_tpid,
            };
            let [a, b] = kind.to_be_bytes();
            let [c, d] = said.tp_vlan_tci.to_be_bytes();
            return (said.tp_status & there != 0).then_some([a, b, c, d]);
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
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

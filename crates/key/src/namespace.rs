//! A network namespace of one's own, without privilege: a user namespace comes with it.

use std::fs;
use std::io;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};
use raddle_netlink::Socket;

/// Why there is no namespace to ask in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The system does not let ordinary users have one.
    #[error(
        "no user namespace can be made, which finding the hash key without privilege needs: {0}"
    )]
    Forbidden(Forbidden),
    /// The system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The kernel refused a route or a question in it.
    #[error("cannot ask the kernel in a namespace of one's own: {0}")]
    Netlink(#[from] raddle_netlink::Error),
}

/// What keeps ordinary users from having user namespaces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Forbidden {
    /// Debian's switch.
    #[error("kernel.unprivileged_userns_clone is 0; root can set it to 1")]
    Clone,
    /// There may be none.
    #[error("user.max_user_namespaces is {0}, and so many there are; root can raise it")]
    Number(u64),
    /// Ubuntu's switch.
    #[error(
        "AppArmor keeps its privileges from it (kernel.apparmor_restrict_unprivileged_userns is 1); root can set that to 0, or \
         give raddle a profile with 'userns,'"
    )]
    AppArmor,
    /// A kernel without them.
    #[error("this kernel has none (CONFIG_USER_NS)")]
    Kernel,
    /// Something else: seccomp in a container, say.
    #[error("{0}; in a container its runtime may forbid them (seccomp)")]
    Other(String),
}

/// What the settings that are about it say, and the system's answer.
///
/// 1. `kernel.unprivileged_userns_clone` of 0 forbids them.
/// 2. `ENOSPC` and `EUSERS` say that there are as many as `user.max_user_namespaces` allows.
/// 3. `EPERM` and `EACCES` where AppArmor restricts them are AppArmor's.
/// 4. `EINVAL` and `ENOSYS` are those of a kernel without.
fn why(errno: i32, setting: impl Fn(&str) -> Option<u64>) -> Forbidden {
    match errno {
        _ if setting("kernel/unprivileged_userns_clone") == Some(0) => Forbidden::Clone,
        libc::ENOSPC | libc::EUSERS => {
            Forbidden::Number(setting("user/max_user_namespaces").unwrap_or(0))
        }
        libc::EPERM | libc::EACCES
            if setting("kernel/apparmor_restrict_unprivileged_userns") == Some(1) =>
        {
            Forbidden::AppArmor
        }
        libc::EINVAL | libc::ENOSYS => Forbidden::Kernel,
        _ => Forbidden::Other(io::Error::from_raw_os_error(errno).to_string()),
    }
}

/// A setting below `/proc/sys` that is a number.
fn setting(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

/// The same as an error of this errno.
pub(crate) fn forbidden(errno: i32) -> NamespaceError {
    NamespaceError::Forbidden(why(errno, setting))
}

/// A netlink socket in a new network namespace, which lives as long as the socket does.
///
/// A process with several threads may make no user namespace for itself, so a child makes both, opens the socket there, hands
/// it over and ends. The caller, which owns the child's user namespace, may do everything in it.
pub(crate) fn socket() -> Result<Socket, NamespaceError> {
    let system = |what| {
        move |e: nix::Error| NamespaceError::System {
            what,
            source: e.into(),
        }
    };
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(system("make a pair of sockets"))?;
    // SAFETY: the child makes system calls only, and ends: it takes no lock and allocates nothing.
    let child = unsafe { libc::fork() };
    match child {
        ..0 => {
            let source = io::Error::last_os_error();
            let what = "start a process";
            return Err(NamespaceError::System { what, source });
        }
        0 => {
            let errno = in_child(theirs.as_raw_fd());
            // SAFETY: ends the child at once, without anything of the parent's being run.
            unsafe { libc::_exit(errno) };
        }
        _ => {}
    }
    drop(theirs);
    let fd = receive(&ours);
    let mut status = 0;
    // SAFETY: `child` is our child, which nobody else waits for; `status` lives through the call.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            let what = "wait for a process";
            return Err(NamespaceError::System { what, source });
        }
    }
    match fd.map_err(system("receive a socket"))? {
        Some(fd) => Ok(Socket::from_descriptor(fd)?),
        None if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0 => {
            Err(forbidden(libc::WEXITSTATUS(status)))
        }
        None => Err(NamespaceError::System {
            what: "make a namespace",
            source: io::Error::other("the process that was to make it was killed"),
        }),
    }
}

/// Makes the namespaces and sends a socket of them over `channel`; the errno of what failed, or 0.
fn in_child(channel: RawFd) -> i32 {
    let errno = || {
        io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO)
    };
    // SAFETY: no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) } < 0 {
        return errno();
    }
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return errno();
    }
    let mut byte = [0u8];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    const LEN: u32 = size_of::<RawFd>() as u32;
    // Aligned for a header, and with room for one and a descriptor.
    let mut control = [0u64; 8];
    // SAFETY: msghdr is plain numbers and pointers, for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(LEN) } as _;
    // SAFETY: the message has a control buffer with room for a header and a descriptor behind it, and all of it lives
    // through the call.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(LEN) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(channel, &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { errno() } else { 0 }
}

/// The descriptor that comes; none where the other end is closed.
fn receive(channel: &OwnedFd) -> nix::Result<Option<OwnedFd>> {
    let mut byte = [0u8];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut control = nix::cmsg_space!(RawFd);
    let message = loop {
        match recvmsg::<()>(
            channel.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Err(nix::Error::EINTR) => {}
            other => break other?,
        }
    };
    let mut fds = message.cmsgs()?.filter_map(|control| match control {
        ControlMessageOwned::ScmRights(fds) => fds.into_iter().next(),
        _ => None,
    });
    // SAFETY: the kernel has just made this descriptor for us; nothing else owns it.
    Ok(fds.next().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_forbids_it_is_named() {
        let none = |_: &str| None;
        let debian = |name: &str| (name == "kernel/unprivileged_userns_clone").then_some(0);
        let ubuntu =
            |name: &str| (name == "kernel/apparmor_restrict_unprivileged_userns").then_some(1);
        let zero = |name: &str| (name == "user/max_user_namespaces").then_some(0);
        assert_eq!(why(libc::EPERM, debian), Forbidden::Clone);
        assert_eq!(why(libc::EPERM, ubuntu), Forbidden::AppArmor);
        assert_eq!(why(libc::ENOSPC, zero), Forbidden::Number(0));
        assert_eq!(why(libc::EINVAL, none), Forbidden::Kernel);
        assert!(matches!(why(libc::EPERM, none), Forbidden::Other(_)));
    }
}

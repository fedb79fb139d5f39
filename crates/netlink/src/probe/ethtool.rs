//! A link's offloads, by `SIOCETHTOOL`.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::Error;

const GET_FLAGS: u32 = 0x25;
const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;
const FLAG_RX_HASH: u32 = 1 << 28;

/// An offload that can be read and set by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Generic receive offload (`gro`).
    Gro,
    /// Checksums are left to the device on sending (`tx`).
    TxChecksum,
}

impl Offload {
    /// What `ethtool -K` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Offload::Gro => "gro",
            Offload::TxChecksum => "tx",
        }
    }

    /// `ETHTOOL_GGRO`, `ETHTOOL_GTXCSUM`; the command that sets it is the next number.
    fn get(self) -> u32 {
        match self {
            Offload::Gro => 0x2b,
            Offload::TxChecksum => 0x16,
        }
    }
}

/// Offloads of receiving that matter to XDP and to the kernel's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The NIC takes VLAN tags out of frames.
    pub rx_vlan: bool,
    /// Large receive offload.
    pub lro: bool,
    /// The NIC's hash goes with the packet.
    pub rx_hash: bool,
}

/// The receive offloads of a link of this thread's namespace; all off for a driver that has none.
///
/// # Errors
/// [`Error::Io`] when the link is not there.
pub fn flags(link: &str) -> Result<Flags, Error> {
    let flags = value(link, GET_FLAGS, 0, "read the offloads of a link")?.unwrap_or(0);
    Ok(Flags {
        rx_vlan: flags & FLAG_RX_VLAN != 0,
        lro: flags & FLAG_LRO != 0,
        rx_hash: flags & FLAG_RX_HASH != 0,
    })
}

/// Whether an offload is on.
///
/// # Errors
/// [`Error::Io`] when the link is not there.
pub fn is_on(link: &str, offload: Offload) -> Result<bool, Error> {
    let value = value(link, offload.get(), 0, "read an offload of a link")?;
    Ok(value.is_some_and(|v| v != 0))
}

/// Turns an offload on or off, and makes sure that it is.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN` over the namespace; [`Error::Io`] when the driver
/// does not let go of it.
pub fn set(link: &str, offload: Offload, on: bool) -> Result<(), Error> {
    let what = "change an offload of a link";
    value(link, offload.get() + 1, u32::from(on), what)?;
    if is_on(link, offload)? != on {
        // The kernel accepts what it then cannot do.
        return Err(Error::io(
            what,
            std::io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        ));
    }
    Ok(())
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// None when the driver knows nothing of it.
fn value(link: &str, command: u32, data: u32, what: &'static str) -> Result<Option<u32>, Error> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|e| Error::io(what, e.into()))?;
    let mut value = Value { command, data };
    // SAFETY: ifreq is plain numbers and pointers, for which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if link.len() >= request.ifr_name.len() {
        return Err(Error::io(
            what,
            std::io::Error::from_raw_os_error(libc::ENODEV),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(link.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the kernel reads `request` and reads and writes the `Value` that it points to; both
    // live through the call. All commands used here take an ethtool_value.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Ok(None),
            _ => Err(Error::io(what, error)),
        };
    }
    Ok(Some(value.data))
}

//! A link's offloads, and how its NIC hashes, by `SIOCETHTOOL`.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use raddle_packet::protocol;
use raddle_select::{Family, Rss, RssFields};

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
    let mut value = Value { command, data };
    // SAFETY: all commands used here take an ethtool_value.
    let known = unsafe { ask(link, (&raw mut value).cast(), what) }?;
    Ok(known.then_some(value.data))
}

/// Asks the driver of a link; false when it knows nothing of it.
///
/// # Safety
/// `question` points to what its command, which comes first, has the kernel read and write.
unsafe fn ask(link: &str, question: *mut libc::c_char, what: &'static str) -> Result<bool, Error> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|e| Error::io(what, e.into()))?;
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
    request.ifr_ifru.ifru_data = question;
    // SAFETY: the kernel reads `request` and reads and writes what it points to, as the caller grants; both live through
    // the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Ok(false),
            _ => Err(Error::io(what, error)),
        };
    }
    Ok(true)
}

const GET_RSS: u32 = 0x46;
const GET_RX_FIELDS: u32 = 0x29;

/// `struct ethtool_rxfh`, with room for an indirection table and a key.
#[repr(C)]
struct RxFlowHash {
    command: u32,
    context: u32,
    table: u32,
    key: u32,
    function: u8,
    transform: u8,
    reserved: [u8; 6],
    config: [u32; RSS_ROOM],
}

/// Words: more than any driver has (tables of 4096 entries, keys of some 100 bytes).
const RSS_ROOM: usize = 1 << 14;

/// `struct ethtool_rxnfc` as far as the fields of a flow's hash go, and the room that the kernel takes for all of it.
#[repr(C)]
struct RxFields {
    command: u32,
    flow: u32,
    mask: u64,
    rest: [u64; 32],
}

/// `TCP_V4_FLOW` and its like, with the family and the protocol that they are of.
const RX_FLOWS: [(u32, Family, u8); 6] = [
    (1, Family::V4, protocol::TCP),
    (2, Family::V4, protocol::UDP),
    (3, Family::V4, protocol::SCTP),
    (5, Family::V6, protocol::TCP),
    (6, Family::V6, protocol::UDP),
    (7, Family::V6, protocol::SCTP),
];

/// How the NIC of a link hashes what it receives; none for a driver that does not tell.
///
/// # Errors
/// [`Error::Io`] when the link is not there.
pub fn rss(link: &str) -> Result<Option<Rss>, Error> {
    let what = "read how a NIC hashes";
    let mut hash = Box::new(RxFlowHash {
        command: GET_RSS,
        context: 0,
        table: 0,
        key: 0,
        function: 0,
        transform: 0,
        reserved: [0; 6],
        config: [0; RSS_ROOM],
    });
    // Without room for table and key, their sizes.
    // SAFETY: an ethtool_rxfh, of whose config nothing is written.
    if !unsafe { ask(link, (&raw mut *hash).cast(), what) }? {
        return Ok(None);
    }
    let (table, key) = (hash.table as usize, hash.key as usize);
    if key == 0 || table + key.div_ceil(4) > RSS_ROOM {
        return Ok(None);
    }
    // SAFETY: an ethtool_rxfh, with room for as many entries and bytes as it says.
    if !unsafe { ask(link, (&raw mut *hash).cast(), what) }? {
        return Ok(None);
    }
    let behind = hash.config.iter().skip(table);
    let key = behind.flat_map(|word| word.to_ne_bytes()).take(key);
    let mut fields = Vec::new();
    for (flow, family, proto) in RX_FLOWS {
        let mut asked = RxFields {
            command: GET_RX_FIELDS,
            flow,
            mask: 0,
            rest: [0; 32],
        };
        // Of a kind of flow that it does not know, a driver says EINVAL.
        // SAFETY: an ethtool_rxnfc, and more room than it has.
        if let Ok(true) = unsafe { ask(link, (&raw mut asked).cast(), what) } {
            fields.push(RssFields {
                family,
                proto,
                mask: asked.mask,
            });
        }
    }
    Ok(Some(Rss {
        key: key.collect(),
        function: hash.function,
        transform: hash.transform,
        fields,
    }))
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offload {
    /// Generic receive offload (`gro`).
    Gro,
    /// Checksums are left to the device on sending (`tx`).
    TxChecksum,
    /// The device takes 802.1Q tags out of frames that it receives.
    RxVlan,
    /// The same of 802.1ad tags.
    RxServiceVlan,
    /// 802.1Q tags are left to the device on sending, so that they are not in the frame.
    TxVlan,
    /// The same of 802.1ad tags.
    TxServiceVlan,
}

/// How an offload is asked for.
#[derive(Clone, Copy)]
enum How {
    /// By a command of its own; the one that sets it is the next number.
    Command(u32),
    /// As a feature, by the kernel's name for it.
    Feature(&'static str),
}

impl Offload {
    /// What `ethtool -K` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Offload::Gro => "gro",
            Offload::TxChecksum => "tx",
            Offload::RxVlan => "rxvlan",
            Offload::TxVlan => "txvlan",
            Offload::RxServiceVlan => "rx-vlan-stag-hw-parse",
            Offload::TxServiceVlan => "tx-vlan-stag-hw-insert",
        }
    }

    /// `ETHTOOL_GGRO`, `ETHTOOL_GTXCSUM`, and names of `netdev_features_strings`.
    fn how(self) -> How {
        match self {
            Offload::Gro => How::Command(0x2b),
            Offload::TxChecksum => How::Command(0x16),
            Offload::RxVlan => How::Feature("rx-vlan-hw-parse"),
            Offload::RxServiceVlan => How::Feature("rx-vlan-stag-hw-parse"),
            Offload::TxVlan => How::Feature("tx-vlan-hw-insert"),
            Offload::TxServiceVlan => How::Feature("tx-vlan-stag-hw-insert"),
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
    let what = "read an offload of a link";
    match offload.how() {
        How::Command(command) => Ok(value(link, command, 0, what)?.is_some_and(|v| v != 0)),
        How::Feature(name) => feature(link, name, what),
    }
}

/// Turns an offload on or off, and makes sure that it is.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN` over the namespace; [`Error::Io`] when the driver
/// does not let go of it.
pub fn set(link: &str, offload: Offload, on: bool) -> Result<(), Error> {
    let what = "change an offload of a link";
    match offload.how() {
        How::Command(command) => _ = value(link, command + 1, u32::from(on), what)?,
        How::Feature(name) => set_feature(link, name, on, what)?,
    }
    if is_on(link, offload)? != on {
        // The kernel accepts what it then cannot do.
        return Err(unsupported(what));
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
    // SAFETY: all commands that this is called with take an ethtool_value.
    let known = unsafe { ask(link, (&raw mut value).cast(), what) }?;
    Ok(known.then_some(value.data))
}

/// Asks the driver of a link; false when it knows nothing of it.
///
/// # Safety
/// `question` points to what its command, which comes first, has the kernel read and write.
unsafe fn ask(link: &str, question: *mut libc::c_char, what: &'static str) -> Result<bool, Error> {
    // SAFETY: as the caller grants.
    unsafe { ask_by(libc::SIOCETHTOOL, link, question, what) }
}

/// The same by another request than `SIOCETHTOOL`.
///
/// # Safety
/// `question` points to what the request has the kernel read and write for this link.
pub(super) unsafe fn ask_by(
    by: libc::c_ulong,
    link: &str,
    question: *mut libc::c_char,
    what: &'static str,
) -> Result<bool, Error> {
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
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), by as _, &raw mut request) };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Ok(false),
            _ => Err(Error::io(what, error)),
        };
    }
    Ok(true)
}

const GET_SET_SIZES: u32 = 0x37;
const GET_STRINGS: u32 = 0x1b;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// `ETH_SS_FEATURES`.
const FEATURE_NAMES: u32 = 4;
/// `ETH_GSTRING_LEN`.
const NAME: usize = 32;
/// Blocks of 32 features: more than any kernel has (two, to Linux 6.18).
const BLOCKS: usize = 8;

/// `struct ethtool_sset_info` for one set of strings.
#[repr(C)]
struct SetSize {
    command: u32,
    reserved: u32,
    mask: u64,
    size: u32,
}

/// `struct ethtool_gstrings` with room for the names of all features.
#[repr(C)]
struct Strings {
    command: u32,
    set: u32,
    count: u32,
    names: [[u8; NAME]; 32 * BLOCKS],
}

/// `struct ethtool_gfeatures`; of a block what is available, requested, active and never changed.
#[repr(C)]
struct Features {
    command: u32,
    blocks: u32,
    block: [[u32; 4]; BLOCKS],
}

/// `struct ethtool_sfeatures`; of a block what is to be set, and to what.
#[repr(C)]
struct SetFeatures {
    command: u32,
    blocks: u32,
    block: [[u32; 2]; BLOCKS],
}

/// The number of a feature among this kernel's; none where it has no such feature. A driver is not asked.
fn feature_number(link: &str, name: &str, what: &'static str) -> Result<Option<usize>, Error> {
    let mut set = SetSize {
        command: GET_SET_SIZES,
        reserved: 0,
        mask: 1 << FEATURE_NAMES,
        size: 0,
    };
    // SAFETY: an ethtool_sset_info with room for the size of the one set that is asked for.
    let known = unsafe { ask(link, (&raw mut set).cast(), what) }?;
    if !known || set.mask == 0 {
        return Ok(None);
    }
    // The kernel writes all names, whatever room there is.
    if set.size as usize > 32 * BLOCKS {
        return Err(unsupported(what));
    }
    let mut strings = Box::new(Strings {
        command: GET_STRINGS,
        set: FEATURE_NAMES,
        count: 0,
        names: [[0; NAME]; 32 * BLOCKS],
    });
    // SAFETY: an ethtool_gstrings with room for as many names as the kernel has just said that there are, which does not change
    // while it runs.
    if !unsafe { ask(link, (&raw mut *strings).cast(), what) }? {
        return Ok(None);
    }
    let is_it = |text: &[u8; NAME]| text.split(|byte| *byte == 0).next() == Some(name.as_bytes());
    let count = strings.count as usize;
    Ok(strings.names.iter().take(count).position(is_it))
}

/// Whether a feature is active; not where kernel or driver know nothing of it.
fn feature(link: &str, name: &str, what: &'static str) -> Result<bool, Error> {
    let Some(number) = feature_number(link, name, what)? else {
        return Ok(false);
    };
    let features = features(link, what)?;
    let is_on = |[_, _, active, _]: &[u32; 4]| active >> (number % 32) & 1 != 0;
    Ok(features.block.get(number / 32).is_some_and(is_on))
}

fn features(link: &str, what: &'static str) -> Result<Box<Features>, Error> {
    let mut features = Box::new(Features {
        command: GET_FEATURES,
        blocks: BLOCKS as u32,
        block: [[0; 4]; BLOCKS],
    });
    // SAFETY: an ethtool_gfeatures with room for as many blocks as it says.
    unsafe { ask(link, (&raw mut *features).cast(), what) }?;
    Ok(features)
}

/// Requests a feature to be on or off. The kernel may accept that and not do it.
fn set_feature(link: &str, name: &str, on: bool, what: &'static str) -> Result<(), Error> {
    let Some(number) = feature_number(link, name, what)? else {
        return Ok(());
    };
    // It takes only as many blocks as it has.
    let blocks = features(link, what)?.blocks;
    let mut wanted = Box::new(SetFeatures {
        command: SET_FEATURES,
        blocks,
        block: [[0; 2]; BLOCKS],
    });
    let bit = 1 << (number % 32);
    match wanted.block.get_mut(number / 32) {
        Some(block) if blocks as usize <= BLOCKS => *block = [bit, if on { bit } else { 0 }],
        _ => return Err(unsupported(what)),
    }
    // SAFETY: an ethtool_sfeatures with as many blocks as it says.
    unsafe { ask(link, (&raw mut *wanted).cast(), what) }?;
    Ok(())
}

fn unsupported(what: &'static str) -> Error {
    Error::io(what, std::io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// `struct ethtool_drvinfo` as far as the driver's name goes, and the room that the kernel takes for all of it.
#[repr(C)]
struct DriverInfo {
    command: u32,
    name: [u8; 32],
    rest: [u32; 40],
}

/// The name of a link's driver (`ethtool -i`): `virtio_net`, `ena`, `veth`; none where it has none.
///
/// # Errors
/// [`Error::Io`] when the link is not there.
pub fn driver(link: &str) -> Result<Option<String>, Error> {
    let mut info = DriverInfo {
        command: GET_DRIVER,
        name: [0; 32],
        rest: [0; 40],
    };
    // SAFETY: an ethtool_drvinfo, which has 196 bytes, 36 of them before what is not read.
    let known = unsafe { ask(link, (&raw mut info).cast(), "read the driver of a link") }?;
    let name = info.name.split(|&byte| byte == 0).next();
    let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
    Ok((known && !name.is_empty()).then_some(name))
}

/// `struct ethtool_channels`: first the most that there can be, then what there is.
#[repr(C)]
struct ChannelInfo {
    command: u32,
    most: [u32; 4],
    now: [u32; 4],
}

/// The channels of a link that send (`ethtool -l`): those that only do that, and those that receive as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// In use.
    pub now: u32,
    /// As many as there can be.
    pub most: u32,
}

/// The channels of a link; none where its driver does not tell.
///
/// # Errors
/// [`Error::Io`] when the link is not there.
pub fn channels(link: &str) -> Result<Option<Channels>, Error> {
    let mut info = ChannelInfo {
        command: GET_CHANNELS,
        most: [0; 4],
        now: [0; 4],
    };
    // SAFETY: an ethtool_channels.
    let known = unsafe { ask(link, (&raw mut info).cast(), "read the channels of a link") }?;
    let sending = |[_, only_send, _, both]: [u32; 4]| only_send.saturating_add(both);
    let (now, most) = (sending(info.now), sending(info.most));
    Ok((known && now != 0).then_some(Channels { now, most }))
}

const GET_CHANNELS: u32 = 0x3c;
const GET_DRIVER: u32 = 3;
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

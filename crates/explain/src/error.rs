//! What is wrong with a question.

use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

/// Why a question cannot be answered as it stands. Each says what is wrong, and what to write instead where that is
/// not plain.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No word at all.
    #[error("name a destination")]
    NoDestination,
    /// `to` is the last word.
    #[error("'to' wants a destination")]
    NoDestinationBehindTo,
    /// A word of a flow that wants a value is the last one.
    #[error("'{0}' wants a value")]
    NoValue(String),
    /// A word that is none of a flow's.
    #[error("'{word}' is not a word of a flow: use {known}")]
    Word {
        /// The word.
        word: String,
        /// Those that there are.
        known: String,
    },
    /// An address was wanted.
    #[error("'{0}' is not an address")]
    Address(String),
    /// A protocol was wanted.
    #[error("'{0}' is not a protocol: tcp, udp, icmp, ... or a number")]
    Protocol(String),
    /// A number was wanted.
    #[error("'{word}' is not a {key}: a number from 0 to {most}")]
    Number {
        /// What it is the number of.
        key: String,
        /// What was written.
        word: String,
        /// The largest one.
        most: u32,
    },
    /// Source and destination do not fit.
    #[error("{src} and {dst} are of different families")]
    Families {
        /// The source.
        src: IpAddr,
        /// The destination.
        dst: IpAddr,
    },
    /// `connected` with another protocol, or with an input link.
    #[error("'connected' is about this machine's own UDP sockets: ipproto udp, and no iif")]
    Connected,
    /// `tos` of a packet of this machine's own.
    #[error("'tos' is about packets that come in: name the link, iif LINK")]
    Tos,
    /// Ports without a protocol that has any.
    #[error("ports want a protocol: add ipproto tcp or ipproto udp")]
    Ports,
    /// A packet without an input link.
    #[error("name the link that the packet comes in on: iif LINK")]
    NoInput,
    /// A packet with more words than its input link.
    #[error("a packet says all but its input link: iif LINK, and nothing else")]
    MoreThanInput,
    /// The reverse of a flow goes to its source, which nobody has named.
    #[error("the reverse goes to the flow's source address: name it (from)")]
    NoSource,
    /// A segment list takes IPv6 addresses.
    #[error("'{0}' is not a segment: --srh takes IPv6 addresses, A,B,C")]
    Segment(String),
    /// More segments than an SRH has room for.
    #[error("an SRH has room for 127 segments, not {0}")]
    Segments(usize),
    /// A packet with an SRH is on its way to the first segment.
    #[error("{dst} is not where the packet is on its way to: name the first segment, {first}")]
    NotFirst {
        /// Where the flow goes.
        dst: IpAddr,
        /// Where it has to go.
        first: Ipv6Addr,
    },
    /// A capture that cannot be read.
    #[error(transparent)]
    Capture(#[from] raddle_io::Error),
    /// A packet of a capture that says that it was longer than a frame can be.
    #[error(
        "{file}: packet {number} says that it had {len} bytes on the wire, more than the {most} of any frame: the \
         capture is broken"
    )]
    TooLong {
        /// The capture.
        file: String,
        /// Which packet, from 1.
        number: u64,
        /// The length that it says.
        len: u32,
        /// The largest that is taken.
        most: u32,
    },
    /// A capture ends before this packet.
    #[error("{file} has {seen} packets, there is no number {number}")]
    NoSuchPacket {
        /// The capture.
        file: String,
        /// The packet that was asked for, from 1.
        number: u64,
        /// How many there are.
        seen: u64,
    },
    /// A packet in hexadecimal digits has something else in it.
    #[error("'{0}' is not a hexadecimal digit")]
    Digit(char),
    /// An odd number of digits, or none.
    #[error("{0} hexadecimal digits are no whole number of bytes")]
    Digits(usize),
    /// Bytes that are neither a frame nor a packet.
    #[error("neither an Ethernet frame ({as_frame}) nor an IP packet ({as_packet})")]
    NotAPacket {
        /// Why no frame.
        as_frame: String,
        /// Why no packet.
        as_packet: Box<Error>,
    },
    /// No IP header.
    #[error(transparent)]
    Header(#[from] raddle_packet::Error),
    /// An IPv4 packet that says that it is shorter than its header.
    #[error("its IP length, {0}, is less than its header's")]
    IpLength(usize),
}

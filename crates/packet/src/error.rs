//! Why bytes are not the header that they were taken for.

use thiserror::Error;

/// A kind of header, named in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum Header {
    Ethernet,
    Vlan,
    Arp,
    Ipv4,
    Ipv6,
    Extension,
    Icmp,
    Udp,
    Tcp,
}

impl core::fmt::Display for Header {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Header::Ethernet => "Ethernet",
            Header::Vlan => "802.1Q",
            Header::Arp => "ARP",
            Header::Ipv4 => "IPv4",
            Header::Ipv6 => "IPv6",
            Header::Extension => "IPv6 extension",
            Header::Icmp => "ICMP",
            Header::Udp => "UDP",
            Header::Tcp => "TCP",
        })
    }
}

/// Why bytes are not the header that they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Fewer bytes than the header takes.
    #[error("{header} header needs {need} bytes, there are {have}")]
    Truncated {
        /// What was being read.
        header: Header,
        /// Bytes that it takes.
        need: usize,
        /// Bytes that there were.
        have: usize,
    },
    /// The version nibble is another one.
    #[error("{header} header has version {found}")]
    Version {
        /// What was being read.
        header: Header,
        /// Version found.
        found: u8,
    },
    /// A header length that is shorter than the fixed part of the header.
    #[error("{header} header says that it is {length} bytes long")]
    HeaderLength {
        /// What was being read.
        header: Header,
        /// Length found, in bytes.
        length: usize,
    },
    /// A length in an IP header that does not fit the bytes that there are.
    #[error("{header} says that the packet is {length} bytes long, there are {have}")]
    TotalLength {
        /// What was being read.
        header: Header,
        /// Length of the whole packet by its header, in bytes.
        length: usize,
        /// Bytes that there were.
        have: usize,
    },
    /// Not the Ethernet/IPv4 form of ARP.
    #[error("ARP is not about IPv4 over Ethernet")]
    NotEthernetIpv4,
}

/// `Ok` where `have` bytes are enough.
#[inline]
pub(crate) fn enough(header: Header, need: usize, have: usize) -> Result<(), Error> {
    if have < need {
        return Err(Error::Truncated { header, need, have });
    }
    Ok(())
}

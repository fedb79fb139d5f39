//! Why ports cannot be planned, checked or counted.

use std::fmt;
use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::Unsound;
use crate::paths::{NoHash, PathError};

/// Why there is no answer. Each says what is wrong and, where that is not plain, what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There are no paths.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Flows to the destination have no hash.
    #[error("cannot plan ports for {dst}: {why}")]
    NotHashed {
        /// The destination.
        dst: IpAddr,
        /// Why not.
        why: NoHash,
    },
    /// Those of a certificate have none.
    #[error("cannot check the certificate: {0}")]
    NotChecked(#[source] NoHash),
    /// Those of connections have none.
    #[error("cannot tell paths apart: {0}")]
    NotTold(#[source] NoHash),
    /// Source and destination do not fit.
    #[error("{from} and {dst} are of different families")]
    Families {
        /// The source.
        from: IpAddr,
        /// The destination.
        dst: IpAddr,
    },
    /// A router behind knows no way.
    #[error("{router} has no route to {dst}: give one that has, or none that is not on the way")]
    NoRouteBehind {
        /// Its name.
        router: String,
        /// The destination.
        dst: IpAddr,
    },
    /// Nobody says where the connections come from, and it cannot be found out.
    #[error("say whose connections: add --from ADDRESS")]
    NoSource,
    /// Nothing is sent from such an address.
    #[error(
        "nothing is sent from {0}, a multicast or broadcast address: name the address of a host"
    )]
    NotASource(IpAddr),
    /// Connections of this machine's own cannot have it.
    #[error(
        "{0} is no address of this machine, so the kernel lets none of its connections have it: name one that is, or, for another \
         host's connections, the link that they come in by (--iif LINK)"
    )]
    NotLocal(IpAddr),
    /// The link of a path has no address.
    #[error("a path has no source address: add --from ADDRESS")]
    NoSourceOfPath,
    /// The kernel says none.
    #[error("the kernel names no source address: add --from ADDRESS")]
    NoSourceOfKernel,
    /// It says several.
    #[error(
        "the source address depends on the path ({}): bind the connections to one, and add --from ADDRESS",
        list(.0)
    )]
    Sources(Vec<IpAddr>),
    /// Connections of this protocol differ by no port.
    #[error("protocol {0} has no source port; plan for one that has, such as tcp or udp")]
    NoPorts(u8),
    /// First and last make no range.
    #[error("--first {first} --last {last} is no range: they go from 0 to {most}")]
    Range {
        /// The first value.
        first: u32,
        /// The last one.
        last: u32,
        /// The largest that there is.
        most: u32,
    },
    /// Flow labels are IPv6's.
    #[error("IPv4 has no flow labels: leave --flow-labels out")]
    NoFlowLabels,
    /// Flow labels make no difference.
    #[error(
        "the hash policy does not look at flow labels: plan ports, or use policy 0 or 3 \
         (net.ipv6.fib_multipath_hash_policy)"
    )]
    LabelsNotHashed,
    /// Ports make none.
    #[error(
        "the hash policy does not look at ports: sysctl -w net.{family}.fib_multipath_hash_policy=1 makes it"
    )]
    PortsNotHashed {
        /// `ipv4` or `ipv6`.
        family: &'static str,
    },
    /// Not enough of the values lead to a path.
    #[error(
        "only {found} of the values that may be used lead {path}, {wanted} are wanted: widen --first and \
         --last"
    )]
    TooFew {
        /// The path.
        path: String,
        /// How many do.
        found: usize,
        /// How many are needed.
        wanted: usize,
    },
    /// The text is no certificate.
    #[error("{name} is not a certificate: {why}; make one with raddle ports plan -j")]
    NotACertificate {
        /// What was read.
        name: String,
        /// Why not.
        why: serde_json::Error,
    },
    /// A certificate cannot be read.
    #[error("cannot read the certificate {name}: {why}")]
    Unread {
        /// Its file.
        name: String,
        /// Why not.
        why: io::Error,
    },
    /// A certificate contradicts itself.
    #[error("{name} is no whole certificate: {why}; make it anew with raddle ports plan")]
    Unsound {
        /// What was read.
        name: String,
        /// What is wrong in it.
        why: Unsound,
    },
    /// The certificate is of another version.
    #[error(
        "{name} has the format '{format}', not '{}': make it anew with this version",
        super::Certificate::FORMAT
    )]
    Format {
        /// What was read.
        name: String,
        /// The format that it has.
        format: String,
    },
    /// Source and destination of a certificate do not fit.
    #[error("the certificate mixes the families")]
    CertificateFamilies,
    /// A setting of the kernel cannot be read.
    #[error("cannot read {path}: {why}")]
    Setting {
        /// Its file.
        path: String,
        /// Why not.
        why: io::Error,
    },
    /// A setting of the kernel is not what it should be.
    #[error("net.ipv4.{0} makes no sense")]
    SettingText(&'static str),
    /// The kernel does not answer.
    #[error(transparent)]
    Kernel(#[from] raddle_netlink::Error),
}

impl Error {
    /// Whether the system is the cause, not the question.
    pub fn is_system(&self) -> bool {
        matches!(
            self,
            Error::Setting { .. } | Error::SettingText(_) | Error::Kernel(_)
        )
    }
}

fn list(items: &[impl fmt::Display]) -> String {
    let words: Vec<String> = items.iter().map(ToString::to_string).collect();
    words.join(", ")
}

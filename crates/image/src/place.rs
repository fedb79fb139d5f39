//! What the programs that place connections share with who loads them.

use std::mem::size_of;

use crate::numbers::numbers;

/// What has become of a connection when its program asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Placed {
    /// It has a port by which it takes the path that was to have it.
    Placed = 0,
    /// Its socket has a port already.
    Bound = 1,
    /// Its socket is bound to a link.
    Device = 2,
    /// There is one path, or none: nothing to choose.
    OnePath = 3,
    /// The hash policy does not look at source ports.
    Policy = 4,
    /// The kernel's hash key is not known.
    Key = 5,
    /// Routing rules ask for more than a connection shows.
    Rules = 6,
    /// Its route is spread otherwise than by hash-threshold, or over too many paths.
    Group = 7,
    /// What source address it will get, and by that which path, is not known.
    Source = 8,
    /// No port that leads to that path was found free in as many attempts as are made.
    NoPort = 9,
    /// The kernel's routes are not read yet.
    NotReady = 10,
    /// Its protocol is neither TCP nor UDP.
    Protocol = 11,
}

impl Placed {
    /// All of them, in the order of their numbers.
    pub const ALL: [Placed; 12] = [
        Placed::Placed,
        Placed::Bound,
        Placed::Device,
        Placed::OnePath,
        Placed::Policy,
        Placed::Key,
        Placed::Rules,
        Placed::Group,
        Placed::Source,
        Placed::NoPort,
        Placed::NotReady,
        Placed::Protocol,
    ];

    /// Its name, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Placed::Placed => "placed",
            Placed::Bound => "bound",
            Placed::Device => "bound-to-link",
            Placed::OnePath => "one-path",
            Placed::Policy => "hash-policy",
            Placed::Key => "key-unknown",
            Placed::Rules => "rules",
            Placed::Group => "group",
            Placed::Source => "source-unknown",
            Placed::NoPort => "no-port",
            Placed::NotReady => "not-ready",
            Placed::Protocol => "protocol",
        }
    }

    /// What it means, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Placed::Placed => "on the path with the fewest connections",
            Placed::Bound => "the program has bound a port of its own",
            Placed::Device => "the program has bound the socket to a link",
            Placed::OnePath => "there is one path, or none",
            Placed::Policy => "the hash policy does not look at ports",
            Placed::Key => "the kernel's hash key is not known",
            Placed::Rules => "routing rules ask for more than is known of a connection",
            Placed::Group => {
                "the route is not spread by hash-threshold, or over more than 256 paths"
            }
            Placed::Source => "the source address that decides is not known",
            Placed::NoPort => "no free port was found that leads to the path",
            Placed::NotReady => "the kernel's routes were not read yet",
            Placed::Protocol => "neither TCP nor UDP",
        }
    }
}

numbers! {
    /// Sizes that the programs and who loads them share.
    pub mod placing: u32, "PLACE" {
        /// Counters of [`super::Placed`].
        OUTCOMES = 12,
        /// Cells in which live connections are counted, each for a destination and an adjacency, by a hash of both. Where two meet in one
        /// cell, their connections lie a little less evenly.
        LOADS = 1 << 16,
        /// Paths of a group at most.
        PATHS = 256,
        /// Ports that are tried at most.
        TRIES = 512,
        /// Ports of these that are not free, likewise.
        REFUSED = 16,
    }
}

/// What holds for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Placing {
    /// The cookie of the network namespace whose sockets are placed; 0 before there is one.
    pub netns: u64,
    /// The first port that may be taken, and how many there are from there on (`net.ipv4.ip_local_port_range`).
    pub low: u32,
    /// See `low`; 0 for none.
    pub span: u32,
    /// A bit for each port that may be taken: those without `net.ipv4.ip_local_reserved_ports`.
    pub allowed: [u64; 1024],
}

impl Placing {
    /// Bytes of one.
    pub const SIZE: usize = size_of::<Placing>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_in_the_order_of_their_numbers() {
        for (number, outcome) in (0..).zip(Placed::ALL) {
            assert_eq!(outcome as u8, number);
        }
        assert_eq!(placing::OUTCOMES as usize, Placed::ALL.len());
    }
}

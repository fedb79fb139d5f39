//! What an image has no room left for.

use std::fmt;

/// What there is not enough of: the packets concerned are punted as
/// [`Reason::ImageFull`](crate::Reason::ImageFull).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lack {
    /// Memory of the IPv4 tables.
    Routes4,
    /// Memory of the IPv6 tables.
    Routes6,
    /// Segments, or room for their headers.
    Sids,
    /// Groups.
    Groups,
    /// Members of groups.
    Members,
    /// Adjacencies.
    Adjacencies,
    /// Places in which cores count turns: their number is fixed.
    Turns,
}

impl Lack {
    /// The key of the configuration that makes more room; none where none does.
    pub fn key(self) -> Option<&'static str> {
        Some(match self {
            Lack::Routes4 => "routes4",
            Lack::Routes6 => "routes6",
            Lack::Sids => "sids",
            Lack::Groups => "groups",
            Lack::Members => "members",
            Lack::Adjacencies => "adjacencies",
            Lack::Turns => return None,
        })
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            Some(key) => write!(f, "raise {key} in the configuration and restart"),
            None => write!(
                f,
                "{} groups at most are spread per packet or by flowlets",
                crate::ROUND_ROBIN_SLOTS
            ),
        }
    }
}

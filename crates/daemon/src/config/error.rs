//! What no single value of a configuration shows to be wrong.

use ipnet::IpNet;

use super::fpm::FpmInvalid;
use super::room::Room;
use crate::statics::Which;

/// What is wrong, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// Metrics that others could read.
    #[error("{0}")]
    Metrics(#[from] raddle_metrics::Error),
    /// A deadline out of bounds.
    #[error("deadline is at least 1 second and at most 3600")]
    Deadline,
    /// Room for too few, or too many.
    #[error(
        "{} is at least {least} and at most {most}; leave it out for the default", .room.name()
    )]
    Room {
        /// For what.
        room: Room,
        /// What it has to be at least.
        least: usize,
        /// And at most.
        most: usize,
    },
    /// FPM.
    #[error("{0}")]
    Fpm(#[from] FpmInvalid),
    /// Two that say what becomes of the same packets.
    #[error("{prefix} in table {table} is there twice; keep one")]
    Twice {
        /// The second of them.
        which: Which,
        /// What both are for.
        prefix: IpNet,
        /// The table that both are in.
        table: String,
    },
}

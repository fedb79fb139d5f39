//! Why what a change would move cannot be said.

use std::net::IpAddr;

use raddle_image::Reason;
use thiserror::Error;

use super::words::{CHANGES, Change, Selector};
use crate::paths::{NoHash, PathError};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// There are no paths.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A change cannot be made.
    #[error("cannot evaluate '{change}': {why}")]
    Change {
        /// The change, in words.
        change: String,
        /// Why not.
        why: ChangeError,
    },
    /// Flows to the destination have no hash, before or after.
    #[error("cannot say what moves to {dst}: {why}")]
    NotHashed {
        /// The destination.
        dst: IpAddr,
        /// Why not.
        why: NoHash,
    },
    /// The given flows have none.
    #[error("cannot say which flows move: {0}")]
    FlowsNotHashed(#[source] NoHash),
}

impl Error {
    pub(super) fn change(change: &Change, why: ChangeError) -> Error {
        let change = change.to_string();
        Error::Change { change, why }
    }
}

/// Why a change cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// A link that is not there.
    #[error("there is no link '{0}'")]
    NoLink(String),
    /// A nexthop object that is not there.
    #[error("there is no nexthop object {0}")]
    NoObject(u32),
    /// More than a route's nexthop can have.
    #[error("weight {0} is above 256, the most in a route")]
    Weight(u16),
    /// A member for what is no group.
    #[error("the route refers to a single nexthop object: only a group can be added to")]
    AddToObject,
    /// A weight for what is no group.
    #[error("the route refers to a single nexthop object: it has no weight")]
    WeightOfObject,
    /// Earlier changes have left no route.
    #[error("{dst} has no path left to change: {}", reason.name())]
    NoPath {
        /// The destination.
        dst: IpAddr,
        /// What becomes of its packets.
        reason: Reason,
    },
    /// The route leads nowhere.
    #[error("the route has no nexthops")]
    NoNexthops,
    /// A nexthop object of a route that has none.
    #[error("the route has nexthops of its own")]
    NoObjects,
    /// A nexthop of such a route by an object's id.
    #[error("the route has nexthops of its own, no object {0}: use via or dev")]
    NotByObject(u32),
    /// Nothing fits.
    #[error("the route to {dst} has no nexthop '{which}'")]
    NoNexthop {
        /// The destination.
        dst: IpAddr,
        /// The one that was meant.
        which: Selector,
    },
    /// More than one fits.
    #[error("{count} nexthops are '{which}': say id, via and dev")]
    Several {
        /// How many.
        count: usize,
        /// What was meant.
        which: Selector,
    },
    /// A nexthop that is to be made needs a link.
    #[error("a new nexthop wants 'dev LINK'")]
    NoLinkNamed,
    /// All numbers are taken.
    #[error("there is no id left for a nexthop object")]
    NoId,
}

/// What is wrong with the words of a question.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WordsError {
    /// No word at all.
    #[error("name a destination")]
    NoDestination,
    /// `to` is the last word.
    #[error("'to' wants a destination")]
    NoDestinationBehindTo,
    /// An address was wanted.
    #[error("'{0}' is not an address")]
    Address(String),
    /// A source that is not of the destination's family.
    #[error("'{0}' is of another family than the destination")]
    Family(String),
    /// A protocol was wanted.
    #[error("'{0}' is not a protocol: a name such as tcp, or a number")]
    Protocol(String),
    /// Nothing is to change.
    #[error("name a change: {CHANGES}")]
    NoChange,
    /// No such change.
    #[error("'{0}' is not a change: {CHANGES}")]
    Change(String),
    /// A word that wants a value is the last one.
    #[error("'{0}' wants a value")]
    NoValue(String),
    /// A word that wants a nexthop has none behind it.
    #[error("'{0}' wants a nexthop: id N, via ADDRESS, dev LINK")]
    NoNexthop(String),
    /// A number was wanted.
    #[error("'{word}' is not a {key}: a number from {least} to {most}")]
    Number {
        /// What it is the number of.
        key: String,
        /// What was written.
        word: String,
        /// The least.
        least: u32,
        /// The largest.
        most: u32,
    },
}

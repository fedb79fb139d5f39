//! What a change would move, as programs read it.

use std::net::{IpAddr, Ipv4Addr};

use serde::Serialize;

use crate::bonds::BondUse;
use crate::paths::Named;

/// The whole answer. Shares are 0..=1.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Destination.
    pub dst: IpAddr,
    /// Input link.
    pub iif: Option<String>,
    /// The changes, as words.
    pub changes: Vec<String>,
    /// The route that is taken now.
    pub route: String,
    /// The route that is taken then.
    pub route_after: String,
    /// The share of the hash space that moves; where the hash itself changes, the share of flows that is
    /// expected to.
    pub moved: f64,
    /// Its number of the 2^31 hashes, exactly; none where the hash itself changes, and where members of bonds are told apart.
    pub moved_hashes: Option<u64>,
    /// The least that could move with these shares before and after.
    pub least: f64,
    /// Of a resilient group: the share that has moved when no bucket is left to migrate; `moved` is what
    /// moves at once, though all buckets are in use.
    pub in_the_end: Option<f64>,
    /// Members of bonds are told apart: shares are an equal part of their nexthop's for each.
    pub by_member: bool,
    /// The bonds of all nexthops, as they are now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bonds: Vec<BondUse>,
    /// As they are then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bonds_after: Vec<BondUse>,
    /// The group has an unbalanced timer: buckets in use migrate in the end, too.
    pub forced: bool,
    /// Every path's share.
    pub paths: Vec<PathShare>,
    /// From where to where.
    pub moves: Vec<Move>,
    /// A better order of members.
    pub order: Option<Order>,
    /// The given flows.
    pub flows: Option<Flows>,
    /// The share that may move.
    pub budget: Option<f64>,
    /// Whether no more does.
    pub within_budget: Option<bool>,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            dst: Ipv4Addr::UNSPECIFIED.into(),
            iif: None,
            changes: Vec::new(),
            route: String::new(),
            route_after: String::new(),
            moved: 0.0,
            moved_hashes: None,
            least: 0.0,
            in_the_end: None,
            by_member: false,
            bonds: Vec::new(),
            bonds_after: Vec::new(),
            forced: false,
            paths: Vec::new(),
            moves: Vec::new(),
            order: None,
            flows: None,
            budget: None,
            within_budget: None,
        }
    }
}

impl Report {
    /// What a budget is held against: the share of the hash space, or that of the given flows if it is
    /// more. Of a resilient group, what migrates later counts only where buckets in use migrate.
    pub(super) fn most(&self) -> f64 {
        let flows = self.flows.as_ref().map_or(0.0, Flows::share);
        let later = self.in_the_end.filter(|_| self.forced).unwrap_or(0.0);
        self.moved.max(flows).max(later)
    }
}

/// A path's share of the hash space.
#[derive(Clone, Debug, Serialize)]
pub struct PathShare {
    /// The path.
    #[serde(flatten)]
    pub path: Named,
    /// Now.
    pub before: f64,
    /// Then.
    pub after: f64,
    /// Now, of 2^31 hashes.
    pub before_hashes: u64,
    /// Then, of 2^31 hashes.
    pub after_hashes: u64,
}

/// A share that goes from one path to another; without one, from or to nowhere that raddle knows.
#[derive(Clone, Debug, Serialize)]
pub struct Move {
    /// Now.
    pub from: Option<Named>,
    /// Then.
    pub to: Option<Named>,
    /// How much of the hash space.
    pub share: f64,
}

impl Move {
    /// A share that goes from here to there.
    pub(super) fn new(from: Option<Named>, to: Option<Named>, share: f64) -> Move {
        Move { from, to, share }
    }
}

/// An order of members in which the change moves less.
#[derive(Clone, Debug, Serialize)]
pub struct Order {
    /// The members.
    pub members: Vec<Named>,
    /// What would move.
    pub moved: f64,
    /// Whether all orders were tried.
    pub proven: bool,
}

/// What the change does to the given flows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Flows {
    /// Flows that were given.
    pub given: usize,
    /// Those that use the route.
    pub on_route: usize,
    /// Those of them that move.
    pub moved: usize,
    /// Load of those that use the route: bytes of a capture, else their number.
    pub load: u64,
    /// Load of those that move.
    pub moved_load: u64,
    /// Each flow that moves.
    pub list: Vec<MovedFlow>,
}

impl Flows {
    /// The share of flows on the route that moves.
    pub(super) fn share(&self) -> f64 {
        match self.on_route {
            0 => 0.0,
            count => self.moved as f64 / count as f64,
        }
    }
}

/// A flow that moves.
#[derive(Clone, Debug, Serialize)]
pub struct MovedFlow {
    /// The flow, in words.
    pub flow: String,
    /// Its path now.
    pub from: Option<Named>,
    /// Its path then.
    pub to: Option<Named>,
}

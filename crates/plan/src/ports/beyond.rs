//! Routers behind this one, whose seed was found: where a connection goes from there.

use std::net::IpAddr;

use raddle_key_search::Router;
use raddle_select::Flow;
use raddle_text::outside::{line, link_name};
use serde::{Deserialize, Serialize};

use super::Error;

/// A router behind, by the name of its file.
pub struct Behind<'a> {
    /// What the plan calls it.
    pub name: &'a str,
    /// What is known of it.
    pub router: &'a Router,
}

/// A router behind and the connections on its links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRouter {
    /// Its name.
    #[serde(deserialize_with = "line")]
    pub router: String,
    /// Its links to the destination, in its own order.
    pub links: Vec<PlannedLink>,
}

/// One of its links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedLink {
    /// Its name there.
    #[serde(deserialize_with = "link_name")]
    pub link: String,
    /// Its weight.
    pub weight: u32,
    /// Connections of the plan that take it.
    pub connections: usize,
}

/// The routers behind, as they see the connections to a destination.
pub(super) struct Beyond<'a> {
    behind: &'a [Behind<'a>],
    pub(super) routers: Vec<PlannedRouter>,
}

impl<'a> Beyond<'a> {
    /// # Errors
    /// [`Error::NoRouteBehind`].
    pub(super) fn new(behind: &'a [Behind<'a>], dst: IpAddr) -> Result<Beyond<'a>, Error> {
        let planned = |behind: &Behind<'_>| {
            let no_route = || Error::NoRouteBehind {
                router: behind.name.to_owned(),
                dst,
            };
            let route = behind.router.route_to(dst).ok_or_else(no_route)?;
            let mut links: Vec<PlannedLink> = Vec::new();
            for (link, weight) in &route.paths {
                // Two paths may lead over one link.
                match links.iter_mut().find(|one| one.link == *link) {
                    Some(one) => one.weight += u32::from(*weight),
                    None => links.push(PlannedLink {
                        link: link.clone(),
                        weight: u32::from(*weight),
                        connections: 0,
                    }),
                }
            }
            Ok(PlannedRouter {
                router: behind.name.to_owned(),
                links,
            })
        };
        Ok(Beyond {
            behind,
            routers: behind.iter().map(planned).collect::<Result<_, Error>>()?,
        })
    }

    /// The links that a flow takes there, by number; empty where nothing is behind.
    pub(super) fn links(&self, flow: &Flow) -> Vec<usize> {
        let number = |(behind, planned): (&Behind<'_>, &PlannedRouter)| {
            let link = behind.router.link_of(flow);
            let mut links = planned.links.iter();
            links
                .position(|one| Some(one.link.as_str()) == link)
                .unwrap_or(0)
        };
        self.behind.iter().zip(&self.routers).map(number).collect()
    }

    /// The weights of their links.
    pub(super) fn weights(&self) -> Vec<Vec<u32>> {
        let weights = |router: &PlannedRouter| router.links.iter().map(|l| l.weight).collect();
        self.routers.iter().map(weights).collect()
    }
}

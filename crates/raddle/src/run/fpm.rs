//! FPM as the daemon has it: who listens for it, and what is told about it.

use std::time::Instant;

use raddle_netlink::Error;
use raddle_netlink::fpm::{Server, Stats};
use raddle_rib::Rib;
use serde_json::{Value, json};

use crate::config::Fpm;
use crate::error::Failure;

/// Listens as the configuration says.
///
/// # Errors
/// The address cannot be had.
pub(super) fn listen(fpm: &Fpm) -> Result<Server, Failure> {
    Server::bind(fpm.listen, fpm.options()).map_err(|e| {
        let why = match e {
            Error::Io { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        Failure::system(format!(
            "cannot listen for FPM at {}: {why}; somebody else may listen for zebra there: give both another address (listen in [fpm] or \
             --fpm=ADDRESS:PORT, and fpm address in zebra)",
            fpm.listen
        ))
    })
}

/// What `status` says about it.
pub(super) fn status(server: &Server, rib: &Rib) -> Value {
    let Stats {
        tallies,
        connections,
        refused,
        broken,
    } = server.stats();
    let told = rib.told();
    let peer = server.peer();
    json!({
        "listen": server.address().ok().map(|address| address.to_string()),
        "peer": peer.map(|(address, _)| address.to_string()),
        "grace_seconds": server.grace_left(Instant::now()).map(|left| left.as_secs()),
        "resync": peer.is_some_and(|(_, resync)| resync),
        "routes": { "inet": told.routes4, "inet6": told.routes6 },
        "used": { "inet": told.alone4, "inet6": told.alone6 },
        "nexthops": told.nexthops,
        "no_room": told.refused,
        "connections": connections,
        "refused": refused,
        "broken": broken,
        "messages": {
            "route": tallies.routes,
            "route-gone": tallies.routes_gone,
            "nexthop": tallies.nexthops,
            "nexthop-gone": tallies.nexthops_gone,
            "skipped": tallies.skipped,
            "malformed": tallies.malformed,
        },
    })
}

//! FPM as the daemon has it: who listens for it, and what is said about it.

use std::time::Instant;

use raddle_control::status::{self, ByFamily, FpmMessages};
use raddle_netlink::fpm::{Server, Stats};
use raddle_rib::Rib;

use crate::Error;
use crate::config::Fpm;

/// Listens as the configuration says.
///
/// # Errors
/// The address cannot be had.
pub(super) fn listen(fpm: &Fpm) -> Result<Server, Error> {
    Server::bind(fpm.listen, fpm.options()).map_err(|e| {
        let why = match e {
            raddle_netlink::Error::Io { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        let address = fpm.listen;
        Error::Fpm { address, why }
    })
}

/// What `status` says about it.
pub(super) fn status(server: &Server, rib: &Rib) -> status::Fpm {
    let Stats {
        tallies,
        connections,
        refused,
        broken,
    } = server.stats();
    let stats = rib.fpm_stats();
    let peer = server.peer();
    let families = |inet: usize, inet6: usize| ByFamily {
        inet: inet as u64,
        inet6: inet6 as u64,
    };
    status::Fpm {
        listen: server.address().ok().map(|address| address.to_string()),
        peer: peer.map(|(address, _)| address.to_string()),
        grace_seconds: server.grace_left(Instant::now()).map(|left| left.as_secs()),
        resync: peer.is_some_and(|(_, resync)| resync),
        routes: families(stats.routes4, stats.routes6),
        used: families(stats.alone4, stats.alone6),
        nexthops: stats.nexthops as u64,
        no_room: stats.refused,
        connections,
        refused,
        broken,
        messages: FpmMessages {
            route: tallies.routes,
            route_gone: tallies.routes_gone,
            nexthop: tallies.nexthops,
            nexthop_gone: tallies.nexthops_gone,
            skipped: tallies.skipped,
            malformed: tallies.malformed,
        },
    }
}

//! FPM routes: what a routing daemon sends by FPM (forwarding plane manager), beside what the kernel says.

use ipnet::IpNet;

use super::nexthop::Nexthop;
use super::route::Route;

/// What a routing daemon sends by FPM. Its nexthop objects have numbers of their own: they are not the
/// kernel's, even where the daemon gives both the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // as in `Event`
pub enum Fpm {
    /// A route is new, or takes the place of the one before of the same table and prefix.
    Route(Route),
    /// The route of this prefix is gone.
    RouteGone {
        /// Its table.
        table: u32,
        /// Its prefix.
        dst: IpNet,
    },
    /// A nexthop object is new or has changed.
    Nexthop(Nexthop),
    /// A nexthop object is gone.
    NexthopGone(u32),
    /// The daemon begins to tell everything anew: what it does not mention by [`Fpm::ResyncEnd`] is gone.
    ResyncBegin,
    /// It has sent everything.
    ResyncEnd,
}

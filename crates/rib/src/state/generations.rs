//! How often SIDs were replaced. The kernel forgets what they counted then.

use std::collections::HashMap;

use ipnet::IpNet;

use crate::event::{Event, Route, RouteOp};

/// Routes whose SID was replaced, or taken away and perhaps set up anew, each with a number that no
/// other replacement has.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    routes: HashMap<(u32, IpNet), u32>,
    last: u32,
    /// A route went since [`Generations::prune`].
    gone: bool,
}

impl Generations {
    /// Notes what an event replaces. Dumps replace nothing: they tell of what is there.
    pub(super) fn see(&mut self, event: &Event) {
        let (route, gone) = match event {
            Event::Route(route, RouteOp::Replace) => (route, false),
            Event::RouteGone(route) => (route, true),
            Event::Meanwhile(route, Some(RouteOp::Replace)) => (route, false),
            Event::Meanwhile(route, None) => (route, true),
            _ => return,
        };
        if has_sid(route) {
            self.gone |= gone;
            self.last = self.last.wrapping_add(1).max(1);
            self.routes
                .insert((route.table, route.dst.trunc()), self.last);
        }
    }

    /// The number of a route's last replacement; 0 for none.
    pub(crate) fn of(&self, table: u32, dst: IpNet) -> u32 {
        self.routes.get(&(table, dst)).copied().unwrap_or(0)
    }

    /// Forgets routes that are gone, when nothing stands for them any more.
    pub(crate) fn prune(&mut self, is_there: impl Fn(u32, IpNet) -> bool) {
        if std::mem::take(&mut self.gone) {
            self.routes.retain(|(table, dst), _| is_there(*table, *dst));
        }
    }
}

fn has_sid(route: &Route) -> bool {
    route.target.has_sid()
}

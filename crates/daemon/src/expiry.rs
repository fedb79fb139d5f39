//! IPv6 routes that expire: the kernel says neither when one has expired nor that a router advertisement lets it
//! last longer, or shorter.

use std::time::{Duration, Instant};

use raddle_netlink::{Mirror, clock};
use raddle_rib::Rib;
use raddle_rib::event::Event;

/// How often routes are read again.
const READING: Duration = Duration::from_secs(1);
/// By how much less often for each route: reading one takes a microsecond or two.
const READING_EACH: Duration = Duration::from_micros(200);

/// `IFA_F_PERMANENT`.
const PERMANENT: u32 = 0x80;

/// When IPv6 routes are read again.
#[derive(Debug, Default)]
pub struct Expiry {
    next_reading: Option<Instant>,
    /// A route may expire that did not.
    suspected: bool,
}

impl Expiry {
    /// Takes note of what the kernel says: the route of an address's prefix expires with it, and when an address is
    /// given a lifetime that had none, nothing is said about the route.
    pub fn note(&mut self, event: &Event) {
        self.suspected |= matches!(event, Event::Address(address)
            if address.local.is_ipv6() && address.flags & PERMANENT == 0);
    }

    /// Has a mirror keep up with routes that expire; to be called several times a second.
    ///
    /// 1. Without such routes, and addresses, nothing is done.
    /// 2. The clock is told. A route whose time comes is the kernel's then.
    /// 3. Routes are read about once a second, or less often if there are very many, so that it takes a hundredth of
    ///    the time. One that lasts longer now is the engine's again then, and one whose time has been shortened
    ///    without a word expires in time, if that was before.
    pub fn tend(&mut self, rib: &mut Rib, mirror: &Mirror) {
        if !rib.has_expiring() && !self.suspected {
            return;
        }
        rib.apply(Event::Clock(clock()));
        let now = Instant::now();
        if self.next_reading.is_none_or(|at| at <= now) {
            self.next_reading = Some(now + interval(rib.usage().routes6));
            self.suspected = false;
            mirror.read_routes6();
        }
    }
}

/// From one reading of this many routes to the next.
fn interval(routes: usize) -> Duration {
    READING + READING_EACH * u32::try_from(routes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_routes_are_read_seldom() {
        let seconds = [0, 10, 10_000, 1_000_000].map(|routes| interval(routes).as_secs());
        assert_eq!(seconds, [1, 1, 3, 201]);
    }
}

//! The clock by which routes expire.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use raddle_rib::event::Event;

/// `CLOCK_MONOTONIC` in milliseconds: what [`Event::Clock`] tells of the live kernel. The kernel's own clock for
/// routes (jiffies) keeps step with it.
pub fn clock() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Has a route that was read from a message expire by the clock, instead of so long from the message on. The kernel
/// made the message at `made` or later, so it expires at that time or later.
pub(crate) fn date(event: &mut Event, made: Instant) {
    if let Event::Route(route, _) | Event::RouteGone(route) = event
        && let Some(expires) = &mut route.expires
    {
        let ago = i64::try_from(made.elapsed().as_millis()).unwrap_or(i64::MAX);
        *expires = expires.saturating_add(clock().saturating_sub(ago));
    }
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{Route, RouteOp};

    use super::*;

    #[test]
    fn a_route_expires_so_long_after_its_message() {
        let made = Instant::now();
        let before = clock();
        std::thread::sleep(Duration::from_millis(20));
        let dated = |expires| {
            let route = Route {
                expires,
                ..Route::default()
            };
            let mut event = Event::Route(route, RouteOp::Add);
            date(&mut event, made);
            match event {
                Event::Route(route, _) => route.expires,
                _ => None,
            }
        };
        for milliseconds in [1_000, -30] {
            let at = dated(Some(milliseconds)).unwrap() - milliseconds;
            // Both clocks are cut to whole milliseconds.
            assert!((before..=before + 2).contains(&at), "{at} for {before}");
        }
        assert_eq!(dated(None), None);
        assert_eq!(dated(Some(i64::MAX)), Some(i64::MAX));
    }
}

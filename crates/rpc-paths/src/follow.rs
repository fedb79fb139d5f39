//! Follows what the kernel says about links, addresses, routes, rules and nexthops, so that connections are
//! looked at when one of them changes.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use raddle_netlink::codec::number::group;
use raddle_netlink::codec::{Decoded, Messages, decode_message};
use raddle_netlink::{Error, Socket};
use raddle_rib::event::Event;

use crate::detour::PROTOCOL;

/// The groups that are listened to.
const GROUPS: [u32; 8] = [
    group::LINK,
    group::IPV4_IFADDR,
    group::IPV6_IFADDR,
    group::IPV4_ROUTE,
    group::IPV6_ROUTE,
    group::IPV4_RULE,
    group::IPV6_RULE,
    group::NEXTHOP,
];
/// How long the kernel has to be quiet before connections are looked at, and how long that may take.
const QUIET: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The largest notification: a group of 8191 members has 64 KiB.
const LARGEST: usize = 128 << 10;

/// When to look, of bursts of changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debounce {
    /// The first and the last change that nobody has looked at.
    burst: Option<(Instant, Instant)>,
}

impl Debounce {
    /// Something has changed.
    pub(crate) fn note(&mut self, now: Instant) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// Whether to look now; says so once.
    ///
    /// 1. Nothing has changed: no.
    /// 2. Nothing more has changed for 100 ms: yes.
    /// 3. The first change is a second old: yes, however busy it is.
    pub(crate) fn due(&mut self, now: Instant) -> bool {
        let Some((first, last)) = self.burst else {
            return false;
        };
        let since = |then| now.saturating_duration_since(then);
        let due = since(last) >= QUIET.0 || since(first) >= QUIET.1;
        if due {
            self.burst = None;
        }
        due
    }
}

/// Listens.
#[derive(Debug)]
pub(crate) struct Follower {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Follower {
    /// In this thread's network namespace.
    ///
    /// # Errors
    /// The system allows no more sockets, or the kernel does not know a group (nexthops: Linux 5.3).
    pub(crate) fn open() -> Result<Follower, Error> {
        let socket = Socket::open()?;
        for of in GROUPS {
            socket.join(of)?;
        }
        Ok(Follower {
            socket,
            buffer: Vec::with_capacity(LARGEST),
        })
    }

    /// Whether something has been said, since it was asked last, that connections to these addresses may go by.
    pub(crate) fn heard(&mut self, servers: &[IpAddr]) -> bool {
        let mut heard = false;
        loop {
            self.buffer.clear();
            match self.socket.receive(&mut self.buffer, false) {
                Ok(Some(_)) => {
                    let events = Messages::new(&self.buffer).flatten();
                    let mut events = events.flat_map(|message| decode_message(&message));
                    heard |= events.any(|said| match said {
                        Decoded::Event(event) => concerns(&event, servers),
                        _ => false,
                    });
                }
                // Some were lost.
                Err(Error::Overrun) => heard = true,
                Ok(None) | Err(_) => return heard,
            }
        }
    }
}

/// Whether connections to these addresses may go another way after it. A route does when it covers one, so that a
/// router's table may change as often as it likes; links, addresses, nexthops and rules without a mark always may.
/// Detours do not concern others.
fn concerns(event: &Event, servers: &[IpAddr]) -> bool {
    match event {
        Event::Route(route, _) | Event::RouteGone(route) | Event::Meanwhile(route, _)
            if route.protocol != PROTOCOL =>
        {
            servers.iter().any(|server| route.dst.contains(server))
        }
        Event::Link(_)
        | Event::LinkGone(_)
        | Event::Address(_)
        | Event::AddressGone(_)
        | Event::Nexthop(_)
        | Event::NexthopGone(_)
        | Event::Bucket(_) => true,
        // The connections' sockets have no mark.
        Event::Rule(rule) | Event::RuleGone(rule) => {
            rule.fwmark.is_none_or(|(mark, mask)| mark & mask == 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{Route, RouteOp};

    use super::*;

    #[test]
    fn a_burst_is_looked_at_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut changes = Debounce::default();
        assert!(!changes.due(at(0)));
        changes.note(at(0));
        changes.note(at(60));
        assert!(!changes.due(at(150)));
        assert!(changes.due(at(160)));
        assert!(!changes.due(at(900)));
        for ms in (0..=1000).step_by(50) {
            changes.note(at(2000 + ms));
            assert_eq!(changes.due(at(2000 + ms)), ms == 1000, "{ms}");
        }
    }

    #[test]
    fn routes_elsewhere_are_no_business_of_connections() {
        let route = |dst: &str| Route {
            dst: dst.parse().unwrap(),
            ..Route::default()
        };
        let servers: [IpAddr; 1] = ["10.9.0.2".parse().unwrap()];
        let to = |dst| Event::Route(route(dst), RouteOp::Add);
        assert!(concerns(&to("10.9.0.0/24"), &servers));
        assert!(concerns(&Event::RouteGone(route("0.0.0.0/0")), &servers));
        assert!(!concerns(&to("10.8.0.0/24"), &servers));
        assert!(!concerns(&to("::/0"), &servers));
        assert!(concerns(&Event::LinkGone(3), &servers));
    }
}

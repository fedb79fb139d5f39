//! What the kernel changes without a word, and the words that give it away.

use raddle_rib::event::{Event, NexthopKind, RouteOp};

use super::kind::{Kind, Kinds, Wanted};

/// `IFF_UP`, `IFF_RUNNING`, `IFF_LOWER_UP`: when one changes, routes and nexthops may have.
const STATE_FLAGS: u32 = 0x1 | 0x40 | 0x1_0000;

/// Routes of both families and all that they refer to.
const FORWARDING: Kinds = Kinds::NONE
    .with(Kind::Nexthops)
    .with(Kind::Buckets)
    .with(Kind::Routes4)
    .with(Kind::Routes6);

/// What has to be read again because of a notification. `flags_of` knows the `IFF_*` flags that a
/// link had before.
///
/// 1. A link came or went, up or down, with or without carrier: nexthops, members of groups and
///    routes that went with it, members of multipath routes that died or revived
///    (`nh_netdev_event`, `fib_netdev_event`).
/// 2. An address is gone: the routes of its family that needed it (`fib_sync_down_addr`).
/// 3. A nexthop object is gone: the routes that used it.
/// 4. A resilient group is new or has changed: its buckets.
/// 5. A rule is gone: one that is left may differ from it by what is not kept, or by nothing.
/// 6. A nexthop was appended to an IPv6 route: its place in the order.
pub(super) fn signs(event: &Event, flags_of: impl Fn(u32) -> Option<u32>) -> Wanted {
    let routes = |kind| Kinds::NONE.with(Kind::Nexthops).with(kind);
    let kinds = match event {
        Event::Link(link) => match flags_of(link.index) {
            Some(before) if (before ^ link.flags) & STATE_FLAGS != 0 => FORWARDING,
            // One that we see for the first time has nothing to lose yet.
            _ => Kinds::NONE,
        },
        Event::LinkGone(_) | Event::NexthopGone(_) => FORWARDING,
        Event::AddressGone(address) => routes(Kind::routes_of(address.local)),
        Event::RuleGone(_) => Kinds::NONE.with(Kind::Rules),
        Event::Nexthop(nexthop) => match nexthop.kind {
            NexthopKind::Resilient { .. } => return Wanted::buckets_of(nexthop.id),
            _ => Kinds::NONE,
        },
        Event::Route(route, RouteOp::Append) if route.dst.addr().is_ipv6() => routes(Kind::Routes6),
        _ => Kinds::NONE,
    };
    kinds.into()
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{Address, Link, Nexthop};

    use super::*;

    fn link(flags: u32) -> Event {
        Event::Link(Link {
            index: 7,
            flags,
            ..Link::default()
        })
    }

    #[test]
    fn links_that_change_state_and_no_others() {
        let up = 0x1 | 0x40 | 0x1_0000;
        for (before, now, sign) in [
            (Some(up), up, false),
            (Some(up), up | 0x100, false), // promiscuous
            (None, up, false),
            (Some(up), up & !1, true),
            (Some(up), up & !0x1_0000, true),
            (Some(up & !0x40), up, true),
        ] {
            let kinds = signs(&link(now), |index| before.filter(|_| index == 7));
            assert_eq!(kinds == FORWARDING.into(), sign, "{before:x?} to {now:x}");
            assert_eq!(kinds.is_empty(), !sign);
        }
        assert_eq!(signs(&Event::LinkGone(7), |_| None), FORWARDING.into());
    }

    #[test]
    fn addresses_concern_the_routes_of_their_family() {
        let gone = |local: &str| {
            let address = Address::new(1, local.parse().unwrap(), 24);
            signs(&Event::AddressGone(address), |_| None)
        };
        let (four, six) = (gone("10.0.0.1"), gone("2001:db8::1"));
        let routes = |kind| Kinds::NONE.with(Kind::Nexthops).with(kind).into();
        assert_eq!(four, routes(Kind::Routes4));
        assert_eq!(six, routes(Kind::Routes6));
    }

    #[test]
    fn a_resilient_group_may_have_moved_its_buckets() {
        let nexthop = |kind| Event::Nexthop(Nexthop::new(9, 0, kind));
        let resilient = NexthopKind::Resilient {
            members: Vec::new(),
            buckets: 8,
            idle_timer: 0,
            unbalanced_timer: 0,
            unbalanced_time: 0,
        };
        let wanted = signs(&nexthop(resilient), |_| None);
        assert_eq!(wanted, Wanted::buckets_of(9));
        assert!(signs(&nexthop(NexthopKind::Group(Vec::new())), |_| None).is_empty());
    }
}

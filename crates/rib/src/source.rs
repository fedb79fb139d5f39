//! Which source address this machine takes for its own IPv4 packets.

use std::net::{IpAddr, Ipv4Addr};

use crate::TABLE_LOCAL;
use crate::event::{Address, RouteKind};
use crate::rib::Rib;

/// `IFA_F_SECONDARY`.
const SECONDARY: u32 = 1;
/// `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;

impl Rib {
    /// Whether this machine has the address, and may send from it (`ip_route_output_key_hash_rcu`,
    /// `__ip_dev_find`): it is one of a link's, or a route to it is of type `local`.
    pub fn is_local(&self, address: IpAddr) -> bool {
        if self.addresses().iter().any(|a| a.local == address) {
            return true;
        }
        // Table local is asked whatever rules say; while there are no rules, it is one with table main.
        let found = [
            self.trace_table(TABLE_LOCAL, address),
            self.trace("lo", address),
        ];
        let mut routes = found.into_iter().filter_map(|trace| trace.route);
        routes.any(|route| route.kind == RouteKind::Local)
    }

    /// The address that the kernel prefers for packets out of a link towards `gateway`, on a route of
    /// this scope (`inet_select_addr`, kept in a nexthop as `nh_saddr`).
    ///
    /// 1. Of the link's primary addresses whose scope is not narrower than the route's: the first
    ///    whose prefix holds the gateway.
    /// 2. Else, or without a gateway, the first of them.
    /// 3. Else the first such address of the VRF that the link is in.
    /// 4. Else the first of any link, those that are only good on their link excepted.
    ///
    /// Cost: a walk over all addresses.
    pub fn preferred_source(
        &self,
        index: u32,
        gateway: Option<Ipv4Addr>,
        scope: u8,
    ) -> Option<Ipv4Addr> {
        let fits = |a: &&Address| a.flags & SECONDARY == 0 && a.scope <= scope;
        let on = |link: u32| self.addresses().iter().filter(move |a| a.index == link);
        let v4 = |a: &Address| match a.local {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        };
        let mine = || on(index).filter(fits).filter(|a| v4(a).is_some());
        let holder = gateway.and_then(|gateway| mine().find(|a| holds(a, gateway)));
        let master = self.link(index).and_then(|link| link.master);
        let of_master = || on(master?).filter(fits).find_map(v4);
        let of_any = || {
            let links = self.links();
            let all = links.flat_map(|link| on(link.index));
            all.filter(fits)
                .filter(|a| a.scope != SCOPE_LINK)
                .find_map(v4)
        };
        holder
            .and_then(v4)
            .or_else(|| mine().find_map(v4))
            .or_else(of_master)
            .or_else(of_any)
    }
}

/// Whether the prefix of an address holds another (`inet_ifa_match`); a peer's prefix counts where
/// there is a peer.
fn holds(address: &Address, other: Ipv4Addr) -> bool {
    let IpAddr::V4(prefix) = address.peer.unwrap_or(address.local) else {
        return false;
    };
    let shift = 32u32.saturating_sub(address.prefix_len.into());
    let differ = u64::from(prefix.to_bits() ^ other.to_bits());
    differ >> shift == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Link, Route, RouteNexthop, RouteOp, RouteTarget};

    fn address(index: u32, text: &str, scope: u8, flags: u32) -> Event {
        let (local, length) = text.split_once('/').unwrap();
        Event::Address(Address {
            scope,
            flags,
            ..Address::new(index, local.parse().unwrap(), length.parse().unwrap())
        })
    }

    #[test]
    fn the_first_that_fits() {
        let mut rib = Rib::detached();
        for (index, name) in [(1, "lo"), (2, "a"), (3, "b"), (4, "c")] {
            rib.apply(Event::Link(Link {
                index,
                name: name.into(),
                ..Link::default()
            }));
        }
        for event in [
            address(1, "127.0.0.1/8", 254, 0),
            address(1, "10.9.9.9/32", 0, 0),
            address(2, "10.0.1.1/24", 0, 0),
            address(2, "10.0.2.1/24", 0, 0),
            address(2, "10.0.2.7/24", 0, SECONDARY),
            address(3, "169.254.1.1/16", SCOPE_LINK, 0),
        ] {
            rib.apply(event);
        }
        let source = |index, gateway: &str, scope| {
            let gateway = gateway.parse().ok();
            rib.preferred_source(index, gateway, scope)
                .map(|ip| ip.to_string())
        };
        assert_eq!(source(2, "10.0.2.7", 0).as_deref(), Some("10.0.2.1"));
        assert_eq!(source(2, "10.0.3.7", 0).as_deref(), Some("10.0.1.1"));
        assert_eq!(source(2, "", 0).as_deref(), Some("10.0.1.1"));
        // Narrower than the route, and then good enough for it.
        assert_eq!(source(3, "", 0).as_deref(), Some("10.9.9.9"));
        assert_eq!(source(3, "", SCOPE_LINK).as_deref(), Some("169.254.1.1"));
        assert_eq!(source(4, "", 0).as_deref(), Some("10.9.9.9"));
        assert!(rib.is_local("10.0.2.7".parse().unwrap()));
        assert!(!rib.is_local("10.0.2.8".parse().unwrap()));
        // All of a prefix may be this machine's.
        let any = Route {
            dst: "192.0.2.0/24".parse().unwrap(),
            table: TABLE_LOCAL,
            kind: RouteKind::Local,
            target: RouteTarget::Single(RouteNexthop {
                index: 1,
                ..RouteNexthop::default()
            }),
            ..Route::default()
        };
        rib.apply(Event::Route(any, RouteOp::Add));
        assert!(rib.is_local("192.0.2.9".parse().unwrap()));
        assert!(!rib.is_local("192.0.3.9".parse().unwrap()));
    }
}

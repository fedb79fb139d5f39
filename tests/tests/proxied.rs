//! What goes to the kernel though by routes alone it would be forwarded.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::Duration;

use raddle_e2e::frame::Flow;
use raddle_e2e::{Daemon, World, root, within};

/// Generous, because machines are busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Neighbour discovery to an address that the router answers for is the router's own: the kernel looks at every packet to
/// it, and so has to get them, as long as that is so.
#[test]
fn packets_to_proxied_neighbours_are_the_kernels() {
    if !root("packets_to_proxied_neighbours_are_the_kernels") {
        return;
    }
    let world = World::new("proxied", 1);
    let via = world.gateway(1).1;
    world.ip(&format!("-6 route replace 2001:db8:9::/48 via {via}"));
    let [proxied, other] = [7, 8].map(|n| Flow {
        src: "2001:db8:1:1::2".parse().unwrap(),
        dst: format!("2001:db8:9::{n}").parse().unwrap(),
        proto: 17,
        sport: 20_000,
        dport: 30_000,
    });
    let daemon = Daemon::start(&world, &[]);
    // Whether the kernel forwards a packet of the flow; none where it was lost.
    let by_kernel = |flow: &Flow| {
        let before = world.kernel_forwarded();
        let arrivals = world.transmit_for(&world.frames(&[*flow]), Duration::from_millis(15));
        (!arrivals[0].is_empty()).then(|| world.kernel_forwarded() > before)
    };
    let until = |flow: &Flow, kernel: bool| {
        within(LIMIT, || match by_kernel(flow) {
            Some(by) if by == kernel => Ok(()),
            by => Err(format!("by the kernel: {by:?}, {}", daemon.counters())),
        });
    };
    world.ip("-6 neigh add proxy 2001:db8:9::7 dev source");
    until(&proxied, false);
    world.sysctl("net.ipv6.conf.all.proxy_ndp", "1");
    until(&proxied, true);
    assert!(daemon.reason("route-feature") > 0, "{}", daemon.counters());
    until(&other, false);
    world.ip("-6 neigh del proxy 2001:db8:9::7 dev source");
    until(&proxied, false);
}

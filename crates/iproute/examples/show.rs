//! Prints what `ip` would print of the live kernel: `show route`, `show -6 -j nexthop show`.

use raddle_iproute::Names;
use raddle_iproute::show::{Command, State};
use raddle_rib::Rib;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = Command::parse(&words, Names::load())?;
    let mut rib = Rib::detached();
    for event in raddle_netlink::mirror::snapshot()? {
        rib.apply(event);
    }
    let snapshot = rib.snapshot();
    let state = State {
        links: &snapshot.links,
        nexthops: &snapshot.nexthops,
        buckets: &snapshot.buckets,
        neighbours: &snapshot.neighbours,
        routes: &snapshot.routes,
        clock: snapshot.clock.unwrap_or(0),
        figures: None,
    };
    command.print(&state, &mut std::io::stdout().lock())?;
    Ok(())
}

//! Examines this machine, and prints what was found.

use raddle_doctor::{Asked, Scope, chosen, examine, gather, render};
use raddle_rib::Rib;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rib = Rib::detached();
    for event in raddle_netlink::mirror::snapshot()? {
        rib.apply(event);
    }
    let facts = gather(&rib, Scope::Live, Asked::default(), None);
    print!("{}", render(&examine(&facts, &chosen(&[])?)));
    Ok(())
}

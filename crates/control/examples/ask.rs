//! Prints what the daemon of this network namespace does, and what it has forwarded by each link.

use raddle_control::{Counters, Error, Status, ask};

fn main() {
    if let Err(e) = report() {
        eprintln!("{e}");
    }
}

fn report() -> Result<(), Error> {
    let status: Status = ask(None)?;
    println!("{} for {} s", status.state.name(), status.uptime_seconds);
    let counters: Counters = ask(None)?;
    for link in counters.links {
        println!("{}: {} packets sent", link.dev, link.sent.packets);
    }
    Ok(())
}

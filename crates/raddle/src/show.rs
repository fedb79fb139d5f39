//! `raddle route`, `nexthop`, `neigh` and `sr`: the mirrored state as iproute2 prints it.

use std::io;

use raddle_control::{Counters, Segments};
use raddle_iproute::Names;
use raddle_iproute::show::{Command, Figures, Object, State, binary_stdout};
use raddle_netlink::Socket;

use crate::error::Failure;
use crate::source::{mirror, of_daemon, static_routes_of_daemon};

/// Prints the live kernel's state or a snapshot's; `words` are all but the noun.
pub(crate) fn run(object: Object, words: &[String]) -> Result<(), Failure> {
    let words = [&[object.name().to_owned()], words].concat();
    let command = Command::parse(&words, Names::load())?;
    let mut stdout = io::stdout().lock();
    if command.is_help() {
        return Ok(command.print(&State::default(), &mut stdout)?);
    }
    let live = command.snapshot().is_none();
    let mut snapshot = mirror(command.snapshot())?.snapshot();
    let figures = match live && (command.wants_figures() || object == Object::Sr) {
        true => Some(figures()?),
        false => None,
    };
    if live && matches!(object, Object::Sr | Object::Route) {
        snapshot.routes.extend(static_routes_of_daemon());
    }
    let state = State {
        links: &snapshot.links,
        nexthops: &snapshot.nexthops,
        buckets: &snapshot.buckets,
        neighbours: &snapshot.neighbours,
        routes: &snapshot.routes,
        clock: snapshot.clock.unwrap_or(0),
        figures: figures.as_ref(),
    };
    match command.is_binary() {
        true => command.print(&state, &mut binary_stdout()?)?,
        false => command.print(&state, &mut stdout)?,
    }
    Ok(())
}

/// What the live kernel and the daemon of this network namespace, if there is one, have counted.
fn figures() -> Result<Figures, Failure> {
    let mut figures = Figures::of_kernel(Socket::open()?.sid_counters()?);
    if let (Some(segments), Some(counters)) = (of_daemon::<Segments>(), of_daemon::<Counters>()) {
        figures.take_segments(segments);
        figures.take_counters(&counters);
    }
    Ok(figures)
}

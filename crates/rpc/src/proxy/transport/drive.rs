//! Keeps a connection to a server: makes it, has it worked with, and decides about its calls when it fails.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tracing::field::{DisplayValue, display};

use super::read::read;
use super::write::write;
use super::{Answering, State, Transport, Up};
use crate::dispatch::Rate;
use crate::proxy::call::Call;
use crate::proxy::shared::{Shared, count};
use crate::proxy::watch::{Watched, keep_alive};
use crate::proxy::{Again, Connected, Wanted, first};
use crate::replay::{Action, Sent, decide};
use crate::trouble::Tell;

/// Pauses between attempts to connect, first and longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A connection that fails sooner, without a reply, is one more attempt: some servers accept, and close at once.
const STOOD: Duration = Duration::from_secs(1);
/// The longest while calls are held, or wait for a connection.
const HELD: Duration = Duration::from_secs(1);

/// Keeps a transport connected for as long as the proxy runs.
pub(in crate::proxy) async fn drive(shared: Rc<Shared>, index: usize) {
    let transport = &shared.transports[index];
    let (service, number) = (transport.service, transport.number);
    let mut pause = PAUSES.0;
    let mut round = 0;
    loop {
        // Nobody has to be answered but those that still wait.
        transport.forget_unwanted();
        let identity = transport.identity.get();
        let seeks = transport.seeks();
        let again = identity.filter(|_| seeks || !transport.held.borrow().is_empty());
        let wanted = Wanted {
            service,
            number,
            lane: transport.lane,
            again: again.map(|(from, to)| Again {
                from,
                to,
                silent: transport.silent.get(),
                round,
            }),
        };
        match shared.connect.connect(wanted).await {
            Ok(connected) => match connected.stream.local_addr() {
                Ok(local) => {
                    round = 0;
                    let refused = stand(&shared, index, connected, local).await;
                    shared.connect.closed(service, number);
                    shared.pump(service);
                    if !refused {
                        pause = PAUSES.0;
                        continue;
                    }
                }
                Err(e) => {
                    round += 1;
                    *transport.state.borrow_mut() = State::Down(e.to_string());
                }
            },
            Err(e) => {
                round += 1;
                transport.not_found(&e);
                give_up(&shared, transport);
                not_connected(&shared, transport, &e);
                *transport.state.borrow_mut() = State::Down(e.to_string());
            }
        }
        // Calls may be held only since the connection has failed.
        let wanted = !transport.held.borrow().is_empty()
            || transport.expects()
            || shared.has_waiting(service);
        let longest = if wanted { HELD } else { PAUSES.1 };
        tokio::time::sleep(pause.min(longest)).await;
        pause = (2 * pause).min(longest);
    }
}

/// A link, if it is known.
fn link(link: &Option<String>) -> Option<DisplayValue<String>> {
    link.clone().map(display)
}

/// Has calls go elsewhere whose port is not to be had any more. One that is signed and was sent has to be signed anew.
fn give_up(shared: &Shared, transport: &Transport) {
    let calls = transport.give_up();
    if calls.is_empty() {
        return;
    }
    // The oldest goes first again.
    for call in calls.into_iter().rev() {
        let client = call.client();
        let (from, _) = transport.ends().unwrap_or((client.peer, client.peer));
        let why = format!("from another port, as {from}, from which it was sent, is not to be had");
        shared.runs_again(client.peer, &call.header, &why);
        if call.header.is_signed() && call.sent.get() != Sent::Nothing {
            if !client.is_closed() {
                let why = "the port that a signed call was sent from is not to be had";
                shared.ended(client.peer, why);
                client.disconnect(shared, why);
            }
            continue;
        }
        call.place.set(None);
        shared.again(call);
    }
    shared.pump(transport.service);
}

/// Logs that there is no connection, but not each time.
fn not_connected(shared: &Shared, transport: &Transport, e: &io::Error) {
    let trouble = &shared.troubles[transport.service];
    let tell = trouble
        .borrow_mut()
        .failed(transport.number, Instant::now());
    let (server, connection) = (shared.server(), shared.name(transport));
    match tell {
        None => tracing::debug!(server, "connection {connection}: not connected: {e}"),
        Some(Tell::First) => {
            let every = PAUSES.1.as_secs();
            tracing::warn!(
                server,
                "connection {connection}: not connected: {e}; it is tried again, at least every {every} s"
            );
        }
        Some(Tell::Still { times, time }) => {
            let seconds = time.as_secs();
            tracing::warn!(
                server,
                "connection {connection}: still not connected after {seconds} s and {times} attempts: {e}"
            );
        }
    }
}

/// Logs that there is a connection, and whether there was none for a while.
fn connected(shared: &Shared, transport: &Transport, made: &Connected, own: [SocketAddr; 2]) {
    let (server, connection) = (shared.server(), shared.name(transport));
    let [local, peer] = own;
    let (out, back) = (link(&made.out), link(&made.back));
    let how = match made.detour {
        true => "connected again from the same port, around a silent link",
        false => "connected",
    };
    tracing::info!(server, %local, %peer, out, back, "connection {connection}: {how}");
    let trouble = &shared.troubles[transport.service];
    let past = trouble.borrow_mut().works(transport.number, Instant::now());
    if let Some((times, time)) = past {
        let seconds = time.as_secs();
        tracing::info!(
            server,
            "all connections stand again, after {seconds} s and {times} attempts in vain"
        );
    }
}

/// Works with a connection until it fails, or is given up. Whether it has failed at once, without a reply.
async fn stand(shared: &Rc<Shared>, index: usize, made: Connected, local: SocketAddr) -> bool {
    let transport = &shared.transports[index];
    let peer = made.stream.peer_addr().unwrap_or(local);
    let watched = Watched::new(&made.stream);
    let _ = made.stream.set_nodelay(true);
    let _ = keep_alive(&made.stream);
    connected(shared, transport, &made, [local, peer]);
    let (out, back) = (link(&made.out), link(&made.back));
    *transport.state.borrow_mut() = State::Up(Up {
        local,
        peer,
        out: made.out,
        back: made.back,
        attempts: made.attempts,
        detour: made.detour,
        since: Instant::now(),
        watched,
    });
    transport.asked.set(None);
    // What went before it does not count.
    transport.why.set(None);
    transport.drains.set(made.detour);
    transport.silent.set(false);
    transport.pings.borrow_mut().clear();
    transport.found((local, peer));
    *transport.rate.borrow_mut() = Rate::default();
    count(&transport.tallies.connections);
    // What is held goes out first, as it was.
    for call in transport.held.borrow_mut().drain(..) {
        count(&shared.counts.replayed);
        count(&transport.tallies.replayed);
        call.replayed();
        transport.queue.borrow_mut().push_back(call);
    }
    shared.pump(transport.service);
    let (reader, writer) = made.stream.into_split();
    let given_up = async {
        loop {
            transport.failed.notified().await;
            if let Some(why) = transport.why.take() {
                return why.to_owned();
            }
        }
    };
    let (since, replies) = (Instant::now(), transport.tallies.replies.get());
    let works = first(
        read(shared, transport, reader),
        write(shared, transport, writer),
    );
    let (why, failed) = first(async { (works.await, true) }, async {
        (given_up.await, false)
    })
    .await;
    let refused = failed && since.elapsed() < STOOD && transport.tallies.replies.get() == replies;
    let (server, connection) = (shared.server(), shared.name(transport));
    match transport.drains.get() {
        true => tracing::info!(server, %local, %peer, out, back, "connection {connection}: {why}"),
        false => {
            tracing::warn!(server, %local, %peer, out, back, "connection {connection} lost: {why}")
        }
    }
    cut_off(shared, transport, why);
    refused
}

/// Decides about every call of a connection that has failed.
fn cut_off(shared: &Shared, transport: &Transport, why: String) {
    *transport.state.borrow_mut() = State::Down(why);
    transport.queue.borrow_mut().clear();
    transport.own.borrow_mut().clear();
    let mut answered = None;
    if let Some(Answering { call, reply, .. }) = transport.answering.borrow_mut().take() {
        if reply.started.get() {
            answered = Some(call.xid.get());
        } else {
            call.client().retract(&reply);
        }
        transport.pending.borrow_mut().insert(call.xid.get(), call);
    }
    let mut calls: Vec<Rc<Call>> = transport
        .pending
        .borrow_mut()
        .drain()
        .map(|(_, c)| c)
        .collect();
    transport.outstanding.set(0);
    transport.large.set(0);
    // The oldest goes first again.
    calls.sort_by_key(|call| std::cmp::Reverse(call.since));
    for call in calls {
        let cut = call.cut(answered == Some(call.xid.get()));
        let (action, rule) = decide(&cut);
        let (server, xid) = (shared.server(), call.xid.get());
        tracing::debug!(
            server,
            xid,
            ?action,
            rule,
            "a call of a connection that was lost"
        );
        match action {
            Action::Drop => {}
            Action::Disconnect => {
                let why = format!("a connection to the server failed (rule {rule})");
                let client = call.client();
                if !client.is_closed() {
                    shared.ended(client.peer, &why);
                    client.disconnect(shared, &why);
                }
                // The client may come back for it.
                if decide(&call.cut(false)).0 == Action::SamePort {
                    hold(transport, call);
                }
            }
            Action::Elsewhere => {
                count(&shared.counts.resent);
                count(&transport.tallies.resent);
                shared.again(call);
            }
            Action::SamePort => hold(transport, call),
        }
    }
}

/// Keeps a call until the connection stands again from the same port.
fn hold(transport: &Transport, call: Rc<Call>) {
    transport.hold(call, 0);
}

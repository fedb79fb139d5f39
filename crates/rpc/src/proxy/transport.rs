//! Keeps a connection to a server: makes it, and has it worked with.

mod read;
mod write;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use tracing::field::{DisplayValue, display};

use super::shared::{Link, Shared};
use super::watch::{Watched, keep_alive};
use super::{Connected, first};
use crate::core::{Event, LONGEST_PAUSE, Made};
use crate::trouble::Tell;
use read::read;
use write::write;

/// Keeps a connection for as long as the proxy runs.
pub(super) async fn drive(shared: Rc<Shared>, index: usize) {
    let link = &shared.links[index];
    loop {
        let wanted = shared.with(|core, now, actions| core.wanted(now, index, actions));
        match shared.connect.connect(wanted).await {
            Ok(connected) => match connected.stream.local_addr() {
                Ok(local) => {
                    stand(&shared, index, connected, local).await;
                    shared.connect.closed(link.service, link.number);
                }
                Err(e) => shared.tell(Event::NotConnected(index, e.kind(), e.to_string())),
            },
            Err(e) => {
                shared.tell(Event::NotConnected(index, e.kind(), e.to_string()));
                not_connected(&shared, link, &e);
            }
        }
        let pause = shared.look(|core| core.pause(index));
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// A link, if it is known.
fn known(link: &Option<String>) -> Option<DisplayValue<String>> {
    link.clone().map(display)
}

/// Logs that there is no connection, but not each time.
fn not_connected(shared: &Shared, link: &Link, e: &io::Error) {
    let trouble = &mut shared.troubles.borrow_mut()[link.service];
    let tell = trouble.failed(link.number, Instant::now());
    let (server, connection) = (shared.server(), shared.name(link));
    match tell {
        None => tracing::debug!(server, "connection {connection}: not connected: {e}"),
        Some(Tell::First) => {
            let every = LONGEST_PAUSE.as_secs();
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
fn connected(shared: &Shared, link: &Link, made: &Connected, own: [SocketAddr; 2]) {
    let (server, connection) = (shared.server(), shared.name(link));
    let [local, peer] = own;
    let (out, back) = (known(&made.out), known(&made.back));
    let how = match made.detour {
        true => "connected again from the same port, around a silent link",
        false => "connected",
    };
    tracing::info!(server, %local, %peer, out, back, "connection {connection}: {how}");
    let trouble = &mut shared.troubles.borrow_mut()[link.service];
    if let Some((times, time)) = trouble.works(link.number, Instant::now()) {
        let seconds = time.as_secs();
        tracing::info!(
            server,
            "all connections stand again, after {seconds} s and {times} attempts in vain"
        );
    }
}

/// Works with a connection until it fails, or is given up.
async fn stand(shared: &Rc<Shared>, index: usize, made: Connected, local: SocketAddr) {
    let link = &shared.links[index];
    let peer = made.stream.peer_addr().unwrap_or(local);
    link.socket.set(Some(Watched::new(&made.stream)));
    let _ = made.stream.set_nodelay(true);
    let _ = keep_alive(&made.stream);
    connected(shared, link, &made, [local, peer]);
    let (out, back) = (known(&made.out), known(&made.back));
    // What went before it does not count.
    link.why.set(None);
    let detour = made.detour;
    shared.tell(Event::Connected(
        index,
        Made {
            ends: (local, peer),
            out: made.out,
            back: made.back,
            attempts: made.attempts,
            detour,
        },
    ));
    let (reader, writer) = made.stream.into_split();
    let given_up = async {
        loop {
            link.closes.notified().await;
            if let Some(why) = link.why.take() {
                return why.to_owned();
            }
        }
    };
    let works = first(read(shared, index, &reader), write(shared, index, &writer));
    let (why, failed) = first(async { (works.await, true) }, async {
        (given_up.await, false)
    })
    .await;
    link.socket.set(None);
    let (server, connection) = (shared.server(), shared.name(link));
    match shared.look(|core| core.drains(index)) {
        true => tracing::info!(server, %local, %peer, out, back, "connection {connection}: {why}"),
        false => {
            tracing::warn!(server, %local, %peer, out, back, "connection {connection} lost: {why}")
        }
    }
    drop((reader, writer));
    shared.tell(Event::Lost {
        transport: index,
        why,
        failed,
    });
}

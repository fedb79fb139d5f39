//! The thread that empties the notification socket.
//!
//! It only copies, so that the kernel's buffer stays empty however busy the consumer is; but of links that are lost it
//! tells at once, and of few devices whose settings have changed it reads them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use super::arrival::Arrival;
use super::devices::Changed;
use super::lost::OnLost;
use super::queue::{Queue, Report};
use crate::error::Error;
use crate::socket::Socket;
use crate::wake::{Wake, wait};

/// Notifications are packed into buffers of this size...
const BUFFER: usize = 256 << 10;
/// ... as long as the largest one would still fit: a group of 8191 members is 64 KiB.
const LARGEST: usize = 128 << 10;

/// Runs until `stop` is set.
pub(super) fn run(socket: &Socket, stop: &Wake, queue: &Arc<Queue>, on_lost: &OnLost) {
    let mut arrival = Arrival::new();
    let mut changed = Changed::default();
    loop {
        match wait([socket.as_fd(), stop.as_fd()], None) {
            Ok([_, true]) => return,
            Ok([true, false]) => {}
            Ok([false, false]) => continue,
            Err(source) => {
                queue.push(Report::Failed(Error::Io {
                    what: "wait for notifications",
                    source,
                }));
                return;
            }
        }
        let since = arrival.woken();
        let emptied = empty(socket, queue, (on_lost, &mut changed), since);
        arrival.emptied();
        for device in changed.read() {
            queue.push(Report::Device(device));
        }
        match emptied {
            Ok(true) => {}
            // The kernel discards until its buffer is empty, which it is now: what was lost is
            // older than what comes next, and a dump from here on makes good for it.
            Ok(false) => queue.push(Report::Lost),
            Err(error) => {
                queue.push(Report::Failed(error));
                return;
            }
        }
    }
}

/// Reads until nothing is left; whether nothing was lost. The first arrived at `since`.
fn empty(
    socket: &Socket,
    queue: &Queue,
    (on_lost, changed): (&OnLost, &mut Changed),
    since: Instant,
) -> Result<bool, Error> {
    let mut whole = true;
    loop {
        let mut buffer = queue.buffer();
        buffer.reserve(BUFFER);
        let mut more = true;
        while more && buffer.capacity() - buffer.len() >= LARGEST {
            let before = buffer.len();
            match socket.receive(&mut buffer, false) {
                // The next one has to start aligned, and a datagram may lack its last padding.
                Ok(Some(_)) => {
                    on_lost.tell(&buffer[before..]);
                    changed.note(&buffer[before..]);
                    buffer.resize(buffer.len().next_multiple_of(4), 0);
                }
                Ok(None) => more = false,
                Err(Error::Overrun | Error::Oversized(_)) => {
                    if std::mem::take(&mut whole) {
                        queue.push(Report::Losing);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if buffer.is_empty() {
            queue.give_back(buffer);
        } else {
            whole &= queue.push_notifications(buffer, since);
        }
        if !more {
            return Ok(whole);
        }
    }
}

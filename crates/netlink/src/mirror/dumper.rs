//! The thread that dumps, and that reads `/proc/sys`.
//!
//! `/proc/sys/net` shows the network namespace of the thread that opens it, so this is done by a
//! thread which stays in the mirror's namespace, wherever the mirror itself is polled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::kind::{Kind, Kinds};
use super::queue::{Order, Queue, Report};
use super::sysctl::Sysctls;
use crate::codec::Builder;
use crate::error::Error;
use crate::socket::{Dump, DumpSink, Socket};

/// How often settings are read, unless reading them takes more than 2 % of that.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(1);
/// A dump that changes under the reader this often is taken as it is, and ordered again.
const ATTEMPTS: u32 = 4;

/// Runs until the queue is stopped.
pub(super) fn run(mut socket: Socket, queue: &Arc<Queue>) {
    let mut sysctls = None;
    let mut timer = Instant::now();
    loop {
        match queue.next_order(timer) {
            Order::Stop => return,
            Order::Settings => timer = read_settings(queue, &mut sysctls, true),
            Order::Timer => timer = read_settings(queue, &mut sysctls, false),
            Order::Dump(kinds) => {
                let start = Instant::now();
                if let Err(error) = dump_all(&mut socket, queue, kinds) {
                    queue.push(Report::Failed(error));
                    return;
                }
                queue.run_end(start.elapsed());
            }
        }
    }
}

/// Reads and reports settings; when to do so next.
fn read_settings(queue: &Queue, last: &mut Option<Sysctls>, always: bool) -> Instant {
    let start = Instant::now();
    let now = Sysctls::read();
    if always || last.as_ref() != Some(&now) {
        queue.push(Report::Sysctls(now.clone()));
    }
    *last = Some(now);
    Instant::now() + SETTINGS_INTERVAL.max(start.elapsed() * 50)
}

fn dump_all(socket: &mut Socket, queue: &Queue, kinds: Kinds) -> Result<(), Error> {
    for kind in kinds.iter() {
        let mut quality = Dump::Interrupted;
        for _ in 0..ATTEMPTS {
            queue.push(Report::DumpBegin(kind));
            quality = dump_kind(socket, queue, kind)?;
            if quality == Dump::Consistent {
                break;
            }
        }
        queue.push(Report::DumpEnd(kind, quality));
    }
    Ok(())
}

/// Dumps all families of a kind once.
fn dump_kind(socket: &mut Socket, queue: &Queue, kind: Kind) -> Result<Dump, Error> {
    let mut quality = Dump::Consistent;
    for &family in kind.families() {
        let mut request = Builder::new();
        kind.request(family, &mut request)?;
        match socket.dump(&mut request, kind.what(), &mut Chunks(queue)) {
            Ok(Dump::Consistent) => {}
            Ok(Dump::Interrupted) => quality = Dump::Interrupted,
            // A kernel without this family, or without nexthop objects, has none of these.
            Err(error) if not_known(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(quality)
}

fn not_known(error: &Error) -> bool {
    matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT))
}

/// Passes the buffers of a dump to the queue.
struct Chunks<'a>(&'a Queue);

impl DumpSink for Chunks<'_> {
    fn buffer(&mut self) -> Vec<u8> {
        self.0.buffer()
    }

    fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
        if self.0.push_chunk(buffer) {
            Ok(())
        } else {
            Err(Error::Stopped("consumer"))
        }
    }
}

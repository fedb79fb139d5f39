//! The thread that dumps, and that reads `/proc/sys`.
//!
//! `/proc/sys/net` shows the network namespace of the thread that opens it, so this is done by a
//! thread which stays in the mirror's namespace, wherever the mirror itself is polled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hosts::Hosts;
use super::kind::{Dumped, Wanted};
use super::queue::{Order, Queue, Report};
use super::sysctl::{self, Seg6Settings, Sysctls};
use crate::codec::Builder;
use crate::error::Error;
use crate::probe::bond;
use crate::socket::{Dump, DumpSink, Socket};

/// How often the settings of the namespace are read: while those of multipath hashing are out of
/// step, flows take other links than the kernel's.
const SETTINGS_INTERVAL: Duration = Duration::from_millis(100);
/// How often those of devices are read, most of which are announced, too; less often where reading
/// takes more than 2 % of that.
const DEVICES_INTERVAL: Duration = Duration::from_secs(1);
/// A dump that changes under the reader this often is taken as it is, and ordered again.
const ATTEMPTS: u32 = 4;

/// Runs until the queue is stopped.
pub(super) fn run(mut socket: Socket, queue: &Arc<Queue>) {
    let mut sysctls = Watch {
        last: None,
        devices_due: None,
        seg6: Seg6Settings::open(),
        hosts: Hosts::default(),
    };
    let mut timer = Instant::now();
    loop {
        match queue.next_order(timer) {
            Order::Stop => return,
            Order::Settings => timer = sysctls.read(queue, true),
            Order::Timer => timer = sysctls.read(queue, false),
            Order::Bonds(bonds) => {
                let began = Instant::now();
                let read = bonds.into_iter().map(|(index, name)| {
                    // One that is gone, or changes meanwhile, is told of behind this.
                    (index, bond::members(&name).unwrap_or_default())
                });
                queue.push(Report::Bonds(read.collect(), began));
            }
            Order::Dump(wanted) => {
                let start = Instant::now();
                if let Err(error) = dump_all(&mut socket, queue, &wanted) {
                    queue.push(Report::Failed(error));
                    return;
                }
                queue.run_end(start.elapsed(), wanted.is_everything());
            }
        }
    }
}

/// What is known of settings, and when those of devices are looked at again.
struct Watch {
    /// And when those of devices in it were read.
    last: Option<(Sysctls, Instant)>,
    devices_due: Option<Instant>,
    seg6: Seg6Settings,
    hosts: Hosts,
}

impl Watch {
    /// Reads settings, and reports them if they have changed or `always`; when to do so next.
    fn read(&mut self, queue: &Queue, always: bool) -> Instant {
        if let Some(hosts) = self.hosts.read() {
            queue.push(Report::KernelHosts(hosts));
        }
        let start = Instant::now();
        let devices = always || self.devices_due.is_none_or(|due| start >= due);
        let (now, read) = match &self.last {
            Some((last, read)) if !devices => {
                let settings = sysctl::settings(&mut self.seg6);
                if settings == last.settings {
                    return Instant::now() + SETTINGS_INTERVAL;
                }
                let now = Sysctls {
                    settings,
                    ..last.clone()
                };
                (now, *read)
            }
            _ => (Sysctls::read(&mut self.seg6), start),
        };
        if devices {
            let interval = DEVICES_INTERVAL.max(start.elapsed() * 50);
            self.devices_due = Some(start + interval);
        }
        if always || self.last.as_ref().map(|(last, _)| last) != Some(&now) {
            queue.push(Report::Sysctls(now.clone(), read));
        }
        self.last = Some((now, read));
        Instant::now() + SETTINGS_INTERVAL
    }
}

fn dump_all(socket: &mut Socket, queue: &Queue, wanted: &Wanted) -> Result<(), Error> {
    for dumped in wanted.iter() {
        let mut quality = Dump::Interrupted;
        for _ in 0..ATTEMPTS {
            queue.push(Report::DumpBegin(dumped));
            quality = dump(socket, queue, dumped)?;
            if quality == Dump::Consistent {
                break;
            }
        }
        queue.push(Report::DumpEnd(dumped, quality));
    }
    Ok(())
}

/// Dumps all families once.
fn dump(socket: &mut Socket, queue: &Queue, dumped: Dumped) -> Result<Dump, Error> {
    let mut quality = Dump::Consistent;
    for &family in dumped.families() {
        let mut request = Builder::new();
        dumped.request(family, &mut request)?;
        match socket.dump(&mut request, dumped.what(), &mut Chunks::new(queue)) {
            Ok(Dump::Consistent) => {}
            Ok(Dump::Interrupted) => quality = Dump::Interrupted,
            Err(error) if has_none(dumped, &error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(quality)
}

/// 1. A kernel without this family, or without nexthop objects, has none of these.
/// 2. A group that is gone, or is not resilient any more, has no buckets.
fn has_none(dumped: Dumped, error: &Error) -> bool {
    match error.errno() {
        Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => true,
        Some(libc::ENOENT | libc::EINVAL) => matches!(dumped, Dumped::BucketsOf(_)),
        _ => false,
    }
}

/// Passes the buffers of a dump to the queue.
///
/// The kernel makes the first when the dump is asked for, and each of the others when the one before is received
/// (`netlink_recvmsg`).
struct Chunks<'a> {
    queue: &'a Queue,
    /// When the next buffer was made, and the one behind it, at the earliest.
    made: Instant,
    then: Instant,
}

impl Chunks<'_> {
    /// For a dump that is asked for next.
    fn new(queue: &Queue) -> Chunks<'_> {
        let now = Instant::now();
        Chunks {
            queue,
            made: now,
            then: now,
        }
    }
}

impl DumpSink for Chunks<'_> {
    fn buffer(&mut self) -> Vec<u8> {
        self.made = std::mem::replace(&mut self.then, Instant::now());
        self.queue.buffer()
    }

    fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
        if self.queue.push_chunk(buffer, self.made) {
            Ok(())
        } else {
            Err(Error::Stopped("consumer"))
        }
    }
}

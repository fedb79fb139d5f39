//! A mirror of the kernel's routing state: everything once, and then every change.
//!
//! Notifications are asked for first and the state is dumped after that, so nothing falls between.
//! Each kind of object is dumped in a frame of [`Event::SweepBegin`] and [`Event::SweepEnd`]; what
//! was notified meanwhile about this kind comes behind the frame, in order, so that the last word
//! on every object is the kernel's last word. What the kernel does not announce (devices that go
//! take routes and nexthops with them without a word) is dumped again after the sign of it that
//! there is, and so is everything after lost notifications (`ENOBUFS`).
//!
//! In which order members of bonds joined them nothing tells: it is read apart (`bonds.rs`).
//!
//! Of ports, bridges tell what they are to them and not the whole link (`ports.rs`).
//!
//! Two threads work for a mirror: one empties the notification socket, one dumps and reads
//! `/proc/sys`. Both stay in the network namespace in which the mirror was opened.

mod arrival;
mod bonds;
mod devices;
mod dumper;
mod hosts;
mod kind;
mod lost;
mod ports;
mod queue;
mod reader;
mod signs;
mod sysctl;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder as ThreadBuilder, JoinHandle};
use std::time::{Duration, Instant};

use raddle_rib::event::{DeviceSettings, Event, HmacKey, Link, RouteOp, Settings};

use self::bonds::Bonds;
use self::devices::Devices;
use self::kind::{Dumped, Kind, Kinds};
use self::lost::OnLost;
use self::ports::Ports;
use self::queue::{Queue, Report};
use self::signs::signs;
use self::sysctl::Sysctls;
pub use self::sysctl::{device_settings, namespace_settings, number};
use crate::clock::{clock, date};
use crate::codec::number::group;
use crate::codec::{Decoded, Messages, PortChange, decode_message};
use crate::error::Error;
use crate::socket::{Dump, RECEIVE_BUFFER, Socket};
use crate::wake::{Wake, wait};

/// The groups that a mirror listens to.
const GROUPS: [u32; 12] = [
    group::LINK,
    group::NEIGH,
    group::IPV4_IFADDR,
    group::IPV4_ROUTE,
    group::IPV4_RULE,
    group::IPV6_IFADDR,
    group::IPV6_ROUTE,
    group::IPV6_RULE,
    group::IPV4_NETCONF,
    group::IPV6_NETCONF,
    group::NEXTHOP,
    group::BRVLAN,
];

/// Counters of a mirror, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events from notifications.
    pub notified: u64,
    /// Events from dumps.
    pub dumped: u64,
    /// Messages that do not concern routing.
    pub skipped: u64,
    /// Messages that could not be decoded.
    pub malformed: u64,
    /// Times that notifications were lost.
    pub overruns: u64,
    /// Runs of dumps, the initial one included.
    pub runs: u64,
    /// Dumps that were inconsistent to the last attempt (and were ordered again).
    pub interrupted: u64,
}

/// What one [`Mirror::poll`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events handed on.
    pub events: u64,
    /// Inside of a sweep: objects not yet mentioned may turn out to be gone.
    pub sweeping: bool,
    /// Notifications were lost; a sweep of everything follows. Where many wait behind those, it is said before they are handed on, and
    /// again behind them.
    pub overrun: bool,
    /// A run of dumps (the initial one, or one that was ordered) came to its end.
    pub settled: bool,
    /// After notifications were lost, everything has been read again, and none was lost since.
    pub recovered: bool,
    /// When the first of the notifications in it arrived.
    pub since: Option<Instant>,
}

/// A mirror of one network namespace. See the [module](self).
///
/// # Minimum kernel version
/// 4.20 for strict dumps, 5.3 for nexthop objects; older ones have none to mirror.
#[derive(Debug)]
pub struct Mirror {
    queue: Arc<Queue>,
    stop: Arc<Wake>,
    on_lost: OnLost,
    threads: Vec<JoinHandle<()>>,
    /// Of the thread that receives notifications.
    reader: Option<i32>,
    links: HashMap<u32, LinkState>,
    ports: Ports,
    bonds: Bonds,
    devices: Devices,
    settings: Option<Settings>,
    keys: Vec<HmacKey>,
    /// What is being dumped, and what was notified about it meanwhile.
    sweeping: Option<Dumped>,
    held: Vec<Told>,
    /// Notifications were lost, and the links have not been read since.
    lost: bool,
    /// They are being read because of that.
    recovering: bool,
    stats: Stats,
}

/// What a notification tells.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly all of them are events
enum Told {
    Event(Event),
    Port(PortChange),
}

/// What has to be remembered of a link to see what a change of it means.
#[derive(Debug)]
struct LinkState {
    name: String,
    flags: u32,
    device: Option<DeviceSettings>,
}

impl Mirror {
    /// Opens a mirror of the calling thread's network namespace and joins the groups.
    /// [`Mirror::initial`] comes next.
    ///
    /// # Errors
    /// [`Error::Io`] when the system has no sockets or threads to give.
    pub fn open() -> Result<Self, Error> {
        Self::with_receive_buffer(RECEIVE_BUFFER)
    }

    /// As [`Mirror::open`], with a receive buffer of `bytes` for notifications. A small one loses
    /// them sooner, which costs a dump.
    ///
    /// # Errors
    /// As [`Mirror::open`].
    pub fn with_receive_buffer(bytes: usize) -> Result<Self, Error> {
        let socket = Socket::open()?;
        socket.set_receive_buffer(bytes)?;
        for group in GROUPS {
            match socket.join(group) {
                Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                    tracing::warn!(group, "this kernel has no such notifications");
                }
                other => other?,
            }
        }
        let failed = |source| Error::Io {
            what: "make an eventfd",
            source,
        };
        let mut mirror = Mirror {
            queue: Arc::new(Queue::new().map_err(failed)?),
            stop: Arc::new(Wake::new().map_err(failed)?),
            on_lost: OnLost::default(),
            threads: Vec::new(),
            reader: None,
            links: HashMap::new(),
            ports: Ports::default(),
            bonds: Bonds::default(),
            devices: Devices::default(),
            settings: None,
            keys: Vec::new(),
            sweeping: None,
            held: Vec::new(),
            lost: false,
            recovering: false,
            stats: Stats::default(),
        };
        let dumps = Socket::open()?;
        let (queue, stop) = (mirror.queue.clone(), mirror.stop.clone());
        let on_lost = mirror.on_lost.clone();
        mirror.reader = mirror.spawn("mirror-reader", move || {
            reader::run(&socket, &stop, &queue, &on_lost);
        })?;
        let queue = mirror.queue.clone();
        mirror.spawn("mirror-dumps", move || dumper::run(dumps, &queue))?;
        Ok(mirror)
    }

    /// The kernel's number of the thread.
    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<Option<i32>, Error> {
        let (tell, told) = channel();
        let thread = ThreadBuilder::new()
            .name(name.into())
            .spawn(move || {
                let _ = tell.send(nix::unistd::gettid().as_raw());
                body();
            })
            .map_err(|source| Error::Io {
                what: "start a thread",
                source,
            })?;
        self.threads.push(thread);
        Ok(told.recv().ok())
    }

    /// From now on calls `callback` with each link that has gone, gone down or lost its carrier, before anything
    /// else is done about it: [`Mirror::poll`] tells of it later. The thread that receives notifications calls it, so
    /// it must not wait for anybody. Only the first callback counts.
    pub fn on_link_lost(&self, callback: impl Fn(u32) + Send + Sync + 'static) {
        self.on_lost.set(Box::new(callback));
    }

    /// Hands the whole state to `sink`: settings first, then every kind of object in its sweep, the order of bonds' members, and what the
    /// clock says. Returns when it is complete.
    ///
    /// # Errors
    /// [`Error::Refused`] when the kernel refuses a dump.
    pub fn initial(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let runs = self.stats.runs;
        self.queue.want_settings();
        self.queue.want(Kinds::ALL);
        while self.settings.is_none() || self.stats.runs == runs || self.bonds.is_waiting() {
            self.wait(None)?;
            self.poll(sink)?;
        }
        sink(Event::Clock(clock()));
        Ok(())
    }

    /// Readable when [`Mirror::poll`] has something to do. For epoll and the like; it covers
    /// ordered dumps too, so no timer is needed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Waits until there is something to poll, at most for `timeout`. Whether there is.
    ///
    /// # Errors
    /// [`Error::Io`] when waiting itself fails.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        match wait([self.fd()], timeout) {
            Ok([ready]) => Ok(ready),
            Err(source) => Err(Error::Io {
                what: "wait for events",
                source,
            }),
        }
    }

    /// Hands to `sink` what has been received and not handed on yet; never waits. Takes a few
    /// milliseconds at most for each 3000 routes of a dump in progress.
    ///
    /// # Errors
    /// What stopped one of the mirror's threads; the mirror is of no use then, and a new one has
    /// to be opened.
    pub fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        let mut sink = |event: Event| {
            batch.events += 1;
            sink(event);
        };
        let (mut overrun, mut settled, mut since) = (false, false, None);
        let mut recovered = false;
        for report in self.queue.take() {
            match report {
                Report::Notifications(buffer, arrived) => {
                    since.get_or_insert(arrived);
                    self.notifications(&buffer, arrived, &mut sink);
                    self.queue.give_back(buffer);
                }
                Report::Losing => {
                    (overrun, recovered) = (true, false);
                    (self.lost, self.recovering) = (true, false);
                }
                Report::Lost => {
                    tracing::warn!("notifications were lost; reading everything again");
                    self.stats.overruns += 1;
                    (overrun, recovered) = (true, false);
                    (self.lost, self.recovering) = (true, false);
                    self.queue.want_settings();
                    self.queue.want(Kinds::ALL);
                    for bond in self.bonds.doubt(&self.queue) {
                        sink(Event::BondOrder(bond, Vec::new()));
                    }
                }
                Report::DumpBegin(dumped) => {
                    self.sweeping = Some(dumped);
                    // Links are read first where everything is.
                    if dumped.kind() == Kind::Links && std::mem::take(&mut self.lost) {
                        self.recovering = true;
                    }
                    sink(Event::SweepBegin(dumped.sweep()));
                }
                Report::DumpChunk(buffer, made) => {
                    self.chunk(&buffer, made, &mut sink);
                    self.queue.give_back(buffer);
                }
                Report::DumpEnd(dumped, quality) => self.dump_end(dumped, quality, &mut sink),
                Report::RunEnd(everything) => {
                    self.stats.runs += 1;
                    settled = true;
                    // One that was ordered for something else does not make good what was lost.
                    recovered |= everything && std::mem::take(&mut self.recovering);
                }
                Report::KernelHosts(hosts) => sink(Event::KernelHosts(hosts)),
                Report::Bonds(orders, began) => {
                    for (bond, members) in orders {
                        if self.bonds.counts(bond, began) {
                            sink(Event::BondOrder(bond, members));
                        }
                    }
                }
                Report::Sysctls(sysctls, began) => self.sysctls(sysctls, began, &mut sink),
                Report::Device(read) => {
                    self.devices.one(&read);
                    self.tell_devices(Some(&read.name), &mut sink);
                }
                Report::Failed(error) => return Err(error),
            }
        }
        batch.sweeping = self.sweeping.is_some();
        batch.overrun = overrun;
        batch.settled = settled;
        batch.recovered = recovered;
        batch.since = since;
        Ok(batch)
    }

    /// Whether notifications were lost, and not everything has been read again since.
    pub fn lacks_notifications(&self) -> bool {
        self.lost || self.recovering
    }

    /// Orders a dump of IPv6 routes, which [`Mirror::poll`] tells: the kernel announces neither that one has expired
    /// nor that it lasts longer now.
    pub fn read_routes6(&self) {
        self.queue.want(Kinds::NONE.with(Kind::Routes6));
    }

    /// The kernel's number of the thread that receives notifications, to give it a priority. The one that reads dumps
    /// computes for seconds where there are a million routes, and nothing waits for it that has been told.
    pub fn reader(&self) -> Option<i32> {
        self.reader
    }

    /// Has the FDBs read again, soon: a MAC address that moves between ports may have been told of in another order than it moved in, as
    /// two CPUs tell of it (`br_fdb_update` takes no lock for that), and nothing tells of it any more then.
    pub fn doubt_fdb(&self) {
        self.queue.want(Kinds::NONE.with(Kind::Fdb));
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn notifications(&mut self, buffer: &[u8], made: Instant, sink: &mut dyn FnMut(Event)) {
        for message in Messages::new(buffer) {
            match message.and_then(|m| decode_message(&m)) {
                Ok(Decoded::Event(mut event)) => {
                    date(&mut event, made);
                    self.notified(event, sink);
                }
                Ok(Decoded::Vlans(vlans)) => {
                    vlans.events().for_each(|event| self.notified(event, sink));
                }
                Ok(Decoded::Port(change)) => {
                    self.stats.notified += 1;
                    match self.sweeping.map(Dumped::kind) {
                        Some(Kind::Links) => self.held.push(Told::Port(change)),
                        _ => self.port(&change, sink),
                    }
                }
                Ok(Decoded::Netconf(_)) => self.queue.want_settings(),
                Ok(_) => self.stats.skipped += 1,
                Err(error) => {
                    tracing::debug!(%error, "notification not understood");
                    self.stats.malformed += 1;
                }
            }
        }
    }

    fn notified(&mut self, event: Event, sink: &mut dyn FnMut(Event)) {
        self.stats.notified += 1;
        self.queue.want(signs(&event, |index| {
            self.links.get(&index).map(|l| l.flags)
        }));
        if Kind::of(&event) != self.sweeping.map(Dumped::kind) {
            self.deliver(event, sink);
            return;
        }
        // Dumps of routes take seconds where there are a million.
        match event {
            Event::Route(route, op) => {
                // Whether the dump has it does not show where others of its key stand beside it.
                if matches!(op, RouteOp::Append | RouteOp::Prepend)
                    && let Some(dumped) = self.sweeping
                {
                    self.queue.want(dumped);
                }
                sink(Event::Meanwhile(route, Some(op)));
            }
            Event::RouteGone(route) => sink(Event::Meanwhile(route, None)),
            event => self.held.push(Told::Event(event)),
        }
    }

    /// Hands on a link as it is after what its bridge tells of it.
    fn port(&mut self, change: &PortChange, sink: &mut dyn FnMut(Event)) {
        match self.ports.after(change) {
            Some(link) => self.deliver(Event::Link(link), sink),
            None => self.queue.want(Kinds::NONE.with(Kind::Links)),
        }
    }

    fn chunk(&mut self, buffer: &[u8], made: Instant, sink: &mut dyn FnMut(Event)) {
        for message in Messages::new(buffer) {
            match message.and_then(|m| decode_message(&m)) {
                Ok(Decoded::Event(mut event)) => {
                    self.stats.dumped += 1;
                    date(&mut event, made);
                    self.deliver(event, sink);
                }
                Ok(Decoded::Vlans(vlans)) => vlans.events().for_each(|event| {
                    self.stats.dumped += 1;
                    self.deliver(event, sink);
                }),
                Ok(Decoded::Outcome(_)) => {}
                Ok(_) => self.stats.skipped += 1,
                Err(error) => {
                    tracing::debug!(%error, "part of a dump not understood");
                    self.stats.malformed += 1;
                }
            }
        }
    }

    fn dump_end(&mut self, dumped: Dumped, quality: Dump, sink: &mut dyn FnMut(Event)) {
        sink(Event::SweepEnd(dumped.sweep()));
        self.sweeping = None;
        for told in std::mem::take(&mut self.held) {
            match told {
                Told::Event(event) => self.deliver(event, sink),
                Told::Port(change) => self.port(&change, sink),
            }
        }
        if quality == Dump::Interrupted {
            self.stats.interrupted += 1;
            self.queue.want(dumped);
        }
    }

    /// Hands an event on, and what is known about a link's settings behind the link.
    fn deliver(&mut self, event: Event, sink: &mut dyn FnMut(Event)) {
        match &event {
            Event::Link(link) => {
                self.ports.note(link);
                self.bonds.note(link, &self.queue);
                let device = self.remember(link);
                let index = link.index;
                sink(event);
                if let Some(settings) = device {
                    sink(Event::Device(index, settings));
                }
                return;
            }
            Event::LinkGone(index) => {
                self.ports.forget(*index);
                self.bonds.forget(*index, &self.queue);
                if let Some(link) = self.links.remove(index) {
                    self.devices.forget(&link.name);
                }
            }
            _ => {}
        }
        sink(event);
    }

    /// Notes a link's state. Its settings, if they are known and have not been told yet; if they
    /// are not known, they are ordered.
    fn remember(&mut self, link: &Link) -> Option<DeviceSettings> {
        let known = self.links.get(&link.index);
        if let Some(state) = known
            && state.name == link.name
        {
            let device = state.device;
            let state = LinkState {
                name: link.name.clone(),
                flags: link.flags,
                device,
            };
            self.links.insert(link.index, state);
            return None;
        }
        let device = self.devices.get(&link.name);
        let state = LinkState {
            name: link.name.clone(),
            flags: link.flags,
            device,
        };
        self.links.insert(link.index, state);
        if device.is_none() {
            self.queue.want_settings();
        }
        device
    }

    fn sysctls(&mut self, sysctls: Sysctls, began: Instant, sink: &mut dyn FnMut(Event)) {
        if self.settings != Some(sysctls.settings) {
            self.settings = Some(sysctls.settings);
            sink(Event::Settings(sysctls.settings));
        }
        if self.keys != sysctls.keys {
            self.keys.clone_from(&sysctls.keys);
            sink(Event::HmacKeys(sysctls.keys));
        }
        self.devices.all(sysctls.devices, began);
        self.tell_devices(None, sink);
    }

    /// Hands on what is known now, and was not, of the settings of links; of one, where only that has changed.
    fn tell_devices(&mut self, only: Option<&str>, sink: &mut dyn FnMut(Event)) {
        for (&index, link) in &mut self.links {
            if only.is_some_and(|name| name != link.name) {
                continue;
            }
            let now = self.devices.get(&link.name);
            if let Some(settings) = now
                && link.device != now
            {
                link.device = now;
                sink(Event::Device(index, settings));
            }
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.queue.stop();
        self.stop.set();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

/// The whole state of the calling thread's network namespace, as [`Mirror::initial`] tells it:
/// what a snapshot file or a one-off command needs.
///
/// # Errors
/// As [`Mirror::open`] and [`Mirror::initial`].
pub fn snapshot() -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    Mirror::open()?.initial(&mut |event| events.push(event))?;
    Ok(events)
}

//! What the tasks share: transports, clients, and the calls that wait for a transport.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::field::{DisplayValue, display};

use super::backchannel::Sessions;
use super::call::Call;
use super::client::Client;
use super::duplicates::Duplicates;
use super::memory::{Memory, User as Kept};
use super::own::is_own;
use super::peer::User;
use super::pressure::{Pressure, Sizes};
use super::transport::Transport;
use super::waiting::Waiting;
use super::{Config, Connect, Ended};
use crate::dispatch::{Dispatch, Load};
use crate::journal::{Entry, Journal, Left, Noted, PENDING, Place};
use crate::message;
use crate::program;
use crate::replay::{RETURN, Resume, Sent};
use crate::trouble::{Often, Trouble};

/// Signed calls that wait for their XID and are tried at once, at most.
const STUCK: usize = 64;

/// Disconnected clients that are remembered.
const ENDED: usize = 16;

/// Counts of what should not happen often.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub clients: Cell<u64>,
    pub refused: Cell<u64>,
    pub disconnected: Cell<u64>,
    pub bad_records: Cell<u64>,
    pub repeated: Cell<u64>,
    pub answered_again: Cell<u64>,
    pub run_again: Cell<u64>,
    pub unknown_replies: Cell<u64>,
    pub server_calls: Cell<u64>,
    pub server_calls_refused: Cell<u64>,
    pub resent: Cell<u64>,
    pub replayed: Cell<u64>,
}

/// One more.
pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// The state of a proxy.
pub(super) struct Shared {
    pub config: Config,
    pub connect: Rc<dyn Connect>,
    pub transports: Vec<Transport>,
    pub clients: RefCell<HashMap<u64, Rc<Client>>>,
    dispatch: Vec<RefCell<Dispatch>>,
    waiting: Vec<RefCell<Waiting>>,
    pub calls: Rc<Memory>,
    pub replies: Rc<Memory>,
    pub sizes: Sizes,
    pub pressure: Pressure,
    pub counts: Counts,
    /// Calls that count.
    pub duplicates: Rc<Duplicates>,
    /// Where calls that count are noted for the next process, and what the one before has left.
    pub journal: RefCell<Journal>,
    /// The journal's step at which calls were noted again last, and whether there were too many.
    noted: Cell<[u32; 4]>,
    crowded: Cell<bool>,
    left: RefCell<Left>,
    /// Which clients servers may call.
    pub sessions: Sessions,
    /// The last clients that were disconnected, and why.
    pub ended: RefCell<VecDeque<Ended>>,
    /// Which transports cannot connect, by service.
    pub troubles: Vec<RefCell<Trouble>>,
    /// Clients that were refused for their port.
    pub strangers: RefCell<Trouble>,
    /// Whether no more calls are taken.
    ends: Cell<bool>,
    end: Notify,
    /// Clients that are told of in the log.
    told: RefCell<Often>,
    /// Calls that count and were sent again: that many clients go hides none.
    told_again: RefCell<Often>,
    /// What clients of one user keep together, of calls and of replies.
    users: RefCell<HashMap<User, [Weak<Cell<usize>>; 2]>>,
    pub started: Instant,
    /// What runs for as long as the proxy does.
    pub tasks: RefCell<Vec<AbortHandle>>,
}

impl Shared {
    pub(super) fn new(
        config: Config,
        connect: Rc<dyn Connect>,
        start: u32,
        (journal, left): (Journal, Left),
    ) -> Shared {
        let all: usize = config
            .services
            .iter()
            .map(|s| s.connections + s.lanes)
            .sum();
        let mut transports = Vec::with_capacity(all);
        for (service, of) in config.services.iter().enumerate() {
            for number in 0..of.connections + of.lanes {
                let lane = number >= of.connections;
                let segment = (transports.len(), all, start);
                let transport = Transport::new((service, number, lane), segment);
                transport.expect(&left);
                transports.push(transport);
            }
        }
        let services = config.services.len();
        Shared {
            connect,
            transports,
            clients: RefCell::default(),
            dispatch: (0..services)
                .map(|_| RefCell::new(Dispatch::new(config.policy)))
                .collect(),
            waiting: (0..services).map(|_| RefCell::default()).collect(),
            calls: Memory::new(config.memory),
            replies: Memory::new(config.memory),
            sizes: Sizes::default(),
            pressure: Pressure::default(),
            counts: Counts::default(),
            duplicates: Duplicates::new(journal.keys()),
            noted: Cell::new(journal.step()),
            crowded: Cell::new(false),
            journal: RefCell::new(journal),
            left: RefCell::new(left),
            sessions: Sessions::default(),
            ended: RefCell::default(),
            troubles: (0..services).map(|_| RefCell::default()).collect(),
            strangers: RefCell::default(),
            ends: Cell::new(false),
            end: Notify::new(),
            told: RefCell::default(),
            told_again: RefCell::default(),
            users: RefCell::default(),
            started: Instant::now(),
            tasks: RefCell::default(),
            config,
        }
    }

    /// Takes no more calls.
    pub(super) fn end(&self) {
        self.ends.set(true);
        self.end.notify_waiters();
    }

    /// Whether no more calls are taken.
    pub(super) fn ends(&self) -> bool {
        self.ends.get()
    }

    /// Waits until no more calls are taken.
    pub(super) async fn told_to_end(&self) -> io::Result<()> {
        // Made first, so that it hears of what comes meanwhile.
        let told = self.end.notified();
        if !self.ends() {
            told.await;
        }
        Ok(())
    }

    /// A client has been disconnected.
    pub(super) fn ended(&self, client: SocketAddr, why: &str) {
        // A call of the program itself, which is told so.
        if is_own(client) {
            return;
        }
        count(&self.counts.disconnected);
        self.tell(client, &format!("client disconnected: {why}"));
        let mut ended = self.ended.borrow_mut();
        ended.truncate(ENDED - 1);
        ended.push_front(Ended {
            client,
            why: why.to_owned(),
        });
    }

    /// Logs what has become of a client, unless that happens too often.
    pub(super) fn tell(&self, client: SocketAddr, what: &str) {
        self.say(&self.told, client, what);
    }

    /// Counts a call of a client that counts and is sent again, so that it may be run twice, and logs why, unless that
    /// happens too often.
    pub(super) fn runs_again(&self, client: SocketAddr, call: &message::Call, why: &str) {
        count(&self.counts.run_again);
        let (program, xid) = (call.program, call.xid);
        let what = match program::name(program, call.version, call.procedure) {
            Some(name) => {
                format!("{name} with XID {xid:#x} sent again, and may be run twice: {why}")
            }
            None => {
                let procedure = call.procedure;
                format!(
                    "procedure {procedure} of program {program} with XID {xid:#x} sent again, and may be run twice: {why}"
                )
            }
        };
        self.say(&self.told_again, client, &what);
    }

    fn say(&self, told: &RefCell<Often>, client: SocketAddr, what: &str) {
        let server = self.server();
        match told.borrow_mut().happened(Instant::now()) {
            Some(0) => tracing::warn!(server, %client, "{what}"),
            Some(more) => {
                tracing::warn!(server, %client, "{what}; so were, or otherwise, {more} more before")
            }
            None => tracing::debug!(server, %client, "{what}"),
        }
    }

    /// What clients of a user keep together, of calls and of replies.
    pub(super) fn kept_by(&self, user: User) -> [Kept; 2] {
        let mut users = self.users.borrow_mut();
        users.retain(|_, of| of.iter().any(|kept| kept.strong_count() > 0));
        let known = users
            .get(&user)
            .map(|of| [of[0].upgrade(), of[1].upgrade()]);
        let kept = known.unwrap_or_default().map(Option::unwrap_or_default);
        let of = [Rc::downgrade(&kept[0]), Rc::downgrade(&kept[1])];
        users.insert(user, of);
        kept
    }

    /// What log lines call the server.
    pub(super) fn server(&self) -> Option<DisplayValue<&str>> {
        self.connect.server().map(display)
    }

    /// What log lines call a connection.
    pub(super) fn name(&self, transport: &Transport) -> String {
        let (service, number) = (transport.service, transport.number);
        self.connect.name(service, number, transport.lane)
    }

    /// The service of a program.
    pub(super) fn service(&self, program: u32) -> usize {
        let named = self.config.services.iter().skip(1);
        let found = named.clone().position(|s| s.programs.contains(&program));
        found.map_or(0, |i| i + 1)
    }

    /// Whether a transport of this service is being made anew, or has to be.
    pub(super) fn is_moving(&self, service: usize) -> bool {
        let mut of = self.transports.iter().filter(|t| t.service == service);
        of.any(|transport| transport.drains.get() || transport.watched().is_none())
    }

    /// Calls that wait for a transport.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().map(|of| of.borrow().count()).sum()
    }

    /// Whether calls wait for a transport of this service.
    pub(super) fn has_waiting(&self, service: usize) -> bool {
        !self.waiting[service].borrow().is_empty()
    }

    /// Gives a call to a transport, or has it wait. A small one overtakes large ones that wait.
    pub(super) fn submit(&self, call: Rc<Call>) {
        let free = self.waiting[call.service].borrow().is_empty();
        if (free || !call.want.is_large()) && self.assign(&call) {
            return;
        }
        let mut waiting = self.waiting[call.service].borrow_mut();
        match free && self.is_stuck(&call) {
            true => waiting.push_stuck(call),
            false => waiting.push(call),
        }
    }

    /// Has a call that was cut off go before all others.
    pub(super) fn again(&self, call: Rc<Call>) {
        call.sent.set(Sent::Nothing);
        call.transport.set(None);
        self.waiting[call.service].borrow_mut().push_first(call);
    }

    /// Gives waiting calls to transports, as far as there is room.
    pub(super) fn pump(&self, service: usize) {
        let waiting = &self.waiting[service];
        loop {
            let next = waiting.borrow_mut().pop();
            let Some(call) = next else {
                break;
            };
            if !call.is_wanted() || self.assign(&call) {
                continue;
            }
            if !self.is_stuck(&call) {
                waiting.borrow_mut().push_first(call);
                break;
            }
            waiting.borrow_mut().push_stuck(call);
        }
        let stuck = waiting.borrow().stuck().min(STUCK);
        for _ in 0..stuck {
            let next = waiting.borrow_mut().pop_stuck();
            if let Some(call) = next
                && call.is_wanted()
                && !self.assign(&call)
            {
                waiting.borrow_mut().push_stuck(call);
            }
        }
    }

    /// Whether it is its XID that keeps a call from every transport that stands.
    fn is_stuck(&self, call: &Call) -> bool {
        let mut stand = self
            .transports
            .iter()
            .filter(|t| t.service == call.service && t.watched().is_some())
            .peekable();
        call.header.is_signed()
            && stand.peek().is_some()
            && stand.all(|transport| transport.has(call.header.xid))
    }

    /// Notes a call that counts and is about to be sent.
    pub(super) fn note(&self, transport: &Transport, call: &Call) {
        self.enter(transport, call, Journal::note);
    }

    fn enter(
        &self,
        transport: &Transport,
        call: &Call,
        enter: fn(&mut Journal, bool, u64, Place) -> Noted,
    ) {
        let Some((ticket, (local, peer))) = call.ticket.get().zip(transport.ends()) else {
            return;
        };
        let mut journal = self.journal.borrow_mut();
        if journal.is_kept() {
            let place = Place {
                transport: transport.index as u16,
                local,
                peer,
                xid: call.xid.get(),
            };
            let noted = enter(&mut journal, call.writes(), ticket.tag(), place);
            call.noted.set(Some(noted));
        }
    }

    /// Notes calls that wait for their replies again, where the journal would have them no more otherwise.
    fn note_again(&self) {
        let step = self.journal.borrow().step();
        if self.noted.replace(step) == step {
            return;
        }
        let mut under_way = [0; 2];
        for transport in &self.transports {
            for call in transport.under_way() {
                under_way[usize::from(call.writes())] += 1;
                let due = self
                    .journal
                    .borrow()
                    .is_due(call.writes(), call.noted.get());
                if due {
                    self.enter(transport, &call, Journal::note_again);
                }
            }
        }
        let crowded = under_way.iter().any(|count| *count > PENDING);
        if crowded && !self.crowded.replace(crowded) {
            tracing::warn!(
                server = self.server(),
                "more than {PENDING} calls wait for their replies, and the journal has no room for all: some may be run \
                 twice if this process ends now"
            );
        }
        self.crowded.set(crowded);
    }

    /// Has what was noted outlive this process, and what has no reply yet.
    pub(super) fn flush(&self) {
        self.note_again();
        match self.journal.borrow_mut().flush() {
            Ok(false) => {}
            Ok(true) => tracing::info!(server = self.server(), "calls are noted again"),
            Err(e) => tracing::error!(
                server = self.server(),
                "calls are not noted, and may be run twice if this process ends; it is tried again in a minute: {e}"
            ),
        }
    }

    /// Where a call that counts and has come now was sent before: by this process, which remembers no more of it, or by
    /// an earlier one.
    pub(super) fn left(&self, call: &Call) -> Option<Entry> {
        let ticket = call.ticket.get()?;
        let here = self.duplicates.place(ticket);
        here.or_else(|| {
            let left = self.left.borrow();
            match left.calls.is_empty() {
                true => None,
                false => left.calls.get(&ticket.tag()).copied(),
            }
        })
    }

    /// Forgets what an earlier process has left when nobody comes back for it any more.
    pub(super) fn forget_left(&self) {
        if self.started.elapsed() >= RETURN && !self.left.borrow().calls.is_empty() {
            self.left.replace(Left::default());
            self.transports.iter().for_each(Transport::expect_no_more);
        }
    }

    /// Sends a call from where an earlier process has sent it, if this is possible.
    fn resume(&self, call: &Rc<Call>, entry: &Entry) -> bool {
        let number = usize::from(entry.place.transport);
        // One that there is no more has no port either.
        let transport = self.transports.get(number);
        let (resumed, rule) = transport.map_or((Resume::Other, 2), |transport| {
            transport.resume(call, entry)
        });
        let (server, client, local) = (self.server(), call.client().peer, entry.place.local);
        tracing::debug!(server, %client, %local, xid = call.header.xid, ?resumed, rule, "sent before");
        if resumed == Resume::SamePlace {
            call.transport.set(Some(number));
            // What is held counts when it goes out.
            if self.transports[number].watched().is_some() {
                count(&self.counts.replayed);
            }
            return true;
        }
        call.place.set(None);
        if rule != 1 {
            let why =
                format!("it was sent from {local} before, which is not to be had (rule {rule})");
            self.runs_again(client, &call.header, &why);
        }
        false
    }

    fn assign(&self, call: &Rc<Call>) -> bool {
        if let Some(entry) = call.place.get()
            && self.resume(call, &entry)
        {
            return true;
        }
        if let Some(way) = call.way.get()
            && self.transports[way.0].way() == Some(way)
            && self.transports[way.0].take_again(call)
        {
            call.transport.set(Some(way.0));
            return true;
        }
        if call.header.is_signed()
            && let Some(transport) = self.transports.iter().find(|t| t.replace(call))
        {
            call.transport.set(Some(transport.index));
            return true;
        }
        let mut numbers = Vec::with_capacity(self.transports.len());
        let mut loads: Vec<Load> = Vec::with_capacity(self.transports.len());
        for (number, transport) in self.transports.iter().enumerate() {
            if transport.service != call.service {
                continue;
            }
            let mut load = transport.load();
            // A signed call keeps its XID, and may not meet another one with it.
            load.up &= !call.header.is_signed() || !transport.has(call.header.xid);
            numbers.push(number);
            loads.push(load);
        }
        let chosen = self.dispatch[call.service]
            .borrow_mut()
            .choose(&loads, call.want);
        let Some(number) = chosen.map(|i| numbers[i]) else {
            return false;
        };
        let taken = self.transports[number].take(call);
        if taken {
            call.transport.set(Some(number));
        }
        taken
    }
}

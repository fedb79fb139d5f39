//! Other ways to a server for a connection that keeps its address and port: a mark on the socket, a rule that
//! leads the mark to a table, and a route in it by one link.
//!
//! Calls that must not be run twice are known to the server by the address and port that they came from, and
//! these alone decide which link the kernel's hash takes: without a detour they wait for that link.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::rc::{Rc, Weak};

use ipnet::IpNet;
use raddle_netlink::{Error, Socket};
use raddle_rib::event::{
    Event, Metrics, RTNH_F_ONLINK, Route, RouteNexthop, RouteOp, RouteTarget, Rule,
};

use crate::server::Numbers;
use raddle_plan::paths::Place;

/// Protocol number of the rules and routes that raddle makes (`RTPROT_*`; one that nobody else uses).
pub(crate) const PROTOCOL: u8 = 82;
/// Detours at once, each with a table of its own.
const SLOTS: u32 = 64;
/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;
/// The rules are for what this machine sends itself: they concern no packet that is forwarded, by the kernel
/// or by an engine.
const NO_PUNT: &str = "lo";

/// Where a detour leads: the server, by a link and gateway.
type To = (IpAddr, u32, Option<IpAddr>);

/// Makes detours, and takes them away when nobody goes by them any more.
pub(crate) struct Detours {
    numbers: Option<Numbers>,
    known: RefCell<BTreeMap<To, Weak<Detour>>>,
    /// Whether it was said that none can be made.
    told: Cell<bool>,
}

/// A detour; the rule and the route go when it is dropped.
pub(crate) struct Detour {
    slot: Slot,
    v4: bool,
}

/// A table that belongs to this process: whoever has its socket, of this network namespace, made what is in it.
struct Slot {
    table: u32,
    mark: u32,
    _lock: UnixDatagram,
}

impl Slot {
    /// None where another process has it.
    fn take(table: u32, mark: u32) -> Option<Slot> {
        let name = format!("raddle-detour/{table}");
        let address = UnixAddress::from_abstract_name(name).ok()?;
        let lock = UnixDatagram::bind_addr(&address).ok()?;
        Some(Slot {
            table,
            mark,
            _lock: lock,
        })
    }

    fn rule(&self, v4: bool) -> Rule {
        Rule {
            family: if v4 { 4 } else { 6 },
            priority: self.table,
            table: self.table,
            action: TO_TABLE,
            iif: Some(NO_PUNT.to_owned()),
            fwmark: Some((self.mark, u32::MAX)),
            protocol: PROTOCOL,
            ..Rule::default()
        }
    }

    /// The only route of the table: whatever has the mark.
    fn route(&self, v4: bool, target: RouteTarget, metrics: Metrics) -> Route {
        let dst = match v4 {
            true => IpNet::from(ipnet::Ipv4Net::default()),
            false => IpNet::from(ipnet::Ipv6Net::default()),
        };
        Route {
            table: self.table,
            dst,
            protocol: PROTOCOL,
            metrics,
            target,
            ..Route::default()
        }
    }

    /// The rule first: what a crash leaves is found by its rules.
    fn lead(&self, v4: bool, place: &Place, metrics: Metrics) -> Result<(), Error> {
        let mut socket = Socket::open()?;
        let hop = RouteNexthop {
            gateway: place.gateway,
            index: place.index,
            ..RouteNexthop::default()
        };
        let mut route = self.route(v4, RouteTarget::Single(hop), metrics);
        if place.gateway.is_some() {
            route.flags = RTNH_F_ONLINK.into();
        }
        socket.apply(
            &Event::Rule(self.rule(v4)),
            libc::NLM_F_CREATE as u16 | libc::NLM_F_EXCL as u16,
        )?;
        let done = socket.apply(&Event::Route(route, RouteOp::Add), 0);
        if done.is_err() {
            // Only what is ours: there is a route of somebody else.
            let _ = socket.apply(&Event::RuleGone(self.rule(v4)), 0);
        }
        done
    }

    fn clear(&self, v4: bool) {
        let Ok(mut socket) = Socket::open() else {
            return;
        };
        let route = self.route(v4, RouteTarget::None, Metrics::new());
        let _ = socket.apply(&Event::RouteGone(route), 0);
        let _ = socket.apply(&Event::RuleGone(self.rule(v4)), 0);
    }
}

impl Detour {
    /// The mark of sockets that go by it.
    pub(crate) fn mark(&self) -> u32 {
        self.slot.mark
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.slot.clear(self.v4);
    }
}

impl Detours {
    /// None are made without numbers. What a process that is no more has left is taken away.
    pub(crate) fn new(numbers: Option<Numbers>) -> Detours {
        if numbers.is_some() {
            let removed = clear_leftovers();
            if removed > 0 {
                tracing::info!("removed {removed} detours that an earlier run had left");
            }
        }
        Detours {
            numbers,
            known: RefCell::default(),
            told: Cell::new(false),
        }
    }

    /// Whether any may be made.
    pub(crate) fn are_possible(&self) -> bool {
        self.numbers.is_some() && !self.told.get()
    }

    /// The detour to a server by a link and gateway.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` without `CAP_NET_ADMIN`, after which none is possible.
    pub(crate) fn by(
        &self,
        server: IpAddr,
        place: &Place,
        metrics: &Metrics,
    ) -> io::Result<Rc<Detour>> {
        let Some(numbers) = self.numbers else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let key = (server, place.index, place.gateway);
        let mut known = self.known.borrow_mut();
        known.retain(|_, detour| detour.strong_count() > 0);
        if let Some(detour) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(detour);
        }
        let v4 = server.is_ipv4();
        for n in 0..SLOTS {
            let (table, mark) = (
                numbers.table.wrapping_add(n),
                numbers.mark.number().wrapping_add(n),
            );
            let Some(slot) = Slot::take(table, mark) else {
                continue;
            };
            match slot.lead(v4, place, metrics.clone()) {
                Ok(()) => {
                    let detour = Rc::new(Detour { slot, v4 });
                    known.insert(key, Rc::downgrade(&detour));
                    return Ok(detour);
                }
                // Somebody else's rule or route.
                Err(e) if e.errno() == Some(libc::EEXIST) => {}
                Err(e) => {
                    if e.errno() == Some(libc::EPERM) && !self.told.replace(true) {
                        tracing::warn!(
                            "calls that must not be run twice wait for their own link when it goes silent: going \
                             around it needs CAP_NET_ADMIN; give it, or --no-replay-routes"
                        );
                    }
                    return Err(io::Error::other(e.to_string()));
                }
            }
        }
        Err(io::Error::other(format!(
            "the tables {} to {} are in use; choose others by --replay-table",
            numbers.table,
            numbers.table.wrapping_add(SLOTS - 1)
        )))
    }
}

/// Removes rules and routes of processes that are no more; how many rules.
fn clear_leftovers() -> usize {
    let rules = Socket::open().and_then(|mut socket| socket.rules());
    let mut removed = 0;
    for rule in rules.unwrap_or_default() {
        let (Some((mark, _)), PROTOCOL) = (rule.fwmark, rule.protocol) else {
            continue;
        };
        if rule.iif.as_deref() == Some(NO_PUNT)
            && let Some(slot) = Slot::take(rule.table, mark)
            && slot.rule(rule.family == 4) == rule
        {
            slot.clear(rule.family == 4);
            removed += 1;
        }
    }
    removed
}

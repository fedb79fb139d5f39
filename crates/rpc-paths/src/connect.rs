//! Connections of the proxy: what is known of them, and how one is made.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use raddle_rpc::proxy::{Again, Connect, Connected, Review, Standing, Wanted};
use raddle_rpc::replay::RETURN;
use tokio::sync::Mutex;
use tracing::field::display;

use crate::again::again;
use crate::back::Returns;
use crate::candidates::{Ends, Tries, find};
use crate::detour::{Detour, Detours};
use crate::dial::{BRIEF, PATIENCE, connect, privileged};
use crate::error::{Error, Unplaced};
use crate::follow::{Debounce, Follower};
use crate::health::Health;
use crate::place::{Loads, Pace};
use crate::placing::{Turn, name_of};
use crate::resolve::{Addresses, PRIVILEGED, check_local};
use crate::server::Server;
use crate::show::called;
use crate::suspects::Suspects;
use raddle_plan::paths::Place;

/// How long ports with known paths are taken for right when nothing is heard of changes.
const FRESH: Duration = Duration::from_secs(10);

/// Where a connection lies.
#[derive(Clone, Debug)]
pub(crate) struct Lies {
    pub lane: bool,
    pub server: SocketAddr,
    pub local: SocketAddr,
    pub out: Option<String>,
    pub back: Option<String>,
    /// Whether it stands.
    pub up: bool,
}

/// Ports with known paths of a service, and when they were found.
type Found = (Instant, Rc<Tries>);

/// Makes connections, and looks after where they lie.
pub(crate) struct Connector(pub(crate) Rc<State>);

/// What is known.
pub(crate) struct State {
    /// What the server is called.
    pub name: String,
    named: Addresses,
    /// The server's addresses, as soon as one of several that its name stands for has answered.
    servers: RefCell<Vec<SocketAddr>>,
    pub local: Vec<IpAddr>,
    mount_port: Option<u16>,
    pub place: bool,
    privileged: bool,
    /// Those that stand, by service and number.
    pub lying: RefCell<BTreeMap<(usize, usize), Lies>>,
    pub found: RefCell<BTreeMap<usize, Found>>,
    /// How often what was known has ceased to be true.
    pub known: Cell<u64>,
    pub health: RefCell<Health>,
    /// By family (whether it is IPv6) and port of the server.
    pub returns: RefCell<BTreeMap<(bool, u16), Returns>>,
    pub follower: RefCell<Option<Follower>>,
    pub changes: Cell<Debounce>,
    pub pace: Cell<Pace>,
    /// When connections are to be looked at before the next round.
    pub look: Cell<Option<Instant>>,
    /// Links that connections never come back by although they go out by them.
    pub vain: RefCell<BTreeMap<String, Instant>>,
    pub suspects: RefCell<Suspects>,
    /// How long one may take whose path is to be found out.
    pub brief: Cell<Duration>,
    /// Whether a connection is not moved, although links are uneven, as calls of an earlier process may come back to it.
    pub expected: Cell<bool>,
    /// Ways around silent links, and who goes by them.
    detours: Detours,
    taken: RefCell<BTreeMap<(usize, usize), Rc<Detour>>>,
    /// The links that connections came back by last.
    backs: RefCell<BTreeMap<(usize, usize), String>>,
    /// Why connections are not placed; said once.
    pub unplaced: RefCell<Option<String>>,
    /// Why it is not seen by which links connections come back; said once.
    pub deaf: RefCell<Option<String>>,
    /// One at a time, so that each sees where the others lie.
    turn: Mutex<Turn>,
    /// Of several addresses that the server's name stands for, the one that an earlier process called last.
    last: Option<IpAddr>,
    /// One at a time takes an address.
    settling: Mutex<()>,
}

impl Connector {
    /// To this server, in this thread's network namespace; an earlier process has called it at this address `last`.
    ///
    /// # Errors
    /// An own address is none of this machine's, or privileged ports may not be used.
    pub(crate) fn new(
        options: &Server,
        named: Addresses,
        last: Option<IpAddr>,
    ) -> Result<Connector, Error> {
        check_local(options, &named)?;
        let place = options.placement;
        let follower = Follower::open()
            .inspect_err(|e| {
                let server = display(options.name.clone());
                tracing::warn!(server, "changes of routes are seen late, every 10 s: {e}");
            })
            .ok();
        let mut local = options.local_addresses.clone();
        local.dedup();
        Ok(Connector(Rc::new(State {
            name: options.name.clone(),
            servers: RefCell::default(),
            named,
            local,
            mount_port: options.mount_port,
            place,
            privileged: options.privileged_ports,
            lying: RefCell::default(),
            found: RefCell::default(),
            known: Cell::default(),
            health: RefCell::default(),
            returns: RefCell::default(),
            follower: RefCell::new(follower.filter(|_| place)),
            changes: Cell::default(),
            pace: Cell::default(),
            look: Cell::default(),
            vain: RefCell::default(),
            suspects: RefCell::default(),
            brief: Cell::new(BRIEF),
            expected: Cell::default(),
            detours: Detours::new(options.replay_routes),
            taken: RefCell::default(),
            backs: RefCell::default(),
            unplaced: RefCell::default(),
            deaf: RefCell::default(),
            turn: Mutex::default(),
            last,
            settling: Mutex::default(),
        })))
    }
}

impl State {
    /// The server's addresses for a service; none before one is known to answer.
    pub(crate) fn addresses(&self, service: usize) -> Vec<SocketAddr> {
        let mut servers = self.servers.borrow().clone();
        if let (1, Some(port)) = (service, self.mount_port) {
            servers.iter_mut().for_each(|server| server.set_port(port));
        }
        servers
    }

    /// Takes one of the addresses that the server's name stands for: the first that answers. Several may be
    /// several machines, which do not know each other's clients. So the one that an earlier process called is asked
    /// first, as clients may repeat calls to it.
    async fn settle(&self) -> io::Result<()> {
        let _settling = self.settling.lock().await;
        // Another connection may have settled it meanwhile.
        if !self.servers.borrow().is_empty() {
            return Ok(());
        }
        let mut named = self.named.named.clone();
        named.sort_by_key(|server| Some(server.ip()) != self.last);
        let mut chosen = named.first().copied().filter(|_| named.len() == 1);
        let mut why: Option<io::Error> = None;
        for server in &named {
            if chosen.is_some() {
                break;
            }
            match connect(*server, None, PATIENCE).await {
                Ok(_) => chosen = Some(*server),
                Err(e) => {
                    let before = why.map(|why| format!("{why}; ")).unwrap_or_default();
                    why = Some(io::Error::new(e.kind(), format!("{before}{server}: {e}")));
                }
            }
        }
        let none = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let server = chosen.ok_or_else(|| why.unwrap_or_else(none))?;
        if named.len() > 1 {
            let of = named.len();
            tracing::info!(server = %self.name, address = %server, "the first that answers of {of} addresses");
        }
        let mut servers = vec![server];
        for address in &self.named.more {
            let more = SocketAddr::new(*address, server.port());
            if !servers.contains(&more) {
                servers.push(more);
            }
        }
        *self.servers.borrow_mut() = servers;
        Ok(())
    }

    /// How many connections lie on each link: those of a service and for the same calls, but for one.
    pub(crate) fn loads(&self, wanted: Wanted, of: impl Fn(&Lies) -> Option<String>) -> Loads {
        let mut loads = Loads::new();
        for (key, lies) in &*self.lying.borrow() {
            if key.0 == wanted.service
                && key.1 != wanted.number
                && lies.lane == wanted.lane
                && let Some(link) = of(lies)
            {
                *loads.entry(link).or_default() += 1;
            }
        }
        loads
    }

    /// Ports with known paths, as they are now.
    pub(crate) async fn tries(&self, service: usize) -> Result<Rc<Tries>, Unplaced> {
        if let Some((at, tries)) = self.found.borrow().get(&service)
            && at.elapsed() < FRESH
        {
            return Ok(Rc::clone(tries));
        }
        let ends = Ends {
            servers: self.addresses(service),
            local: self.local.clone(),
            range: self.privileged.then_some(PRIVILEGED),
        };
        let (at, known) = (Instant::now(), self.known.get());
        let found = tokio::task::spawn_blocking(move || find(&ends)).await;
        let tries = Rc::new(found??);
        // What has changed meanwhile may not be in it.
        if self.known.get() == known {
            let found = (at, Rc::clone(&tries));
            self.found.borrow_mut().insert(service, found);
        }
        Ok(tries)
    }

    /// The link that routes lead over, of one that connections go out by: the bond of a member.
    fn dev_of(&self, out: &str) -> String {
        let found = self.found.borrow();
        let mut tries = found.values().flat_map(|(_, tries)| &tries.list);
        let of = tries.find(|of| of.out() == out);
        of.map_or(out, |of| of.dev.as_str()).to_owned()
    }

    /// The link that a connection goes out by which is sent there: of a bond the member, as far as ports with known paths say it.
    fn out_by(&self, service: usize, place: &Place, ends: (SocketAddr, SocketAddr)) -> String {
        match self.found.borrow().get(&service) {
            Some((_, tries)) => tries.out((place.index, place.gateway), ends),
            None => name_of(place.index),
        }
    }

    /// The same port again, for calls that are held.
    async fn again(&self, wanted: Wanted, of: Again) -> io::Result<Connected> {
        let key = (wanted.service, wanted.number);
        let working: Vec<String> = {
            let lying = self.lying.borrow();
            let stand = lying.values().filter(|lies| lies.up);
            let outs = stand.filter_map(|lies| lies.out.as_deref());
            outs.map(|out| self.dev_of(out)).collect()
        };
        let back = self.backs.borrow().get(&key).cloned();
        let made = again(&self.detours, of, &working, back.as_deref()).await?;
        let detour = made.detour.is_some();
        if let Some(detour) = made.detour {
            self.taken.borrow_mut().insert(key, detour);
        }
        Ok(Connected {
            stream: made.stream,
            out: made
                .place
                .map(|place| self.out_by(wanted.service, &place, (of.from, of.to))),
            back: None,
            attempts: 1,
            detour,
        })
    }

    /// Any port, where paths are left to the kernel, or cannot be told: by addresses in turn, and by the next
    /// ones where they do not answer.
    pub(crate) async fn anyhow(&self, wanted: Wanted) -> io::Result<Connected> {
        let servers = self.addresses(wanted.service);
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for turn in 0..servers.len() {
            let server = servers[(wanted.number + turn) % servers.len()];
            let number = (wanted.number + turn) % self.local.len().max(1);
            let local = self.local.get(number).copied();
            let from = local.map(|local| SocketAddr::new(local, 0));
            let made = match self.privileged {
                true => privileged(server, local).await,
                false => connect(server, from, PATIENCE).await,
            };
            match made {
                Ok(stream) => {
                    return Ok(Connected {
                        stream,
                        out: None,
                        back: None,
                        attempts: 1 + turn as u32,
                        detour: false,
                    });
                }
                Err(e) => last = io::Error::new(e.kind(), format!("{server}: {e}")),
            }
        }
        Err(last)
    }

    async fn made(&self, wanted: Wanted) -> io::Result<Connected> {
        if let Some(again) = wanted.again {
            // None is settled on yet where an earlier process has left calls.
            self.settle().await?;
            if !self.addresses(wanted.service).contains(&again.to) {
                // No other port would do: it is another machine, maybe.
                let why = format!("{} is not the server any more", again.to);
                return Err(io::Error::other(why));
            }
            return self.again(wanted, again).await;
        }
        let mut turn = self.turn.lock().await;
        self.settle().await?;
        match self.place {
            true => self.placed(wanted, &mut turn).await,
            false => {
                drop(turn);
                self.anyhow(wanted).await
            }
        }
    }
}

impl Connect for Connector {
    fn connect(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = io::Result<Connected>> + '_>> {
        Box::pin(async move {
            let connected = self.0.made(wanted).await?;
            let lies = Lies {
                lane: wanted.lane,
                server: connected.stream.peer_addr()?,
                local: connected.stream.local_addr()?,
                out: connected.out.clone(),
                back: connected.back.clone(),
                up: true,
            };
            let key = (wanted.service, wanted.number);
            if let Some(back) = &connected.back {
                self.0.backs.borrow_mut().insert(key, back.clone());
            }
            self.0.lying.borrow_mut().insert(key, lies);
            self.0.look.set(Some(Instant::now() + BRIEF));
            Ok(connected)
        })
    }

    fn server(&self) -> Option<&str> {
        Some(&self.0.name)
    }

    fn name(&self, service: usize, number: usize, lane: bool) -> String {
        called(service, number, lane)
    }

    fn changed(&self) -> bool {
        self.0.place && self.0.tick()
    }

    fn review(&self, standing: &[Standing]) -> Review {
        match self.0.place {
            true => self.0.review(standing),
            false => Review::default(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.0.unplaced.borrow().iter().cloned().collect();
        notes.extend(self.0.deaf.borrow().iter().cloned());
        for (_, tries) in self.0.found.borrow().values() {
            notes.extend(tries.notes.iter().cloned());
        }
        notes.extend(self.0.health.borrow().notes());
        if self.0.expected.get() {
            let seconds = RETURN.as_secs();
            notes.push(format!(
                "links are uneven: connections keep the ports that the process before had, for calls that may come \
                 back, until {seconds} s after the start"
            ));
        }
        let mut said = BTreeSet::new();
        notes.retain(|note| said.insert(note.clone()));
        notes
    }

    fn silent(&self, service: usize, number: usize) {
        // What moves have brought so far says nothing any more.
        let mut pace = self.0.pace.get();
        pace.forget();
        self.0.pace.set(pace);
        if let Some(lies) = self.0.lying.borrow().get(&(service, number)) {
            let links = [lies.out.clone(), lies.back.clone()];
            let mut suspects = self.0.suspects.borrow_mut();
            suspects.lost(links.into_iter().flatten(), Instant::now());
        }
    }

    fn closed(&self, service: usize, number: usize) {
        self.0.taken.borrow_mut().remove(&(service, number));
        // Where it lay counts no more, and is where it comes back to.
        if let Some(lies) = self.0.lying.borrow_mut().get_mut(&(service, number)) {
            (lies.back, lies.up) = (None, false);
        }
    }
}

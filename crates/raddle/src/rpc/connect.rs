//! Connections of the proxy: each from a source port that puts it on a path of its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::Rib;
use raddle_rpc::proxy::{Again, Connect, Connected, Review, Standing, Wanted};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::again::again;
use super::back::SynAcks;
use super::detour::{Detour, Detours};
use super::place::{ATTEMPTS, Known, Loads, keep, least, uneven};
use crate::cli;
use crate::error::Failure;
use crate::paths::link_name;
use crate::ports::{self, Candidate};
use crate::source;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one may take whose path is to be found out; another path is tried then.
pub(super) const BRIEF: Duration = Duration::from_millis(250);
/// Ports in a row that are tried on a link without an answer: it may be the way back that is silent.
const SILENT: u32 = 3;
/// Ports that are planned for each pair of addresses; fewer where there are not so many.
const PLANNED: [usize; 4] = [1024, 256, 64, 16];
/// How long a link counts as one that connections come back by.
const LATELY: Duration = Duration::from_secs(5);
/// How long the first re-placing is waited for, and the longest, when they do not even the loads.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));
/// Ports that servers take for root's.
const PRIVILEGED: (u16, u16) = (512, 1023);

/// Where a connection lies.
#[derive(Clone, Debug)]
struct Lies {
    lane: bool,
    out: Option<String>,
    back: Option<String>,
}

/// A port that may be tried.
#[derive(Clone, Debug)]
struct Try {
    server: SocketAddr,
    candidate: Candidate,
}

/// Makes connections.
pub(super) struct Connector {
    servers: Vec<SocketAddr>,
    local: Vec<IpAddr>,
    mount_port: Option<u16>,
    place: bool,
    privileged: bool,
    /// Those that stand, by service and number.
    lying: RefCell<BTreeMap<(usize, usize), Lies>>,
    /// The links that connections of a service can go out by.
    links: RefCell<BTreeMap<usize, Vec<String>>>,
    /// When one was moved last, and how long the next one waits.
    moved: Cell<(Option<Instant>, Duration)>,
    /// Ways around silent links, and who goes by them.
    detours: Detours,
    taken: RefCell<BTreeMap<(usize, usize), Rc<Detour>>>,
    /// Which connections there are.
    standing: RefCell<BTreeSet<(usize, usize)>>,
    /// The links that connections came back by last.
    backs: RefCell<BTreeMap<(usize, usize), String>>,
    /// One at a time, so that each sees where the others lie.
    turn: Mutex<Turn>,
}

/// What placing goes on from.
#[derive(Default)]
struct Turn {
    syn_acks: BTreeMap<SocketAddr, SynAcks>,
    /// Ports that have been tried, so that each attempt takes another one.
    tried: BTreeMap<(SocketAddr, u16), u64>,
    tries: u64,
    /// Said once.
    told: bool,
    /// When a connection has come back by a link last.
    seen: BTreeMap<String, Instant>,
}

impl Connector {
    pub(super) fn new(
        args: &cli::RpcProxy,
        servers: Vec<SocketAddr>,
    ) -> Result<Connector, Failure> {
        let v6 = |ip: &IpAddr| ip.is_ipv6();
        let other = |ip: &&IpAddr| !servers.iter().any(|server| server.is_ipv6() == v6(ip));
        if let Some(address) = args.local_addresses.iter().find(other) {
            return Err(Failure::usage(format!(
                "--local-addresses {address} is of another family than the server"
            )));
        }
        Ok(Connector {
            servers,
            local: args.local_addresses.clone(),
            mount_port: args.mount_port,
            place: !args.no_placement,
            privileged: args.privileged_ports,
            lying: RefCell::default(),
            links: RefCell::default(),
            moved: Cell::new((None, PAUSES.0)),
            detours: Detours::new(args.detours()),
            taken: RefCell::default(),
            standing: RefCell::default(),
            backs: RefCell::default(),
            turn: Mutex::default(),
        })
    }

    /// The server's addresses for a service.
    fn addresses(&self, service: usize) -> Vec<SocketAddr> {
        let mut servers = self.servers.clone();
        if let (1, Some(port)) = (service, self.mount_port) {
            servers.iter_mut().for_each(|server| server.set_port(port));
        }
        servers
    }

    /// How many connections lie on each link: those of a service and for the same calls, but for one.
    fn loads(&self, wanted: Wanted, of: impl Fn(&Lies) -> &Option<String>) -> Loads {
        let mut loads = Loads::new();
        for (key, lies) in &*self.lying.borrow() {
            if key.0 == wanted.service
                && key.1 != wanted.number
                && lies.lane == wanted.lane
                && let Some(link) = of(lies)
            {
                *loads.entry(link.clone()).or_default() += 1;
            }
        }
        loads
    }

    /// The same port again, for calls that are held.
    async fn again(&self, wanted: Wanted, of: Again) -> io::Result<Connected> {
        let key = (wanted.service, wanted.number);
        let working: Vec<String> = {
            let lying = self.lying.borrow();
            let standing = self.standing.borrow();
            let stand = lying.iter().filter(|(k, _)| standing.contains(k));
            stand.filter_map(|(_, lies)| lies.out.clone()).collect()
        };
        let back = self.backs.borrow().get(&key).cloned();
        let made = again(&self.detours, of, &working, back.as_deref()).await?;
        let detour = made.detour.is_some();
        if let Some(detour) = made.detour {
            self.taken.borrow_mut().insert(key, detour);
        }
        Ok(Connected {
            stream: made.stream,
            out: made.link,
            back: None,
            attempts: 1,
            detour,
        })
    }

    /// One that should be placed anew, to even the loads of links on the way out or back; one a while, and less
    /// often where that does not help.
    fn to_move(&self, standing: &[Standing]) -> Option<usize> {
        let (lying, links) = (self.lying.borrow(), self.links.borrow());
        let moves = |of: &Standing| {
            let lies = lying.get(&(of.service, of.number))?;
            let all = links.get(&of.service)?;
            // Loads with its own.
            let uneven = |way: fn(&Lies) -> &Option<String>| {
                let mut loads = Loads::new();
                for (_, other) in lying
                    .iter()
                    .filter(|(key, l)| key.0 == of.service && l.lane == lies.lane)
                {
                    if let Some(link) = way(other) {
                        *loads.entry(link.clone()).or_default() += 1;
                    }
                }
                let own = way(lies).as_ref();
                own.is_some_and(|link| uneven(link, &loads, all))
            };
            Some(uneven(|lies| &lies.out) || uneven(|lies| &lies.back))
        };
        let found = standing
            .iter()
            .position(|of| !of.lane && moves(of) == Some(true));
        let (since, pause) = self.moved.get();
        if found.is_none() {
            self.moved.set((since, PAUSES.0));
            return None;
        }
        if since.is_some_and(|since| since.elapsed() < pause) {
            return None;
        }
        self.moved
            .set((Some(Instant::now()), (2 * pause).min(PAUSES.1)));
        found
    }

    /// Any port, where paths are left to the kernel, or cannot be predicted.
    async fn anyhow(&self, wanted: Wanted) -> io::Result<Connected> {
        let servers = self.addresses(wanted.service);
        let server = servers[wanted.number % servers.len()];
        let locals: Vec<IpAddr> = self
            .local
            .iter()
            .copied()
            .filter(|l| l.is_ipv6() == server.is_ipv6())
            .collect();
        let local = locals.get(wanted.number % locals.len().max(1)).copied();
        let stream = match (self.privileged, local) {
            (true, _) => self.privileged(server, local).await?,
            (false, Some(local)) => {
                connect(server, Some(SocketAddr::new(local, 0)), PATIENCE).await?
            }
            (false, None) => connect(server, None, PATIENCE).await?,
        };
        Ok(Connected {
            stream,
            out: None,
            back: None,
            attempts: 1,
            detour: false,
        })
    }

    async fn privileged(&self, server: SocketAddr, local: Option<IpAddr>) -> io::Result<TcpStream> {
        let local = local.unwrap_or_else(|| unspecified(server));
        for port in (PRIVILEGED.0..=PRIVILEGED.1).rev() {
            match connect(server, Some(SocketAddr::new(local, port)), PATIENCE).await {
                Err(e) if is_taken(&e) => {}
                done => return done,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Ports with known paths, for every pair of addresses.
    fn candidates(&self, service: usize) -> Result<Vec<Try>, Failure> {
        let rib = source::mirror(None)?;
        let kernel = source::uname().and_then(|text| text.parse().ok());
        let range = self.privileged.then_some(PRIVILEGED);
        let mut all = Vec::new();
        for server in self.addresses(service) {
            let locals = self
                .local
                .iter()
                .copied()
                .filter(|l| l.is_ipv6() == server.is_ipv6());
            let mut locals: Vec<Option<IpAddr>> = locals.map(Some).collect();
            if locals.is_empty() {
                locals.push(None);
            }
            for local in locals {
                let to = (server.ip(), server.port());
                let plan = |count| ports::candidates(&rib, kernel, to, local, range, count);
                let mut found = plan(PLANNED[0]);
                for count in &PLANNED[1..] {
                    if found.is_err() {
                        found = plan(*count);
                    }
                }
                all.extend(
                    found?
                        .into_iter()
                        .map(|candidate| Try { server, candidate }),
                );
            }
        }
        confirm(&mut all, &rib)?;
        Ok(all)
    }

    async fn placed(&self, wanted: Wanted, turn: &mut Turn) -> io::Result<Connected> {
        let tries = match self.candidates(wanted.service) {
            Ok(tries) => tries,
            Err(e) => {
                if !std::mem::replace(&mut turn.told, true) {
                    tracing::warn!("connections are not placed: {e}");
                }
                return self.anyhow(wanted).await;
            }
        };
        let mut links: Vec<&str> = Vec::new();
        for of in &tries {
            let dev = of.candidate.path.dev.as_str();
            if !links.contains(&dev) {
                links.push(dev);
            }
        }
        let names = links.iter().map(|link| (*link).to_owned()).collect();
        self.links.borrow_mut().insert(wanted.service, names);
        let out = self.loads(wanted, |lies| &lies.out);
        let mut usable = links.clone();
        let (mut attempts, mut silent) = (0, 0);
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        while let Some(link) = least(&usable, &out) {
            match self
                .on_link(
                    wanted,
                    turn,
                    (&tries, link, &links),
                    (&mut attempts, &mut silent),
                )
                .await
            {
                Ok(connected) => return Ok(connected),
                Err(e) => {
                    tracing::debug!(link, "no connection: {e}");
                    last = e;
                    usable.retain(|l| *l != link);
                }
            }
        }
        Err(last)
    }

    /// A connection that goes out by one link, and comes back by one with as few as possible.
    async fn on_link(
        &self,
        wanted: Wanted,
        turn: &mut Turn,
        (tries, link, links): (&[Try], &str, &[&str]),
        (attempts, silent): (&mut u32, &mut u32),
    ) -> io::Result<Connected> {
        let back_loads = self.loads(wanted, |lies| &lies.back);
        let mut in_a_row = 0;
        loop {
            let of_link = tries.iter().filter(|of| of.candidate.path.dev == link);
            let port = |of: &Try| (of.server, of.candidate.port);
            let next = of_link.min_by_key(|of| turn.tried.get(&port(of)).copied());
            let Some(of) = next else {
                return Err(io::ErrorKind::AddrInUse.into());
            };
            turn.tries += 1;
            turn.tried.insert(port(of), turn.tries);
            let server = of.server;
            if !turn.syn_acks.contains_key(&server)
                && let Ok(syn_acks) = SynAcks::open(server)
            {
                turn.syn_acks.insert(server, syn_acks);
            }
            let from = of.candidate.from.unwrap_or_else(|| unspecified(server));
            let from = SocketAddr::new(from, of.candidate.port);
            *attempts += 1;
            let stream = match connect(server, Some(from), BRIEF).await {
                Ok(stream) => stream,
                Err(e) if is_taken(&e) && *attempts < ATTEMPTS => continue,
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    *silent += 1;
                    in_a_row += 1;
                    if in_a_row < SILENT {
                        continue;
                    }
                    return Err(e);
                }
                Err(e) => return Err(e),
            };
            in_a_row = 0;
            let syn_acks = turn.syn_acks.get_mut(&server);
            let index = syn_acks.and_then(|seen| seen.link(from.port()));
            let back = index.map(name_of);
            if let Some(back) = &back {
                turn.seen.insert(back.clone(), Instant::now());
                turn.seen.retain(|_, at| at.elapsed() < LATELY);
                let seen: Vec<&str> = turn.seen.keys().map(String::as_str).collect();
                let known = Known {
                    loads: &back_loads,
                    expected: links,
                    seen: &seen,
                    attempt: *attempts,
                    silent: *silent > 0,
                };
                if !keep(back, &known) {
                    continue;
                }
            }
            return Ok(Connected {
                stream,
                out: Some(link.to_owned()),
                back,
                attempts: *attempts,
                detour: false,
            });
        }
    }
}

impl Connect for Connector {
    fn connect(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = io::Result<Connected>> + '_>> {
        Box::pin(async move {
            let connected = match (wanted.again, self.place) {
                (Some(again), _) => self.again(wanted, again).await?,
                (None, true) => {
                    let mut turn = self.turn.lock().await;
                    self.placed(wanted, &mut turn).await?
                }
                (None, false) => self.anyhow(wanted).await?,
            };
            let lies = Lies {
                lane: wanted.lane,
                out: connected.out.clone(),
                back: connected.back.clone(),
            };
            let key = (wanted.service, wanted.number);
            if let Some(back) = &connected.back {
                self.backs.borrow_mut().insert(key, back.clone());
            }
            self.lying.borrow_mut().insert(key, lies);
            self.standing.borrow_mut().insert(key);
            Ok(connected)
        })
    }

    fn review(&self, standing: &[Standing]) -> Review {
        let mut review = Review::default();
        if !self.place {
            return review;
        }
        let Ok(mut socket) = Socket::open() else {
            return review;
        };
        for of in standing {
            let query = RouteQuery {
                src: Some(of.local.ip()),
                ip_proto: Some(6),
                sport: Some(of.local.port()),
                dport: Some(of.peer.port()),
                ..RouteQuery::default()
            };
            let said = socket.get_route(of.peer.ip(), &query).ok();
            let key = (of.service, of.number);
            if let Some(said) = said
                && let Some(lies) = self.lying.borrow_mut().get_mut(&key)
                && lies.out.is_some()
            {
                lies.out = Some(name_of(said.index));
            }
        }
        let lying = self.lying.borrow();
        let of = |of: &Standing| lying.get(&(of.service, of.number));
        let out = |of: &Lies| of.out.clone();
        review.links = standing.iter().map(|s| of(s).and_then(out)).collect();
        drop(lying);
        review.again = self.to_move(standing);
        review
    }

    fn closed(&self, service: usize, number: usize) {
        self.standing.borrow_mut().remove(&(service, number));
        self.taken.borrow_mut().remove(&(service, number));
        // Where it lay counts no more, and is where it comes back to.
        if let Some(lies) = self.lying.borrow_mut().get_mut(&(service, number)) {
            lies.back = None;
        }
    }
}

/// Asks the kernel about one port of each path; where it says otherwise, paths cannot be predicted.
fn confirm(tries: &mut [Try], rib: &Rib) -> Result<(), Failure> {
    let mut socket = Socket::open()?;
    let mut asked = std::collections::BTreeSet::new();
    for of in tries {
        if !asked.insert((of.server, of.candidate.from, of.candidate.path.dev.clone())) {
            continue;
        }
        let query = RouteQuery {
            src: of.candidate.from,
            ip_proto: Some(6),
            sport: Some(of.candidate.port),
            dport: Some(of.server.port()),
            ..RouteQuery::default()
        };
        let said = link_name(rib, socket.get_route(of.server.ip(), &query)?.index);
        if said != of.candidate.path.dev {
            return Err(Failure::system(format!(
                "port {} should lead by {}, and the kernel says {said}; raddle explain --check says more",
                of.candidate.port, of.candidate.path.dev
            )));
        }
    }
    Ok(())
}

pub(super) fn name_of(index: u32) -> String {
    nix::net::if_::if_indextoname(index)
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| format!("if{index}"))
}

fn unspecified(server: SocketAddr) -> IpAddr {
    match server.is_ipv6() {
        true => IpAddr::from([0_u16; 8]),
        false => IpAddr::from([0_u8; 4]),
    }
}

/// Whether another port may do.
fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
    )
}

/// Connects; the connection is reset when it is dropped, so that its port is free at once.
async fn connect(
    server: SocketAddr,
    from: Option<SocketAddr>,
    patience: Duration,
) -> io::Result<TcpStream> {
    connect_by(server, from, patience, None).await
}

/// As [`connect`], with a mark that routing may go by.
pub(super) async fn connect_by(
    server: SocketAddr,
    from: Option<SocketAddr>,
    patience: Duration,
    mark: Option<u32>,
) -> io::Result<TcpStream> {
    let socket = match server.is_ipv6() {
        true => TcpSocket::new_v6()?,
        false => TcpSocket::new_v4()?,
    };
    socket.set_reuseaddr(true)?;
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    if let Some(mark) = mark {
        socket2::SockRef::from(&socket).set_mark(mark)?;
    }
    if let Some(from) = from {
        socket.bind(from)?;
    }
    match timeout(patience, socket.connect(server)).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "{server} does not answer within {} ms",
                patience.as_millis()
            ),
        )),
    }
}

//! Has a connection lie on a link of its own, out and back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use raddle_rpc::proxy::{Connected, Wanted};
use tokio::task::JoinSet;

use crate::back::Returns;
use crate::candidates::{Tries, Try};
use crate::connect::State;
use crate::dial::{BRIEF, PATIENCE, connect, is_taken};
use crate::health::Way;
use crate::place::{Known, Loads, keep, least, most};

/// Ports in a row that are tried on a way without an answer: it may be the way back that is silent.
const SILENT: u32 = 4;
/// How long a link counts as one that connections come back by.
const LATELY: Duration = Duration::from_secs(5);
/// How often it is tried whether the server is only slow.
const SLOWLY: Duration = Duration::from_secs(60);

/// An address of the server, and an own one.
type Pair = (IpAddr, IpAddr);

/// What placing goes on from.
#[derive(Default)]
pub(crate) struct Turn {
    /// Ports that have been tried, so that each attempt takes another one.
    tried: HashMap<(SocketAddr, SocketAddr), u64>,
    tries: u64,
    /// When a connection of a pair has come back by a link last.
    seen: BTreeMap<(Pair, String), Instant>,
    /// When it was last tried whether the server is only slow.
    slow: Option<Instant>,
}

/// What one connection has cost so far.
#[derive(Clone, Copy, Debug)]
struct Effort {
    attempts: u32,
    most: u32,
    /// Attempts without an answer.
    silent: u32,
    /// Whether no way has answered lately, so that all are tried.
    all: bool,
}

/// Attempts on a way: all, and the last ones without an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    attempts: u32,
    silent: u32,
    gone: bool,
}

impl State {
    /// A connection on the emptiest links, in a bounded number of attempts.
    ///
    /// 1. Without known paths: any port.
    /// 2. The link with the fewest connections on the way out is tried first, then the next ones; those that may
    ///    have gone silent (see [`crate::suspects`]) come last.
    /// 3. A server that answers by no link in 250 ms may be far away: it is given 5 s, once a minute, and from
    ///    then on four times what it took.
    pub(crate) async fn placed(&self, wanted: Wanted, turn: &mut Turn) -> io::Result<Connected> {
        loop {
            let tries = match self.tries(wanted.service).await {
                Ok(tries) => tries,
                Err(e) => {
                    self.tell(format!("connections are not placed: {e}"));
                    return self.anyhow(wanted).await;
                }
            };
            *self.unplaced.borrow_mut() = None;
            let e = match self.by_links(wanted, turn, &tries).await {
                Err(e) if e.kind() == io::ErrorKind::TimedOut => e,
                done => return done,
            };
            let now = Instant::now();
            let lately = |at: Instant| now.saturating_duration_since(at) < SLOWLY;
            if self.brief.get() > BRIEF || turn.slow.is_some_and(lately) {
                return Err(e);
            }
            turn.slow = Some(now);
            drop(self.anyhow(wanted).await?);
            let took = now.elapsed();
            if took < BRIEF {
                return Err(e);
            }
            self.brief.set((4 * took).min(PATIENCE));
        }
    }

    /// A way answers.
    pub(crate) fn answered(&self, way: Way) {
        if self.health.borrow_mut().answered(&way) {
            let (address, link) = way;
            tracing::info!(server = %self.name, %address, %link, "answers by this link again");
        }
    }

    /// Says once why connections are not placed.
    fn tell(&self, why: String) {
        let mut told = self.unplaced.borrow_mut();
        if told.as_ref() != Some(&why) {
            tracing::warn!(server = %self.name, "{why}");
            *told = Some(why);
        }
    }

    /// Rule 2 of [`State::placed`].
    async fn by_links(
        &self,
        wanted: Wanted,
        turn: &mut Turn,
        tries: &Tries,
    ) -> io::Result<Connected> {
        let out = self.loads(wanted, |lies| lies.out.clone());
        let ill = |of: &Try| self.health.borrow().is_ill(of.server, of.out());
        let well = |link: &&str| tries.list.iter().any(|of| of.out() == *link && !ill(of));
        let links = tries.links();
        let mut usable: Vec<&str> = links.iter().copied().filter(well).collect();
        let all = usable.is_empty();
        if all {
            usable.clone_from(&links);
        }
        let mut effort = Effort {
            attempts: 0,
            most: most(links.len()),
            silent: 0,
            all,
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let suspects = self.suspected();
        while let Some(link) = least(&usable, &out, &suspects) {
            match self.on_link(wanted, turn, (tries, link), &mut effort).await {
                Ok(connected) => {
                    if all {
                        *self.health.borrow_mut() = Default::default();
                    }
                    // Where no link works, the connection that cannot be made says so.
                    for ((address, link), why) in self.health.borrow_mut().untold() {
                        tracing::warn!(
                            server = %self.name, %address, %link,
                            "no answer by this link, which is not used until there is one: {why}"
                        );
                    }
                    return Ok(connected);
                }
                Err(e) => {
                    tracing::debug!(server = %self.name, link, "no connection: {e}");
                    last = e;
                    usable.retain(|l| *l != link);
                }
            }
        }
        Err(last)
    }

    /// A connection that goes out by one link, and comes back by one with as few as possible.
    ///
    /// 1. Pairs of addresses take turns; first the one with the fewest connections to its server, then to its own
    ///    address; of its ports the one that was tried longest ago.
    /// 2. A pair that refuses, or is silent four times in a row, is left out, and its server by this link left
    ///    alone for a while. Ports that are taken say nothing about it.
    /// 3. Where a link may be silent, four are tried at once, else one after the other.
    /// 4. Whether the way back is good enough, [`keep`] says; a link that may be silent is not waited for.
    async fn on_link(
        &self,
        wanted: Wanted,
        turn: &mut Turn,
        (tries, link): (&Tries, &str),
        effort: &mut Effort,
    ) -> io::Result<Connected> {
        let back_loads = self.loads(wanted, |lies| lies.back.clone());
        let servers = self.loads(wanted, |lies| Some(lies.server.ip().to_string()));
        let own = self.loads(wanted, |lies| Some(lies.local.ip().to_string()));
        let load = |loads: &Loads, ip: IpAddr| loads.get(&ip.to_string()).copied().unwrap_or(0);
        let pair = |of: &Try| (of.server.ip(), of.from.ip());
        let mut ways: BTreeMap<Pair, Asked> = BTreeMap::new();
        for of in tries.list.iter().filter(|of| of.out() == link) {
            ways.entry(pair(of)).or_insert_with(|| Asked {
                gone: !effort.all && self.health.borrow().is_ill(of.server, link),
                ..Asked::default()
            });
        }
        let mut expected = self.expected(tries, |of| ways.contains_key(&pair(of)));
        let suspects = self.suspected();
        expected.retain(|link| !suspects.contains(link));
        let order: BTreeMap<Pair, (usize, usize)> = ways
            .keys()
            .map(|pair| (*pair, (load(&servers, pair.0), load(&own, pair.1))))
            .collect();
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < self.at_once() {
                let open =
                    |of: &&Try| of.out() == link && ways.get(&pair(of)).is_some_and(|w| !w.gone);
                let next = tries.list.iter().filter(open).min_by_key(|of| {
                    let tried = turn.tried.get(&(of.server, of.from)).copied();
                    (ways[&pair(of)].attempts, order[&pair(of)], tried)
                });
                let Some(of) = next.cloned() else {
                    break;
                };
                turn.tries += 1;
                turn.tried.insert((of.server, of.from), turn.tries);
                self.listen(of.server);
                effort.attempts += 1;
                ways.entry(pair(&of)).or_default().attempts += 1;
                let brief = self.brief.get();
                tasks.spawn_local(async move {
                    let made = connect(of.server, Some(of.from), brief).await;
                    (of, made)
                });
            }
            let Some(done) = tasks.join_next().await else {
                return Err(last);
            };
            let (of, made) = done.map_err(io::Error::other)?;
            let way = ways.entry(pair(&of)).or_default();
            let stream = match made {
                Ok(stream) => stream,
                Err(e) if is_taken(&e) => {
                    way.gone |= effort.attempts >= effort.most;
                    last = e;
                    continue;
                }
                Err(e) => {
                    let silent = e.kind() == io::ErrorKind::TimedOut;
                    way.silent += u32::from(silent);
                    effort.silent += u32::from(silent);
                    if way.gone || silent && way.silent < SILENT && !effort.all {
                        continue;
                    }
                    way.gone = true;
                    tracing::debug!(server = %self.name, address = %of.server, link, "no answer: {e}");
                    let (way, now) = ((of.server, link.to_owned()), Instant::now());
                    self.health.borrow_mut().failed(way, e.to_string(), now);
                    last = io::Error::new(e.kind(), format!("{} by {link}: {e}", of.server));
                    continue;
                }
            };
            way.silent = 0;
            self.answered((of.server, link.to_owned()));
            let back = self.came_back(of.server, of.from);
            if let Some(back) = &back {
                let now = Instant::now();
                turn.seen.insert((pair(&of), back.clone()), now);
                self.suspects.borrow_mut().works(back, now);
                self.suspects.borrow_mut().works(link, now);
                turn.seen
                    .retain(|_, at| now.saturating_duration_since(*at) < LATELY);
                self.vain.borrow_mut().remove(back);
                let seen = turn.seen.keys().filter(|(of, _)| ways.contains_key(of));
                let suspects = self.suspected();
                let seen = seen.filter(|(_, link)| !suspects.contains(link));
                let seen: Vec<&str> = seen.map(|(_, link)| link.as_str()).collect();
                let known = Known {
                    loads: &back_loads,
                    expected: &expected.iter().map(String::as_str).collect::<Vec<_>>(),
                    seen: &seen,
                    attempt: effort.attempts,
                    most: effort.most,
                    silent: effort.silent > 0,
                };
                if !keep(back, &known) {
                    continue;
                }
                if !known.is_early() {
                    let mut vain = self.vain.borrow_mut();
                    let unseen = expected.iter().filter(|l| !seen.contains(&l.as_str()));
                    vain.extend(unseen.map(|link| (link.clone(), now)));
                }
            }
            return Ok(Connected {
                stream,
                out: Some(link.to_owned()),
                back,
                attempts: effort.attempts,
                detour: false,
            });
        }
    }

    /// How many connections are tried at once. It has to be quick when a link has gone silent. There is no hurry
    /// otherwise, and a link that has just come gets the time of four attempts.
    fn at_once(&self) -> usize {
        match self.suspected().is_empty() {
            true => 1,
            false => SILENT as usize,
        }
    }

    /// The links that may have gone silent.
    fn suspected(&self) -> BTreeSet<String> {
        self.suspects.borrow_mut().links(Instant::now())
    }

    /// The links that connections can come back by, as far as can be told: those that connections of these ports'
    /// pairs go out by, but for those by which none has ever come.
    fn expected(&self, tries: &Tries, of: impl Fn(&Try) -> bool) -> Vec<String> {
        let vain = self.vain.borrow();
        let mut links: Vec<String> = Vec::new();
        for of in tries.list.iter().filter(|t| of(t)) {
            if !links.contains(&of.dev) && !vain.contains_key(&of.dev) {
                links.push(of.dev.clone());
            }
        }
        links
    }

    /// Watches what comes from a server's port.
    fn listen(&self, server: SocketAddr) {
        let mut returns = self.returns.borrow_mut();
        let key = (server.is_ipv6(), server.port());
        if returns.contains_key(&key) {
            return;
        }
        match Returns::open(server) {
            Ok(opened) => {
                returns.insert(key, opened);
                *self.deaf.borrow_mut() = None;
            }
            Err(e) => {
                let why = format!(
                    "the way back is not placed, as it cannot be seen: {e}; run it with CAP_NET_RAW"
                );
                if self.deaf.borrow().is_none() {
                    tracing::warn!(server = %self.name, "{why}");
                }
                *self.deaf.borrow_mut() = Some(why);
            }
        }
    }

    /// The link that a connection has come back by since it was asked last.
    fn came_back(&self, server: SocketAddr, own: SocketAddr) -> Option<String> {
        let mut returns = self.returns.borrow_mut();
        let returns = returns.get_mut(&(server.is_ipv6(), server.port()))?;
        returns.read();
        returns.link(server.ip(), own).map(name_of)
    }
}

/// The name of a link.
pub(crate) fn name_of(index: u32) -> String {
    nix::net::if_::if_indextoname(index)
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| format!("if{index}"))
}

//! Looks after where connections lie when links, routes and addresses change.

use std::rc::Rc;
use std::time::{Duration, Instant};

use raddle_netlink::Socket;
use raddle_rpc::proxy::{Review, Standing};

use crate::back::Returns;
use crate::candidates::{Try, query};
use crate::connect::{Lies, State};
use crate::dial::{BRIEF, connect, is_taken};
use crate::health::Way;
use crate::place::{Loads, uneven, unevenness};
use crate::placing::name_of;

/// How long a link by which no connection came back counts as none.
const VAIN: Duration = Duration::from_secs(600);
/// Ports that a way that did not answer is asked by.
const ASKED: usize = 3;

impl State {
    /// Takes in what the kernel says, and what comes back. Whether connections are to be looked at now.
    pub(crate) fn tick(self: &Rc<State>) -> bool {
        let now = Instant::now();
        let mut changes = self.changes.get();
        if self.see_returns() {
            changes.note(now);
        }
        let servers: Vec<_> = self.addresses(0).iter().map(|server| server.ip()).collect();
        let mut follower = self.follower.borrow_mut();
        let heard = follower.as_mut().is_some_and(|f| f.heard(&servers));
        if heard {
            self.suspects.borrow_mut().changed(now);
        }
        let to_ask = self.suspects.borrow_mut().next_to_ask(now);
        for link in to_ask {
            for server in self.addresses(0) {
                let (state, way) = (Rc::clone(self), (server, link.clone()));
                tokio::task::spawn_local(async move { state.ask(way).await });
            }
        }
        // What was placed meanwhile did without some links.
        if self.suspects.borrow_mut().have_ended(now) {
            let mut pace = self.pace.get();
            pace.forget();
            self.pace.set(pace);
            changes.note(now);
        }
        if heard {
            // What was known is not true any more.
            self.known.set(self.known.get() + 1);
            self.found.borrow_mut().clear();
            self.vain.borrow_mut().clear();
            self.health.borrow_mut().forget();
            let mut pace = self.pace.get();
            pace.forget();
            self.pace.set(pace);
            changes.note(now);
        }
        let due = changes.due(now);
        self.changes.set(changes);
        let to_ask = self.health.borrow_mut().next_to_ask(now);
        if let Some(way) = to_ask {
            let state = Rc::clone(self);
            tokio::task::spawn_local(async move { state.ask(way).await });
        }
        let look = self.look.get().filter(|at| *at <= now);
        if look.is_some() {
            self.look.set(None);
        }
        due || look.is_some()
    }

    /// Takes in by which links connections come back. Whether it is another one for any of them.
    fn see_returns(&self) -> bool {
        let mut returns = self.returns.borrow_mut();
        returns.values_mut().for_each(Returns::read);
        let mut other = false;
        let mut lying = self.lying.borrow_mut();
        for lies in lying.values_mut().filter(|lies| lies.up) {
            let key = (lies.server.is_ipv6(), lies.server.port());
            let seen = returns.get_mut(&key);
            let Some(link) = seen.and_then(|seen| seen.link(lies.server.ip(), lies.local)) else {
                continue;
            };
            let link = name_of(link);
            self.vain.borrow_mut().remove(&link);
            if lies.back.as_ref() != Some(&link) {
                lies.back = Some(link);
                other = true;
            }
        }
        other
    }

    /// Asks a way that did not answer; when it does, connections are looked at. A port that is taken says nothing
    /// about the way: others are.
    async fn ask(&self, (server, link): Way) {
        let service = usize::from(!self.addresses(0).contains(&server));
        let (mut why, mut taken, mut asked) = (None, None, 0);
        if let Ok(tries) = self.tries(service).await {
            // A bond, by which answers come in, may be meant by itself.
            let mine = |of: &&Try| of.server == server && (of.out() == link || of.dev == link);
            for of in tries.list.iter().filter(mine).rev() {
                if asked == ASKED {
                    break;
                }
                match connect(server, Some(of.from), self.brief.get()).await {
                    Ok(_) => {
                        self.suspects.borrow_mut().works(&link, Instant::now());
                        self.answered((server, link));
                        self.look.set(Some(Instant::now()));
                        return;
                    }
                    Err(e) if is_taken(&e) => taken = Some(e.to_string()),
                    Err(e) => {
                        asked += 1;
                        why = Some(e.to_string());
                    }
                }
            }
        }
        let why = why.or(taken).unwrap_or_else(|| "there is no way".into());
        let mut health = self.health.borrow_mut();
        health.failed((server, link), why, Instant::now());
    }

    /// Where connections lie now, and which one should be made anew.
    pub(crate) fn review(self: &Rc<State>, standing: &[Standing]) -> Review {
        let mut review = Review::default();
        let Ok(mut socket) = Socket::open() else {
            return review;
        };
        for of in standing {
            let Some(tries) = self.found(of.service) else {
                continue;
            };
            let said = socket.get_route(of.peer.ip(), &query(of.local, of.peer));
            let key = (of.service, of.number);
            if let Some(lies) = self.lying.borrow_mut().get_mut(&key) {
                // One that is not placed has no link that it should be on.
                if tries.askable && lies.out.is_some() {
                    let ends = (of.local, of.peer);
                    let out = said.ok();
                    let out = out.map(|said| tries.out((said.index, said.gateway), ends));
                    lies.out = out.or_else(|| lies.out.take());
                }
            }
        }
        let lying = self.lying.borrow();
        let of = |of: &Standing| lying.get(&(of.service, of.number));
        let link = |way: fn(&Lies) -> &Option<String>| {
            let links = standing.iter().map(|s| of(s).and_then(|l| way(l).clone()));
            links.collect()
        };
        review.links = link(|lies| &lies.out);
        review.back = link(|lies| &lies.back);
        drop(lying);
        self.vain
            .borrow_mut()
            .retain(|_, since| since.elapsed() < VAIN);
        review.again = self.to_move(standing);
        review
    }

    /// The ports with known paths; asks for them where there are none, and has connections looked at then.
    fn found(self: &Rc<State>, service: usize) -> Option<Rc<crate::candidates::Tries>> {
        if let Some((_, tries)) = self.found.borrow().get(&service) {
            return Some(Rc::clone(tries));
        }
        let state = Rc::clone(self);
        tokio::task::spawn_local(async move {
            match state.tries(service).await {
                Ok(_) => state.look.set(Some(Instant::now())),
                Err(e) => tracing::debug!(server = %state.name, "no paths are known: {e}"),
            }
        });
        None
    }

    /// One that should be placed anew, to even the loads of links on the way out or back; at the pace that
    /// [`crate::place::Pace`] sets.
    fn to_move(self: &Rc<State>, standing: &[Standing]) -> Option<usize> {
        let now = Instant::now();
        let mut all_uneven = 0;
        let mut found = None;
        let mut expected = false;
        for (number, of) in standing.iter().enumerate() {
            let Some(tries) = self.found(of.service) else {
                continue;
            };
            let lying = self.lying.borrow();
            let Some(lies) = lying.get(&(of.service, of.number)).filter(|l| !l.lane) else {
                continue;
            };
            let health = self.health.borrow();
            let well = |link: &&str| {
                let mut on = tries
                    .list
                    .iter()
                    .filter(|of| of.out() == *link || of.dev == *link);
                on.any(|of| !health.is_ill(of.server, of.out()))
            };
            let owned = |links: Vec<&str>| -> Vec<String> {
                links.into_iter().filter(well).map(str::to_owned).collect()
            };
            let links = owned(tries.links());
            let vain = self.vain.borrow();
            let mut backs = owned(tries.devs());
            backs.retain(|link| !vain.contains_key(link));
            for (way, links) in [
                (
                    (|lies: &Lies| lies.out.clone()) as fn(&Lies) -> Option<String>,
                    &links,
                ),
                (|lies: &Lies| lies.back.clone(), &backs),
            ] {
                let mut loads = Loads::new();
                let alike = lying
                    .iter()
                    .filter(|(key, l)| key.0 == of.service && !l.lane);
                for link in alike.filter_map(|(_, lies)| way(lies)) {
                    *loads.entry(link).or_default() += 1;
                }
                all_uneven += unevenness(&loads, links);
                let moves = way(lies).is_some_and(|link| uneven(&link, &loads, links));
                expected |= moves && of.expects;
                if moves && found.is_none() && !of.moves && !of.expects {
                    found = Some(number);
                }
            }
        }
        self.expected.set(expected);
        let number = found?;
        let mut pace = self.pace.get();
        let wait = pace.wait(all_uneven, now);
        if wait.is_zero() {
            pace.moved(all_uneven, now);
        }
        self.pace.set(pace);
        let next = if wait.is_zero() { BRIEF } else { wait };
        self.look.set(Some(now + next));
        wait.is_zero().then_some(number)
    }
}

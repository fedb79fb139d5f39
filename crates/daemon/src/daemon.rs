//! The daemon's life: start, follow, answer, stop.

mod check;
mod start;
mod tend;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use raddle_image::Lack;
use raddle_netlink::fpm::Server;
use raddle_netlink::{Announced, Mirror, Socket};
use raddle_rib::event::{Event, Link};
use raddle_rib::{Commit, Rib, is_local_first};
use raddle_xdp::{Engine, WantedPlaces};

use super::guard::Guard;
use super::lag::Lag;
use super::links::Plan;
use super::losses::Losses;
use super::priority::Standing;
use super::report;
use super::rx_hash::Decisions;
use super::static_routes::StaticRoutes;
use super::veths::Watch;
use crate::Error;
use crate::config::{Config, OnExit};
use crate::expiry::Expiry;
use crate::kept::now;
use crate::path_mtus::PathMtus;
use crate::seed;
use crate::source_ports::SourcePorts;
use raddle_control::{Command, DAEMON, Reply, Request};
use raddle_preflight::{Finding, Punted, bridge_of};

pub use check::check;
use tend::{Srv6, loses_buffers};

/// Changes are gathered for this long before they are published, unless it is quiet.
const GATHER: Duration = Duration::from_millis(10);
/// Nothing has come for this long: it is quiet.
const QUIET: Duration = Duration::from_micros(200);
/// How often the daemon looks after what nobody announces.
const ROUND: Duration = Duration::from_secs(1);
/// How many questions of each kind are answered before the kernel is looked at again.
const QUESTIONS_MOST: usize = 16;
/// How long a request may wait.
const ANSWER: Duration = Duration::from_millis(50);

/// How far what the kernel has told is in the image. Nothing is forwarded before it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// None of it was lost.
    Whole,
    /// Some was: what is forwarded by may have changed since.
    Lost,
    /// Everything has been read again, and is to be published.
    ReadAgain,
}

/// A running daemon.
pub(super) struct Daemon {
    pub(super) config: Config,
    pub(super) rib: Rib,
    pub(super) engine: Engine,
    pub(super) mirror: Mirror,
    /// Changes of firewalls and qdiscs.
    announced: Announced,
    pub(super) plan: Plan,
    pub(super) warnings: Vec<Finding>,
    pub(super) rx_hash: Decisions,
    pub(super) held: Option<String>,
    /// For how long programs may forward.
    pub(super) guard: Guard,
    /// Before whom it gets a processor.
    pub(super) standing: Standing,
    /// How far the image is behind the kernel.
    pub(super) lag: Lag,
    pub(super) started: Instant,
    pub(super) commits: u64,
    pub(super) last_commit: Commit,
    /// What was lost behind the engine's verdict.
    pub(super) losses: Losses,
    requests: Socket,
    /// SIDs and encapsulations of the configuration.
    statics: StaticRoutes,
    /// Listens for a routing daemon.
    pub(super) fpm: Option<Server>,
    pub(super) srv6: Srv6,
    /// Where the engine names neighbours that it lacks, and when they were last asked for.
    wanted: (WantedPlaces, Instant),
    /// Packets through each adjacency at the last round.
    sent: HashMap<u32, u64>,
    /// What was found about the qdiscs of all links.
    shaped: Vec<Finding>,
    /// Packets that are left to the kernel for what they would meet there.
    pub(super) punted: Vec<Punted>,
    /// By name, tunnels that nothing comes in by but by the kernel for that, and a rule.
    pub(super) not_in: BTreeMap<String, String>,
    /// When routes that expire are read again.
    expiry: Expiry,
    /// Asks what the kernel has learnt of other ends of tunnels.
    path_mtus: PathMtus,
    dirty_since: Option<Instant>,
    /// When changes were published last.
    published: Instant,
    /// The far ends of veth pairs.
    veths: Watch,
    /// What found no room is to be tried again.
    try_room: bool,
    /// Something changed that the preflight looks at.
    look_again: bool,
    /// Frames of VLANs may look untagged, for all that is known: nothing is forwarded.
    tags_doubted: bool,
    news: News,
    /// What the image had too little of at the last commit.
    pub(super) lacks: BTreeSet<Lack>,
    /// Settings of the namespace changed.
    new_settings: bool,
    /// Why the kernel's own key is not known, where it is needed.
    no_key: Option<String>,
    /// What UDP tunnels choose their source ports by.
    source_ports: SourcePorts,
}

/// When changes are published of which the first came at `since`: [`GATHER`] later at the latest; before that once it is quiet,
/// but not within [`GATHER`] of the `last` publication, for links and rules cost more to publish than to wait for.
fn publish_by(since: Instant, now: Instant, last: Instant) -> Instant {
    (since + GATHER).min((now + QUIET).max(last + GATHER))
}

/// Whether a NIC may begin to take tags out of frames, or tags begin to matter, by what is told of a link:
///
/// 1. A VLAN is new, or another than before.
/// 2. A bridge begins to filter VLANs, or does so by other tags.
/// 3. What is told of a link with the program that carries tags for others (`carries`) is what was known: so it is about something that
///    is not mirrored, as offloads are (`NETDEV_FEAT_CHANGE`).
fn may_hide_tags(link: &Link, known: Option<&Link>, carries: impl Fn(u32) -> bool) -> bool {
    let tags = |link: &Link| (link.vlan, link.lower, link.lower_netns);
    let filters = |link: &Link| {
        let bridge = link.bridge.filter(|bridge| bridge.filters_vlans)?;
        Some(bridge.protocol)
    };
    if link.is_vlan() {
        return known.is_none_or(|known| tags(known) != tags(link));
    }
    let begins = filters(link).is_some() && known.and_then(filters) != filters(link);
    begins || known == Some(link) && carries(link.index)
}

/// Whether firewalls may judge what comes in or leaves by a link otherwise from now on.
///
/// 1. It has another name, by which rules go.
/// 2. It is part of another bond or bridge, or of none any more: what is on a member or a port concerns that.
/// 3. It is a tunnel with other ends or settings, or none any more: outer packets are what rules and IPsec see. One that is gone may have left
///    its index.
fn looks_otherwise(link: &Link, known: Option<&Link>) -> bool {
    known.is_some_and(|known| known.name != link.name)
        || link.master != known.and_then(|known| known.master)
        || link.tunnel != known.and_then(|known| known.tunnel)
}

/// Whether frames of a link have tags that matter, whatever is forwarded from: it is a port of a bridge, or there are VLANs of this
/// namespace upon it.
fn carries_tags(rib: &Rib, index: u32) -> bool {
    let link = rib.link(index);
    let is_port = link.is_some_and(|link| bridge_of(link, |of| rib.link(of)).is_some());
    let is_below = |link: &Link| link.is_vlan() && link.lower == Some(index);
    is_port || rib.links().any(is_below)
}

impl Daemon {
    /// Follows the kernel and answers questions until `stop` is raised.
    pub(super) fn serve(
        &mut self,
        stop: &AtomicBool,
        control: &Receiver<Request>,
        metrics: Option<&Receiver<Request>>,
    ) -> Result<(), Error> {
        let main = nix::unistd::gettid().as_raw();
        let threads = std::iter::once(main)
            .chain(self.mirror.reader())
            .chain(self.announced.thread());
        self.standing = Standing::take(self.config.priority, threads);
        // Much of it was learnt before.
        self.path_mtus.tend(&mut self.rib, &mut self.requests);
        if self.rib.is_dirty() {
            self.publish();
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        let mut next_round = Instant::now() + ROUND;
        while !stop.load(Ordering::Relaxed) {
            self.wait(next_round);
            // Their number says whether a look is due, which may not be at once.
            self.announced.taken();
            let since = now();
            self.follow()?;
            let metrics = metrics
                .into_iter()
                .flat_map(|m| m.try_iter().take(QUESTIONS_MOST));
            for request in control.try_iter().take(QUESTIONS_MOST).chain(metrics) {
                self.losses.look(&self.rib);
                let value = match request.command {
                    Command::Status => Reply::of(&report::status(self)),
                    Command::Counters => {
                        let counts = (&self.counters(), &self.losses);
                        Reply::of(&report::counters(&self.rib, counts))
                    }
                    Command::Segments => Reply::of(&report::segments(self)),
                    Command::Routes => Reply::of(&report::routes(&self.rib)),
                    command @ Command::Rpc => Reply::not_mine(command, DAEMON),
                };
                let _ = request.answer.send(value);
            }
            self.srv6.take_over(&mut self.engine);
            self.tend_wanted();
            if Instant::now() >= self.guard.due(self.announced.count()) {
                self.look(since);
            }
            if Instant::now() >= next_round {
                self.round();
                next_round = Instant::now() + ROUND;
            }
        }
        self.stop()
    }

    /// Sleeps until the kernel or a routing daemon says something, a request may wait no longer, or work is due.
    fn wait(&self, next_round: Instant) {
        let until = match self.dirty_since {
            Some(since) => publish_by(since, Instant::now(), self.published).min(next_round),
            None => next_round,
        };
        let until = until.min(self.guard.due(self.announced.count()));
        let timeout = until.saturating_duration_since(Instant::now()).min(ANSWER);
        let fpm = self.fpm.iter().flat_map(Server::fds);
        let fds = [self.mirror.fd(), self.announced.fd()]
            .into_iter()
            .chain(fpm);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // A signal may interrupt it: the loop looks again at everything anyway.
        let _ = ppoll(&mut fds, Some(TimeSpec::from(timeout)), None);
    }

    /// Applies what the kernel and a routing daemon said; publishes when it is quiet or has been long enough.
    fn follow(&mut self) -> Result<(), Error> {
        self.expiry.tend(&mut self.rib, &self.mirror);
        self.path_mtus.tend(&mut self.rib, &mut self.requests);
        let rib = &mut self.rib;
        let look_again = &mut self.look_again;
        let new_settings = &mut self.new_settings;
        let expiry = &mut self.expiry;
        let mut ahead = None;
        let mut count = 0;
        let mut links = false;
        let mut renamed = false;
        let (mut tags, mut larger, mut moved) = (false, false, false);
        let programs = &self.plan.programs;
        let local_first = |rib: &Rib| [4, 6].map(|family| is_local_first(rib.rules(), family));
        let before = local_first(rib);
        let batch = self.mirror.poll(&mut |event| {
            *look_again |= matches!(
                event,
                Event::Link(_)
                    | Event::LinkGone(_)
                    | Event::Device(..)
                    | Event::Settings(_)
                    | Event::Rule(_)
                    | Event::RuleGone(_)
            );
            *new_settings |= matches!(event, Event::Settings(_));
            expiry.note(&event);
            // With a million routes behind a group, the kernel tells of each of them as well; the
            // group itself need not wait for that.
            let nexthops = matches!(event, Event::Nexthop(_) | Event::NexthopGone(_));
            links |= matches!(event, Event::Link(_) | Event::LinkGone(_));
            if let Event::Link(link) = &event {
                let known = rib.link(link.index);
                renamed |= looks_otherwise(link, known);
                let carries = |index| programs.contains_key(&index) && carries_tags(rib, index);
                tags |= may_hide_tags(link, known, carries);
                larger |= known.is_some_and(|known| known.mtu < link.mtu);
            }
            moved |= matches!(&event, Event::Fdb(entry) if rib.has_moved(entry));
            rib.apply(event);
            if nexthops && let Some(commit) = rib.commit_nexthops() {
                ahead = Some(commit);
                count += 1;
            }
        })?;
        if batch.overrun {
            rib.memory().doubt();
            self.guard.forgo(now());
            self.news = News::Lost;
        }
        if moved {
            self.mirror.doubt_fdb();
        }
        // Firewalls go by names, and by what is this machine's.
        if renamed || local_first(rib) != before {
            rib.memory().doubt();
            self.guard.hasten();
        }
        if tags {
            // Frames of a VLAN may look untagged from now on: nothing is forwarded until it is known. Where that fails, the next look
            // tries again, before it lets anything be forwarded.
            self.rib.memory().doubt();
            self.tags_doubted = true;
            self.replan();
            self.guard.hasten();
        }
        if larger && loses_buffers(&self.rib, &self.plan, &self.config) {
            // Before an MTU is published that takes several.
            self.rib.set_one_buffer(true);
        }
        let rib = &mut self.rib;
        // What leaves by links that are lost is punted already, so that a hundred of them cost one walk.
        if links && let Some(commit) = rib.commit_links() {
            ahead = Some(commit);
            count += 1;
        }
        if batch.recovered {
            // Links that were lost and came back in what was thrown away are punted, and nothing tells of them.
            rib.refresh();
            self.news = News::ReadAgain;
        }
        self.lag.heard(batch.since);
        let fpm = match &mut self.fpm {
            Some(fpm) => fpm.poll(Instant::now(), &mut |fpm| rib.apply(Event::Fpm(fpm))),
            None => 0,
        };
        if self.look_again {
            let events = self.statics.follow(&self.config, &self.rib);
            events.into_iter().for_each(|event| self.rib.apply(event));
        }
        let is_ahead = ahead.is_some();
        if let Some(commit) = ahead {
            self.commits += count;
            self.note(commit);
        }
        if !self.rib.is_dirty() {
            // What was ahead may have been all that there was.
            self.dirty_since = None;
            match is_ahead {
                true => self.lag.published(),
                // What waits for the end of a dump may be something new yet.
                false if batch.sweeping => {}
                false => self.lag.nothing_new(),
            }
            return Ok(());
        }
        let since = *self.dirty_since.get_or_insert_with(Instant::now);
        let (now, last) = (Instant::now(), self.published);
        let more = batch.events + fpm > 0;
        if now < publish_by(since, now, last) && (more || now < last + GATHER) {
            return Ok(());
        }
        if std::mem::take(&mut self.new_settings) {
            // The seed may have been taken away.
            self.no_key = seed::know(&mut self.rib);
            // Flows must not move when a policy is published of which the hash that packets bring is part.
            self.renew_rx_hash();
        }
        // Looking around takes milliseconds for each network namespace of the machine. What is known comes first.
        self.publish();
        if self.look_again {
            self.replan();
        }
        if self.rib.is_dirty() {
            self.publish();
        }
        Ok(())
    }

    fn publish(&mut self) {
        let commit = self.rib.commit();
        if self.news == News::ReadAgain {
            self.news = News::Whole;
            self.guard.hasten();
            tracing::info!("everything has been read again");
        }
        self.lag.published();
        self.srv6.carry_out(&self.engine, &self.rib);
        self.commits += 1;
        self.dirty_since = None;
        self.published = Instant::now();
        self.note(commit);
    }

    /// Remembers the last commit and says what it has to say.
    fn note(&mut self, commit: Commit) {
        self.last_commit = commit;
        let lacks = match self.last_commit.full {
            true => self.rib.lacks(),
            false => BTreeSet::new(),
        };
        for lack in lacks.difference(&self.lacks) {
            tracing::error!("the image is full: part of the traffic goes to the kernel; {lack}");
        }
        self.lacks = lacks;
        tracing::debug!(
            entries = self.last_commit.entries,
            groups = self.last_commit.groups,
            took = ?self.last_commit.took,
            "published"
        );
    }

    /// Why nothing is forwarded at all, if it is so.
    pub(super) fn held_because(&self) -> Option<String> {
        match (&self.held, self.news) {
            (Some(why), _) => Some(why.clone()),
            (None, News::Lost | News::ReadAgain) => Some(
                "notifications of the kernel were lost, and everything is being read again"
                    .to_owned(),
            ),
            (None, News::Whole) => None,
        }
    }

    fn counters(&self) -> raddle_xdp::Counters {
        self.engine.counters()
    }

    fn stop(&mut self) -> Result<(), Error> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        match self.config.on_exit {
            OnExit::Keep => {
                self.look(now());
                tracing::info!(
                    "stopping; programs stay attached for the next daemon: they forward for {} s at most, \
                     then punt everything; raddle detach removes them",
                    self.config.deadline
                );
            }
            OnExit::Detach => tracing::info!("stopping; the kernel forwards"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{Bridge, TunnelKind};

    use super::*;

    #[test]
    fn changes_wait_for_others_only_while_these_come() {
        let since = Instant::now();
        let ms = Duration::from_millis;
        let long_ago = since.checked_sub(ms(1000)).unwrap();
        assert!(publish_by(since, since, long_ago) < since + ms(1));
        assert!(publish_by(since, since + ms(5), long_ago) < since + ms(6));
        assert_eq!(publish_by(since, since + ms(50), long_ago), since + GATHER);
        // One after the other, they are gathered.
        let last = since.checked_sub(ms(4)).unwrap();
        assert_eq!(publish_by(since, since, last), last + GATHER);
    }

    #[test]
    fn what_may_hide_tags_is_looked_at_first() {
        let wire = Link::ethernet(2, "e0", [2; 6]);
        let vlan = |id| Link {
            kind: Some("vlan".to_owned()),
            vlan: Some(raddle_rib::event::Vlan {
                protocol: 0x8100,
                id,
                egress_qos: false,
            }),
            lower: Some(2),
            ..Link::ethernet(3, "e0.5", [2; 6])
        };
        let of = |link: &Link, known: Option<&Link>| may_hide_tags(link, known, |index| index == 2);
        assert!(of(&vlan(5), None), "a VLAN is new");
        assert!(of(&vlan(5), Some(&vlan(6))), "another than before");
        assert!(!of(&vlan(5), Some(&vlan(5))));
        // What is told of the link below is known already: it may be about its offloads.
        assert!(of(&wire, Some(&wire)));
        let longer = Link {
            mtu: 9000,
            ..wire.clone()
        };
        assert!(!of(&longer, Some(&wire)) && !of(&wire, None));
        let other = Link::ethernet(4, "e1", [2; 6]);
        assert!(!of(&other, Some(&other)), "no VLAN is upon it");
        let bridge = |filters_vlans| Link {
            bridge: Some(Bridge {
                filters_vlans,
                protocol: 0x8100,
                is_special: false,
            }),
            ..Link::ethernet(5, "br0", [2; 6])
        };
        assert!(of(&bridge(true), Some(&bridge(false))) && of(&bridge(true), None));
        assert!(!of(&bridge(true), Some(&bridge(true))) && !of(&bridge(false), None));
        assert!(!of(&bridge(false), Some(&bridge(true))));
    }

    #[test]
    fn links_look_otherwise_to_firewalls() {
        let wire = Link::ethernet(3, "e0", [2; 6]);
        let gre = |key| Link {
            tunnel: Some(crate::links::tunnel(TunnelKind::Gre {
                ikey: None,
                okey: key,
            })),
            ..wire.clone()
        };
        let port = Link {
            master: Some(2),
            ..wire.clone()
        };
        let named = Link::ethernet(3, "e1", [2; 6]);
        let up = Link {
            mtu: 9000,
            ..wire.clone()
        };
        for same in [
            (&wire, None),
            (&wire, Some(&up)),
            (&gre(None), Some(&gre(None))),
        ] {
            assert!(!looks_otherwise(same.0, same.1), "{same:?}");
        }
        for other in [
            (&named, Some(&wire)),
            (&port, Some(&wire)),
            (&wire, Some(&port)),
            (&gre(None), None),
            (&gre(None), Some(&wire)),
            (&wire, Some(&gre(None))),
            (&gre(Some(7)), Some(&gre(None))),
        ] {
            assert!(looks_otherwise(other.0, other.1), "{other:?}");
        }
    }

    #[test]
    fn ports_of_bridges_carry_tags() {
        let mut rib = Rib::detached();
        let bridge = Link {
            bridge: Some(Bridge::default()),
            ..Link::ethernet(2, "br0", [2; 6])
        };
        let port = |master| Link {
            master,
            ..Link::ethernet(3, "e0", [2; 6])
        };
        let vlan = |lower| Link {
            kind: Some("vlan".to_owned()),
            lower: Some(lower),
            ..Link::ethernet(4, "v", [2; 6])
        };
        for link in [bridge, port(Some(2))] {
            rib.apply(Event::Link(link));
        }
        assert!(carries_tags(&rib, 3) && !carries_tags(&rib, 2));
        rib.apply(Event::Link(vlan(2)));
        assert!(carries_tags(&rib, 3) && carries_tags(&rib, 2));
        rib.apply(Event::Link(port(None)));
        assert!(!carries_tags(&rib, 3));
        rib.apply(Event::Link(vlan(3)));
        assert!(carries_tags(&rib, 3) && !carries_tags(&rib, 2));
    }
}

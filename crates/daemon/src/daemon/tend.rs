//! What the daemon looks after while it runs: links that come and go, firewalls, neighbours in use, and how long
//! programs may forward.

use std::collections::HashMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use raddle_image::{Segment, segment_kind};
use raddle_rib::event::{Link, NUD_STALE};
use raddle_rib::{Ports, Rib};
use raddle_xdp::{AttachedMode, Engine, Srv6Programs};

use super::{Daemon, News};
use crate::Error;
use crate::config::{Config, Mode};
use crate::kept::now;
use crate::links::{self, Plan, carriers, plan_of_present};
use crate::survey::{look, shaped, survey};
use raddle_preflight::{Finding, Fix, Punted, is_upon_others};

/// How often neighbours that the engine lacks are asked for, and how many at a time.
const WANTED_EACH: Duration = Duration::from_millis(100);
const WANTED_MOST: usize = 16;
/// How many gateways are asked for a second.
const UNRESOLVED_MOST: usize = 160;

impl Daemon {
    /// Links or settings changed: attaches and detaches accordingly.
    pub(super) fn replan(&mut self) {
        for index in self.engine.forget_detached() {
            let why = "the program has been taken off";
            self.plan.without_program(&self.rib, index, why);
        }
        let attached: Vec<u32> = self.engine.attached().map(|(index, _)| index).collect();
        let (rib, no_key) = (&self.rib, self.no_key.as_deref());
        let report = match survey(rib, &self.config, Fix::Do, attached.into_iter(), no_key) {
            Ok(report) => report,
            Err(e) => {
                // Things may go while one looks at them. The next round looks again.
                tracing::warn!("links stay as they are for now: {e}");
                return;
            }
        };
        self.look_again = false;
        self.tags_doubted = false;
        let mut plan = plan_of_present(&self.rib, &self.config, &report);
        self.source_ports.know(&mut self.rib);
        // As the last plan has it, where nothing is new.
        leave_bonds(&self.engine, &self.rib, &mut plan, true);
        let mut warnings: Vec<Finding> = report.warnings().cloned().collect();
        warnings.extend(links::missing(&self.rib, &self.config, &plan));
        self.warn(warnings);
        if plan != self.plan {
            self.take_plan(plan);
        }
        let one_buffer = loses_buffers(&self.rib, &self.plan, &self.config);
        self.rib.set_one_buffer(one_buffer);
        // Before policies, and links that are new, are published.
        self.veths.follow(&self.rib, &self.plan, &self.config);
        self.renew_rx_hash();
    }

    /// The verifier takes its time for a program, and a system call is not interrupted: not before everybody else.
    pub(super) fn renew_rx_hash(&mut self) {
        self.standing.as_others(|| {
            let known = (&self.rib, &self.plan);
            self.rx_hash.renew(&mut self.engine, known, &self.config);
        });
    }

    /// Attaches and detaches as a plan says that is not the last one. New links forward nothing before the firewall was looked at
    /// with them.
    fn take_plan(&mut self, mut plan: Plan) {
        let gone: Vec<u32> = self
            .engine
            .attached()
            .map(|(index, _)| index)
            .filter(|index| !plan.programs.contains_key(index))
            .collect();
        for index in gone {
            // A bond is sent through only with the program on it; what may be sent through without is set again below.
            let _ = self.engine.remove_out_link(index);
            for member in self.members_of(index) {
                let _ = self.engine.remove_out_link(member);
            }
            if let Err(e) = self.engine.detach(index) {
                tracing::warn!("{e}");
            }
        }
        let sees = &self.plan.programs;
        if plan.programs.keys().any(|index| !sees.contains_key(index)) {
            // What is on a port of a bridge, or below a VLAN, was not looked at while the program was not there, and the bridge's and the VLAN's
            // entries are good already.
            self.rib.memory().doubt();
            self.guard.hasten();
        }
        self.attach_all(&mut plan);
        self.rib.set_ports(plan.ports());
        self.plan = plan;
        if !self.config.allow_bypass {
            self.look_at_firewall();
        }
    }

    /// The members of a bond that packets were sent to.
    fn members_of(&self, bond: u32) -> Vec<u32> {
        let is_of =
            |index: &&u32| self.rib.link(**index).and_then(|link| link.master) == Some(bond);
        self.plan.members.iter().filter(is_of).copied().collect()
    }

    /// Says what was not warned of before, and what no longer has to be.
    fn warn(&mut self, mut warnings: Vec<Finding>) {
        // What has been fixed is not found again, but stays so.
        let is_there = |f: &&Finding| {
            let link = f.link.as_deref().and_then(|name| self.rib.link_named(name));
            f.fixed && link.is_some() && !warnings.contains(f)
        };
        let fixed: Vec<Finding> = self.warnings.iter().filter(is_there).cloned().collect();
        warnings.extend(fixed);
        for finding in warnings.iter().filter(|f| !self.warnings.contains(f)) {
            tracing::warn!("{finding}");
        }
        let gone = self.warnings.iter().filter(|f| !warnings.contains(f));
        for finding in gone {
            tracing::info!("no longer: {finding}");
        }
        self.warnings = warnings;
    }

    /// Attaches to the links of the plan. A link that refuses is left to the kernel until the plan
    /// is made anew, with what is upon it alone, and the plan says so; it does not keep others from being attached.
    fn attach_all(&mut self, plan: &mut Plan) {
        let engine = &mut self.engine;
        for (index, name) in plan.programs.clone() {
            let mode = mode_for(&self.rib, index, self.config.mode);
            if let Err(e) = attach(engine, index, &name, mode) {
                tracing::warn!("{e}");
                plan.without_program(&self.rib, index, &e.to_string());
            }
        }
        send_through_all(engine, &self.rib, plan, &self.plan);
    }

    /// What has to be done now and then.
    pub(super) fn round(&mut self) {
        self.standing.round();
        self.losses.look(&self.rib);
        self.try_room = true;
        self.tend_neighbours();
        self.tend_static_neighbours();
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
    }

    /// The kernel does not see what the engine sends, so it would forget neighbours that are in
    /// use: those that are stale are named to it, and it asks them.
    fn tend_neighbours(&mut self) {
        let counters = self.counters();
        let mut sent = HashMap::new();
        for (number, index, neighbour, adjacency) in self.rib.adjacencies() {
            let packets = counters.adjacency(number).packets;
            sent.insert(number, packets);
            let used = self
                .sent
                .get(&number)
                .is_none_or(|before| *before != packets);
            let Some(ip) = neighbour.filter(|_| used && packets > 0) else {
                continue;
            };
            let stale = self
                .rib
                .neighbour(index, ip)
                .is_some_and(|n| n.state & NUD_STALE != 0);
            if stale
                && adjacency.forwards()
                && let Err(e) = self.requests.use_neighbour(index, ip)
            {
                tracing::debug!("cannot have neighbour {ip} confirmed: {e}");
            }
        }
        self.sent = sent;
    }

    /// The kernel resolves neighbours for packets that it forwards, and some that the engine needs are never
    /// among them ([`crate::static_routes::StaticRoutes::unresolved`]).
    fn tend_static_neighbours(&mut self) {
        let Some(iif) = self.plan.attach.values().next() else {
            return;
        };
        let mut list = self.statics.unresolved(&self.rib, iif);
        // Each in its turn, where there are many.
        let turn = self.started.elapsed().as_secs() as usize * UNRESOLVED_MOST;
        let first = turn.checked_rem(list.len()).unwrap_or(0);
        list.rotate_left(first);
        for (index, ip) in list.into_iter().take(UNRESOLVED_MOST) {
            if let Err(e) = self.requests.use_neighbour(index, ip) {
                tracing::debug!("cannot have neighbour {ip} resolved: {e}");
            }
        }
    }

    /// The kernel gets no packets of static segments, so it would not resolve the hosts that these are for: the
    /// engine names them, some at a time, and no more than the kernel has room for are asked for.
    pub(super) fn tend_wanted(&mut self) {
        let (places, last) = &mut self.wanted;
        if last.elapsed() < WANTED_EACH {
            return;
        }
        *last = Instant::now();
        for wanted in places.take(WANTED_MOST) {
            let Some((index, ip)) = self.rib.wanted(&wanted) else {
                continue;
            };
            if self.rib.neighbour(index, ip).is_some_and(|n| n.is_valid()) {
                continue;
            }
            if let Err(e) = self.requests.use_neighbour(index, ip) {
                tracing::debug!("cannot have neighbour {ip} resolved: {e}");
            }
        }
    }

    /// Looks whether programs may go on, and lets them if so: `since` is when what the kernel had said was last
    /// taken in.
    pub(super) fn look(&mut self, since: u64) {
        let began = Instant::now();
        let announced = self.announced.count();
        self.guard.begin(announced);
        let mut asking = Duration::ZERO;
        if self.tend_firewall(&mut asking) {
            if let Some(late) = self.guard.prolong(since, now()) {
                tracing::warn!(
                    "the daemon did not look at the firewall for {late:?}: it hung, was stopped, or had no \
                     processor; everything has gone to the kernel since its deadline"
                );
            }
            self.rib.set_deadline(self.guard.deadline());
            // Announced before the deadline was set: that took the doubt back. What is announced from here on punts
            // again by itself.
            if self.announced.count() != announced {
                self.rib.memory().doubt();
            }
        }
        self.guard.looked(began, asking);
    }

    /// Promise 6 holds while running, too: firewalls and qdiscs come and go, and say so to nobody
    /// who listens to links and routes. What cannot be seen counts as being there. Whether all could be looked
    /// at; adds to `asking` what it took to ask the kernel.
    fn tend_firewall(&mut self, asking: &mut Duration) -> bool {
        let mut seen = true;
        let began = Instant::now();
        let shaped = shaped(&self.rib, &self.config.allow_qdisc);
        *asking += began.elapsed();
        match shaped {
            Ok(shaped) => {
                self.look_again |= shaped != self.shaped;
                self.shaped = shaped;
            }
            Err(e) => {
                seen = false;
                tracing::warn!("links stay as they are for now: {e}");
            }
        }
        self.look_again |= self.veths.take_changed();
        let replans = self.look_again;
        if replans {
            self.replan();
        }
        seen &= !self.tags_doubted;
        // Of the links that there are now.
        if !self.config.allow_bypass {
            let began = Instant::now();
            seen &= self.look_at_firewall();
            *asking += began.elapsed();
        }
        // What found no room may find some now, and nothing else need change for that. Other changes are being gathered,
        // see `follow`: a look is no reason to publish half of them.
        let try_room = std::mem::take(&mut self.try_room) && self.rib.lacks_room();
        if (replans && self.rib.is_dirty()) || try_room {
            self.publish();
        }
        // That may have made it whole.
        seen &= self.news == News::Whole;
        self.rib.commit_firewall() && seen
    }

    /// Whether it could be seen what forwarded packets meet now. Engines leave that to the kernel from the next commit on.
    fn look_at_firewall(&mut self) -> bool {
        let conntrack = self.config.conntrack;
        match look(&self.rib, &self.plan, conntrack, &mut self.guard.known) {
            Ok(looked) => {
                self.rib
                    .set_firewall(Some((self.plan.ports(), looked.firewall)));
                self.not_in = looked.not_in;
                if looked.nothing.is_none() {
                    self.tell_punted(looked.punted);
                }
                self.hold(looked.nothing);
                true
            }
            Err(e) => {
                self.hold(Some(format!(
                    "whether anything would be bypassed cannot be seen: {e}"
                )));
                false
            }
        }
    }

    /// Says which packets are left to the kernel from now on, and which no longer.
    fn tell_punted(&mut self, punted: Vec<Punted>) {
        let is_new = |p: &&Punted| !self.punted.contains(p);
        let any_new = punted.iter().any(|p| is_new(&p));
        for new in punted.iter().filter(is_new) {
            tracing::info!("left to the kernel from now on: {new}");
        }
        for old in self.punted.iter().filter(|p| !punted.contains(p)) {
            // The same packets may be among those of another rule now.
            match any_new {
                true => tracing::info!("in place of: {old}"),
                false => tracing::info!("no longer left to the kernel: {old}"),
            }
        }
        self.punted = punted;
    }

    /// Punts everything from now on, for this reason; none forwards again.
    fn hold(&mut self, why: Option<String>) {
        match (&why, &self.held) {
            (Some(now), Some(before)) if now == before => return,
            (Some(now), _) => tracing::warn!("everything goes to the kernel from now on: {now}"),
            (None, Some(_)) => {
                tracing::info!("what would have been bypassed is gone: forwarding again");
            }
            (None, None) => return,
        }
        self.rib.set_hold(why.is_some());
        self.held = why;
    }
}

/// Takes bonds out of the out-links of a plan on which the program does not run in the drivers of their members (see the preflight),
/// and says so there; with `attached` only those on which it runs at all. Links upon them go with them.
fn leave_bonds(engine: &Engine, rib: &Rib, plan: &mut Plan, attached: bool) {
    let left = &mut plan.left;
    plan.out.retain(|index, name| {
        let is_bond = rib.link(*index).is_some_and(|link| link.bond.is_some());
        let mode = engine
            .attached()
            .find(|(of, _)| of == index)
            .map(|(_, mode)| mode);
        match (is_bond, mode) {
            (false, _) | (true, Some(AttachedMode::Native)) => return true,
            (true, None) if attached => return true,
            _ => {}
        }
        let why = "a bond is sent through only with the program in the drivers of its members";
        left.insert(name.clone(), why.to_owned());
        false
    });
    plan.leave_uppers(rib);
    plan.follow_members(rib);
}

/// Whether frames that lie in several buffers are lost where they are redirected to some out-link of a plan:
///
/// 1. In generic mode none is: frames are the kernel's there.
/// 2. Before Linux 6.3, which does not tell, by any link (`xdp_do_redirect`).
/// 3. Since then by links whose drivers do not take them (`__xdp_enqueue`), and whose MTU may take more than one buffer.
pub(super) fn loses_buffers(rib: &Rib, plan: &Plan, config: &Config) -> bool {
    const ONE_BUFFER: u32 = 1500;
    let features = |link: &Link| raddle_xdp::features(link.index).ok().flatten();
    let takes = |link: &Link| {
        let features = features(link);
        features.is_some_and(raddle_xdp::Features::can_receive_multi_buffer_redirects)
    };
    let links = plan.out.keys().filter_map(|index| rib.link(*index));
    let mut links = links.filter(|link| !is_upon_others(link)).peekable();
    let Some(first) = links.peek().filter(|_| config.mode != Mode::Generic) else {
        return false;
    };
    features(first).is_none() || links.any(|link| link.mtu > ONE_BUFFER && !takes(link))
}

/// Has packets be redirected to the out-links of a plan, and to no others that they were redirected to. Where that cannot be, the
/// plan says so. What is sent through a VLAN, a bridge or a macvlan is redirected to a link below, or to a member of the bond that is
/// below.
pub(super) fn send_through_all(engine: &Engine, rib: &Rib, plan: &mut Plan, before: &Plan) {
    leave_bonds(engine, rib, plan, false);
    let gone = before.out.keys().chain(&before.members);
    for index in gone.filter(|index| !plan.out.contains_key(index) && !plan.members.contains(index))
    {
        let _ = engine.remove_out_link(*index);
    }
    let left = &mut plan.left;
    plan.out.retain(|index, name| {
        if rib.link(*index).is_some_and(is_upon_others) {
            return true;
        }
        match engine.set_out_link(*index) {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!("link {name}: {e}");
                left.insert(name.clone(), e.to_string());
                false
            }
        }
    });
    plan.leave_uppers(rib);
    plan.follow_members(rib);
    // What would leave by one that cannot be had is punted. It is no part of the plan, so that the next one tries again.
    plan.members.retain(|index| {
        let had = engine.set_out_link(*index);
        if let Err(e) = &had {
            tracing::warn!("member {index} of a bond: {e}");
        }
        had.is_ok()
    });
}

/// How the program is attached to a link: to a bond in the drivers of its members or not at all (see the preflight).
pub(super) fn mode_for(rib: &Rib, index: u32, mode: Mode) -> Mode {
    match (
        mode,
        rib.link(index).is_some_and(|link| link.bond.is_some()),
    ) {
        (Mode::Auto, true) => Mode::Native,
        (mode, _) => mode,
    }
}

/// Attaches the engine to a link, unless it is attached already.
pub(super) fn attach(engine: &mut Engine, index: u32, name: &str, mode: Mode) -> Result<(), Error> {
    let mode = match mode {
        Mode::Auto => raddle_xdp::Mode::Auto,
        Mode::Native => raddle_xdp::Mode::Native,
        Mode::Generic => raddle_xdp::Mode::Generic,
    };
    match engine.attach(index, mode) {
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Attach {
            name: name.to_owned(),
            source,
        }),
    }
}

/// Once there are SRv6 segments, VLANs, bridges or macvlans that are forwarded from, or tunnels, the engine needs the programs for them. These
/// take seconds to load, so a thread of their own does that. Where the kernel refuses, it keeps forwarding these packets itself, and is not asked
/// again.
#[derive(Debug, Default)]
pub(crate) struct Srv6 {
    /// Why they cannot be had.
    refused: Option<String>,
    loading: Option<Loading>,
}

/// Programs on their way.
#[derive(Debug)]
struct Loading {
    since: Instant,
    thread: JoinHandle<raddle_xdp::Result<Srv6Programs>>,
}

impl Srv6 {
    /// Loads them before anything else is done, for the start.
    pub(super) fn carry_out_at_once(&mut self, engine: &mut Engine, rib: &Rib) {
        if self.is_due(engine, rib) {
            let started = Instant::now();
            let loaded = engine.load_srv6();
            self.told(started, loaded);
        }
    }

    /// Has them loaded.
    pub(super) fn carry_out(&mut self, engine: &Engine, rib: &Rib) {
        if self.loading.is_some() || !self.is_due(engine, rib) {
            return;
        }
        let since = Instant::now();
        let load = engine.srv6().and_then(|plan| {
            let thread = std::thread::Builder::new().name("srv6".to_owned());
            thread
                .spawn(|| plan.load())
                .map_err(|source| raddle_xdp::Error::System {
                    call: "starting a thread",
                    source,
                })
        });
        match load {
            Ok(thread) => self.loading = Some(Loading { since, thread }),
            Err(e) => self.told(since, Err(e)),
        }
    }

    /// Takes them into use once they are there.
    pub(super) fn take_over(&mut self, engine: &mut Engine) {
        let is_there = |loading: &mut Loading| loading.thread.is_finished();
        let Some(Loading { since, thread }) = self.loading.take_if(is_there) else {
            return;
        };
        match thread.join() {
            Ok(programs) => self.told(since, programs.and_then(|all| engine.use_srv6(all))),
            Err(_) => {
                self.refused = Some("loading its programs failed; the log says how".to_owned())
            }
        }
    }

    fn told(&mut self, started: Instant, loaded: raddle_xdp::Result<()>) {
        match loaded {
            Ok(()) => tracing::info!(
                "SRv6 and tunnels are carried out and tagged frames are forwarded, ready after {:?}",
                started.elapsed()
            ),
            Err(e) => {
                tracing::warn!(
                    "SRv6, tunnels and tagged frames stay with the kernel until raddle is started again: {e}"
                );
                self.refuse(&e);
            }
        }
    }

    /// Remembers that the kernel has refused them.
    pub(super) fn refuse(&mut self, error: &raddle_xdp::Error) {
        self.refused = Some(error.brief());
    }

    /// Why nothing carries segments out, nor tunnels, nor forwards tagged frames; none where the engine does.
    pub(crate) fn lacking(&self, engine: &Engine) -> Option<String> {
        if engine.has_srv6() {
            return None;
        }
        let loading = || "its programs are being loaded".to_owned();
        Some(self.refused.clone().unwrap_or_else(loading))
    }

    /// Whether the programs are needed and not there, and the kernel has not refused them.
    fn is_due(&self, engine: &Engine, rib: &Rib) -> bool {
        !engine.has_srv6() && self.is_wanted(rib)
    }

    pub(super) fn is_wanted(&self, rib: &Rib) -> bool {
        self.refused.is_none() && needs_called_programs(rib)
    }
}

/// Whether there is something that only the program does which calls others:
///
/// 1. A segment that engines carry out.
/// 2. A VLAN, a bridge or a macvlan that is forwarded from. What only leaves by one needs nothing.
/// 3. A tunnel, in either direction.
fn needs_called_programs(rib: &Rib) -> bool {
    let Ports { enabled, out } = rib.ports();
    if enabled.union(out).any(|index| rib.is_tunnel(*index)) {
        return true;
    }
    let known = |segment: &Segment| segment.kind != segment_kind::KERNEL;
    let enabled = rib.ports().enabled.iter().copied();
    rib.segments().any(|(_, _, segment)| known(segment)) || !carriers(rib, enabled).is_empty()
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{
        Bridge, DeviceSettings, Event, Link, Route, RouteNexthop, RouteOp, RouteTarget, Vlan,
    };
    use raddle_rib::seg6::{Behaviour, Seg6, Sid};

    use super::*;

    #[test]
    fn a_kernel_that_refuses_is_not_asked_again() {
        let mut rib = Rib::detached();
        rib.apply(Event::Link(Link::ethernet(1, "a", [2; 6])));
        rib.apply(Event::Device(1, DeviceSettings::default()));
        rib.set_ports(Ports {
            enabled: [1].into(),
            out: [1].into(),
        });
        rib.commit();
        let mut srv6 = Srv6::default();
        assert!(!srv6.is_wanted(&rib));
        let hop = RouteNexthop {
            index: 1,
            encap: Some(Seg6::Sid(Sid::new(Behaviour::End)).encode()),
            ..RouteNexthop::default()
        };
        let route = Route {
            dst: "fc00::1/128".parse().unwrap(),
            target: RouteTarget::Single(hop),
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
        rib.commit();
        assert!(srv6.is_wanted(&rib));
        srv6.refuse(&raddle_xdp::Error::NotPermitted { action: "load" });
        assert!(!srv6.is_wanted(&rib));
    }

    #[test]
    fn tunnels_need_the_called_programs_both_ways() {
        let gre = Link {
            tunnel: Some(crate::links::tunnel(raddle_rib::event::TunnelKind::Gre {
                ikey: None,
                okey: None,
            })),
            ..Link::ethernet(2, "gre1", [0; 6])
        };
        let mut rib = Rib::detached();
        rib.apply(Event::Link(Link::ethernet(1, "a", [2; 6])));
        rib.apply(Event::Link(gre));
        for (enabled, out, needs) in [(1, 1, false), (2, 1, true), (1, 2, true)] {
            rib.set_ports(Ports {
                enabled: [enabled].into(),
                out: [out].into(),
            });
            rib.commit();
            assert_eq!(needs_called_programs(&rib), needs, "{enabled} {out}");
        }
    }

    #[test]
    fn tagged_frames_that_come_in_need_the_called_programs() {
        let mut rib = Rib::detached();
        rib.apply(Event::Link(Link::ethernet(1, "a", [2; 6])));
        rib.apply(Event::Link(Link {
            kind: Some("vlan".into()),
            vlan: Some(Vlan {
                protocol: 0x8100,
                id: 5,
                egress_qos: false,
            }),
            lower: Some(1),
            ..Link::ethernet(2, "a.5", [2; 6])
        }));
        let mut needs = |enabled: &[u32]| {
            rib.set_ports(Ports {
                enabled: enabled.iter().copied().collect(),
                out: [1, 2].into(),
            });
            rib.commit();
            needs_called_programs(&rib)
        };
        assert!(!needs(&[1]), "out by a VLAN needs nothing");
        assert!(needs(&[1, 2]));
        assert!(needs(&[2]));
        let bridge = Link {
            kind: Some("bridge".into()),
            bridge: Some(Bridge::default()),
            ..Link::ethernet(3, "br0", [2; 6])
        };
        let port = Link {
            master: Some(3),
            ..Link::ethernet(4, "c", [2; 6])
        };
        let mut rib = Rib::detached();
        rib.apply(Event::Link(bridge));
        let needs = |rib: &mut Rib| {
            rib.set_ports(Ports {
                enabled: [3].into(),
                out: [3, 4].into(),
            });
            rib.commit();
            needs_called_programs(rib)
        };
        assert!(!needs(&mut rib), "nothing comes in by it");
        rib.apply(Event::Link(port));
        assert!(needs(&mut rib));
    }
}

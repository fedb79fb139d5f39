//! The daemon's life: start, follow, answer, stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use raddle_netlink::{Mirror, Socket};
use raddle_rib::event::{Event, NUD_STALE};
use raddle_rib::image::ADJ_FORWARD;
use raddle_rib::{Commit, Rib};
use raddle_xdp::{Engine, LoadOptions};

use super::links::{Plan, plan, plan_of_present};
use super::survey::{bypass, shaped, survey};
use super::{report, set_seed};
use crate::config::{Config, Mode, OnExit, algo_rules};
use crate::control::{Command, Request, ask};
use crate::error::Failure;
use crate::kept;
use crate::own::Own;
use crate::preflight::{Finding, Mend, Report};

/// Changes are gathered for this long before they are published, unless it is quiet.
const GATHER: Duration = Duration::from_millis(10);
/// How often the daemon looks after what nobody announces.
const ROUND: Duration = Duration::from_secs(1);
/// How long a request may wait.
const ANSWER: Duration = Duration::from_millis(50);

/// A running daemon.
pub(super) struct Daemon {
    pub(super) config: Config,
    pub(super) rib: Rib,
    pub(super) engine: Engine,
    pub(super) mirror: Mirror,
    pub(super) plan: Plan,
    pub(super) warnings: Vec<Finding>,
    pub(super) held: Option<String>,
    pub(super) started: Instant,
    pub(super) commits: u64,
    pub(super) last_commit: Commit,
    requests: Socket,
    /// What is raddle's own.
    own: Own,
    /// Packets through each adjacency at the last round.
    sent: HashMap<u32, u64>,
    /// What was found about the qdiscs of all links.
    shaped: Vec<Finding>,
    dirty_since: Option<Instant>,
    /// Something changed that the preflight looks at.
    look_again: bool,
}

/// What a start comes to, apart from the engine.
struct Prepared {
    rib: Rib,
    mirror: Mirror,
    plan: Plan,
    report: Report,
    last_commit: Commit,
    shaped: Vec<Finding>,
    requests: Socket,
    own: Own,
}

/// `raddle run --check`: everything that the start would look at, without changing anything.
pub(super) fn check(config: &Config) -> Result<(), Failure> {
    let mut rib = Rib::detached();
    Mirror::open()?.initial(&mut |event| rib.apply(event))?;
    let report = survey(&rib, config, Mend::Would, own_links(config).into_iter())?;
    let plan = plan(&rib, config, &report).map_err(Failure::system)?;
    for finding in report.warnings() {
        println!("{finding}");
    }
    for line in super::links::would(&plan, &rib) {
        println!("{line}");
    }
    refuse(&report, config)?;
    require_links(&plan)?;
    can_keep(config)?;
    crate::control::check(config.socket.as_deref())?;
    config.metrics.map_or(Ok(()), crate::metrics::check)
}

/// Programs are kept only where they would last.
fn can_keep(config: &Config) -> Result<(), Failure> {
    match config.on_exit {
        OnExit::Keep => kept::possible(),
        OnExit::Detach => Ok(()),
    }
}

/// A daemon without a link to forward from would only look as if it worked.
fn require_links(plan: &Plan) -> Result<(), Failure> {
    if !plan.attach.is_empty() {
        return Ok(());
    }
    let why: Vec<String> = plan
        .left
        .iter()
        .map(|(name, why)| format!("  {name}: {why}"))
        .collect();
    Err(Failure::system(format!(
        "there is no link to forward from; turn forwarding on (sysctl -w net.ipv4.ip_forward=1 \
         net.ipv6.conf.all.forwarding=1) or name links with --link\n{}",
        why.join("\n")
    )))
}

/// Links that have our program already: those of a running daemon, and those that one has left.
fn own_links(config: &Config) -> Vec<u32> {
    let mut links = Vec::new();
    if let Ok(status) = ask(config.socket.as_deref(), Command::Status) {
        let list = status["links"].as_array().cloned().unwrap_or_default();
        links.extend(
            list.iter()
                .filter_map(|l| u32::try_from(l["ifindex"].as_u64()?).ok()),
        );
    }
    links.extend(kept::links().into_keys());
    links
}

/// Promise 6: never around the firewall.
fn refuse(report: &Report, config: &Config) -> Result<(), Failure> {
    let list: Vec<String> = report
        .refusals()
        .map(|finding| format!("  {finding}"))
        .collect();
    if list.is_empty() || config.allow_bypass {
        return Ok(());
    }
    Err(Failure::system(format!(
        "not attached, because forwarded packets would bypass:\n{}\nTo forward around them all \
         the same: --allow-bypass",
        list.join("\n")
    )))
}

impl Daemon {
    /// Mirrors the kernel, compiles the image, attaches. After an error nothing is attached, not
    /// even what an earlier daemon has left.
    pub(super) fn start(config: Config) -> Result<Daemon, Failure> {
        let started = Instant::now();
        can_keep(&config)?;
        let mirror = Mirror::open()?;
        let mut engine = load(&config)?;
        match Daemon::prepare(&config, mirror, &mut engine) {
            Ok(ready) => Ok(Daemon::ready(config, started, engine, ready)),
            Err(failure) => {
                // Dropping the engine detaches what is not pinned.
                if let Err(e) = engine.unpin() {
                    tracing::warn!("{e}");
                }
                Err(failure)
            }
        }
    }

    /// All that may fail between loading the engine and serving.
    fn prepare(
        config: &Config,
        mut mirror: Mirror,
        engine: &mut Engine,
    ) -> Result<Prepared, Failure> {
        let memory = engine.memory();
        let capacity = config.capacity();
        let mut rib = Rib::new(Arc::clone(&memory), &capacity, wait_for_readers);
        rib.set_algos(algo_rules(&config.mp_algos));
        mirror.initial(&mut |event| rib.apply(event))?;
        let mut own = Own::default();
        let events = own.follow(config, &rib);
        events.into_iter().for_each(|event| rib.apply(event));
        let attached: Vec<u32> = engine.attached().map(|(index, _)| index).collect();
        let shaped = shaped(&rib, &config.allow_qdisc)?;
        // Nothing of the system is changed for a start that is refused.
        let mut report = survey(&rib, config, Mend::Would, attached.iter().copied())?;
        refuse(&report, config)?;
        let mut plan = plan(&rib, config, &report).map_err(Failure::system)?;
        require_links(&plan)?;
        if config.mend {
            report = survey(&rib, config, Mend::Do, attached.iter().copied())?;
            refuse(&report, config)?;
            plan = super::links::plan(&rib, config, &report).map_err(Failure::system)?;
            require_links(&plan)?;
        }
        let requests = Socket::open()?;
        // An earlier daemon's links need not be ours.
        let others = attached
            .into_iter()
            .filter(|i| !plan.attach.contains_key(i));
        for index in others {
            engine.detach(index)?;
        }
        for index in plan.out.keys() {
            engine.set_out_link(*index)?;
        }
        for (index, name) in &plan.attach {
            attach(engine, *index, name, config.mode)?;
        }
        if config.on_exit == OnExit::Keep && !engine.is_pinned() {
            engine.pin(&kept::folder())?;
        }
        if let Some(seed) = config.seed
            && rib.settings().hash_seed == 0
        {
            let number = set_seed(seed)?;
            tracing::info!("hash seed set to {number}; flows over several paths have moved once");
            mirror.poll(&mut |event| rib.apply(event))?;
            let settings = raddle_rib::event::Settings {
                hash_seed: number,
                ..*rib.settings()
            };
            rib.apply(Event::Settings(settings));
        }
        rib.set_ports(plan.ports());
        // Before there is anything to forward by: it must not outlive this process for ever.
        if let Some(deadline) = deadline(config) {
            rib.set_deadline(deadline);
        }
        let last_commit = rib.commit();
        Ok(Prepared {
            rib,
            mirror,
            plan,
            report,
            last_commit,
            shaped,
            requests,
            own,
        })
    }

    fn ready(config: Config, started: Instant, engine: Engine, ready: Prepared) -> Daemon {
        let mut daemon = Daemon {
            config,
            rib: ready.rib,
            engine,
            mirror: ready.mirror,
            plan: ready.plan,
            warnings: ready.report.warnings().cloned().collect(),
            held: None,
            started,
            commits: 1,
            last_commit: ready.last_commit,
            requests: ready.requests,
            own: ready.own,
            sent: HashMap::new(),
            shaped: ready.shaped,
            dirty_since: None,
            look_again: false,
        };
        daemon.tend_deadline();
        daemon.announce();
        daemon
    }

    fn announce(&self) {
        for finding in &self.warnings {
            tracing::warn!("{finding}");
        }
        for (name, why) in &self.plan.left {
            tracing::info!("link {name} is left to the kernel: {why}");
        }
        let usage = self.rib.usage();
        let modes: Vec<String> = self
            .engine
            .attached()
            .map(|(index, mode)| format!("{} ({mode})", report::name(&self.rib, index)))
            .collect();
        tracing::info!(
            "forwarding from {}: {} IPv4 and {} IPv6 routes, ready after {:?}",
            modes.join(", "),
            usage.routes4,
            usage.routes6,
            self.started.elapsed()
        );
    }

    /// Follows the kernel and answers questions until `stop` is raised.
    pub(super) fn serve(
        &mut self,
        stop: &AtomicBool,
        control: &Receiver<Request>,
        metrics: Option<&Receiver<Request>>,
    ) -> Result<(), Failure> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        let mut next_round = Instant::now() + ROUND;
        while !stop.load(Ordering::Relaxed) {
            self.wait(next_round);
            self.follow()?;
            for request in control
                .try_iter()
                .chain(metrics.into_iter().flat_map(|m| m.try_iter()))
            {
                let value = match request.command {
                    Command::Status => report::status(self),
                    Command::Counters => report::counters(&self.rib, &self.counters()),
                };
                let _ = request.answer.send(value);
            }
            if Instant::now() >= next_round {
                self.round();
                next_round = Instant::now() + ROUND;
            }
        }
        self.stop()
    }

    /// Sleeps until the kernel says something, a request may wait no longer, or work is due.
    fn wait(&self, next_round: Instant) {
        let until = match self.dirty_since {
            Some(since) => (since + GATHER).min(next_round),
            None => next_round,
        };
        let timeout = until.saturating_duration_since(Instant::now()).min(ANSWER);
        let timeout =
            PollTimeout::try_from(timeout + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(self.mirror.fd(), PollFlags::POLLIN)];
        // A signal may interrupt it: the loop looks again at everything anyway.
        let _ = poll(&mut fds, timeout);
    }

    /// Applies what the kernel said; publishes when it is quiet or has been long enough.
    fn follow(&mut self) -> Result<(), Failure> {
        let rib = &mut self.rib;
        let look_again = &mut self.look_again;
        let mut ahead = None;
        let mut count = 0;
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
            // With a million routes behind a group, the kernel tells of each of them as well; the
            // group itself need not wait for that.
            let at_once = matches!(event, Event::Nexthop(_) | Event::NexthopGone(_));
            rib.apply(event);
            if at_once && let Some(commit) = rib.commit_nexthops() {
                ahead = Some(commit);
                count += 1;
            }
        })?;
        if self.look_again {
            let events = self.own.follow(&self.config, &self.rib);
            events.into_iter().for_each(|event| self.rib.apply(event));
        }
        if let Some(commit) = ahead {
            self.commits += count;
            self.note(commit);
        }
        if !self.rib.is_dirty() {
            return Ok(());
        }
        let since = *self.dirty_since.get_or_insert_with(Instant::now);
        if batch.events > 0 && since.elapsed() < GATHER {
            return Ok(());
        }
        if self.look_again {
            self.replan();
        }
        self.publish();
        Ok(())
    }

    fn publish(&mut self) {
        let commit = self.rib.commit();
        self.commits += 1;
        self.dirty_since = None;
        self.note(commit);
    }

    /// Remembers the last commit and says what it has to say.
    fn note(&mut self, commit: Commit) {
        let was_full = std::mem::replace(&mut self.last_commit, commit).full;
        if self.last_commit.full && !was_full {
            tracing::error!(
                "the image is full: part of the traffic goes to the kernel; raise routes4, routes6 or \
                 sids in the configuration and restart"
            );
        }
        tracing::debug!(
            entries = self.last_commit.entries,
            groups = self.last_commit.groups,
            took = ?self.last_commit.took,
            "published"
        );
    }

    /// Links or settings changed: attaches and detaches accordingly.
    fn replan(&mut self) {
        let attached: Vec<u32> = self.engine.attached().map(|(index, _)| index).collect();
        let report = match survey(&self.rib, &self.config, Mend::Do, attached.into_iter()) {
            Ok(report) => report,
            Err(e) => {
                // Things may go while one looks at them. The next round looks again.
                tracing::warn!("links stay as they are for now: {e}");
                return;
            }
        };
        self.look_again = false;
        self.warn(report.warnings().cloned().collect());
        let mut plan = plan_of_present(&self.rib, &self.config, &report);
        if plan == self.plan {
            return;
        }
        // What the new links would bypass is known already: not even a moment around it.
        if let Some(finding) = report.refusals().next()
            && !self.config.allow_bypass
        {
            self.hold(Some(finding.to_string()));
        }
        let gone: Vec<u32> = self
            .engine
            .attached()
            .map(|(index, _)| index)
            .filter(|index| !plan.attach.contains_key(index))
            .collect();
        for index in gone {
            if let Err(e) = self.engine.detach(index) {
                tracing::warn!("{e}");
            }
        }
        self.attach_all(&mut plan);
        self.rib.set_ports(plan.ports());
        self.plan = plan;
    }

    /// Says what was not warned of before, and what no longer has to be.
    fn warn(&mut self, mut warnings: Vec<Finding>) {
        // What has been mended is not found again, but stays so.
        let is_there = |f: &&Finding| {
            let link = f.link.as_deref().and_then(|name| self.rib.link_named(name));
            f.mended && link.is_some() && !warnings.contains(f)
        };
        let mended: Vec<Finding> = self.warnings.iter().filter(is_there).cloned().collect();
        warnings.extend(mended);
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
    /// is made anew, and the plan says so; it does not keep others from being attached.
    fn attach_all(&mut self, plan: &mut Plan) {
        let engine = &mut self.engine;
        let left = &mut plan.left;
        plan.out
            .retain(|index, name| match engine.set_out_link(*index) {
                Ok(()) => true,
                Err(e) => {
                    tracing::warn!("link {name}: {e}");
                    left.insert(name.clone(), e.to_string());
                    false
                }
            });
        plan.attach.retain(
            |index, name| match attach(engine, *index, name, self.config.mode) {
                Ok(()) => true,
                Err(e) => {
                    tracing::warn!("{e}");
                    left.insert(name.clone(), e.to_string());
                    false
                }
            },
        );
    }

    /// What has to be done now and then.
    fn round(&mut self) {
        self.tend_neighbours();
        self.tend_own_neighbours();
        self.tend_firewall();
        self.tend_deadline();
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
                && adjacency.state == ADJ_FORWARD
                && let Err(e) = self.requests.use_neighbour(index, ip)
            {
                tracing::debug!("cannot have neighbour {ip} confirmed: {e}");
            }
        }
        self.sent = sent;
    }

    /// The kernel resolves neighbours for packets that it forwards, and of raddle's own SIDs it has none.
    fn tend_own_neighbours(&mut self) {
        let Some(iif) = self.plan.attach.values().next() else {
            return;
        };
        for (index, ip) in self.own.unresolved(&self.rib, iif) {
            if let Err(e) = self.requests.use_neighbour(index, ip) {
                tracing::debug!("cannot have neighbour {ip} resolved: {e}");
            }
        }
    }

    /// Promise 6 holds while running, too: firewalls and qdiscs come and go, and say so to nobody
    /// who listens to links and routes. What cannot be seen counts as being there.
    fn tend_firewall(&mut self) {
        if !self.config.allow_bypass {
            self.hold(match bypass(&self.plan) {
                Ok(findings) => findings.first().map(ToString::to_string),
                Err(e) => Some(format!(
                    "whether anything would be bypassed cannot be seen: {e}"
                )),
            });
        }
        match shaped(&self.rib, &self.config.allow_qdisc) {
            Ok(shaped) => {
                self.look_again |= shaped != self.shaped;
                self.shaped = shaped;
            }
            Err(e) => tracing::warn!("links stay as they are for now: {e}"),
        }
        if self.look_again {
            self.replan();
        }
        if self.rib.is_dirty() {
            self.publish();
        }
    }

    /// Hands everything to the kernel from now on, for this reason; none forwards again.
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

    /// Programs that outlive the daemon may forward by its last state for so long only.
    fn tend_deadline(&mut self) {
        if let Some(deadline) = deadline(&self.config) {
            self.rib.set_deadline(deadline);
        }
    }

    fn counters(&self) -> raddle_xdp::Counters {
        self.engine.counters()
    }

    fn stop(&mut self) -> Result<(), Failure> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        match self.config.on_exit {
            OnExit::Keep => {
                self.tend_deadline();
                tracing::info!(
                    "stopping; programs forward for {} s without a daemon, then hand everything \
                     to the kernel; raddle detach removes them",
                    self.config.keep_for()
                );
            }
            OnExit::Detach => tracing::info!("stopping; the kernel forwards"),
        }
        Ok(())
    }
}

/// Until when programs may forward without a daemon, if they outlive it (`CLOCK_MONOTONIC`
/// nanoseconds).
fn deadline(config: &Config) -> Option<u64> {
    (config.on_exit == OnExit::Keep)
        .then(|| super::now().saturating_add(u64::from(config.keep_for()) * 1_000_000_000))
}

/// Returns when no packet is in the program that was there before the call.
fn wait_for_readers() {
    if let Err(e) = raddle_xdp::grace() {
        tracing::error!("cannot wait for the engine's readers: {e}");
        // Longer than any packet stays in the program.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A fresh engine, or the one that an earlier daemon left forwarding.
fn load(config: &Config) -> Result<Engine, Failure> {
    let options = LoadOptions {
        capacity: config.capacity(),
    };
    match Engine::recover(&kept::folder()) {
        Ok(Some(engine))
            if config.on_exit == OnExit::Keep && engine.memory().capacity() == options.capacity =>
        {
            tracing::info!("taking over programs that are attached already");
            engine.memory().reset(wait_for_readers);
            return Ok(engine);
        }
        Ok(Some(mut engine)) => {
            tracing::info!("replacing programs of an earlier daemon");
            engine.unpin()?;
        }
        Ok(None) => {}
        Err(e) => {
            tracing::warn!("pins of an earlier daemon cannot be taken over: {e}");
            kept::remove()?;
        }
    }
    Ok(Engine::load(&options)?)
}

/// Attaches the engine to a link, unless it is attached already.
fn attach(engine: &mut Engine, index: u32, name: &str, mode: Mode) -> Result<(), Failure> {
    let mode = match mode {
        Mode::Auto => raddle_xdp::Mode::Auto,
        Mode::Native => raddle_xdp::Mode::Native,
        Mode::Generic => raddle_xdp::Mode::Generic,
    };
    match engine.attach(index, mode) {
        Ok(_) => Ok(()),
        Err(e) => Err(Failure::system(format!("link {name}: {e}"))),
    }
}

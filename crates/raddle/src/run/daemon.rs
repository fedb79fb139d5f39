//! The daemon's life: start, follow, answer, stop.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use raddle_netlink::{Mirror, Socket};
use raddle_rib::event::NUD_STALE;
use raddle_rib::image::ADJ_FORWARD;
use raddle_rib::{Commit, Rib};
use raddle_xdp::{Engine, LoadOptions};

use super::links::{Plan, plan};
use super::survey::{bypass, shaped, survey};
use super::{report, set_seed};
use crate::config::{Config, Mode, OnExit};
use crate::control::{Command, Request, ask};
use crate::error::Failure;
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
    /// Packets through each adjacency at the last round.
    sent: HashMap<u32, u64>,
    /// What was found about the qdiscs of all links.
    shaped: Vec<Finding>,
    dirty_since: Option<Instant>,
    links_changed: bool,
}

/// `raddle run --check`: everything that the start would look at, without changing anything.
pub(super) fn check(config: &Config) -> Result<(), Failure> {
    let mut rib = Rib::detached();
    Mirror::open()?.initial(&mut |event| rib.apply(event))?;
    let report = survey(&rib, config, Mend::Would, own_links(config).into_iter())?;
    let plan = plan(&rib, config, &report).map_err(Failure::usage)?;
    for finding in report.warnings() {
        println!("{finding}");
    }
    for name in plan.attach.values() {
        println!("link {name}: would be attached");
    }
    for (name, why) in &plan.left {
        println!("link {name}: left to the kernel: {why}");
    }
    refuse(&report, config)?;
    require_links(&plan)
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
    Err(Failure::usage(format!(
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
    let pins = std::fs::read_dir(pin_folder().join("links"))
        .into_iter()
        .flatten()
        .flatten();
    links.extend(pins.filter_map(|pin| {
        let name = pin.file_name();
        name.to_str()?.split('-').next()?.parse::<u32>().ok()
    }));
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
    /// Mirrors the kernel, compiles the image, attaches. After an error nothing is attached.
    pub(super) fn start(config: Config) -> Result<Daemon, Failure> {
        let started = Instant::now();
        let mut mirror = Mirror::open()?;
        let mut engine = load(&config)?;
        let memory = engine.memory();
        let capacity = config.capacity();
        let mut rib = Rib::new(Arc::clone(&memory), &capacity, wait_for_readers);
        mirror.initial(&mut |event| rib.apply(event))?;
        let attached: Vec<u32> = engine.attached().map(|(index, _)| index).collect();
        let shaped = shaped(&rib, &config.allow_qdisc)?;
        let report = survey(&rib, &config, Mend::Do, attached.into_iter())?;
        refuse(&report, &config)?;
        let plan = plan(&rib, &config, &report).map_err(Failure::usage)?;
        require_links(&plan)?;
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
            rib.apply(raddle_rib::event::Event::Settings(settings));
        }
        rib.set_ports(plan.ports());
        let last_commit = rib.commit();
        attach(&mut engine, &plan, config.mode)?;
        if config.on_exit == OnExit::Keep && !engine.is_pinned() {
            engine.pin(&pin_folder())?;
        }
        let mut daemon = Daemon {
            config,
            rib,
            engine,
            mirror,
            plan,
            warnings: report.warnings().cloned().collect(),
            held: None,
            started,
            commits: 1,
            last_commit,
            requests: Socket::open()?,
            sent: HashMap::new(),
            shaped,
            dirty_since: None,
            links_changed: false,
        };
        daemon.tend_deadline();
        daemon.announce();
        Ok(daemon)
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
                self.round()?;
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
        let links_changed = &mut self.links_changed;
        let batch = self.mirror.poll(&mut |event| {
            *links_changed |= matches!(
                event,
                raddle_rib::event::Event::Link(_)
                    | raddle_rib::event::Event::LinkGone(_)
                    | raddle_rib::event::Event::Device(..)
            );
            rib.apply(event);
        })?;
        if !self.rib.is_dirty() {
            return Ok(());
        }
        let since = *self.dirty_since.get_or_insert_with(Instant::now);
        if batch.events > 0 && since.elapsed() < GATHER {
            return Ok(());
        }
        if std::mem::take(&mut self.links_changed) {
            self.replan()?;
        }
        self.publish();
        Ok(())
    }

    fn publish(&mut self) {
        let was_full = self.last_commit.full;
        self.last_commit = self.rib.commit();
        self.commits += 1;
        self.dirty_since = None;
        if self.last_commit.full && !was_full {
            tracing::error!(
                "the image is full: part of the traffic goes to the kernel; raise routes4 or \
                 routes6 in the configuration and restart"
            );
        }
        tracing::debug!(
            entries = self.last_commit.entries,
            groups = self.last_commit.groups,
            took = ?self.last_commit.took,
            "published"
        );
    }

    /// Links came, went or changed: attaches and detaches accordingly.
    fn replan(&mut self) -> Result<(), Failure> {
        let attached: Vec<u32> = self.engine.attached().map(|(index, _)| index).collect();
        let report = survey(&self.rib, &self.config, Mend::Do, attached.into_iter())?;
        let plan = match plan(&self.rib, &self.config, &report) {
            Ok(plan) => plan,
            Err(why) => {
                // A link that was named is gone or of no use now; the others go on.
                tracing::warn!("{why}");
                let present = Config {
                    links: self
                        .config
                        .links
                        .iter()
                        .filter(|name| self.plan.attach.values().any(|n| n == *name))
                        .filter(|name| self.rib.link_named(name).is_some())
                        .cloned()
                        .collect(),
                    allow_qdisc: self.present(&self.config.allow_qdisc),
                    ..self.config.clone()
                };
                match plan(&self.rib, &present, &report) {
                    Ok(plan) if !present.links.is_empty() => plan,
                    _ => Plan::default(),
                }
            }
        };
        if plan == self.plan {
            return Ok(());
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
        self.rib.set_ports(plan.ports());
        if let Err(e) = attach(&mut self.engine, &plan, self.config.mode) {
            tracing::warn!("{e}");
        }
        self.plan = plan;
        self.warnings = report.warnings().cloned().collect();
        Ok(())
    }

    fn present(&self, names: &[String]) -> Vec<String> {
        names
            .iter()
            .filter(|name| self.rib.link_named(name).is_some())
            .cloned()
            .collect()
    }

    /// What has to be done now and then.
    fn round(&mut self) -> Result<(), Failure> {
        self.tend_neighbours();
        self.tend_firewall()?;
        self.tend_deadline();
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        Ok(())
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

    /// Promise 6 holds while running, too: firewalls and qdiscs come and go, and say so to nobody
    /// who listens to links and routes.
    fn tend_firewall(&mut self) -> Result<(), Failure> {
        if !self.config.allow_bypass {
            let findings = bypass(&self.plan)?;
            match (findings.first(), &self.held) {
                (Some(finding), None) => {
                    tracing::warn!("everything goes to the kernel from now on: {finding}");
                    self.held = Some(finding.to_string());
                    self.rib.set_hold(true);
                }
                (None, Some(_)) => {
                    tracing::info!("what would have been bypassed is gone: forwarding again");
                    self.held = None;
                    self.rib.set_hold(false);
                }
                _ => {}
            }
        }
        let shaped = shaped(&self.rib, &self.config.allow_qdisc)?;
        if shaped != self.shaped {
            self.shaped = shaped;
            self.replan()?;
            self.publish();
        }
        Ok(())
    }

    /// Programs that outlive the daemon may forward by its last state for so long only.
    fn tend_deadline(&mut self) {
        if self.config.on_exit == OnExit::Keep {
            let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
                .map_or(Duration::ZERO, Duration::from);
            let deadline = now + Duration::from_secs(u64::from(self.config.keep_for));
            self.rib
                .set_deadline(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
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
                     to the kernel",
                    self.config.keep_for
                );
            }
            OnExit::Detach => tracing::info!("stopping; the kernel forwards"),
        }
        Ok(())
    }
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
    let folder = pin_folder();
    match Engine::recover(&folder) {
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
            remove_pins(&folder)?;
        }
    }
    Ok(Engine::load(&options)?)
}

fn remove_pins(folder: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::system(format!(
            "cannot remove {}: {e}; remove it by hand",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Pins of this network namespace.
fn pin_folder() -> PathBuf {
    let socket = crate::control::default_path();
    let name = socket
        .file_stem()
        .map_or_else(|| "raddle".into(), ToOwned::to_owned);
    Path::new("/sys/fs/bpf/raddle").join(name)
}

/// Makes the engine's links those of the plan; after an error it has those that it had.
fn attach(engine: &mut Engine, plan: &Plan, mode: Mode) -> Result<(), Failure> {
    let mode = match mode {
        Mode::Auto => raddle_xdp::Mode::Auto,
        Mode::Native => raddle_xdp::Mode::Native,
        Mode::Generic => raddle_xdp::Mode::Generic,
    };
    let before: BTreeMap<u32, ()> = engine.attached().map(|(index, _)| (index, ())).collect();
    let attempt = |engine: &mut Engine| -> Result<(), Failure> {
        for index in plan.out.keys() {
            engine.set_out_link(*index)?;
        }
        for (index, name) in &plan.attach {
            engine
                .attach(*index, mode)
                .map_err(|e| Failure::system(format!("link {name}: {e}")))?;
        }
        Ok(())
    };
    let result = attempt(engine);
    if result.is_err() {
        let new: Vec<u32> = engine
            .attached()
            .map(|(index, _)| index)
            .filter(|index| !before.contains_key(index))
            .collect();
        for index in new {
            let _ = engine.detach(index);
        }
    }
    result
}

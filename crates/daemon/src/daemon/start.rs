//! The daemon's start: everything is looked at first, then the image is compiled, then programs are
//! attached.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use raddle_netlink::fpm::Server;
use raddle_netlink::{Announced, Mirror, Socket};
use raddle_rib::event::Event;
use raddle_rib::{Commit, Rib};
use raddle_xdp::{Engine, LoadOptions, WantedPlaces};

use super::tend::{Srv6, attach, loses_buffers, mode_for, send_through_all};
use super::{Daemon, News};
use crate::Error;
use crate::config::{Config, OnExit, Seed, algo_rules};
use crate::expiry::Expiry;
use crate::fpm;
use crate::guard::Guard;
use crate::kept::{self, now};
use crate::lag::Lag;
use crate::links::{self, Plan, plan};
use crate::losses::Losses;
use crate::path_mtus::PathMtus;
use crate::priority::Standing;
use crate::report;
use crate::rx_hash::Decisions;
use crate::seed;
use crate::source_ports::SourcePorts;
use crate::static_routes::{self, StaticRoutes};
use crate::survey::{shaped, survey};
use raddle_control::{Status, ask};
use raddle_preflight::{Finding, Fix, Report};

/// What a start comes to, apart from the engine.
struct Prepared {
    rib: Rib,
    mirror: Mirror,
    announced: Announced,
    plan: Plan,
    report: Report,
    rx_hash: Decisions,
    last_commit: Commit,
    shaped: Vec<Finding>,
    requests: Socket,
    wanted: WantedPlaces,
    statics: StaticRoutes,
    fpm: Option<Server>,
    srv6: Srv6,
    no_key: Option<String>,
    source_ports: SourcePorts,
}

/// Programs are kept only where they would last.
pub(super) fn can_keep(config: &Config) -> Result<(), Error> {
    match config.on_exit {
        OnExit::Keep => kept::possible(),
        OnExit::Detach => Ok(()),
    }
}

/// A daemon without a link to forward from would only look as if it worked.
pub(super) fn require_links(plan: &Plan) -> Result<(), Error> {
    if !plan.attach.is_empty() {
        return Ok(());
    }
    let left = plan.left.iter();
    let left = left.map(|(name, why)| format!("{name}: {why}")).collect();
    Err(Error::NoLinks { left })
}

/// Whether a link is named, or one upon it: then it is wanted.
fn is_named(rib: &Rib, config: &Config, index: u32) -> bool {
    let mut named = config.links.iter().filter_map(|name| rib.link_named(name));
    named.any(|link| rib.lower_links(link.index).contains(&index))
}

/// Whether all links that are named are forwarded from.
fn has_named(rib: &Rib, config: &Config, plan: &Plan) -> bool {
    let mut named = config.links.iter().filter_map(|name| rib.link_named(name));
    named.all(|link| plan.attach.contains_key(&link.index))
}

/// Links that have our program already: those of a running daemon, and those that one has left.
pub(super) fn own_links(config: &Config) -> Vec<u32> {
    let mut links = Vec::new();
    if let Ok(status) = ask::<Status>(config.socket.as_deref()) {
        links.extend(status.programs.iter().map(|program| program.ifindex));
        if status.programs.is_empty() {
            // One of a version before there were VLANs.
            links.extend(status.links.iter().map(|link| link.ifindex));
        }
    }
    links.extend(kept::links().into_keys());
    links
}

/// Whether the start will set the hash seed.
///
/// # Errors
/// The configuration wants a seed that there is none of, or that cannot be set.
pub(super) fn check_seed(config: &Config, rib: &Rib) -> Result<bool, Error> {
    let (settings, can_be_set) = (rib.settings(), seed::can_be_set());
    static_routes::check_seed(config, rib.hash_key().is_some(), can_be_set)?;
    if let Some(Seed::Number(wanted)) = config.seed
        && settings.hash_seed != 0
        && settings.hash_seed != wanted
    {
        tracing::warn!(
            "the hash seed is {} already, and stays: to have {wanted}, which moves flows once, \
             sysctl -w net.ipv4.fib_multipath_hash_seed={wanted}",
            settings.hash_seed
        );
    }
    Ok(seed::will_be_set(config, can_be_set)? && settings.hash_seed == 0)
}

/// Promise 6: never around the firewall.
pub(super) fn refuse(report: &Report, config: &Config) -> Result<(), Error> {
    let list: Vec<Finding> = report.refusals().cloned().collect();
    match list.is_empty() || config.allow_bypass {
        true => Ok(()),
        false => Err(Error::Bypass(list)),
    }
}

impl Daemon {
    /// Mirrors the kernel, compiles the image, attaches. After an error nothing is attached, not
    /// even what an earlier daemon has left.
    pub(crate) fn start(config: Config) -> Result<Daemon, Error> {
        let started = Instant::now();
        can_keep(&config)?;
        // What an earlier daemon has left goes on where this fails.
        let fpm = config.fpm.as_ref().map(fpm::listen).transpose()?;
        let mirror = Mirror::open()?;
        let mut engine = load(&config)?;
        match Daemon::prepare(&config, (mirror, fpm), &mut engine) {
            Ok(ready) => {
                let mut daemon = Daemon::ready(config, started, engine, ready);
                match daemon.go_live() {
                    Ok(()) => {
                        kept::sweep();
                        Ok(daemon)
                    }
                    Err(failure) => Err(give_up(&mut daemon.engine, failure)),
                }
            }
            Err(failure) => Err(give_up(&mut engine, failure)),
        }
    }

    /// All that may fail between loading the engine and serving.
    fn prepare(
        config: &Config,
        (mut mirror, fpm): (Mirror, Option<Server>),
        engine: &mut Engine,
    ) -> Result<Prepared, Error> {
        let memory = engine.memory();
        let capacity = config.capacity();
        let mut rib = Rib::new(Arc::clone(&memory), &capacity, wait_for_readers);
        rib.set_algos(algo_rules(&config.mp_algos));
        rib.set_label_key(draw_key());
        rib.set_port_key(draw_key());
        rib.on_new_segment(engine.segment_counter_clearer());
        rib.on_passed_on(engine.adjacency_counter_taker());
        rib.on_renamed(engine.adjacency_counter_reader());
        rib.on_slot_passed_on(engine.link_counter_clearer());
        let image = Arc::clone(&memory);
        mirror.on_link_lost(move |index| {
            image.punt_link(index);
        });
        let image = Arc::clone(&memory);
        let announced = Announced::open(move || image.doubt())?;
        mirror.initial(&mut |event| rib.apply(event))?;
        let no_key = seed::know(&mut rib);
        let mut source_ports = SourcePorts::default();
        source_ports.know(&mut rib);
        let sets_seed = check_seed(config, &rib)?;
        let mut statics = StaticRoutes::default();
        let events = statics.follow(config, &rib);
        events.into_iter().for_each(|event| rib.apply(event));
        for line in static_routes::missing(config, &rib) {
            tracing::warn!("{line}");
        }
        let attached: Vec<u32> = engine.attached().map(|(index, _)| index).collect();
        let shaped = shaped(&rib, &config.allow_qdisc)?;
        // Nothing of the system is changed for a start that is refused.
        let look = |rib: &Rib, fix| {
            survey(
                rib,
                config,
                fix,
                attached.iter().copied(),
                no_key.as_deref(),
            )
        };
        let mut report = look(&rib, Fix::Would)?;
        refuse(&report, config)?;
        let mut plan = plan(&rib, config, &report)?;
        require_links(&plan)?;
        if config.fix_offloads {
            report = look(&rib, Fix::Do)?;
            refuse(&report, config)?;
            plan = links::plan(&rib, config, &report)?;
            require_links(&plan)?;
        }
        let requests = Socket::open()?;
        let wanted = engine.wanted()?;
        // An earlier daemon's links need not be ours.
        let others = attached
            .into_iter()
            .filter(|i| !plan.programs.contains_key(i));
        for index in others {
            engine.detach(index)?;
        }
        let mut srv6 = Srv6::default();
        if config.has_statics() {
            // The kernel does not know them: it must not get packets for them at any time.
            engine.load_srv6()?;
        } else if config.may_have_statics()
            && let Err(e) = engine.load_srv6()
        {
            tracing::warn!("SIDs and segment lists by FPM cannot be carried out: {e}");
            srv6.refuse(&e);
        }
        for (index, name) in plan.programs.clone() {
            let mode = mode_for(&rib, index, config.mode);
            match attach(engine, index, &name, mode) {
                // A bridge has others.
                Err(e) if links::is_port(&rib, index) => {
                    plan.without_program(&rib, index, &e.to_string());
                    if !has_named(&rib, config, &plan) {
                        return Err(e);
                    }
                    tracing::warn!("{e}");
                }
                Err(e) if mode != config.mode && !is_named(&rib, config, index) => {
                    tracing::warn!("{e}");
                    plan.without_program(&rib, index, &e.to_string());
                }
                attached => attached?,
            }
        }
        require_links(&plan)?;
        send_through_all(engine, &rib, &mut plan, &Plan::default());
        // Before the first packet is forwarded: flows must not move when it is read from then on.
        let mut rx_hash = Decisions::default();
        rx_hash.renew(engine, (&rib, &plan), config);
        if config.on_exit == OnExit::Keep && !engine.is_pinned() {
            engine.pin(&kept::folder())?;
        }
        if let Some(seed) = config.seed.filter(|_| sets_seed) {
            let number = seed::set(seed)?;
            tracing::info!("hash seed set to {number}; flows over several paths have moved once");
            mirror.poll(&mut |event| rib.apply(event))?;
            let settings = raddle_rib::event::Settings {
                hash_seed: number,
                ..*rib.settings()
            };
            rib.apply(Event::Settings(settings));
        }
        rib.set_ports(plan.ports());
        // Before there is anything to forward by: nothing is, before the first look.
        rib.set_deadline(raddle_image::PASSED);
        rib.set_one_buffer(loses_buffers(&rib, &plan, config));
        let last_commit = rib.commit();
        srv6.carry_out_at_once(engine, &rib);
        Ok(Prepared {
            rib,
            mirror,
            announced,
            plan,
            report,
            rx_hash,
            last_commit,
            shaped,
            requests,
            wanted,
            statics,
            fpm,
            srv6,
            no_key,
            source_ports,
        })
    }

    fn ready(config: Config, started: Instant, engine: Engine, ready: Prepared) -> Daemon {
        let news = match ready.mirror.lacks_notifications() {
            true => News::Lost,
            false => News::Whole,
        };
        Daemon {
            guard: Guard::new(config.deadline),
            standing: Standing::default(),
            lag: Lag::new(),
            losses: Losses::count(&engine),
            config,
            rib: ready.rib,
            engine,
            mirror: ready.mirror,
            announced: ready.announced,
            plan: ready.plan,
            warnings: ready.report.warnings().cloned().collect(),
            rx_hash: ready.rx_hash,
            held: None,
            started,
            commits: 1,
            last_commit: ready.last_commit,
            requests: ready.requests,
            wanted: (ready.wanted, Instant::now()),
            statics: ready.statics,
            fpm: ready.fpm,
            srv6: ready.srv6,
            sent: HashMap::new(),
            shaped: ready.shaped,
            punted: Vec::new(),
            not_in: BTreeMap::new(),
            expiry: Expiry::default(),
            path_mtus: PathMtus::default(),
            dirty_since: None,
            published: Instant::now(),
            veths: crate::veths::Watch::default(),
            try_room: false,
            tags_doubted: false,
            news,
            look_again: false,
            new_settings: false,
            no_key: ready.no_key,
            source_ports: ready.source_ports,
            lacks: BTreeSet::new(),
        }
    }

    /// Lets programs forward, once all that the kernel has told while they were loaded is published.
    fn go_live(&mut self) -> Result<(), Error> {
        let since = now();
        self.follow()?;
        while self.rib.is_dirty() {
            self.follow()?;
        }
        self.veths.follow(&self.rib, &self.plan, &self.config);
        self.look(since);
        self.announce();
        Ok(())
    }

    fn announce(&self) {
        for finding in &self.warnings {
            tracing::warn!("{finding}");
        }
        for (name, why) in &self.plan.left {
            tracing::info!("link {name} is left to the kernel: {why}");
        }
        let usage = self.rib.usage();
        let lower = self.rib.all_lower_links();
        let modes: Vec<String> = self
            .plan
            .attach
            .iter()
            .map(|(index, name)| format!("{name} ({})", report::mode(self, &lower, *index)))
            .collect();
        tracing::info!(
            "forwarding from {}: {} IPv4 and {} IPv6 routes, ready after {:?}",
            modes.join(", "),
            usage.routes4,
            usage.routes6,
            self.started.elapsed()
        );
    }
}

/// Leaves nothing behind. Dropping the engine detaches what is not pinned.
fn give_up(engine: &mut Engine, failure: Error) -> Error {
    if let Err(e) = engine.unpin() {
        tracing::warn!("{e}");
    }
    failure
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
fn load(config: &Config) -> Result<Engine, Error> {
    let options = LoadOptions {
        capacity: config.capacity(),
    };
    match Engine::recover(&kept::folder()) {
        Ok(Some(engine))
            if config.on_exit == OnExit::Keep && engine.memory().capacity() == options.capacity =>
        {
            tracing::info!("taking over programs that are attached already");
            engine.memory().reset(wait_for_readers);
            engine.clear_counters();
            // Those of the plan are set below.
            engine.clear_out_links();
            return Ok(engine);
        }
        Ok(Some(mut engine)) => {
            tracing::info!("replacing programs of an earlier daemon");
            engine.clear_out_links();
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

/// 128 bits that nobody else knows.
fn draw_key() -> [u64; 2] {
    let drawn = RandomState::new();
    [drawn.hash_one(0u8), drawn.hash_one(1u8)]
}

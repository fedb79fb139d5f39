//! `raddle run --check`: everything that the start would look at and load, without changing anything.

use raddle_control::{self as control, Status};
use raddle_netlink::Mirror;
use raddle_rib::Rib;
use raddle_rib::event::{Event, Link, Settings};
use raddle_xdp::{Engine, LoadOptions};

use super::start::{can_keep, check_seed, own_links, refuse, require_links};
use super::tend::Srv6;
use crate::Error;
use crate::config::{Config, Mode, algo_rules};
use crate::fpm;
use crate::links::{self, Plan, plan};
use crate::rx_hash::would_read;
use crate::seed;
use crate::static_routes::{self, StaticRoutes};
use crate::survey::survey;
use raddle_preflight::Fix;

/// Says what there is to say of this machine, a line at a time, then ends with what would keep a start from succeeding, in
/// the order in which the start meets it:
///
/// 1. a daemon that runs already, pins that would not last, an address of FPM that cannot be had; but what 3
///    would refuse as well is told first, as whoever asks beside a running daemon knows that it runs;
/// 2. the program for forwarding is refused;
/// 3. seed, links, firewall;
/// 4. with SIDs or encapsulations of the configuration: the programs for these are refused;
/// 5. an address of the metrics that cannot be had.
///
/// What a start would go on without is only told: SRv6 of the kernel's routes, a link's receive hash. The
/// programs are loaded over an image of their own, which holds the state as it is, and go with it.
pub fn check(config: &Config, say: &mut dyn FnMut(String)) -> Result<(), Error> {
    let early = control::check(config.socket.as_deref())
        .map_err(Error::from)
        .and_then(|()| can_keep(config))
        .and_then(|()| config.fpm.as_ref().map(fpm::listen).transpose());
    // Which programs are a running daemon's only it can say: what follows would take them for somebody else's.
    if early.is_err()
        && control::check(config.socket.as_deref()).is_err()
        && control::ask::<Status>(config.socket.as_deref()).is_err()
    {
        return early.map(drop);
    }
    // Beside a daemon that runs there is no use in a second image.
    let engine = early.is_ok().then(|| load(config));
    let mut rib = match &engine {
        Some(Ok(engine)) => {
            let mut rib = Rib::new(engine.memory(), &config.capacity(), || ());
            rib.set_algos(algo_rules(&config.mp_algos));
            rib
        }
        _ => Rib::detached(),
    };
    Mirror::open()?.initial(&mut |event| rib.apply(event))?;
    let looked = look(&mut rib, config, say);
    let _fpm = match early {
        Ok(listener) => listener,
        Err(e) => {
            looked?;
            return Err(e);
        }
    };
    let engine = engine.transpose()?;
    let (plan, sets_seed) = looked?;
    if let Some(engine) = engine {
        programs(config, engine, rib, (&plan, sets_seed), say)?;
    }
    config.metrics.map_or(Ok(()), raddle_metrics::check)?;
    Ok(())
}

/// The program for forwarding, as the start loads it.
fn load(config: &Config) -> Result<Engine, Error> {
    let options = LoadOptions {
        capacity: config.capacity(),
    };
    Engine::load(&options).map_err(|e| match e {
        raddle_xdp::Error::NotPermitted { .. } => Error::NotTried(e),
        e => e.into(),
    })
}

/// What follows from links, settings and firewall; says it.
fn look(
    rib: &mut Rib,
    config: &Config,
    say: &mut dyn FnMut(String),
) -> Result<(Plan, bool), Error> {
    let no_key = seed::know(rib);
    let rib = &*rib;
    let sets_seed = check_seed(config, rib)?;
    let own = own_links(config).into_iter();
    let report = survey(rib, config, Fix::Would, own, no_key.as_deref())?;
    let plan = plan(rib, config, &report)?;
    for finding in report.warnings() {
        say(finding.to_string());
    }
    for finding in report.punted() {
        say(format!("would be left to the kernel: {finding}"));
    }
    for line in links::would(&plan, rib) {
        say(line);
    }
    for line in static_routes::missing(config, rib) {
        say(line);
    }
    refuse(&report, config)?;
    require_links(&plan)?;
    Ok((plan, sets_seed))
}

/// Loads the programs that the start would load beside the one that is there; says what the kernel takes.
fn programs(
    config: &Config,
    mut engine: Engine,
    mut rib: Rib,
    (plan, sets_seed): (&Plan, bool),
    say: &mut dyn FnMut(String),
) -> Result<(), Error> {
    for event in StaticRoutes::default().follow(config, &rib) {
        rib.apply(event);
    }
    if sets_seed {
        // Which one does not matter here.
        let settings = Settings {
            hash_seed: 1,
            ..*rib.settings()
        };
        rib.apply(Event::Settings(settings));
    }
    rib.set_ports(plan.ports());
    rib.commit();
    let mut taken = vec!["forwarding"];
    if config.has_statics() {
        engine.load_srv6()?;
        taken.push("SRv6");
    } else if config.may_have_statics() || Srv6::default().is_wanted(&rib) {
        match engine.load_srv6() {
            Ok(()) => taken.push("SRv6"),
            Err(e) => say(format!(
                "SRv6, tunnels and tagged frames would stay with the kernel: {e}"
            )),
        }
    }
    let native = config.mode != Mode::Generic;
    let links = rib
        .links()
        .filter(|link| plan.programs.contains_key(&link.index));
    let carriers = plan.carriers(&rib);
    let reads = |link: &&Link| {
        let uppers = carriers.contains(&link.index);
        would_read(&rib, config, link, (native, uppers))
    };
    for link in links.filter(reads) {
        match engine.try_rx_hash(link.index) {
            Ok(()) if taken.contains(&"receive hash") => {}
            Ok(()) => taken.push("receive hash"),
            Err(e) => say(format!(
                "link {}: would go on without its receive hash: {e}",
                link.name
            )),
        }
    }
    say(format!(
        "programs that this kernel takes: {}",
        taken.join(", ")
    ));
    Ok(())
}

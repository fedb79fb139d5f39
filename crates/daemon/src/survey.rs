//! The preflight as the daemon asks for it: what it knows goes in, what follows comes out.

use raddle_rib::Rib;

use super::links::Plan;
use super::rx_hash::would_read;
use crate::Error;
use crate::config::{Config, Mode};
use crate::seed;
use raddle_preflight::{self as preflight, Finding, Fix, Known, Options, Report, Scene};

/// Looks at everything that matters before attaching; `fix` says what to do about what can be
/// fixed, `attached` are the links that have our program already, `no_key` is why the kernel's own key is not known.
pub(super) fn survey(
    rib: &Rib,
    config: &Config,
    fix: Fix,
    attached: impl Iterator<Item = u32>,
    no_key: Option<&str>,
) -> Result<Report, Error> {
    let mut scene = Scene::of(rib, attached.collect(), raddle_xdp::can_receive_redirects);
    // A program that is not ours any more may still be in the mirror.
    for link in &mut scene.links {
        let others = link.xdp.is_some() && !scene.attached.contains(&link.index);
        if others && raddle_xdp::has_program(link.index) == Some(false) {
            link.xdp = None;
        }
    }
    let can_set_seed = seed::can_be_set();
    let options = Options {
        links: config.links.clone(),
        allow_bypass: config.allow_bypass,
        allow_qdisc: config.allow_qdisc.clone(),
        generic: config.mode == Mode::Generic,
        fix: if config.fix_offloads { fix } else { Fix::Never },
        // A number that cannot be set has been refused before.
        sets_seed: seed::will_be_set(config, can_set_seed).unwrap_or(false),
        can_set_seed,
        no_key: no_key.map(str::to_owned),
        reads_hash: rib
            .links()
            .filter(|link| would_read(rib, config, link, config.mode != Mode::Generic))
            .map(|link| link.index)
            .collect(),
    };
    Ok(preflight::inspect(&scene, &options)?)
}

/// What the links of the plan would bypass just now; `known` is what earlier looks have found out.
pub(super) fn bypass(plan: &Plan, known: &mut Known) -> Result<Vec<Finding>, Error> {
    Ok(preflight::bypass(&plan.attach, &plan.out, known)?)
}

/// The links whose qdisc shapes what they send just now, but those that are `allowed`.
pub(super) fn shaped(rib: &Rib, allowed: &[String]) -> Result<Vec<Finding>, Error> {
    let links = rib.links().map(|l| (l.index, l.name.clone())).collect();
    Ok(preflight::shaped(&links, allowed)?)
}

//! The preflight as the daemon asks for it: what it knows goes in, what follows comes out.

use std::collections::{BTreeMap, BTreeSet};

use raddle_rib::Rib;
use raddle_rib::event::Link;
use raddle_rib::firewall::Firewall;

use super::links::{Plan, carriers, forwards};
use super::rx_hash::would_read;
use crate::Error;
use crate::config::{Config, Conntrack, Mode};
use crate::seed;
use raddle_preflight::{
    self as preflight, Finding, Fix, Known, Options, Punted, Report, Scene, Way,
};

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
    let carriers = would_carry(rib, config);
    let options = Options {
        links: config.links.clone(),
        allow_bypass: config.allow_bypass,
        punt_tracked: config.conntrack == Conntrack::Punt,
        allow_qdisc: config.allow_qdisc.clone(),
        generic: config.mode == Mode::Generic,
        fix: if config.fix_offloads { fix } else { Fix::Never },
        // A number that cannot be set has been refused before.
        sets_seed: seed::will_be_set(config, can_set_seed).unwrap_or(false),
        can_set_seed,
        no_key: no_key.map(str::to_owned),
        reads_hash: rib
            .links()
            // The program on a member of a bond is the bond's.
            .filter(|link| link.bond_active.is_none())
            .filter(|link| {
                let facts = (config.mode != Mode::Generic, carriers.contains(&link.index));
                would_read(rib, config, link, facts)
            })
            .map(|link| link.index)
            .collect(),
    };
    Ok(preflight::inspect(&scene, &options)?)
}

/// The links that would have the program for others upon them, as far as that goes by the configuration and settings: all, where there is
/// a tunnel.
fn would_carry(rib: &Rib, config: &Config) -> BTreeSet<u32> {
    if rib.links().any(preflight::is_usable_tunnel) {
        return rib.links().map(|link| link.index).collect();
    }
    let addressed = preflight::addressed(rib);
    let wanted = |link: &&Link| match config.links.is_empty() {
        true => forwards(rib, link, &addressed),
        false => config.links.contains(&link.name),
    };
    let wanted = rib.links().filter(wanted);
    carriers(rib, wanted.map(|link| link.index))
}

/// What a look at the firewall has found.
pub(super) struct Looked {
    /// What is punted of what comes in by links of the plan.
    pub(super) firewall: Firewall,
    /// The same in words.
    pub(super) punted: Vec<Punted>,
    /// By name, tunnels that nothing comes in by, and why.
    pub(super) not_in: BTreeMap<String, String>,
    /// Why not a single packet would be forwarded, if so.
    pub(super) nothing: Option<String>,
}

/// What packets between links of the plan would meet just now; `known` is what earlier looks have found out.
pub(super) fn look(
    rib: &Rib,
    plan: &Plan,
    conntrack: Conntrack,
    known: &mut Known,
) -> Result<Looked, Error> {
    let (beneath_in, beneath_out) = (plan.beneath_in(rib), plan.beneath_out(rib));
    let ins = Way::of(&plan.attach, &beneath_in);
    let outs = Way::of(&plan.out, &beneath_out);
    let mut verdicts = preflight::look(ins, outs, known)?;
    if conntrack == Conntrack::Punt {
        verdicts.punt_tracked(ins, outs);
    }
    let links = || plan.attach.keys().filter_map(|index| rib.link(*index));
    let devices = || links().map(|link| rib.input_settings(link));
    let families = [
        devices().any(|device| device.forwarding4),
        devices().any(|device| device.forwarding6),
    ];
    let nothing = match verdicts.frees_nothing(&plan.attach, &plan.out, families) {
        // In the words that a start is refused with.
        true => preflight::bypass(ins, outs, known)?
            .first()
            .map(ToString::to_string),
        false => None,
    };
    let mut punted = verdicts.punted(&plan.attach, &plan.out);
    for (family, forwards) in [4, 6].into_iter().zip(families) {
        if forwards {
            let of_link = |link: &Link| rib.punted_by_rules(link.index, family);
            let of_links = links().map(|link| (link.name.as_str(), of_link(link)));
            punted.extend(preflight::by_packet(family, of_links.collect()));
        }
    }
    if families[0] {
        for link in links() {
            let apart = rib.filtered_apart(link.index);
            let outs = apart.iter().filter(|out| plan.out.contains_key(out));
            let names = outs.filter_map(|out| Some(rib.link(*out)?.name.as_str()));
            punted.extend(preflight::by_way_out(&link.name, names));
        }
    }
    Ok(Looked {
        punted,
        not_in: verdicts.not_in(),
        firewall: verdicts.firewall,
        nothing,
    })
}

/// The links whose qdisc shapes what they send just now, but those that are `allowed`.
pub(super) fn shaped(rib: &Rib, allowed: &[String]) -> Result<Vec<Finding>, Error> {
    let links = rib.links().map(|l| (l.index, l.name.clone())).collect();
    Ok(preflight::shaped(&links, allowed)?)
}

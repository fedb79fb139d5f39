//! The configuration as it stands in the file, where every value that a later check may refuse knows its place.

use std::ops::Range;
use std::path::PathBuf;

use raddle_config::{Address, At, Error, File, Spanned};
use serde::Deserialize;

use super::algo::{AlgoRule, RawAlgoRule};
use super::fpm::{Fpm, FpmInvalid};
use super::room::Room;
use super::{Config, Conntrack, Invalid, Mode, OnExit, Priority, RxHash, Seed, tables};
use crate::statics::{RawEncap, RawSid, StaticEncap, StaticSid, Which};

/// The file's keys are these names, in kebab case. What is left out is as [`Config`] has it by default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Raw {
    #[serde(deserialize_with = "tables::some_links")]
    links: Vec<String>,
    mode: Option<Mode>,
    on_exit: Option<OnExit>,
    deadline: Option<Spanned<u32>>,
    priority: Option<Priority>,
    allow_bypass: bool,
    conntrack: Option<Conntrack>,
    #[serde(deserialize_with = "tables::links")]
    allow_qdisc: Vec<String>,
    fix_offloads: Option<bool>,
    seed: Option<Seed>,
    rx_hash: Option<RxHash>,
    metrics: Option<Spanned<Address>>,
    mp_algo: Vec<Spanned<RawAlgoRule>>,
    #[serde(deserialize_with = "tables::sid")]
    sid: Vec<Spanned<RawSid>>,
    #[serde(deserialize_with = "tables::encap")]
    encap: Vec<Spanned<RawEncap>>,
    fpm: Option<RawFpm>,
    socket: Option<PathBuf>,
    routes4: Option<Spanned<usize>>,
    routes6: Option<Spanned<usize>>,
    sids: Option<Spanned<tables::Sids>>,
    groups: Option<Spanned<usize>>,
    members: Option<Spanned<usize>>,
    adjacencies: Option<Spanned<usize>>,
}

/// `[fpm]`.
#[derive(Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table [fpm] with listen, grace, counters and users, all of which may be left out"
)]
struct RawFpm {
    listen: Option<Spanned<Address>>,
    grace: Option<Spanned<u32>>,
    counters: Option<bool>,
    users: Option<Vec<Spanned<String>>>,
}

/// What a file says.
///
/// # Errors
/// What is wrong with it, with its place.
pub(super) fn read(file: &File) -> Result<Config, Error> {
    let raw: Raw = file.parse()?;
    let config = config(&raw, file)?;
    match config.check() {
        Ok(()) => Ok(config),
        Err(invalid) => Err(match raw.place(&invalid) {
            Some(span) => file.error_at(At {
                error: invalid,
                span,
            }),
            None => file.error(invalid),
        }),
    }
}

fn config(raw: &Raw, file: &File) -> Result<Config, Error> {
    let default = Config::default();
    let room =
        |key: &Option<Spanned<usize>>, default| key.as_ref().map_or(default, |n| *n.get_ref());
    let algos = raw.mp_algo.iter().map(AlgoRule::of);
    let sids = raw.sid.iter().map(StaticSid::of);
    let encaps = raw.encap.iter().map(StaticEncap::of);
    Ok(Config {
        links: raw.links.clone(),
        mode: raw.mode.unwrap_or(default.mode),
        on_exit: raw.on_exit.unwrap_or(default.on_exit),
        deadline: raw
            .deadline
            .as_ref()
            .map_or(default.deadline, |n| *n.get_ref()),
        priority: raw.priority.unwrap_or(default.priority),
        allow_bypass: raw.allow_bypass,
        conntrack: raw.conntrack.unwrap_or(default.conntrack),
        allow_qdisc: raw.allow_qdisc.clone(),
        fix_offloads: raw.fix_offloads.unwrap_or(default.fix_offloads),
        seed: raw.seed,
        rx_hash: raw.rx_hash.unwrap_or(default.rx_hash),
        metrics: raw.metrics.as_ref().map(|address| address.get_ref().0),
        mp_algos: algos
            .collect::<Result<_, _>>()
            .map_err(|at| file.error_at(at))?,
        sid: sids
            .collect::<Result<_, _>>()
            .map_err(|at| file.error_at(at))?,
        encap: encaps
            .collect::<Result<_, _>>()
            .map_err(|at| file.error_at(at))?,
        fpm: raw.fpm.as_ref().map(RawFpm::with_defaults),
        socket: raw.socket.clone(),
        routes4: room(&raw.routes4, default.routes4),
        routes6: room(&raw.routes6, default.routes6),
        sids: raw.sids.as_ref().map_or(default.sids, |n| n.get_ref().0),
        groups: room(&raw.groups, default.groups),
        members: room(&raw.members, default.members),
        adjacencies: room(&raw.adjacencies, default.adjacencies),
    })
}

impl RawFpm {
    fn with_defaults(&self) -> Fpm {
        let default = Fpm::default();
        let names =
            |users: &Vec<Spanned<String>>| users.iter().map(|u| u.get_ref().clone()).collect();
        Fpm {
            listen: self
                .listen
                .as_ref()
                .map_or(default.listen, |address| address.get_ref().0),
            grace: self.grace.as_ref().map_or(default.grace, |n| *n.get_ref()),
            counters: self.counters.unwrap_or(default.counters),
            users: self.users.as_ref().map(names),
        }
    }
}

impl Raw {
    /// The bytes that say what is invalid; none for what the file leaves out.
    fn place(&self, invalid: &Invalid) -> Option<Range<usize>> {
        fn of<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
            value.as_ref().map(Spanned::span)
        }
        let fpm = self.fpm.as_ref();
        match invalid {
            Invalid::Metrics(_) => of(&self.metrics),
            Invalid::Deadline => of(&self.deadline),
            Invalid::Room { room, .. } => match room {
                Room::Routes4 => of(&self.routes4),
                Room::Routes6 => of(&self.routes6),
                Room::Sids => of(&self.sids),
                Room::Groups => of(&self.groups),
                Room::Members => of(&self.members),
                Room::Adjacencies => of(&self.adjacencies),
            },
            Invalid::Fpm(FpmInvalid::NotLoopback(_) | FpmInvalid::NoPort) => {
                fpm.and_then(|fpm| of(&fpm.listen))
            }
            Invalid::Fpm(FpmInvalid::NoUser { place, .. }) => {
                let users = fpm.and_then(|fpm| fpm.users.as_ref());
                users.and_then(|users| users.get(*place)).map(Spanned::span)
            }
            Invalid::Fpm(FpmInvalid::Grace) => fpm.and_then(|fpm| of(&fpm.grace)),
            Invalid::Twice { which, .. } => match which {
                Which::Sid(n) => self.sid.get(*n).map(|sid| sid.get_ref().prefix.span()),
                Which::Encap(n) => self
                    .encap
                    .get(*n)
                    .map(|encap| encap.get_ref().prefix.span()),
            },
        }
    }
}

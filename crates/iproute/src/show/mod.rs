//! `raddle route show`, `nexthop show`, `neigh show` and `sr show`: the mirrored state, as iproute2
//! prints it.
//!
//! The output is that of `ip` 6.1 byte for byte, in text and in JSON, in the kernel's order, so
//! that eyes and scripts that know `ip` know this. What raddle does not mirror is not printed:
//! realms, expiry times, the name of a congestion control. Of encapsulations, seg6 and seg6local are
//! printed in full, others by name only. With `-statistics` the counters of SIDs are printed as `ip`
//! does, with what the daemon's engine has counted added; and where a daemon answers, what it has sent
//! to each nexthop, which `ip` does not know.
//!
//! Programs exit with 2 for a wrong command line, and with 3 for what does not exist ([`Error::is_absent`]).

mod args;
mod bucket;
mod encap;
mod error;
mod figures;
mod lookup;
mod metrics;
mod neigh;
mod nexthop;
mod order;
mod out;
mod prefix;
mod route;
mod sr;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use raddle_rib::event::{Bucket, Link, Neighbour, Nexthop, Route};

use args::{Args, abbreviates};
pub(crate) use encap::KINDS as ENCAPS;
pub use error::Error;
pub use figures::Figures;
use lookup::Lookup;
use out::{Form, Out};
pub use sr::binary_stdout;

use crate::names::Names;

/// The mirrored objects to choose from. Their order does not matter, except that of routes with
/// equal keys.
#[derive(Clone, Copy, Default)]
pub struct State<'a> {
    /// Links, for the names of devices.
    pub links: &'a [Link],
    /// Nexthop objects, also for the routes that lead to them.
    pub nexthops: &'a [Nexthop],
    /// Buckets of resilient groups.
    pub buckets: &'a [Bucket],
    /// Neighbours.
    pub neighbours: &'a [Neighbour],
    /// Routes of all families and tables.
    pub routes: &'a [Route],
    /// What the clock says by which routes expire.
    pub clock: i64,
    /// What has been counted; none where nobody was asked.
    pub figures: Option<&'a Figures>,
}

/// An address family, as `-4`, `-6` and `-family` choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
}

impl Family {
    /// `AF_*`.
    fn number(self) -> u8 {
        match self {
            Family::Inet => 2,
            Family::Inet6 => 10,
        }
    }
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Routes.
    Route,
    /// Neighbours.
    Neigh,
    /// Nexthop objects.
    Nexthop,
    /// SIDs and segment lists.
    Sr,
}

impl Object {
    /// The object that `word` abbreviates, in `ip`'s order: `r` and `ro` are routes, `n` and `nei`
    /// neighbours, `nex` nexthops. Meant for words that are no command of raddle's own.
    pub fn from_abbreviation(word: &str) -> Option<Object> {
        let known = [
            ("route", Object::Route),
            ("neighbor", Object::Neigh),
            ("neighbour", Object::Neigh),
            ("nexthop", Object::Nexthop),
            ("sr", Object::Sr),
        ];
        known
            .into_iter()
            .find(|(name, _)| abbreviates(word, name))
            .map(|(_, object)| object)
    }

    /// The noun of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Object::Route => "route",
            Object::Neigh => "neigh",
            Object::Nexthop => "nexthop",
            Object::Sr => "sr",
        }
    }

    /// What `help` prints.
    pub fn usage(self) -> &'static str {
        match self {
            Object::Route => route::USAGE,
            Object::Neigh => neigh::USAGE,
            Object::Nexthop => nexthop::USAGE,
            Object::Sr => sr::USAGE,
        }
    }
}

/// A parsed command line.
#[derive(Debug)]
pub struct Command {
    form: Form,
    details: bool,
    statistics: bool,
    family: Option<Family>,
    names: Names,
    snapshot: Option<PathBuf>,
    what: What,
}

#[derive(Debug)]
enum What {
    Routes(route::Filter),
    Neighbours(neigh::Filter),
    Nexthops(nexthop::Filter),
    Buckets(bucket::Filter),
    Segments(sr::Filter),
    SaveSegments(sr::Filter),
    Help(Object),
}

/// What the printers of all objects need.
struct Context<'a> {
    lookup: Lookup<'a>,
    names: &'a Names,
    details: bool,
    family: Option<Family>,
    clock: i64,
    /// Printed with `-statistics`.
    figures: Option<&'a Figures>,
    /// Kernel and engine are told apart.
    apart: bool,
}

impl Command {
    /// Parses the words after `raddle`: options (anywhere), an object, then nothing, `show` with a
    /// selector, or `help`. Words may be abbreviated as in `ip`: `r s`, `-j ro`, `nei l dev eth0`.
    ///
    /// # Errors
    /// Every variant of [`Error`] but those of [`Error::is_absent`].
    pub fn parse<S: AsRef<str>>(words: &[S], names: Names) -> Result<Command, Error> {
        let (options, mut args) = args::split(words.iter().map(S::as_ref))?;
        let word = args.next().unwrap_or("help");
        let object =
            Object::from_abbreviation(word).ok_or_else(|| Error::Object(word.to_owned()))?;
        let (family, details) = (options.family, options.details);
        let names = if options.numeric {
            names.numeric()
        } else {
            names
        };
        let what = match options.help {
            true => What::Help(object),
            false => Command::parse_object(object, &mut args, family, &names)?,
        };
        Ok(Command {
            form: options.form(),
            snapshot: options.snapshot,
            details,
            statistics: options.statistics,
            family,
            names,
            what,
        })
    }

    fn parse_object(
        object: Object,
        args: &mut Args<'_>,
        family: Option<Family>,
        names: &Names,
    ) -> Result<What, Error> {
        let command = args.next().unwrap_or("list");
        if abbreviates(command, "help") {
            return Ok(What::Help(object));
        }
        let buckets = object == Object::Nexthop && abbreviates(command, "bucket");
        let command = match buckets {
            true => args.next().unwrap_or("list"),
            false => command,
        };
        if buckets && abbreviates(command, "help") {
            return Ok(What::Help(object));
        }
        let save = object == Object::Sr && command == "save";
        let get = object == Object::Nexthop && abbreviates(command, "get");
        if !get
            && !save
            && !["show", "list", "lst"]
                .iter()
                .any(|name| abbreviates(command, name))
        {
            let (object, word) = (object.name(), command.to_owned());
            return Err(Error::Command { object, word });
        }
        Ok(match object {
            Object::Route => What::Routes(route::Filter::parse(args, family, names)?),
            Object::Neigh => What::Neighbours(neigh::Filter::parse(args, family, names)?),
            Object::Nexthop if buckets => What::Buckets(bucket::Filter::parse(args, get)?),
            Object::Nexthop => What::Nexthops(nexthop::Filter::parse(args, names, get)?),
            Object::Sr if save => What::SaveSegments(sr::Filter::parse(args, family, names)?),
            Object::Sr => What::Segments(sr::Filter::parse(args, family, names)?),
        })
    }

    /// Whether [`Command::print`] needs no state: `help`.
    pub fn is_help(&self) -> bool {
        matches!(self.what, What::Help(_))
    }

    /// The object that it is about.
    pub fn object(&self) -> Object {
        match self.what {
            What::Routes(_) => Object::Route,
            What::Neighbours(_) => Object::Neigh,
            What::Nexthops(_) | What::Buckets(_) => Object::Nexthop,
            What::Segments(_) | What::SaveSegments(_) => Object::Sr,
            What::Help(object) => object,
        }
    }

    /// The file that the state is to come from; none for the live kernel.
    pub fn snapshot(&self) -> Option<&Path> {
        self.snapshot.as_deref()
    }

    /// Whether it prints bytes, and not text: `sr save`. See [`binary_stdout`].
    pub fn is_binary(&self) -> bool {
        matches!(self.what, What::SaveSegments(_))
    }

    /// Whether [`State::figures`] are printed.
    pub fn wants_figures(&self) -> bool {
        self.statistics || matches!(self.what, What::SaveSegments(_))
    }

    /// Prints what was asked for. Costs a sort of what is selected.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::NoNexthop`] and the like for what `state` does not have,
    /// [`Error::Write`] when `sink` fails, for instance because the reader of a pipe has left.
    pub fn print(&self, state: &State<'_>, sink: &mut dyn io::Write) -> Result<(), Error> {
        if let What::Help(object) = self.what {
            return sink
                .write_all(object.usage().as_bytes())
                .map_err(Error::Write);
        }
        let context = Context {
            lookup: Lookup::new(state),
            names: &self.names,
            details: self.details,
            family: self.family,
            clock: state.clock,
            figures: state.figures.filter(|_| self.wants_figures()),
            apart: matches!(self.what, What::Segments(_)),
        };
        if let What::SaveSegments(filter) = &self.what {
            return sr::save(sink, &context, filter, state.routes);
        }
        let mut out = Out::new(sink, self.form);
        match &self.what {
            What::Routes(filter) => route::print(&mut out, &context, filter, state.routes),
            What::Neighbours(filter) => neigh::print(&mut out, &context, filter, state.neighbours),
            What::Nexthops(filter) => nexthop::print(&mut out, &context, filter, state.nexthops),
            What::Buckets(filter) => bucket::print(&mut out, &context, filter, state.buckets),
            What::Segments(filter) => sr::print(&mut out, &context, filter, state.routes),
            What::SaveSegments(_) | What::Help(_) => Ok(()),
        }?;
        out.flush().map_err(Error::Write)
    }
}

/// `raddle OPTIONS route ...` as `raddle route OPTIONS ...`, and the same for the other nouns: `ip`
/// takes its options before the noun. None for any other command line.
///
/// `words` are those after the program's name.
pub fn options_first(words: &[String]) -> Option<(Object, Vec<String>)> {
    let at = args::first_word(words).filter(|at| *at > 0)?;
    let object = object(&words[at])?;
    Some((object, [&words[..at], &words[at + 1..]].concat()))
}

/// The noun of a command of raddle's own.
fn object(word: &str) -> Option<Object> {
    Some(match word {
        "route" | "ro" => Object::Route,
        "nexthop" | "nh" => Object::Nexthop,
        "neigh" | "neighbour" => Object::Neigh,
        "sr" => Object::Sr,
        _ => return None,
    })
}

/// What to ask the parser in place of `help nexthop bucket`: what follows a noun is no command to it, and the noun's
/// help has it all. None for any other command line.
///
/// `words` are those after the program's name.
pub fn help_of(words: &[String]) -> Option<[&str; 3]> {
    match words {
        [help, noun, _, ..] if help == "help" && object(noun).is_some() => {
            Some(["raddle", noun, "--help"])
        }
        _ => None,
    }
}

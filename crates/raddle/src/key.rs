//! `raddle key`: the search for a hash seed, its progress and what becomes of it.

use std::fs::Permissions;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use raddle_config::File;
use raddle_key::{FindError, cache};
use raddle_key_search::{Found, Observations, Progress, Router, Search};
use raddle_select::{Lanes, Seed};
use serde::Serialize;

use crate::cli::KeyFind;
use crate::error::Failure;
use crate::output::json;

/// `raddle key find`.
pub(crate) fn find(args: &KeyFind) -> Result<(), Failure> {
    match &args.observations {
        Some(file) => of_router(args, file),
        None => own(args),
    }
}

/// What was found, in JSON.
#[derive(Serialize)]
struct Answer<'a> {
    /// How: `set`, `cached`, `readable`, `searched`.
    how: &'static str,
    /// The seed, where it may be shown.
    seed: Option<u32>,
    /// Flows that were observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<usize>,
    /// The file that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<&'a Path>,
}

impl KeyFind {
    /// Says what was found, in words or in JSON.
    fn say(&self, words: &str, seed: Option<Seed>, answer: Answer<'_>) -> Result<(), Failure> {
        let shown = seed.filter(|_| self.show_key);
        if self.json {
            let seed = shown.map(Seed::get).or(answer.seed);
            println!("{}", json(&Answer { seed, ..answer })?);
            return Ok(());
        }
        println!("{words}");
        if let Some(seed) = shown {
            println!("seed {0} ({0:#010x})", seed.get());
        }
        Ok(())
    }
}

/// That of this kernel.
///
/// 1. A seed that is set is no secret and has not to be found.
/// 2. One that was found before, and still predicts the kernel, is not looked for again.
/// 3. Who may read the key needs no search, and no file.
fn own(args: &KeyFind) -> Result<(), Failure> {
    let found = |how| Answer {
        how,
        seed: None,
        flows: None,
        kept: None,
    };
    if let Some(seed) = raddle_key::set_seed() {
        let words = format!(
            "a seed is set (net.ipv4.fib_multipath_hash_seed): {}",
            seed.get()
        );
        let answer = Answer {
            seed: Some(seed.get()),
            ..found("set")
        };
        return args.say(&words, None, answer);
    }
    match cache::recall() {
        Ok(Some(seed)) => {
            let words = "the kernel's own hash key has been found before, and predicts what the kernel does";
            return args.say(words, Some(seed), found("cached"));
        }
        Ok(None) => {}
        // Neither would a search come to anything.
        Err(cache::CacheError::Unproven(why)) => return Err(Failure::system(why.to_string())),
        Err(why) => return Err(Failure::system(why.to_string())),
    }
    if let Ok(key) = raddle_key::read() {
        let words =
            "this user may read the kernel's own hash key: it has not to be found, and is not kept";
        let seed = Seed::new(key.number()).filter(|_| raddle_key::can_be_found());
        return args.say(words, seed, found("readable"));
    }
    let mut bar = Bar::begin();
    let searched = raddle_key::find(|progress| bar.show(progress));
    bar.end();
    let seed = searched.map_err(|why| match why {
        FindError::NotFound => Failure::found(why.to_string()),
        why => Failure::system(why.to_string()),
    })?;
    let words = "found the kernel's own hash key";
    match cache::keep(seed) {
        Ok(path) => {
            let words = format!(
                "{words}; it is kept in {} until this machine starts again",
                path.display()
            );
            let answer = Answer {
                kept: Some(&path),
                ..found("searched")
            };
            args.say(&words, Some(seed), answer)
        }
        Err(why) => {
            args.say(words, Some(seed), found("searched"))?;
            Err(Failure::system(format!("it is not kept: {why}")))
        }
    }
}

/// That of the router that a file is about.
fn of_router(args: &KeyFind, path: &Path) -> Result<(), Failure> {
    let file = File::read(path).map_err(|e| match e {
        raddle_config::Error::Read { path, source } => Failure::usage(format!(
            "cannot read the observations {}: {source}",
            path.display()
        )),
        other => other.into(),
    })?;
    let observations = Observations::of(&file)?.into_inner();
    if Router::of(&file).is_ok() {
        return Err(Failure::usage(format!(
            "{} has a seed: take it out to look for it anew",
            path.display()
        )));
    }
    let flows = observations.len();
    let search = Search::new(observations);
    if search.bits() < 32.0 {
        return Err(Failure::usage(format!(
            "{flows} flows tell {:.0} bits of a seed's 32, so many seeds fit them; some {} flows more are wanted",
            search.bits(),
            search.wanted()
        )));
    }
    let mut bar = Bar::begin();
    let found = search.run(|progress| bar.show(progress));
    bar.end();
    match found {
        Found::One(seed) => {
            let mut words = format!("one seed sends all {flows} flows the way that they took");
            if let Some(out) = &args.out {
                with_seed(&file, out, seed)?;
                words += &format!("; {} has it", out.display());
            } else if !args.show_key {
                words += "\n--show-key prints it, --out FILE keeps it";
            }
            let answer = Answer {
                how: "searched",
                seed: None,
                flows: Some(flows),
                kept: args.out.as_deref(),
            };
            args.say(&words, Some(seed), answer)
        }
        Found::Several { seeds, more } => Err(Failure::found(format!(
            "{seeds} seeds send all {flows} flows the way that they took; some {more} flows more would tell which it is"
        ))),
        Found::None => Err(Failure::found(format!(
            "no seed sends all {flows} flows the way that they took: a link, the order or the weights of the paths, or the \
             policy are others, or the router is older than Linux 6.11, which has a key of 128 bits"
        ))),
        Found::Ended => Err(Failure::system(FindError::Ended.to_string())),
    }
}

/// Writes a file of observations once more, with the seed, for its owner alone.
fn with_seed(observations: &File, out: &Path, seed: Seed) -> Result<(), Failure> {
    let failed = |e: std::io::Error| {
        Failure::system(format!("cannot write the router {}: {e}", out.display()))
    };
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(out)
        .map_err(failed)?;
    // Before anything is in it: one that was there may be for others, too.
    file.set_permissions(Permissions::from_mode(0o600))
        .and_then(|()| file.set_len(0))
        .and_then(|()| writeln!(file, "seed = {}\n{}", seed.get(), observations.text()))
        .map_err(failed)
}

/// How far a search is, for who looks on.
struct Bar {
    is_terminal: bool,
    percent: u64,
}

impl Bar {
    fn begin() -> Bar {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let processors = match threads {
            1 => "one processor".to_owned(),
            n => format!("{n} processors"),
        };
        let lanes = Lanes::widest().name();
        eprintln!("raddle: tries 2^32 seeds ({lanes}, {processors})");
        Bar {
            is_terminal: std::io::stderr().is_terminal(),
            percent: 0,
        }
    }

    fn show(&mut self, Progress { tried, of }: Progress) -> bool {
        let percent = tried * 100 / of.max(1);
        if percent > self.percent {
            self.percent = percent;
            if self.is_terminal {
                eprint!("\rraddle: {percent} %");
                let _ = std::io::stderr().flush();
            } else if percent.is_multiple_of(25) {
                eprintln!("raddle: {percent} %");
            }
        }
        true
    }

    fn end(self) {
        if self.is_terminal && self.percent > 0 {
            eprintln!();
        }
    }
}

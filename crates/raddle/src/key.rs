//! `raddle key`: the search for a hash seed, its progress and what becomes of it.

use std::io::{IsTerminal, Write};
use std::path::Path;

use raddle_config::File;
use raddle_key::{FindError, cache};
use raddle_key_search::{Found, Observations, Progress, Search};
use raddle_select::{Lanes, Seed};

use crate::cli::KeyFind;
use crate::error::Failure;

/// `raddle key find`.
pub(crate) fn find(args: &KeyFind) -> Result<(), Failure> {
    match &args.observations {
        Some(file) => of_router(file, args.show_key),
        None => own(args.show_key),
    }
}

/// That of this kernel.
///
/// 1. A seed that is set is no secret and has not to be found.
/// 2. One that was found before, and still predicts the kernel, is not looked for again.
/// 3. Who may read the key needs no search, and no file.
fn own(show: bool) -> Result<(), Failure> {
    if let Some(seed) = raddle_key::set_seed() {
        println!(
            "a seed is set (net.ipv4.fib_multipath_hash_seed): {}",
            seed.get()
        );
        return Ok(());
    }
    match cache::recall() {
        Ok(Some(seed)) => {
            println!(
                "the kernel's own hash key has been found before, and predicts what the kernel does"
            );
            shown(seed, show);
            return Ok(());
        }
        Ok(None) => {}
        // Neither would a search come to anything.
        Err(cache::CacheError::Unproven(why)) => return Err(Failure::system(why.to_string())),
        Err(why) => return Err(Failure::system(why.to_string())),
    }
    if let Ok(key) = raddle_key::read() {
        println!(
            "this user may read the kernel's own hash key: it has not to be found, and is not kept"
        );
        if let Some(seed) = Seed::new(key.number()).filter(|_| raddle_key::can_be_found()) {
            shown(seed, show);
        }
        return Ok(());
    }
    let mut bar = Bar::begin();
    let found = raddle_key::find(|progress| bar.show(progress));
    bar.end();
    let seed = found.map_err(|why| match why {
        FindError::NotFound => Failure::found(why.to_string()),
        why => Failure::system(why.to_string()),
    })?;
    match cache::keep(seed) {
        Ok(path) => println!(
            "found the kernel's own hash key; it is kept in {} until this machine starts again",
            path.display()
        ),
        Err(why) => {
            println!("found the kernel's own hash key");
            shown(seed, show);
            return Err(Failure::system(format!("it is not kept: {why}")));
        }
    }
    shown(seed, show);
    Ok(())
}

/// That of the router that a file is about.
fn of_router(file: &Path, show: bool) -> Result<(), Failure> {
    let observations = Observations::of(&File::read(file)?)?.into_inner();
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
            println!("one seed sends all {flows} flows the way that they took");
            shown(seed, show);
            if !show {
                println!("--show-key prints it");
            }
            Ok(())
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

fn shown(seed: Seed, show: bool) {
    if show {
        println!("seed {0} ({0:#010x})", seed.get());
    }
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

//! `raddle-bench rpc`: NFS over several links through `raddle rpc`, against what the links carry.

mod failing;
mod iperf;
mod latency;
mod load;
mod own;
mod rates;
mod report;
mod small;
mod stage;
mod wire;
mod xdr;

use std::path::PathBuf;
use std::time::Duration;

use raddle_lab::{Interrupt, Links, Rate};

use crate::cli::{self, RpcServer};
use crate::measure::progress;
use raddle_exit::Failure;
use report::{Line, Must, Results, Unit};
use stage::Stage;

/// What is not counted at the start of a measurement.
const WARM: Duration = Duration::from_secs(1);
/// Links, and connections, of all rows but `eight`.
const LINKS: u32 = 4;

/// Rows, in the order in which they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Reads,
    AfterOne,
    Writes,
    RoundRobin,
    Quarter,
    Tools,
    One,
    Latency,
    Silent,
    Loopback,
    Small,
    Stuck,
    Eight,
}

impl Row {
    const ALL: [Row; 13] = [
        Row::Reads,
        Row::AfterOne,
        Row::Writes,
        Row::RoundRobin,
        Row::Quarter,
        Row::Tools,
        Row::One,
        Row::Latency,
        Row::Silent,
        Row::Loopback,
        Row::Small,
        Row::Stuck,
        Row::Eight,
    ];

    /// As `--only` takes it.
    fn name(self) -> &'static str {
        match self {
            Row::Reads => "reads",
            Row::AfterOne => "after-one",
            Row::Writes => "writes",
            Row::RoundRobin => "round-robin",
            Row::Quarter => "quarter",
            Row::Tools => "tools",
            Row::One => "one",
            Row::Latency => "latency",
            Row::Silent => "silent",
            Row::Loopback => "loopback",
            Row::Small => "small",
            Row::Stuck => "stuck",
            Row::Eight => "eight",
        }
    }

    /// How many links it wants.
    fn links(self) -> u32 {
        match self {
            Row::Eight => 8,
            _ => LINKS,
        }
    }
}

/// How it is measured.
#[derive(Clone, Debug)]
struct Settings {
    trials: u32,
    seconds: u32,
    rate: Rate,
    mtu: Option<u32>,
    server: RpcServer,
    ipv6: bool,
    dir: PathBuf,
}

impl Settings {
    /// How long a measurement takes, with what is not counted.
    fn time(&self) -> Duration {
        WARM + Duration::from_secs(self.seconds.into())
    }

    fn stage(&self, links: u32) -> Result<Stage, Failure> {
        progress(&format!("building a lab of {links} links"));
        let mut description = Links {
            links,
            rate: Some(self.rate),
            ..Links::default()
        };
        description.mtu = self.mtu.unwrap_or(description.mtu);
        let served = (self.server, stage::server(self.ipv6));
        Stage::up(&description, served, &self.dir)
    }
}

/// A row under way.
struct Trials<'a> {
    settings: &'a Settings,
    interrupt: &'a Interrupt,
    row: Row,
    results: &'a mut Results,
}

impl Trials<'_> {
    /// Does something for every trial, each with hash seeds of its own.
    fn each<T>(
        &self,
        stage: &Stage,
        mut trial: impl FnMut() -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let count = self.settings.trials;
        (1..=count)
            .map(|number| {
                self.interrupt.check()?;
                progress(&format!("{}: trial {number} of {count}", self.row.name()));
                stage.seed(number);
                trial()
            })
            .collect()
    }

    /// Adds a line.
    fn line(&mut self, what: impl Into<String>, unit: Unit, must: Must, trials: Vec<f64>) {
        self.results.lines.push(Line {
            row: self.row.name(),
            what: what.into(),
            unit,
            must,
            trials,
        });
    }

    fn note(&mut self, note: impl Into<String>) {
        let note = format!("{}: {}", self.row.name(), note.into());
        self.results.notes.push(note);
    }
}

/// Runs `raddle-bench rpc`.
pub(crate) fn rpc(args: &cli::Rpc) -> Result<(), Failure> {
    let rows = rows(&args.only)?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root(
            "raddle-bench rpc makes network namespaces and",
        ));
    }
    let server = match args.server {
        Some(RpcServer::Ganesha) if !stage::has_ganesha() => {
            return Err(Failure::system(
                "ganesha.nfsd and rpcbind are not there; apt-get install --no-install-recommends \
                 nfs-ganesha nfs-ganesha-vfs rpcbind, or use --server own",
            ));
        }
        Some(server) => server,
        None if stage::has_ganesha() => RpcServer::Ganesha,
        None => RpcServer::Own,
    };
    let settings = Settings {
        trials: args.trials,
        seconds: args.seconds,
        rate: args.rate,
        mtu: args.mtu,
        server,
        ipv6: args.ipv6,
        dir: args.dir.clone(),
    };
    let mut results = Results {
        notes: vec![about(&settings)],
        ..Results::default()
    };
    let done = run(&settings, &rows, &mut results);
    progress("");
    // Also what was measured before it broke off.
    if results.lines.is_empty() && done.is_err() {
        return done;
    }
    if args.json {
        println!("{}", report::json(&results));
    } else {
        print!("{}", report::text(&results));
    }
    done?;
    match report::missed(&results) {
        None => Ok(()),
        Some(what) => Err(Failure::found(what)),
    }
}

fn rows(only: &[String]) -> Result<Vec<Row>, Failure> {
    let named = |name: &String| Row::ALL.into_iter().find(|row| row.name() == name);
    if let Some(name) = only.iter().find(|name| named(name).is_none()) {
        let names: Vec<&str> = Row::ALL.iter().map(|row| row.name()).collect();
        let names = names.join(", ");
        return Err(Failure::usage(format!("'{name}' is not a row: {names}")));
    }
    let wanted = |row: &Row| only.is_empty() || only.iter().any(|name| name == row.name());
    Ok(Row::ALL.into_iter().filter(wanted).collect())
}

fn run(settings: &Settings, rows: &[Row], results: &mut Results) -> Result<(), Failure> {
    let interrupt = Interrupt::catch();
    for links in [LINKS, 8] {
        let rows: Vec<Row> = rows
            .iter()
            .copied()
            .filter(|r| r.links() == links)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let stage = settings.stage(links)?;
        let mut best = rates::Best::default();
        for row in rows {
            let mut trials = Trials {
                settings,
                interrupt: &interrupt,
                row,
                results,
            };
            match row {
                Row::Reads | Row::AfterOne | Row::Writes | Row::RoundRobin | Row::Quarter => {
                    rates::shares(&mut trials, &stage, &mut best)?;
                }
                Row::Tools => rates::tools(&mut trials, &stage)?,
                Row::One => latency::one(&mut trials, &stage)?,
                Row::Latency => latency::beside(&mut trials, &stage)?,
                Row::Silent => failing::silent(&mut trials, &stage)?,
                Row::Loopback => rates::loopback(&mut trials, &stage)?,
                Row::Small => small::small(&mut trials, &stage)?,
                Row::Stuck => small::stuck(&mut trials, &stage)?,
                Row::Eight => rates::eight(&mut trials, &stage)?,
            }
        }
    }
    Ok(())
}

/// What it was measured on.
fn about(settings: &Settings) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let server = match settings.server {
        RpcServer::Ganesha => "nfs-ganesha",
        RpcServer::Own => {
            "the benchmark's own server, as asked for, or as nfs-ganesha is not there"
        }
    };
    let family = if settings.ipv6 { "IPv6" } else { "IPv4" };
    format!(
        "Linux {}, {cpus} CPUs; links of {}, MTU {}, cubic, {family}; {server}; {} READs or WRITEs of 1 MiB \
         outstanding on one client's connection, {} s of each trial counted",
        kernel.trim(),
        settings.rate,
        settings.mtu.unwrap_or(raddle_lab::Topology::DEFAULT_MTU),
        load::OUTSTANDING,
        settings.seconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name() {
        assert_eq!(rows(&[]).unwrap(), Row::ALL);
        let only = ["writes".to_owned(), "reads".to_owned()];
        assert_eq!(rows(&only).unwrap(), [Row::Reads, Row::Writes]);
        let error = rows(&["fast".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("reads, after-one, writes, round-robin"),
            "{error}"
        );
    }

    #[test]
    fn help_explains_every_row() {
        for row in Row::ALL {
            let explained = |line: &str| line.trim_start().starts_with(&format!("{} ", row.name()));
            assert!(cli::RPC_HELP.lines().any(explained), "{row:?}");
        }
    }
}

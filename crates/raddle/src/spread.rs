//! `raddle spread`: the command line's question to [`raddle_plan::spread`], and its answer.

use raddle_plan::paths;
use raddle_plan::spread::{Report, over_links, through_tiers};
use raddle_sim::sample::Sample;

use crate::cli;
use crate::error::Failure;
use crate::output::{draw, json};
use crate::source;

/// Flows that are made up when none are given.
const SOME: usize = 100_000;

/// Runs the command.
pub(crate) fn run(args: &cli::Spread) -> Result<(), Failure> {
    let report = match args.tiers.is_empty() {
        true => links(args)?,
        false => tiers(args)?,
    };
    match args.json {
        true => println!("{}", json(&report)?),
        false => print!("{report}"),
    }
    draw(args.plot.as_deref(), || report.chart())
}

fn samples(args: &cli::Spread) -> Result<Vec<Sample>, Failure> {
    let mut source = args.flows.source();
    if let Some(samples) = source.load(args.dst)? {
        return Ok(samples);
    }
    source.synthetic = Some(SOME);
    Ok(source.load(args.dst)?.unwrap_or_default())
}

fn tiers(args: &cli::Spread) -> Result<Report, Failure> {
    if args.algos.given() {
        return Err(Failure::usage(
            "--mp-algo and --config are about this machine's routes: a tier says its policy itself",
        ));
    }
    Ok(through_tiers(&args.tiers, &samples(args)?)?)
}

fn links(args: &cli::Spread) -> Result<Report, Failure> {
    if args.dst.is_none() && !args.flows.source().is_file() {
        return Err(Failure::usage(
            "made-up flows want a destination, or tiers: raddle spread DST, or --tier seed=S,policy=1,width=4",
        ));
    }
    let (file, iif) = (args.snapshot.as_deref(), args.iif.as_deref());
    let (mut rib, _) = source::mirror_with_key(file)?;
    let link = paths::input(&rib, iif)?.to_owned();
    source::set_algos(&mut rib, &args.algos, file, iif)?;
    source::set_brings(&mut rib, file, iif);
    let bonds = source::bonds(&rib, file);
    Ok(over_links(&rib, &bonds, &link, &samples(args)?)?)
}

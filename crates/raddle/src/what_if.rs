//! `raddle what-if`: the command line's question to [`raddle_plan::what_if`], and its answer.

use raddle_plan::paths;
use raddle_plan::what_if::{Question, answer};

use crate::cli;
use crate::error::Failure;
use crate::output::{draw, json};
use crate::source;

/// Runs the command.
pub(crate) fn run(args: &cli::WhatIf) -> Result<(), Failure> {
    let question = Question::parse(&args.words)?;
    let (file, iif) = (args.snapshot.as_deref(), question.iif.as_deref());
    let (mut rib, _) = source::mirror_with_key(file)?;
    paths::input(&rib, iif)?;
    source::set_algos(&mut rib, &args.algos, file, iif)?;
    source::set_brings(&mut rib, file, iif);
    let samples = args.flows.source().load(Some(question.dst))?;
    let bonds = source::bonds(&rib, file);
    let report = answer(&rib, &bonds, &question, samples.as_deref(), args.budget)?;
    match args.json {
        true => println!("{}", json(&report)?),
        false => print!("{}", report.text(args.all)),
    }
    draw(args.plot.as_deref(), || report.chart())?;
    match report.over_budget() {
        Some(why) => Err(Failure::found(why)),
        None => Ok(()),
    }
}

//! `raddle ports`: questions of the command line about source ports, and the answers of [`raddle_plan::ports`].

use std::path::Path;

use raddle_netlink::Socket;
use raddle_netlink::probe::sockets;
use raddle_plan::paths::PathError;
use raddle_plan::ports::{self, Behind, Certificate, Question, ShareOut, Vary};
use raddle_text::outside::open_or_stdin;

use crate::cli::{Ports, PortsAudit, PortsPlan, PortsVerify};
use crate::error::Failure;
use crate::output::{draw, json, pretty_json};
use crate::peers;
use crate::source;

/// Runs the command.
pub(crate) fn run(command: &Ports) -> Result<(), Failure> {
    match command {
        Ports::Plan(args) => plan(args),
        Ports::Verify(args) => verify(args),
        Ports::Audit(args) => audit(args),
    }
}

fn question(args: &PortsPlan) -> Question {
    Question {
        proto: args.proto,
        dport: args.dport.unwrap_or(0),
        from: args.from,
        iif: args.iif.clone(),
        vary: match args.flow_labels {
            true => Vary::FlowLabel,
            false => Vary::SourcePort,
        },
        sport: args.sport.unwrap_or(0),
        first: args.first,
        last: args.last,
        share_out: match args.by_weight {
            true => ShareOut::ByWeight,
            false => ShareOut::Evenly,
        },
        live: args.snapshot.is_none(),
        ..Question::new(args.dst, args.count)
    }
}

fn plan(args: &PortsPlan) -> Result<(), Failure> {
    let file = args.snapshot.as_deref();
    let (mut rib, kernel) = source::mirror_with_key(file)?;
    source::set_algos(&mut rib, &args.algos, file, args.iif.as_deref())?;
    source::set_brings(&mut rib, file, args.iif.as_deref());
    let peers = peers::read(&args.peers)?;
    let behind: Vec<Behind<'_>> = peers
        .iter()
        .map(|(name, router)| Behind { name, router })
        .collect();
    let bonds = source::bonds(&rib, file);
    let certificate = ports::plan_beyond(&rib, kernel, &bonds, &question(args), &behind)?;
    if let Some(path) = &args.out {
        std::fs::write(path, pretty_json(&certificate)? + "\n").map_err(|e| {
            let name = path.display();
            Failure::system(format!("cannot write the certificate {name}: {e}"))
        })?;
    }
    match args.json {
        true => println!("{}", pretty_json(&certificate)?),
        false => print!("{certificate}"),
    }
    draw(args.plot.as_deref(), || certificate.chart())
}

fn verify(args: &PortsVerify) -> Result<(), Failure> {
    let certificate = read(&args.file)?;
    let (mut rib, _) = source::mirror_with_key(None)?;
    let iif = certificate.flow.iif.as_deref();
    source::set_algos(&mut rib, &args.algos, None, iif)?;
    source::set_brings(&mut rib, None, iif);
    let kernel = raddle_preflight::running_kernel().ok();
    let bonds = source::bonds(&rib, None);
    let found = ports::verify(&certificate, &rib, kernel, &bonds, &mut Socket::open()?);
    // What was planned is no more: that is found out, not asked wrongly.
    if let Err(ports::Error::Path(e @ PathError::NoPath { .. })) = &found {
        let of = certificate.connections.len();
        return Err(Failure::found(format!(
            "{of} of {of} connections do not go as planned: {e}"
        )));
    }
    let found = found?;
    match args.json {
        true => println!("{}", json(&found)?),
        false => print!("{found}"),
    }
    match found.agree == found.of {
        true => Ok(()),
        false => Err(Failure::found(format!(
            "{} of {} connections do not go as planned",
            found.of - found.agree,
            found.of
        ))),
    }
}

fn read(file: &Path) -> Result<Certificate, Failure> {
    let name = file.display().to_string();
    match open_or_stdin(file) {
        Ok(input) => Ok(Certificate::parse(&name, input)?),
        Err(why) => Err(ports::Error::Unread { name, why }.into()),
    }
}

fn audit(args: &PortsAudit) -> Result<(), Failure> {
    let (rib, _) = source::mirror_with_key(None)?;
    let kernel = raddle_preflight::running_kernel().ok();
    let bonds = source::bonds(&rib, None);
    let audits = ports::audit(&rib, kernel, &bonds, &sockets::connected()?, &args.dst)?;
    match args.json {
        true => println!("{}", json(&audits)?),
        false => print!("{audits}"),
    }
    draw(args.plot.as_deref(), || audits.chart())
}

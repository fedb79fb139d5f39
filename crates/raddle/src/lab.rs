//! `raddle lab`: fabrics in network namespaces.

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::process::CommandExt;

use raddle_lab::{Clos, Lab, Progress, Topology, UpOptions};

use crate::cli;
use crate::error::Failure;

/// Runs the command.
pub(crate) fn run(command: &cli::Lab) -> Result<(), Failure> {
    match command {
        cli::Lab::Up(cli::LabUp::Clos(args)) => up(args),
        cli::Lab::Down { all: true, .. } => down_all(),
        cli::Lab::Down { name, .. } => Ok(Lab::down(&chosen(name.as_deref())?)?),
        cli::Lab::Exec {
            name,
            node,
            command,
        } => {
            let lab = Lab::load(&chosen(name.as_deref())?)?;
            exec(&lab, node, command)
        }
        cli::Lab::List { json } => list(*json),
    }
}

/// Becomes the command; returns only when it cannot, with a shell's exit codes: 127 for one that was
/// not found, 126 for one that is not a program.
fn exec(lab: &Lab, node: &str, command: &[String]) -> Result<(), Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::usage("name a command to run"));
    };
    let mut command = lab.command(node, program)?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root("lab exec"));
    }
    let error = command.args(arguments).exec();
    let code = match error.kind() {
        ErrorKind::NotFound => 127,
        ErrorKind::PermissionDenied => 126,
        _ => 2,
    };
    let message = format!("cannot run {program} on {node}: {error}");
    Err(Failure::new(code, message))
}

fn up(args: &cli::LabClos) -> Result<(), Failure> {
    let clos = Clos {
        leaves: args.leaves,
        spines: args.spines,
        hosts_per_leaf: args.hosts_per_leaf,
        rate: args.rate,
        host_rate: args.host_rate,
        mtu: args.mtu.unwrap_or(Topology::DEFAULT_MTU),
        hosts_speak_bgp: args.hosts_bgp,
        ..Clos::default()
    };
    let topology = clos.topology().map_err(|e| Failure::usage(e.to_string()))?;
    let terminal = std::io::stderr().is_terminal();
    let mut progress = |step: Progress| {
        if terminal {
            eprint!("\r\x1b[K{step}");
            let _ = std::io::stderr().flush();
        } else if !matches!(step, Progress::Routing(_)) {
            eprintln!("{step}");
        }
    };
    let options = UpOptions {
        progress: Some(&mut progress),
        ..UpOptions::default()
    };
    let result = Lab::up(&args.name, &topology, options);
    if terminal {
        eprint!("\r\x1b[K");
    }
    let lab = result?;
    let nodes: Vec<&str> = lab
        .topology()
        .nodes()
        .iter()
        .map(|node| node.name.as_str())
        .collect();
    println!("lab {} is up: {}", lab.name(), nodes.join(" "));
    let option = if lab.name() == "clos" {
        String::new()
    } else {
        format!(" -n {}", lab.name())
    };
    let first = nodes.first().copied().unwrap_or("leaf1");
    println!("try: raddle lab exec{option} {first} -- ip route");
    Ok(())
}

fn down_all() -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (name, result) in Lab::down_all() {
        match result {
            Ok(()) => println!("lab {name} is down"),
            Err(e) => failed.push(format!("{name}: {e}")),
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::system(failed.join("\n")))
    }
}

/// The lab that was named, or the only one there is.
fn chosen(name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let labs = Lab::list();
    match labs.as_slice() {
        [lab] => Ok(lab.name.clone()),
        [] => Err(Failure::usage(
            "there is no lab; build one with raddle lab up clos",
        )),
        labs => {
            let names: Vec<&str> = labs.iter().map(|lab| lab.name.as_str()).collect();
            Err(Failure::usage(format!(
                "there are several labs, name one: {}",
                names.join(", ")
            )))
        }
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let labs = Lab::list();
    if json {
        let labs: Vec<serde_json::Value> = labs
            .iter()
            .map(|lab| match Lab::load(&lab.name) {
                Ok(lab) => lab.to_json(),
                Err(_) => serde_json::json!({ "name": lab.name, "nodes": [] }),
            })
            .collect();
        println!("{}", serde_json::Value::Array(labs));
        return Ok(());
    }
    for summary in labs {
        match Lab::load(&summary.name) {
            Ok(lab) => {
                let nodes: Vec<&str> = lab
                    .topology()
                    .nodes()
                    .iter()
                    .map(|node| node.name.as_str())
                    .collect();
                println!("{}: {}", summary.name, nodes.join(" "));
            }
            Err(_) => println!("{}: not finished; raddle lab down {0}", summary.name),
        }
    }
    Ok(())
}

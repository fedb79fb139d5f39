//! A small command line for labs: `up`, `down`, `exec`, `list`, and pulling cables.
//!
//! `cargo run -p raddle-lab --example lab -- up clos --rate 1gbit` as root.

use std::{error::Error, os::unix::process::CommandExt, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use raddle_lab::{Clos, Lab, Rate, Topology, UpOptions};

#[derive(Parser)]
enum Cli {
    /// Builds a lab.
    Up {
        #[command(subcommand)]
        shape: Shape,
    },
    /// Removes a lab.
    Down {
        /// The lab's name.
        #[arg(default_value = "clos", conflicts_with = "all")]
        name: String,
        /// Removes every lab.
        #[arg(long)]
        all: bool,
    },
    /// Runs a command in a node.
    Exec {
        /// The lab's name.
        #[arg(long, default_value = "clos")]
        name: String,
        /// The node.
        node: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Shows all labs.
    List,
    /// Shows a lab as JSON.
    Show {
        /// The lab's name.
        #[arg(default_value = "clos")]
        name: String,
    },
    /// Pulls the cables between two nodes, or plugs them in again.
    Link {
        /// The lab's name.
        #[arg(long, default_value = "clos")]
        name: String,
        /// One node.
        a: String,
        /// The other.
        b: String,
        /// `up` or `down`.
        state: String,
    },
}

#[derive(Subcommand)]
enum Shape {
    /// Leaves, spines and hosts.
    Clos(ClosArgs),
}

#[derive(Args)]
struct ClosArgs {
    #[arg(long, default_value_t = 2)]
    leaves: u32,
    #[arg(long, default_value_t = 2)]
    spines: u32,
    #[arg(long, default_value_t = 1)]
    hosts_per_leaf: u32,
    #[arg(long)]
    rate: Option<Rate>,
    #[arg(long)]
    host_rate: Option<Rate>,
    #[arg(long, default_value_t = Topology::DEFAULT_MTU)]
    mtu: u32,
    #[arg(long, default_value = "clos")]
    name: String,
    #[arg(long)]
    hosts_bgp: bool,
    #[arg(long)]
    no_nexthop_groups: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    match cli {
        Cli::Up {
            shape: Shape::Clos(args),
        } => up(&args)?,
        Cli::Down { all: false, name } => Lab::down(&name)?,
        Cli::Down { all: true, .. } => {
            for (name, result) in Lab::down_all() {
                result?;
                println!("{name} removed");
            }
        }
        Cli::Exec {
            name,
            node,
            command,
        } => {
            let lab = Lab::load(&name)?;
            let error = lab.command(&node, &command[0])?.args(&command[1..]).exec();
            return Err(format!("cannot run {}: {error}", command[0]).into());
        }
        Cli::List => {
            for lab in Lab::list() {
                println!(
                    "{} {:?} {} nodes {} links",
                    lab.name, lab.stage, lab.nodes, lab.links
                );
            }
        }
        Cli::Show { name } => println!("{:#}", Lab::load(&name)?.to_json()),
        Cli::Link { name, a, b, state } => {
            let lab = Lab::load(&name)?;
            for link in lab.topology().links_between(&a, &b) {
                if state == "up" {
                    lab.link_up(link)?
                } else {
                    lab.link_down(link)?
                }
            }
        }
    }
    Ok(())
}

fn up(args: &ClosArgs) -> Result<(), Box<dyn Error>> {
    let clos = Clos {
        leaves: args.leaves,
        spines: args.spines,
        hosts_per_leaf: args.hosts_per_leaf,
        rate: args.rate,
        host_rate: args.host_rate,
        mtu: args.mtu,
        hosts_speak_bgp: args.hosts_bgp,
        nexthop_groups: !args.no_nexthop_groups,
        ..Clos::default()
    };
    let mut last = String::new();
    let mut progress = |step: raddle_lab::Progress| {
        let text = step.to_string();
        if text != last {
            eprintln!("{text}");
            last = text;
        }
    };
    let options = UpOptions {
        progress: Some(&mut progress),
        ..UpOptions::default()
    };
    let lab = Lab::up(&args.name, &clos.topology()?, options)?;
    let nodes: Vec<_> = lab.topology().nodes().iter().map(|n| &*n.name).collect();
    println!("{} is up: {}", lab.name(), nodes.join(" "));
    Ok(())
}

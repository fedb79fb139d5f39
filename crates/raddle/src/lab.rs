//! `raddle lab`: fabrics in network namespaces.

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::process::CommandExt;

use raddle_lab::{
    Clos, L3vni, Lab, LabSummary, LinkId, Links, Progress, Srv6Vpn, Stage, Topology, UpOptions,
};
use thiserror::Error;

use crate::cli;
use crate::error::{Failure, exit};

/// Runs the command.
pub(crate) fn run(command: &cli::Lab) -> Result<(), Failure> {
    if let Some((lab, node)) = Lab::inside() {
        return Err(Failure::usage(inside(&lab, &node)));
    }
    match command {
        cli::Lab::Up(cli::LabUp::Clos(args)) => up_clos(args),
        cli::Lab::Up(cli::LabUp::Srv6L3vpn(args)) => up_vpn(args, false),
        cli::Lab::Up(cli::LabUp::Srv6L2vpn(args)) => up_vpn(args, true),
        cli::Lab::Up(cli::LabUp::L3vni(args)) => up_l3vni(args),
        cli::Lab::Up(cli::LabUp::Links(args)) => up_links(args),
        cli::Lab::Down { all: true, .. } => down_all(),
        cli::Lab::Down { name, .. } => Ok(Lab::down(&the_lab(name.as_deref(), "down", "")?)?),
        cli::Lab::Cut(args) => {
            let (lab, link) = link(args, "cut")?;
            Ok(lab.cut(link)?)
        }
        cli::Lab::Restore(args) => {
            let (lab, link) = link(args, "restore")?;
            Ok(lab.restore(link)?)
        }
        cli::Lab::Exec {
            name,
            node,
            command,
        } => {
            let lab = match name {
                Some(name) => name.clone(),
                None => with_node(&standing(), node)?,
            };
            let lab = Lab::load(&lab)?;
            exec(&lab, node, command)
        }
        cli::Lab::List { json } => list(*json),
    }
}

/// What there is to say in a node.
fn inside(lab: &str, node: &str) -> String {
    format!(
        "this is the node {node} of the lab {lab}, and labs cannot be seen from within one: run raddle lab outside, \
         after exit or in another terminal"
    )
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
        _ => exit::SYSTEM,
    };
    let message = format!("cannot run {program} on {node}: {error}");
    Err(Failure::new(code, message))
}

fn up_clos(args: &cli::LabClos) -> Result<(), Failure> {
    let clos = Clos {
        leaves: args.leaves,
        spines: args.spines,
        hosts_per_leaf: args.hosts_per_leaf,
        rate: args.rate,
        host_rate: args.host_rate,
        mtu: args.mtu.unwrap_or(Topology::DEFAULT_MTU),
        hosts_speak_bgp: args.hosts_bgp,
        vlan: args.vlan,
        bond: args.bond,
        ..Clos::default()
    };
    let topology = clos.topology().map_err(|e| Failure::usage(e.to_string()))?;
    let lab = up(&args.name, &topology)?;
    let first = lab.topology().nodes().first();
    let first = first.map_or("leaf1", |node| &node.name);
    try_this(&lab, first, "ip route");
    Ok(())
}

fn up_vpn(args: &cli::LabSrv6, layer2: bool) -> Result<(), Failure> {
    let vpn = Srv6Vpn {
        layer2,
        rate: args.rate,
        mtu: args.mtu.unwrap_or(Topology::DEFAULT_MTU),
        ..Srv6Vpn::default()
    };
    let topology = vpn.topology().map_err(|e| Failure::usage(e.to_string()))?;
    let (name, far) = match layer2 {
        false => ("srv6-l3vpn", "10.2.0.2"),
        true => ("srv6-l2vpn", "10.0.0.2"),
    };
    let lab = up(args.name.as_deref().unwrap_or(name), &topology)?;
    try_this(&lab, "ce1", &format!("ping -c 3 {far}"));
    try_this(&lab, "pe2", "ip -6 -s route show root 5f00::/16");
    Ok(())
}

fn up_l3vni(args: &cli::LabL3vni) -> Result<(), Failure> {
    let tenants = L3vni {
        rate: args.rate,
        mtu: args.mtu.unwrap_or(Topology::DEFAULT_MTU),
        ..L3vni::default()
    };
    let topology = tenants
        .topology()
        .map_err(|e| Failure::usage(e.to_string()))?;
    let lab = up(&args.name, &topology)?;
    try_this(&lab, "red1", "ping -c 3 10.2.0.2");
    try_this(&lab, "leaf1", "ip route show vrf red");
    Ok(())
}

fn up_links(args: &cli::LabLinks) -> Result<(), Failure> {
    let links = Links {
        links: args.links,
        rate: args.rate.and_then(|rate| rate.0),
        mtu: args.mtu.unwrap_or(Topology::DEFAULT_MTU),
        congestion: (args.congctl != "none").then(|| args.congctl.clone()),
    };
    let topology = links
        .topology()
        .map_err(|e| Failure::usage(e.to_string()))?;
    let lab = up(&args.name, &topology)?;
    try_this(&lab, "client", "ip route get 10.9.0.1");
    Ok(())
}

/// The lab and the link that are meant.
fn link(args: &cli::LabLink, verb: &str) -> Result<(Lab, LinkId), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root(&format!("lab {verb}")));
    }
    let name = the_lab(args.name.as_deref(), verb, &args.link)?;
    let lab = Lab::load(&name)?;
    let link = link_of(lab.topology(), &args.link)?;
    Ok((lab, link))
}

/// Why it is unclear which lab, or which of its links, is meant.
#[derive(Debug, PartialEq, Eq, Error)]
enum Unclear {
    #[error("there is no lab; build one with raddle lab up clos")]
    NoLab,
    #[error("no lab has a node `{0}`; see: raddle lab list")]
    NoNode(String),
    #[error(
        "several labs have a node `{node}` ({}); name one: raddle lab exec -n {} {node} -- ...",
        labs.join(", "),
        labs[0]
    )]
    Nodes { node: String, labs: Vec<String> },
    #[error("node `{node}` has no device `{dev}`; raddle lab list -j has all links")]
    NoDevice { node: String, dev: String },
    #[error("`{dev}` of node `{node}` is made of several links ({}); name one of them", members.join(", "))]
    Members {
        node: String,
        dev: String,
        members: Vec<String>,
    },
    #[error("`{dev}` of node `{node}` is made of no link")]
    OfNone { node: String, dev: String },
    #[error("no link has a device `{0}`; raddle lab list -j has all links")]
    NoLink(String),
    #[error("several links have a device `{0}`; write NODE/{0}")]
    Links(String),
}

impl From<Unclear> for Failure {
    fn from(e: Unclear) -> Failure {
        Failure::usage(e.to_string())
    }
}

/// Which link a word means.
///
/// 1. A number: that link; there may be none of this number.
/// 2. `NODE/DEVICE`: the link that this device of this node is an end of, or the only one that it is made
///    of, as a VLAN.
/// 3. Otherwise a device: the only link that it is an end of, at whatever node.
///
/// # Errors
/// None is meant, or several are.
fn link_of(topology: &Topology, word: &str) -> Result<LinkId, Unclear> {
    if let Ok(number) = word.parse() {
        return Ok(LinkId(number));
    }
    if let Some((node, dev)) = word.split_once('/') {
        return link_at(topology, node, dev);
    }
    let links = topology.links().iter().enumerate();
    let with = links.filter(|(_, link)| link.ends.iter().any(|end| end.dev == word));
    let with: Vec<LinkId> = with.map(|(number, _)| LinkId(number)).collect();
    match with.as_slice() {
        [link] => Ok(*link),
        [] => Err(Unclear::NoLink(word.to_owned())),
        _ => Err(Unclear::Links(word.to_owned())),
    }
}

/// The link that a device of a node is an end of, or is made of.
fn link_at(topology: &Topology, node: &str, dev: &str) -> Result<LinkId, Unclear> {
    let beneath = topology.links_beneath(node, dev);
    let mut made = topology.node(node).into_iter().flat_map(|n| &n.made);
    let made = made.any(|device| device.name == dev);
    let (node, dev) = (node.to_owned(), dev.to_owned());
    match beneath.as_slice() {
        [link] => Ok(*link),
        [] if made => Err(Unclear::OfNone { node, dev }),
        [] => Err(Unclear::NoDevice { node, dev }),
        several => {
            let links = several.iter().filter_map(|id| topology.links().get(id.0));
            let ends = links.flat_map(|link| &link.ends);
            let own = ends.filter(|end| end.node == node);
            let members = own.map(|end| format!("{node}/{}", end.dev)).collect();
            Err(Unclear::Members { node, dev, members })
        }
    }
}

/// Builds a lab and says what is in it.
fn up(name: &str, topology: &Topology) -> Result<Lab, Failure> {
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
    let result = Lab::up(name, topology, options);
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
    Ok(lab)
}

/// Names a command to begin with.
fn try_this(lab: &Lab, node: &str, command: &str) {
    let option = match Lab::list().len() {
        0 | 1 => String::new(),
        _ => format!(" -n {}", lab.name()),
    };
    println!("try: raddle lab exec{option} {node} -- {command}");
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

/// The lab that was named, or the only one there is. `verb` is what is to be done, `what` to what in it.
fn the_lab(name: Option<&str>, verb: &str, what: &str) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    match Lab::list().as_slice() {
        [lab] => Ok(lab.name.clone()),
        [] => Err(Unclear::NoLab.into()),
        labs => {
            let names: Vec<&str> = labs.iter().map(|lab| lab.name.as_str()).collect();
            let one = match what {
                "" => names[0].to_owned(),
                what => format!("-n {} {what}", names[0]),
            };
            Err(Failure::usage(format!(
                "there are several labs ({}); name one: raddle lab {verb} {one}",
                names.join(", "),
            )))
        }
    }
}

/// All labs with the names of their nodes; none for one that does not stand.
fn standing() -> Vec<(String, Vec<String>)> {
    let nodes = |name: &str| {
        let lab = Lab::load(name).ok();
        let nodes = lab.iter().flat_map(|lab| lab.topology().nodes());
        nodes.map(|node| node.name.clone()).collect()
    };
    Lab::list()
        .into_iter()
        .map(|lab| (lab.name.clone(), nodes(&lab.name)))
        .collect()
}

/// Which lab a node is meant to be of, when none is named.
///
/// 1. The only lab there is.
/// 2. The only one that has a node of that name.
///
/// # Errors
/// None is meant, or several are.
fn with_node(labs: &[(String, Vec<String>)], node: &str) -> Result<String, Unclear> {
    let has = |(_, nodes): &&(String, Vec<String>)| nodes.iter().any(|name| name == node);
    let with: Vec<&str> = labs
        .iter()
        .filter(has)
        .map(|(lab, _)| lab.as_str())
        .collect();
    let all: Vec<&str> = labs.iter().map(|(lab, _)| lab.as_str()).collect();
    match (all.as_slice(), with.as_slice()) {
        ([], _) => Err(Unclear::NoLab),
        ([lab], _) | (_, [lab]) => Ok((*lab).to_owned()),
        (_, []) => Err(Unclear::NoNode(node.to_owned())),
        (_, with) => Err(Unclear::Nodes {
            node: node.to_owned(),
            labs: with.iter().map(|lab| (*lab).to_owned()).collect(),
        }),
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let mut shown = Vec::new();
    for summary in Lab::list() {
        let LabSummary { name, stage, .. } = &summary;
        let lab = Lab::load(name).ok();
        // Nobody but root can tell.
        let cut = lab.as_ref().and_then(|lab| lab.cut_links().ok());
        if json {
            let mut value = match &lab {
                Some(lab) => with_cuts(lab.to_json(), cut.as_deref()),
                None => serde_json::json!({ "name": name, "nodes": [] }),
            };
            value["stage"] = serde_json::json!(stage);
            shown.push(value);
            continue;
        }
        let nodes = lab.iter().flat_map(|lab| lab.topology().nodes());
        let nodes: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
        println!("{}", line(name, *stage, &nodes));
        if let Some(lab) = &lab {
            print!("{}", cuts(lab.topology(), &cut.unwrap_or_default()));
        }
    }
    if json {
        println!("{}", serde_json::Value::Array(shown));
    }
    Ok(())
}

/// A line for each link that is cut.
fn cuts(topology: &Topology, cut: &[LinkId]) -> String {
    let line = |link: &LinkId| {
        let ends = topology.links().get(link.0).map(|link| &link.ends);
        let ends = ends.into_iter().flatten();
        let ends: Vec<String> = ends
            .map(|end| format!("{}/{}", end.node, end.dev))
            .collect();
        format!("  cut: link {}, {}\n", link.0, ends.join(" to "))
    };
    cut.iter().map(line).collect()
}

/// The lab with `cut` in each of its links: null where it cannot be told.
fn with_cuts(mut lab: serde_json::Value, cut: Option<&[LinkId]>) -> serde_json::Value {
    let links = lab["links"].as_array_mut().into_iter().flatten();
    for (number, link) in links.enumerate() {
        link["cut"] = cut.map(|cut| cut.contains(&LinkId(number))).into();
    }
    lab
}

fn line(lab: &str, stage: Stage, nodes: &[&str]) -> String {
    match stage {
        Stage::Ready => format!("{lab}: {}", nodes.join(" ")),
        Stage::Building => format!("{lab}: being built or taken down"),
        Stage::Broken => format!("{lab}: not finished; raddle lab down {lab}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_tells_its_lab() {
        let lab = |name: &str, nodes: &[&str]| {
            let nodes = nodes.iter().map(|node| (*node).to_owned());
            (name.to_owned(), nodes.collect::<Vec<_>>())
        };
        let labs = [lab("clos", &["leaf1", "host1"]), lab("x", &["leaf1", "r1"])];
        assert_eq!(with_node(&labs, "r1"), Ok("x".into()));
        assert_eq!(with_node(&labs[..1], "leaf1"), Ok("clos".into()));
        // Its own error names the nodes that there are.
        assert_eq!(with_node(&labs[..1], "leaf9"), Ok("clos".into()));
        for (labs, node, said) in [
            (&labs[..], "leaf1", "raddle lab exec -n clos leaf1 --"),
            (&labs, "leaf9", "no lab has a node `leaf9`"),
            (&[], "leaf1", "raddle lab up"),
        ] {
            let error = with_node(labs, node).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn links_are_told_by_number_and_by_device() {
        let topology = Links::default().topology().unwrap();
        assert_eq!(link_of(&topology, "3"), Ok(LinkId(3)));
        assert_eq!(link_of(&topology, "link3"), Ok(LinkId(2)));
        assert_eq!(link_of(&topology, "server/link1"), Ok(LinkId(0)));
        assert!(link_of(&topology, "server/link9").is_err());
        let error = link_of(&topology, "eth0").unwrap_err();
        assert!(error.to_string().contains("no link"));
        let clos = Clos::default().topology().unwrap();
        let error = link_of(&clos, "spine1").unwrap_err().to_string();
        assert!(error.contains("NODE/spine1"), "{error}");
    }

    #[test]
    fn a_bond_is_told_by_its_members() {
        let fabric = |bond| Clos {
            vlan: Some(10),
            bond,
            ..Clos::default()
        };
        let plain = fabric(false).topology().unwrap();
        let link = plain.link_of("leaf1", "spine1").unwrap().0;
        assert_eq!(link_of(&plain, "leaf1/spine1.10"), Ok(link));
        let bonds = fabric(true).topology().unwrap();
        let error = link_of(&bonds, "leaf1/spine1.10").unwrap_err().to_string();
        assert!(
            error.contains("(leaf1/spine1-1, leaf1/spine1-2)"),
            "{error}"
        );
        assert!(link_of(&bonds, "leaf1/spine1-2").is_ok());
        let error = link_of(&bonds, "leaf1/spine1.11").unwrap_err();
        assert!(error.to_string().contains("no device"), "{error}");
        let tenants = L3vni::default().topology().unwrap();
        let error = link_of(&tenants, "leaf1/br-red").unwrap_err().to_string();
        assert!(error.contains("of no link"), "{error}");
    }

    #[test]
    fn links_that_are_cut_are_shown() {
        let topology = Links::default().topology().unwrap();
        let said = "  cut: link 2, client/link3 to server/link3\n";
        assert_eq!(cuts(&topology, &[LinkId(2)]), said);
        assert_eq!(cuts(&topology, &[]), "");
        let lab = || serde_json::json!({ "links": [{ "rate": 1 }, {}] });
        let links = with_cuts(lab(), Some(&[LinkId(1)]))["links"].take();
        assert_eq!(
            links,
            serde_json::json!([{ "rate": 1, "cut": false }, { "cut": true }])
        );
        assert!(with_cuts(lab(), None)["links"][0]["cut"].is_null());
    }

    #[test]
    fn a_node_says_that_it_is_one() {
        let said = inside("links", "client");
        assert!(said.starts_with("this is the node client of the lab links, "));
    }

    #[test]
    fn a_lab_that_is_being_built_is_not_broken() {
        let nodes = ["leaf1", "spine1"];
        assert_eq!(line("a", Stage::Ready, &nodes), "a: leaf1 spine1");
        assert_eq!(
            line("a", Stage::Building, &[]),
            "a: being built or taken down"
        );
        assert!(line("a", Stage::Broken, &[]).contains("raddle lab down a"));
    }
}

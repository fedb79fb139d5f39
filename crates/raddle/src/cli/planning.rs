//! Commands that compute with paths: what-if, ports, spread.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ipnet::IpNet;
use raddle_config::File;
use raddle_key_search::{Router, RouterRoute};
use raddle_plan::flows::Source;
use raddle_plan::spread::{Tier, TierError, TierSeed};
use thiserror::Error;

use crate::source::AlgoArgs;

/// Where the flows come from.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FlowArgs {
    /// Flows: a capture (pcap, pcapng), or a list (DST from SRC ..., SRC DST PROTO SPORT DPORT, conntrack -L,
    /// ss -tun); - for standard input; a number makes up so many
    #[arg(long, value_name = "FILE|N")]
    pub flows: Option<String>,
    /// Make up so many TCP flows
    #[arg(long, value_name = "N", conflicts_with = "flows")]
    pub synthetic: Option<usize>,
    /// Prefix from which made-up flows have their sources [default: 10.0.0.0/8 or fd00::/8]
    #[arg(long, value_name = "PREFIX")]
    pub hosts: Option<IpNet>,
}

impl FlowArgs {
    /// The same for [`raddle_plan`].
    pub(crate) fn source(&self) -> Source {
        Source {
            flows: self.flows.clone(),
            synthetic: self.synthetic,
            hosts: self.hosts,
        }
    }
}

pub(super) const WHAT_IF_HELP: &str = "\
Changes: link-down LINK, nexthop-del NEXTHOP, nexthop-add NEXTHOP [weight W], weight NEXTHOP W,
  policy N, seed N, fields MASK, resilient BUCKETS; several happen together.
  A NEXTHOP is id N, via ADDRESS, dev LINK.
Examples:
  raddle what-if 10.0.2.1 link-down eth1
  raddle what-if 10.0.2.1 iif eth0 nexthop-add via 10.1.5.2 dev eth5 --flows capture.pcap --budget 25%";

/// `raddle what-if`.
#[derive(Debug, Args)]
pub(crate) struct WhatIf {
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
    /// Evaluate the change against this snapshot instead of the live state
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Flows to predict before and after.
    #[command(flatten)]
    pub flows: FlowArgs,
    /// How routes are spread.
    #[command(flatten)]
    pub algos: AlgoArgs,
    /// Exit with 1 when more than this share moves, such as 10% or 0.1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub budget: Option<f64>,
    /// List every flow that moves
    #[arg(short, long)]
    pub all: bool,
    /// Draw the shares before and after; .svg or .png
    #[arg(long, value_name = "FILE", value_parser = raddle_plot::file)]
    pub plot: Option<PathBuf>,
    /// DST [iif LINK] [from SRC] [ipproto PROTO] [sport PORT] [dport PORT] CHANGE...
    #[arg(required = true)]
    pub words: Vec<String>,
}

/// `raddle ports`.
#[derive(Debug, Subcommand)]
pub(crate) enum Ports {
    /// Choose source ports so that connections cover all paths
    Plan(PortsPlan),
    /// Check a plan's certificate against the live kernel
    Verify(PortsVerify),
    /// Show how evenly this machine's connections lie on the paths
    Audit(PortsAudit),
}

/// `raddle ports plan`.
#[derive(Debug, Args)]
pub(crate) struct PortsPlan {
    /// Destination
    pub dst: IpAddr,
    /// Connections
    #[arg(short = 'n', long, value_parser = count)]
    pub count: usize,
    /// Protocol: tcp, udp, or a number
    #[arg(long, default_value = "tcp", value_parser = protocol)]
    pub proto: u8,
    /// Destination port
    #[arg(long)]
    pub dport: Option<u16>,
    /// Source address [default: the one that the kernel gives to connected sockets, or each its path's]
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// Forwarded traffic that arrives on this interface (not locally originated)
    #[arg(long, value_name = "LINK")]
    pub iif: Option<String>,
    /// Choose IPv6 flow labels in place of ports
    #[arg(long)]
    pub flow_labels: bool,
    /// Source port, where labels are chosen
    #[arg(long, requires = "flow_labels")]
    pub sport: Option<u16>,
    /// First port or label that may be used [default: ip_local_port_range less ip_local_reserved_ports]
    #[arg(long)]
    pub first: Option<u32>,
    /// Last one
    #[arg(long)]
    pub last: Option<u32>,
    /// Cover the links of this router behind as well, of which `key find --out` has written the file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub peers: Vec<PathBuf>,
    /// By the weights of paths, not evenly
    #[arg(long)]
    pub by_weight: bool,
    /// Plan by this snapshot instead of the live kernel
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// How routes are spread.
    #[command(flatten)]
    pub algos: AlgoArgs,
    /// Write the certificate to this file
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Draw connections by path; .svg or .png
    #[arg(long, value_name = "FILE", value_parser = raddle_plot::file)]
    pub plot: Option<PathBuf>,
    /// Print the certificate (JSON) instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// `raddle ports verify`.
#[derive(Debug, Args)]
pub(crate) struct PortsVerify {
    /// The certificate; - for standard input
    pub file: PathBuf,
    /// How routes are spread.
    #[command(flatten)]
    pub algos: AlgoArgs,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// `raddle ports audit`.
#[derive(Debug, Args)]
pub(crate) struct PortsAudit {
    /// Only connections that share a route with these destinations
    pub dst: Vec<IpAddr>,
    /// Draw connections by path; .svg or .png
    #[arg(long, value_name = "FILE", value_parser = raddle_plot::file)]
    pub plot: Option<PathBuf>,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// `raddle spread`.
#[derive(Debug, Args)]
pub(crate) struct Spread {
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
    /// Routes of this snapshot instead of the live kernel's
    #[arg(long, value_name = "FILE", conflicts_with = "tiers")]
    pub snapshot: Option<PathBuf>,
    /// The link that the flows come in by
    #[arg(long, value_name = "LINK", conflicts_with = "tiers")]
    pub iif: Option<String>,
    /// The flows.
    #[command(flatten)]
    pub flows: FlowArgs,
    /// How routes are spread.
    #[command(flatten)]
    pub algos: AlgoArgs,
    /// A tier of routers, first to last, instead of this machine's routes: seed=S,policy=1,width=4; or router=FILE[,width=N], a
    /// file of key find --out
    #[arg(long = "tier", value_name = "TIER", value_parser = tier)]
    pub tiers: Vec<Tier>,
    /// Draw the loads, or the links in use by tier; .svg or .png
    #[arg(long, value_name = "FILE", value_parser = raddle_plot::file)]
    pub plot: Option<PathBuf>,
    /// Destination of made-up flows
    pub dst: Option<IpAddr>,
}

/// What a value should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum Wanted {
    #[error("a share is 0% to 100%, or 0 to 1")]
    Share,
    #[error("a number from 1 to 65535")]
    Count,
    #[error("tcp, udp, or a number")]
    Protocol,
}

/// Why words are no tier.
#[derive(Debug, Error)]
enum NoTier {
    #[error(transparent)]
    Words(#[from] TierError),
    #[error(transparent)]
    Router(#[from] raddle_config::Error),
    #[error("its routes have different numbers of paths: say which, router=FILE,width=N")]
    Widths,
    #[error("none of its routes has so many paths")]
    NoWidth,
    #[error("its paths have weights, and a tier's are alike")]
    Weights,
}

/// `seed=S,policy=1,width=4`, or `router=FILE[,width=N]`.
fn tier(text: &str) -> Result<Tier, NoTier> {
    let Some(file) = text.strip_prefix("router=") else {
        return Ok(text.parse()?);
    };
    let (file, width) = match file.rsplit_once(",width=") {
        Some((file, width)) => (file, Some(width)),
        None => (file, None),
    };
    let router = Router::of(&File::read(Path::new(file))?)?;
    // In the words of a tier, and with its mistakes.
    let width = width.map(|width| format!("seed=1,width={width}").parse::<Tier>());
    let width = width.transpose()?.map(|tier| tier.width);
    let wanted = |route: &&RouterRoute| width.is_none_or(|width| width == route.paths.len());
    let mut routes = router.routes().iter().filter(wanted);
    let first = routes.next().ok_or(NoTier::NoWidth)?;
    if routes.any(|route| route.paths.len() != first.paths.len()) {
        return Err(NoTier::Widths);
    }
    let mut weights = first.paths.iter().map(|(_, weight)| weight);
    let one = weights.next();
    if weights.any(|weight| Some(weight) != one) {
        return Err(NoTier::Weights);
    }
    Ok(Tier {
        policy: router.policy(),
        fields: router.fields(),
        seed: TierSeed {
            number: router.seed().get(),
            is_secret: true,
        },
        width: first.paths.len(),
    })
}

/// `10%`, `0.1`.
fn share(text: &str) -> Result<f64, Wanted> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|n| n / 100.0),
        None => text.parse(),
    };
    let within = number.ok().filter(|n| (0.0..=1.0).contains(n));
    within.ok_or(Wanted::Share)
}

fn count(text: &str) -> Result<usize, Wanted> {
    let number = text.parse().ok().filter(|n| (1..=65535).contains(n));
    number.ok_or(Wanted::Count)
}

fn protocol(text: &str) -> Result<u8, Wanted> {
    let named = raddle_sim::sample::named(text).or_else(|| text.parse().ok());
    named.ok_or(Wanted::Protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_words_or_a_router() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("spine.toml");
        let paths = "{ link = 'a' }, { link = 'b' }, { link = 'c' }";
        let text = format!(
            "policy = 0\nseed = 54321\n[[route]]\npaths = [ {paths} ]\n[[route]]\nto = [ '10.0.0.0/8' ]\npaths = [ {paths}, {{ link = 'd' }} ]\n"
        );
        std::fs::write(&file, &text).unwrap();
        let router = format!("router={}", file.display());
        let read = tier(&format!("{router},width=3")).unwrap();
        assert_eq!((read.policy, read.width), (0, 3));
        assert_eq!((read.seed.number, read.seed.is_secret), (54_321, true));
        let said = |words: &str| tier(words).unwrap_err().to_string();
        assert!(said(&router).contains("different numbers of paths"));
        assert!(said(&format!("{router},width=9")).contains("none of its routes"));
        assert!(said(&format!("{router},width=x")).contains("'x' is not a width"));
        std::fs::write(&file, text.replace("'b' }", "'b', weight = 2 }")).unwrap();
        assert!(said(&format!("{router},width=4")).contains("weights"));
        std::fs::write(&file, text.replace("seed", "# seed")).unwrap();
        assert!(said(&router).contains("raddle key find"));
        assert!(!tier("seed=7,width=4").unwrap().seed.is_secret);
    }

    #[test]
    fn shares_are_percent_or_parts() {
        for (text, value) in [("10%", 0.1), ("0.1", 0.1), ("100%", 1.0), ("0", 0.0)] {
            assert!((share(text).unwrap() - value).abs() < 1e-12, "{text}");
        }
        for text in ["10", "-1%", "x", "", "nan"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}

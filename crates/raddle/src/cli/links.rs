//! The words of labs of parallel links, and of the benchmark that runs in them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `raddle lab up links`.
#[derive(Debug, Args)]
pub(crate) struct LabLinks {
    /// Links between client and server
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub links: u32,
    /// Rate of each of them, such as 200mbit [default: not limited]
    #[arg(long, value_parser = rate)]
    pub rate: Option<LinkRate>,
    /// MTU of all links
    #[arg(long)]
    pub mtu: Option<u32>,
    /// Congestion control of TCP between them; `none` leaves it to the machine
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub congctl: String,
    /// Name of the lab
    #[arg(short, long, default_value = "links")]
    pub name: String,
}

/// A rate, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRate(pub Option<raddle_lab::Rate>);

fn rate(text: &str) -> Result<LinkRate, raddle_lab::ParseRateError> {
    match text {
        "none" => Ok(LinkRate(None)),
        _ => text.parse().map(|rate| LinkRate(Some(rate))),
    }
}

/// `raddle lab cut` and `mend`.
#[derive(Debug, Args)]
pub(crate) struct LabLink {
    /// The lab [default: the only one there is]
    #[arg(short, long)]
    pub name: Option<String>,
    /// The link: its number in `raddle lab list -j`, NODE/DEVICE, or a device that only one link has
    pub link: String,
}

/// `raddle bench rpc`.
#[derive(Debug, Args)]
pub(crate) struct BenchRpc {
    /// Trials of each row; mean and worst are printed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Seconds of each measurement, after one second to get up to speed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Rate of each link
    #[arg(long, default_value = "200mbit")]
    pub rate: raddle_lab::Rate,
    /// MTU of all links
    #[arg(long)]
    pub mtu: Option<u32>,
    /// The NFS server [default: ganesha where it is installed]
    #[arg(long, value_enum)]
    pub server: Option<RpcServer>,
    /// Only these rows: reads, writes, round-robin, quarter, tools, one, latency, silent, loopback, eight
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Where the export is made, on a file system with file handles such as ext4
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// What is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RpcServer {
    /// nfs-ganesha
    Ganesha,
    /// A small NFSv3 server of the benchmark's own, which gives and takes any bytes
    Own,
}

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

/// `raddle lab cut` and `restore`.
#[derive(Debug, Args)]
pub(crate) struct LabLink {
    /// The lab [default: the only one there is]
    #[arg(short, long)]
    pub name: Option<String>,
    /// The link: its number in `raddle lab list -j`, NODE/DEVICE, or a device that only one link has
    pub link: String,
}

/// What the rows measure.
pub(crate) const BENCH_RPC_HELP: &str = "\
Rows, in the order in which they are measured, each in --trials trials with hash seeds of their own.
A share is of iperf3's best over the same links, 16 streams. Loads are READs or WRITEs of 1 MiB,
32 of them outstanding on one client's connection, through `raddle rpc -n 4`:

  reads        reads; at least 97 % in the mean and 95 % in the worst trial
  after-one    the same after 3 s of one read at a time on the same proxy, which leaves most of its
               connections idle; bars of reads
  writes       writes; at least 95 % in the mean
  round-robin  reads by random ports and --policy round-robin, to compare with; no bar
  quarter      reads, one link at a quarter of its rate; at least 93 % of the sum in the mean
  tools        reads by 8 nfs-cat of libnfs at once, as a share of the links' rates; no bar
  one          reads through one connection, of those without a proxy: at least 98 % in the mean;
               and what the proxy adds to the median of GETATTR: at most 60 us
  latency      99th percentile of GETATTR beside a read that fills the links: at most 3 times the
               idle one and a round trip, so that the ratio is at most 1
  silent       a link loses everything without a sign: at most 1 s until the full rate of the
               others, in every trial
  loopback     reads over loopback, the proxy on one core: at least 12 Gbit/s in the mean
  small        reads and writes of 4 and 16 KiB at random places, 16 and 64 outstanding, of one client and of
               four: at least 95 % of 4 plain connections from the same ports, and of round robin, in
               the mean; each is measured for one second
  stuck        99th percentile of GETATTR beside a client that asks for much and takes no replies: at most
               twice that before it came, in the mean
  eight        8 connections over 8 links: 8 ways out, 8 ways back, all links used, in every trial

Columns: mean and worst of the trials; what they must be (the second figure is for the worst
trial); whether they are. Exit code: 0; 1 if a bar is missed (NO); 3 if it could not be measured.

Examples:
  raddle bench rpc --only reads,silent --trials 3
  raddle bench rpc --server own --ipv6 -j";

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
    /// Over IPv6: between proxy and server, and for iperf3
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Only these rows, see below: reads, after-one, writes, round-robin, quarter, tools, one, latency, silent, loopback, small, stuck, eight
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

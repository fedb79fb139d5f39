//! The words of `raddle rpc`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use raddle_rpc_paths::{
    HostPort, MAX_CONNECTIONS, MAX_MEMORY, MAX_RECORD, MAX_TABLE, MIN_TABLE, Mark, Numbers, Policy,
    Server,
};

use super::Ask;

pub(super) const RPC_HELP: &str = "\
Every program over TCP is passed on: NFSv3, NFSv4, MOUNT, and others. Listen on port 111 as well
for clients that ask the portmapper; it names this proxy for NFS and MOUNT.

Examples:
  raddle rpc --listen 127.0.0.1:2049 --server nas.example:2049 --mount-port 20048 --connections 4
  mount -t nfs -o vers=3,tcp,nolock,port=2049,mountport=2049,mountproto=tcp 127.0.0.1:/srv /mnt
  raddle rpc status
  raddle rpc top

Several servers at once stand in a file for --config. Its keys are the options' names, those of a
server in a table of its own:

  metrics = \"127.0.0.1:9410\"

  [[server]]
  name = \"nas1\"
  listen = [\"127.0.0.1:2049\", \"127.0.0.1:111\"]
  server = \"nas1.example:2049\"
  mount-port = 20048

  [[server]]
  listen = [\"127.0.0.2:2049\"]
  server = \"nas2.example:2049\"
  connections = 8
  no-lane = true

On SIGHUP the file is read again: servers whose table has changed are stopped and started, so that
their clients connect again; the others go on.

docs/rpc.md is the user's guide: mounting, all keys, placement, failover, what the words of status
and top mean, metrics, troubleshooting.";

/// `raddle rpc`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Rpc {
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<RpcCommand>,
    /// Read the servers from this file (see below)
    #[arg(long, value_name = "FILE", conflicts_with = "RpcProxy")]
    pub config: Option<PathBuf>,
    /// The server.
    #[command(flatten)]
    pub proxy: RpcProxy,
    /// The rest.
    #[command(flatten)]
    pub daemon: RpcDaemon,
}

/// `raddle rpc status`.
#[derive(Debug, Subcommand)]
pub(crate) enum RpcCommand {
    /// Show the paths of a running proxy's connections, and what they carry
    Status(RpcStatus),
    /// Show per-connection traffic, refreshed; q quits
    Top(RpcTop),
}

/// `raddle rpc status`.
#[derive(Debug, Args)]
pub(crate) struct RpcStatus {
    /// This server only
    pub name: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub ask: Ask,
    /// Also show the median and the 99th percentile of round-trip times
    #[arg(short, long)]
    pub details: bool,
}

/// `raddle rpc top`.
#[derive(Debug, Args)]
pub(crate) struct RpcTop {
    /// This server only
    pub name: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub ask: Ask,
    /// Seconds between updates
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2.0, value_parser = delay)]
    pub delay: f64,
    /// Exit after COUNT reports, the first of which is since the start [default: never]
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

fn delay(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.1 to 3600".to_owned()),
    }
}

/// Options of a server; the keys of a `[[server]]` are their names.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct RpcProxy {
    /// What status and metrics call the server [default: HOST of --server]
    #[arg(long)]
    pub name: Option<String>,
    /// Where clients connect; may be repeated [default: 127.0.0.1:2049]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,
    /// The server; the default port is 2049
    #[arg(long, value_name = "HOST[:PORT]")]
    pub server: Option<HostPort>,
    /// More addresses of the same server, to spread connections over; all of one family
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub server_addresses: Vec<IpAddr>,
    /// Local addresses to connect from [default: the kernel's choice]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub local_addresses: Vec<IpAddr>,
    /// The server's port for MOUNT [default: that of --server]
    #[arg(long, value_name = "PORT")]
    pub mount_port: Option<u16>,
    /// Connections to the server
    #[arg(short = 'n', long, default_value_t = Server::CONNECTIONS, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CONNECTIONS)))]
    pub connections: u16,
    /// Do not open an extra connection for small calls (they may queue behind large ones)
    #[arg(long)]
    pub no_lane: bool,
    /// Which connection a call takes
    #[arg(long, value_enum, default_value = "least-bytes")]
    pub policy: RpcPolicy,
    /// Leave source ports, and so paths, to the kernel
    #[arg(long)]
    pub no_placement: bool,
    /// Connect from ports 665 to 1023, as NFS exports without "insecure" require; clients must then use ports below
    /// 1024, too
    #[arg(long)]
    pub privileged_ports: bool,
    /// First of 64 routing tables, and priorities of their rules (before table main's), for routes around silent links
    #[arg(long, value_name = "TABLE", default_value_t = Numbers::default().table, value_parser = clap::value_parser!(u32).range(i64::from(MIN_TABLE)..=i64::from(MAX_TABLE)))]
    pub replay_table: u32,
    /// First of the 64 firewall marks of these rules
    #[arg(long, value_name = "MARK", default_value_t = Numbers::default().mark)]
    pub replay_mark: Mark,
    /// Do not route around silent links (calls that change something, WRITE included, wait until the link is back)
    #[arg(long)]
    pub no_replay_routes: bool,
    /// Memory for calls, and as much for replies, in MiB
    #[arg(long, value_name = "MIB", default_value_t = Server::MEMORY, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MEMORY)))]
    pub memory: u32,
    /// Longest record (call or reply), in MiB
    #[arg(long, value_name = "MIB", default_value_t = Server::RECORD, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RECORD)))]
    pub max_record: u32,
}

/// Options beside those of servers.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct RpcDaemon {
    /// Serve Prometheus metrics at this loopback address, path /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Control socket [default: /run/raddle/rpc-INODE.sock]
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Log as JSON lines
    #[arg(long)]
    pub log_json: bool,
}

/// How connections are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RpcPolicy {
    /// Each connection in turn
    RoundRobin,
    /// The one that will be done first, by outstanding bytes and measured rates
    LeastBytes,
    /// By a hash of the file handle
    Hash,
}

impl From<RpcPolicy> for Policy {
    fn from(policy: RpcPolicy) -> Policy {
        match policy {
            RpcPolicy::RoundRobin => Policy::RoundRobin,
            RpcPolicy::LeastBytes => Policy::LeastBytes,
            RpcPolicy::Hash => Policy::Hash,
        }
    }
}

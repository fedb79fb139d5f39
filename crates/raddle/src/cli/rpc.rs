//! The words of `raddle rpc`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use raddle_rpc::dispatch::Policy;

use super::Ask;

pub(super) const RPC_HELP: &str = "\
Every program over TCP is passed on: NFSv3, NFSv4, MOUNT, and others. Listen on port 111 as well for clients
that ask the portmapper; it names this proxy for NFS and MOUNT.

Examples:
  raddle rpc --listen 127.0.0.1:2049 --server nas.example:2049 --mount-port 20048 --connections 4
  mount -t nfs -o vers=3,tcp,nolock,port=2049,mountport=2049,mountproto=tcp 127.0.0.1:/srv /mnt
  raddle rpc status";

/// `raddle rpc`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Rpc {
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<RpcCommand>,
    /// The proxy.
    #[command(flatten)]
    pub proxy: RpcProxy,
}

/// `raddle rpc status`.
#[derive(Debug, Subcommand)]
pub(crate) enum RpcCommand {
    /// Say where the connections of a running proxy lie, and what they carry
    Status(Ask),
}

/// Options of the proxy.
#[derive(Debug, Args)]
pub(crate) struct RpcProxy {
    /// Where clients connect; may be repeated [default: 127.0.0.1:2049]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,
    /// The server
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// More addresses of the server, to spread connections over
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub server_addresses: Vec<IpAddr>,
    /// Own addresses to connect from [default: the one that the kernel chooses]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub local_addresses: Vec<IpAddr>,
    /// The server's port for MOUNT [default: that of --server]
    #[arg(long, value_name = "PORT")]
    pub mount_port: Option<u16>,
    /// Connections to the server
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub connections: u16,
    /// No connection more for small calls, which then wait behind large ones
    #[arg(long)]
    pub no_lane: bool,
    /// Which connection a call takes
    #[arg(long, value_enum, default_value = "least-bytes")]
    pub policy: RpcPolicy,
    /// Leave source ports, and so paths, to the kernel
    #[arg(long)]
    pub no_placement: bool,
    /// Connect from ports 512 to 1023, which servers may want of root (NFS exports without insecure)
    #[arg(long)]
    pub privileged_ports: bool,
    /// MiB of calls, and as many of replies, that may be kept at once
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub memory: u32,
    /// MiB that one record may have
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_record: u32,
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
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RpcPolicy {
    /// One after the other
    RoundRobin,
    /// Where a call is done first, by outstanding bytes and measured rates
    LeastBytes,
    /// By the file
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

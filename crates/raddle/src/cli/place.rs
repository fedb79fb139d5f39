//! `raddle place` on the command line.

use std::path::PathBuf;

use clap::Args;

/// Behind the help of `raddle place`.
pub(super) const PLACE_HELP: &str = "\
The kernel chooses the path of a connection by a hash of its addresses and ports, so a few connections often share a path while others
are idle. Here each gets a source port by which the same hash sends it along the path with the fewest connections to that destination.
Nothing is denied, and nothing is delayed: what cannot be placed connects as without it.

It needs net.ipv4.fib_multipath_hash_policy=1 (and net.ipv6), and root.

Examples:
  raddle place -- iperf3 -c 10.0.9.1 -P 8
  raddle place --cgroup system.slice/ceph.target
  raddle place --all";

/// `raddle place`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("whom").required(true))]
pub(crate) struct Place {
    /// Place what the sockets of this cgroup, and of those below it, connect to, until interrupted
    #[arg(long, group = "whom", value_name = "CGROUP")]
    pub cgroup: Option<PathBuf>,
    /// Place what all sockets of this network namespace connect to, the kernel's own among them, until interrupted
    #[arg(long, group = "whom")]
    pub all: bool,
    /// Say at the end what has become of connections
    #[arg(short, long)]
    pub summary: bool,
    /// Run this program, and place its connections and those of what it starts
    #[arg(last = true, group = "whom", value_name = "COMMAND")]
    pub command: Vec<String>,
}

//! The command line: one description, from which help is made.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// raddle measured beside the kernel, and shown on a small fabric.
///
/// Networks are made in namespaces and taken away at the end; nothing outside of them is touched. Exit codes: 0 fine,
/// 1 a bar is missed, 2 usage, 3 the system or the kernel refused.
#[derive(Debug, Parser)]
#[command(name = "raddle-bench", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Forwarding rate: kernel, bpf_fib_lookup, raddle, bare redirect, interleaved in one run
    Forward(Forward),
    /// Cost of a choice: by policy and width, beside a linear scan; in the XDP program (with root)
    Select(Select),
    /// SRv6: kernel and raddle by behaviour, what counters and many SIDs cost, the engine in memory
    Srv6(Srv6),
    /// How soon a change of firewalls, routes or settings counts while raddle forwards (needs root)
    #[command(after_help = WATCH_HELP)]
    Watch(Watch),
    /// NFS over several links through raddle rpc: rates, latencies, failure, against what links carry
    #[command(after_help = RPC_HELP)]
    Rpc(Rpc),
    /// Show it all on a small fabric: TCP streams, hash policies, predictions (needs root)
    Demo(Demo),
}

/// `raddle-bench demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Directory for the plots and the figures
    #[arg(short, long, default_value = ".", value_name = "DIR")]
    pub out: PathBuf,
    /// Rate of each link of the fabric
    #[arg(long, default_value = "1gbit")]
    pub rate: raddle_lab::Rate,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=60))]
    pub seconds: u32,
}

/// `raddle-bench srv6`.
#[derive(Debug, Args)]
pub(crate) struct Srv6 {
    /// Interleaved rounds; medians are printed
    #[arg(long, default_value_t = 9)]
    pub rounds: u32,
    /// Packets of each measurement, in millions
    #[arg(long, default_value_t = 1)]
    pub millions: u32,
    /// SIDs of the large table
    #[arg(long, default_value_t = 100_000)]
    pub sids: u32,
    /// Only these parts: memory, counters, behaviours, sids
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    pub only: Vec<String>,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// `raddle-bench select`.
#[derive(Debug, Args)]
pub(crate) struct Select {
    /// Interleaved rounds; medians are printed
    #[arg(long, default_value_t = 51)]
    pub rounds: u32,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// `raddle-bench forward`.
#[derive(Debug, Args)]
pub(crate) struct Forward {
    /// Interleaved rounds; medians are printed
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// Packets of each measurement, in millions
    #[arg(long, default_value_t = 2)]
    pub millions: u32,
    /// Packets of each measurement, where a million takes too long
    #[arg(long, conflicts_with = "millions")]
    pub packets: Option<u32>,
    /// Routes of the large table
    #[arg(long, default_value_t = 1_000_000)]
    pub routes: u32,
    /// Only these columns: one, ecmp2, ecmp64, rp-loose, rp-strict, firewall, rules, vrf, bond, vlan-in,
    /// vlan-out, vlan, bridge-in, bridge-out, vxlan-out, gre-out, full
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// What is measured.
pub(crate) const WATCH_HELP: &str = "\
A stream of frames goes through a router with `raddle run` in it, and in the middle a change is made by
a tool that has been started before. A row is a kind of change. Its time is when the last frame was
sent that the change had no effect on: that arrived though nothing may pass any more, or arrived by
the old way; after the tool had ended, and (from start) after it was told to make the change, which
is an upper bound, since the tool itself and the kernel are in it.

  announced  by a netlink group of nftables, tc or xfrm: nft-rule, nft-element, tc-ingress,
             tc-egress, qdisc, xfrm-policy
  followed   by routing's groups: route, route-gone, nexthops, rule, neighbour, mtu, rp-filter,
             forwarding, vrf
  polled     by nobody, the daemon looks: hash-policy, iptables (legacy), tcx, bpf-netfilter

What is told, announced or followed, must take 2 ms at most in the median and 10 ms in the worst round.
Exit code: 0; 1 if one takes longer (NO); 3 if it could not be measured.

Examples:
  raddle-bench watch --only nft-rule,route --rounds 5
  raddle-bench watch -j";

/// `raddle-bench watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Changes of each kind; median and worst are printed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Frames a second
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub rate: u32,
    /// Only these kinds, see below
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    pub only: Vec<String>,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// What the rows measure.
pub(crate) const RPC_HELP: &str = "\
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
  raddle-bench rpc --only reads,silent --trials 3
  raddle-bench rpc --server own --ipv6 -j";

/// `raddle-bench rpc`.
#[derive(Debug, Args)]
pub(crate) struct Rpc {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use xtask::commands::{in_documents, known};

    use super::Cli;

    #[test]
    fn commands_in_the_documents_exist() {
        let mut program = Cli::command();
        program.build();
        let calls = in_documents("raddle-bench").unwrap();
        assert!(calls.len() > 10, "{} commands were found", calls.len());
        let wrong = calls.iter().filter_map(|call| {
            let why = known(&program, &call.words, &[]).err()?;
            Some(format!("{}: {why}", call.place))
        });
        let wrong: Vec<String> = wrong.collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

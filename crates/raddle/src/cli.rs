//! The command line: one description, from which help, completions and man pages are made.

#[cfg(test)]
mod docs;
mod key;
mod links;
mod planning;
mod rpc;
mod words;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use raddle_select::KernelVersion;

pub(crate) use key::{KeyCommand, KeyFind};
pub(crate) use links::{LabLink, LabLinks};
pub(crate) use planning::{Ports, PortsAudit, PortsPlan, PortsVerify, Spread, WhatIf};
use raddle_daemon::{
    AlgoRule, Conntrack, Mode, OnExit, Priority, RxHash, Seed, StaticEncap, StaticSid,
};
use raddle_iproute::show::Object;
pub(crate) use rpc::{Rpc, RpcCommand, RpcDaemon, RpcProxy, RpcStatus, RpcTop};

/// Multipath forwarding for Linux: every path, evenly and explainably.
///
/// raddle forwards IPv4 and IPv6 through XDP by the routes that the kernel already has, choosing
/// among equal-cost paths exactly as the kernel does, and says why a flow takes the link that it
/// takes. Arguments follow iproute2's grammar where the noun is iproute2's.
#[derive(Debug, Parser)]
#[command(name = "raddle", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Forward packets: attach to links, follow the kernel's routes, until interrupted
    Run(Run),
    /// Say what the running daemon does: links, routes, warnings
    Status(Ask),
    /// Remove the programs that a daemon has left forwarding (--on-exit keep)
    Detach,
    /// Print packets and bytes by reason, link and nexthop
    Counters(Counters),
    /// Say step by step which link a flow takes, and why
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Explain),
    /// Say what a change would move, before it is made
    #[command(after_help = planning::WHAT_IF_HELP)]
    WhatIf(WhatIf),
    /// Source ports with which connections cover all paths
    #[command(subcommand)]
    Ports(Ports),
    /// Show how evenly flows lie on links, or what several tiers of routers leave of that
    Spread(Spread),
    /// Say what is wrong with this machine's multipath, and how to fix it
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),
    /// Find the key by which the kernel, or another router, chooses among paths
    #[command(subcommand)]
    Key(KeyCommand),
    /// Show routes in iproute2's form
    #[command(visible_alias = "ro", after_help = Object::Route.usage())]
    Route(Words),
    /// Show nexthop objects in iproute2's form
    #[command(visible_alias = "nh", after_help = Object::Nexthop.usage())]
    Nexthop(Words),
    /// Show neighbours in iproute2's form
    #[command(visible_alias = "neighbour", after_help = Object::Neigh.usage())]
    Neigh(Words),
    /// Show SRv6 SIDs and segment lists with their counters, or save them as a netlink dump
    #[command(after_help = Object::Sr.usage())]
    Sr(Words),
    /// Save the kernel's routing state as JSON, for replay and explain elsewhere
    #[command(after_help = SNAPSHOT_HELP)]
    Snapshot(Snapshot),
    /// Forward a capture file into one capture for each out-link, without root
    Replay(Replay),
    /// Pass NFS and other ONC RPC over several connections, each on a path of its own
    #[command(after_help = rpc::RPC_HELP)]
    Rpc(Box<Rpc>),
    /// Build fabrics of network namespaces with real BGP daemons
    #[command(subcommand)]
    Lab(Lab),
    /// Print completions for a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory
    Man {
        /// The directory; made if it does not exist.
        directory: PathBuf,
    },
}

impl Command {
    /// Whether it goes on for others until it is told to end, so that nobody's going away may end it.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Command::Run(args) => !args.check,
            Command::Rpc(args) => args.command.is_none(),
            _ => false,
        }
    }
}

const EXPLAIN_HELP: &str = "\
With iif the flow is a forwarded one; without it this machine's own.

Examples:
  raddle explain 10.0.2.1 from 10.0.1.1 iif eth0 ipproto tcp sport 40000 dport 5201
  raddle explain --both --kernel 6.12.5 10.0.2.1 ipproto udp sport 4000 dport 53
  raddle explain --pcap capture.pcap --packet 3 iif eth0
  raddle explain --srh fc00:1::1,fc00:2::6 --inner '10.0.9.1 from 10.0.8.1' fc00:1::1 from fd00::2 iif eth0";

const SNAPSHOT_HELP: &str = "\
Of a machine without raddle, any user of it can collect what --from-ip DIR wants by these lines:

  mkdir net && cd net
  ip -d -j link >link.json; ip -j addr >addr.json; ip -j neigh show nud all >neigh.json
  ip -N -d -j nexthop >nexthop.json; ip -j nexthop bucket >bucket.json; uname -rv >kernel.txt
  for f in 4 6; do
    ip -$f -N -d -j rule >rule$f.json; ip -$f -N -d -j route show table all >route$f.json
  done
  sysctl -a 2>/dev/null | grep -e '^net\\.ipv[46]\\.' >sysctl.txt";

const DOCTOR_HELP: &str = "\
Changes nothing. The exit code is 1 when a finding is serious. docs/doctor.md explains every check.";

/// `raddle run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Configuration file [default: /etc/raddle/raddle.toml where it exists]
    #[arg(short, long)]
    pub config: Option<PathBuf>,
    /// Forward what comes in on this link; may be repeated [default: all suitable links]
    #[arg(short, long = "link", value_name = "LINK")]
    pub links: Vec<String>,
    /// How to attach
    #[arg(short, long, value_parser = words::mode())]
    pub mode: Option<Mode>,
    /// What becomes of the programs when the daemon goes; keep does not work under ip netns exec, but
    /// with nsenter --net=/run/netns/NAME
    #[arg(long, value_parser = words::on_exit())]
    pub on_exit: Option<OnExit>,
    /// How long programs forward when no daemon looks at the firewall, because it hangs, starves or is
    /// gone; then they punt everything. A rule that comes meanwhile is bypassed for so long
    /// [default: 2]
    #[arg(long, value_name = "SECONDS")]
    pub deadline: Option<u32>,
    /// Before whom the threads that follow the kernel get a processor [default: realtime]
    #[arg(long, value_parser = words::priority())]
    pub priority: Option<Priority>,
    /// Attach although netfilter, tc or xfrm would have seen the packets
    #[arg(long)]
    pub allow_bypass: bool,
    /// What becomes of packets of connections that the kernel tracks, where no rule of it may judge them [default: forward]
    #[arg(long, value_parser = words::conntrack())]
    pub conntrack: Option<Conntrack>,
    /// Send through this link although it has a shaping qdisc; may be repeated
    #[arg(long, value_name = "LINK")]
    pub allow_qdisc: Vec<String>,
    /// Do not fix what loses packets silently on veth peers, but leave such links to the kernel;
    /// what is fixed stays so when the daemon stops
    #[arg(long)]
    pub no_fix_offloads: bool,
    /// Set the kernel's multipath hash seed if it is unset: a number, or random (Linux 6.11)
    #[arg(long)]
    pub seed: Option<Seed>,
    /// With hash policy 1, take the L4 hash that the driver gives with a packet, as the kernel does:
    /// auto (on NICs that give the kernel one), on (on software too), off [default: auto]
    #[arg(long, value_name = "WHERE", hide_possible_values = true, value_parser = words::rx_hash())]
    pub rx_hash: Option<RxHash>,
    /// Spread the routes to a prefix, or by a nexthop group, otherwise than by the hash policy:
    /// PREFIX=ALGO or nhid:ID=ALGO; may be repeated. ALGO is l3, l4[,icmp-follows-flow], inner,
    /// custom, round-robin or flowlet[,gap=TIME]
    #[arg(long, value_name = "WHAT=ALGO")]
    pub mp_algo: Vec<AlgoRule>,
    /// Have a SID that this kernel lacks, as for ip -6 route add: "PREFIX encap seg6local action ACTION
    /// ..."; may be repeated. Beyond ip's words: flavors usp,usd,replace-csid, End.DT4 and End.DT46 table
    /// TABLE, End.DX2V vlan VLAN dev LINK ..., End.B6.Encaps.Red
    #[arg(long, value_name = "SID")]
    pub sid: Vec<StaticSid>,
    /// Encapsulate by one segment list or spread flows over several: "PREFIX encap seg6 mode MODE segs
    /// A,B [weight N] [segs C,D [weight N]]... [dev LINK]"; may be repeated
    #[arg(long, value_name = "ENCAP")]
    pub encap: Vec<StaticEncap>,
    /// Take the routes, SIDs and segment lists that a routing daemon sends by FPM and the kernel does not have:
    /// listen for it at this loopback address [127.0.0.1:2620, which is where zebra looks]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:2620"
    )]
    pub fpm: Option<SocketAddr>,
    /// Serve Prometheus metrics at this loopback address, path /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Control socket [default: /run/raddle/net-INODE.sock]
    #[arg(long)]
    pub socket: Option<PathBuf>,
    /// Check the configuration and this machine, load the programs without attaching any, and exit
    #[arg(long)]
    pub check: bool,
    /// Log as JSON lines
    #[arg(long)]
    pub log_json: bool,
}

/// Options of commands that ask the daemon.
#[derive(Debug, Args)]
pub(crate) struct Ask {
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
    /// Control socket of the daemon [default: that of this network namespace]
    #[arg(long)]
    pub socket: Option<PathBuf>,
}

/// `raddle counters`.
#[derive(Debug, Args)]
pub(crate) struct Counters {
    /// Where to ask and how to print.
    #[command(flatten)]
    pub ask: Ask,
    /// Also counters that are zero
    #[arg(short, long)]
    pub all: bool,
}

/// Words that clap leaves alone.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Words {
    /// Options and words as for ip(8), see below
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// `raddle explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
    /// Explain by this snapshot instead of the live kernel
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Ask the kernel for its choice as well, and fail when it differs
    #[arg(long, conflicts_with_all = ["snapshot", "pcap", "hex"])]
    pub check: bool,
    /// Also the other direction, and whether both take one path
    #[arg(long, conflicts_with_all = ["pcap", "hex"])]
    pub both: bool,
    /// Show hashes also where they are made by the kernel's own key, and that key: who has it can steer flows
    #[arg(long)]
    pub show_key: bool,
    /// By the rules of this version of Linux [default: the running one, or the snapshot's]
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<KernelVersion>,
    /// With routes spread as by run --mp-algo [default: as the daemon here does]
    #[arg(long, value_name = "WHAT=ALGO", conflicts_with = "check")]
    pub mp_algo: Vec<AlgoRule>,
    /// And which link the flow takes at this router, of which `key find --out` has written the file; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pcap", "hex", "srh", "inner", "watch"])]
    pub peers: Vec<PathBuf>,
    /// Explain the packets of this capture, pcap or pcapng; - for standard input. One after the other,
    /// with -j a line of JSON each
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// This packet of the capture alone, from 1
    #[arg(long, value_name = "N", requires = "pcap",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: Option<u64>,
    /// Explain the flows of this file, one to a line, as below, or as what-if and spread take them; - for standard
    /// input. With -j a line of JSON each
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pcap", "hex", "srh", "inner", "check", "both", "watch"])]
    pub flows: Option<PathBuf>,
    /// Explain this packet, in hexadecimal, with or without Ethernet header; - for standard input
    #[arg(long, value_name = "BYTES", conflicts_with = "pcap")]
    pub hex: Option<String>,
    /// The packet has an SRH with these segments, in the order of travel, and is on its way to the
    /// first
    #[arg(long, value_name = "A,B,...", conflicts_with_all = ["pcap", "hex", "both"])]
    pub srh: Option<String>,
    /// The packet has this one inside: "DST [from SRC] [ipproto PROTO] ..."
    #[arg(long, value_name = "FLOW", conflicts_with_all = ["pcap", "hex", "both"])]
    pub inner: Option<String>,
    /// Go on, and print a new answer whenever a step of it changes, until interrupted
    #[arg(long, conflicts_with_all = ["snapshot", "check"])]
    pub watch: bool,
    /// With --watch: end after so many seconds
    #[arg(long = "for", value_name = "SECONDS", requires = "watch")]
    pub seconds: Option<u64>,
    /// With --watch: end after so many answers
    #[arg(long, value_name = "N", requires = "watch")]
    pub count: Option<u64>,
    /// The words of a flow, as `ip route get` takes them, or where a packet comes in.
    // The help has brackets that rustdoc would take for a link.
    #[arg(
        required_unless_present_any = ["pcap", "hex", "flows"],
        help = "DST [from SRC] [iif LINK] [ipproto PROTO] [sport PORT] [dport PORT] [flowlabel N] [tos TOS] [connected]; \
                with a packet or --flows: iif LINK"
    )]
    pub flow: Vec<String>,
}

/// `raddle doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
    /// Look at this snapshot instead of the live kernel, as far as it tells
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Kernel version to judge by [default: the running kernel's, or the snapshot's]
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<KernelVersion>,
    /// Hash seed of a router one tier away; may be repeated
    #[arg(long, value_name = "SEED")]
    pub peers_seed: Vec<u32>,
    /// Both directions of a flow should take the same way: seeds should be equal, not different
    #[arg(long)]
    pub symmetric: bool,
    /// Only these checks
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    pub only: Vec<String>,
    /// Name the checks, and do nothing
    #[arg(long)]
    pub list: bool,
}

/// `raddle snapshot`.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// Make it from the output of ip(8) in this directory, or in these files, instead of the live
    /// kernel
    #[arg(long, value_name = "DIR", num_args = 1)]
    pub from_ip: Vec<PathBuf>,
    /// File to write; standard output without it
    pub file: Option<PathBuf>,
}

/// `raddle replay`.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The capture, pcap or pcapng; - for standard input
    pub capture: PathBuf,
    /// Directory for one capture for each out-link, and one for what goes to the kernel; it must not
    /// hold captures yet
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Replace the captures of an earlier run that are in the directory
    #[arg(short, long)]
    pub force: bool,
    /// Routing state from this snapshot instead of the live kernel
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// The link that the captured packets came in on
    #[arg(long, value_name = "LINK")]
    pub iif: String,
    /// Take every packet as sent to the link's MAC address, whatever the capture says
    #[arg(long)]
    pub any_mac: bool,
    /// JSON instead of text
    #[arg(short, long)]
    pub json: bool,
}

/// `raddle lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Build a lab and wait until its routes are there
    #[command(subcommand)]
    Up(LabUp),
    /// Take a lab down, whatever state it is in
    Down {
        /// The lab [default: the only one there is]
        name: Option<String>,
        /// All labs
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Run a command on a node
    Exec {
        /// The lab [default: the only one there is, or the only one with that node]
        #[arg(short, long)]
        name: Option<String>,
        /// The node, such as leaf1
        node: String,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Blackhole a link in both directions without carrier loss
    Cut(LabLink),
    /// Undo cut
    Restore(LabLink),
    /// List labs and their nodes
    List {
        /// JSON instead of text
        #[arg(short, long)]
        json: bool,
    },
}

/// What `raddle lab up` can build.
#[derive(Debug, Subcommand)]
pub(crate) enum LabUp {
    /// A two-tier Clos fabric: leaves, spines, hosts
    Clos(LabClos),
    /// Two sites in two subnets, joined by SRv6 over a core with two equal paths
    Srv6L3vpn(LabSrv6),
    /// Two sites in one Ethernet, joined likewise
    Srv6L2vpn(LabSrv6),
    /// Two tenants with VRFs on two leaves, joined by EVPN and VXLAN over two spines
    L3vni(LabL3vni),
    /// A client and a server joined by several links, and ECMP by L4 over them both ways
    Links(LabLinks),
}

/// `raddle lab up srv6-l3vpn` and `srv6-l2vpn`.
#[derive(Debug, Args)]
pub(crate) struct LabSrv6 {
    /// Rate of each link of the core, such as 1gbit [default: not limited]
    #[arg(long)]
    pub rate: Option<raddle_lab::Rate>,
    /// MTU of the core's links; those of the sites carry 200 less
    #[arg(long)]
    pub mtu: Option<u32>,
    /// Name of the lab [default: that of the topology]
    #[arg(short, long)]
    pub name: Option<String>,
}

/// `raddle lab up l3vni`.
#[derive(Debug, Args)]
pub(crate) struct LabL3vni {
    /// Rate of each link of the fabric, such as 1gbit [default: not limited]
    #[arg(long)]
    pub rate: Option<raddle_lab::Rate>,
    /// MTU of the fabric's links; those of the hosts carry 50 less
    #[arg(long)]
    pub mtu: Option<u32>,
    /// Name of the lab
    #[arg(short, long, default_value = "l3vni")]
    pub name: String,
}

/// `raddle lab up clos`.
#[derive(Debug, Args)]
pub(crate) struct LabClos {
    /// Leaves
    #[arg(long, default_value_t = 2)]
    pub leaves: u32,
    /// Spines: as many equal-cost paths between leaves
    #[arg(long, default_value_t = 2)]
    pub spines: u32,
    /// Hosts behind each leaf
    #[arg(long, default_value_t = 1)]
    pub hosts_per_leaf: u32,
    /// Rate of each link of the fabric, such as 1gbit [default: not limited]
    #[arg(long)]
    pub rate: Option<raddle_lab::Rate>,
    /// Rate of the links between hosts and leaves [default: not limited]
    #[arg(long)]
    pub host_rate: Option<raddle_lab::Rate>,
    /// MTU of all links
    #[arg(long)]
    pub mtu: Option<u32>,
    /// Name of the lab
    #[arg(short, long, default_value = "clos")]
    pub name: String,
    /// Hosts speak BGP to the spines themselves, over a link to each; there are no leaves
    #[arg(long)]
    pub hosts_bgp: bool,
    /// BGP and all it routes on VLANs upon the fabric's links, of this number [default of ID: 10]
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true, default_missing_value = "10",
        value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Two cables for each of the fabric's links, as a bond (802.3ad)
    #[arg(long)]
    pub bond: bool,
}

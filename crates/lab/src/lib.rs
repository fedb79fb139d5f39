//! Fabrics in network namespaces, with real routing daemons and real wires.
//!
//! A [`Topology`] describes nodes, links, addresses and routing, and is pure data; [`Lab::up`] builds
//! it and [`Lab::down`] removes every trace of it. Several labs can stand side by side.
//!
//! # What a lab is made of
//!
//! - A node is a network namespace `rdl-LAB-NODE`, visible to `ip netns`. What runs in it through
//!   [`Lab::command`] also has its own `/sys`, `/sys/fs/bpf`, `/run/raddle` and `/run/frr`, so that
//!   daemons of two nodes (or of two labs) never share a socket or a pinned program.
//! - A link is a wire of its own. Each node's veth has its peer in the namespace `rdl-LAB-wire`,
//!   where a small BPF program passes frames from one end to the other end's shaper. Two veths joined
//!   directly would not do: an XDP redirect goes around the queueing discipline of the device it sends
//!   through, and a frame of a local socket would carry its L4 hash into the next node, where the
//!   kernel then chooses paths by it. Behind a wire, rates hold and paths are those of real cables.
//!   To the kernel, what comes out of a wire has been redirected: XDP in the driver sees it, generic XDP
//!   does not, so a program that is attached in generic mode to a node's device receives nothing.
//! - A node may make devices of its links and upon them: VLANs, bonds, and what EVPN needs. They are in its
//!   namespace and go with it.
//! - Routers run FRR's zebra and bgpd with unnumbered eBGP, from a directory per node; nothing in
//!   `/etc/frr` is read or written.
//!
//! # Example
//!
//! ```no_run
//! use raddle_lab::{Clos, Lab, UpOptions};
//!
//! let topology = Clos { leaves: 2, spines: 2, ..Clos::default() }.topology()?;
//! let lab = Lab::up("demo", &topology, UpOptions::default())?;
//! let status = lab.command("host1", "ip")?.args(["route", "show"]).status();
//! Lab::down("demo")?;
//! # drop(status);
//! # Ok::<(), raddle_lab::LabError>(())
//! ```

mod assemble;
mod batch;
mod clos;
mod converge;
mod counters;
mod error;
mod ethtool;
mod frr;
mod interrupt;
mod l3vni;
mod lab;
mod links;
mod names;
mod netns;
mod plain;
mod preflight;
mod qdisc;
mod rate;
mod segments;
mod state;
mod topology;
mod vpn;
mod wire;

pub use clos::Clos;
pub use converge::Convergence;
pub use counters::{Counters, LinkCounters};
pub use error::LabError;
pub use interrupt::Interrupt;
pub use l3vni::L3vni;
pub use lab::{Lab, Progress, ScopedLab, UpOptions};
pub use links::Links;
pub use plain::{Chain, Pair};
pub use rate::{ParseRateError, Rate};
pub use segments::{SegmentAction, SegmentRoute, SegmentRouting};
pub use state::{LabSummary, Stage};
pub use topology::{
    Bgp, BondHash, Device, DeviceKind, End, Evpn, Expectation, HashPolicy, Link, LinkId, Neighbour,
    Node, Role, StaticRoute, Tenant, Topology, TopologyBuilder, TopologyError,
};
pub use vpn::Srv6Vpn;

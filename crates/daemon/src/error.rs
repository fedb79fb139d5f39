//! Why the daemon does not start, or does not go on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use raddle_preflight::Finding;
use thiserror::Error;

use crate::seed::{CANNOT_BE_SET, SETTING};
use crate::{Invalid, StaticError};

/// What is wrong, and what to do about it.
#[derive(Debug, Error)]
pub enum Error {
    /// The file of the configuration.
    #[error("{0}")]
    File(#[from] raddle_config::Error),
    /// What its values come to.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// A SID or an encapsulation that this machine cannot have.
    #[error("{0}")]
    Static(#[from] StaticError),
    /// A link that was named.
    #[error("there is no link '{0}' in this network namespace")]
    NoSuchLink(String),
    /// A link that was named cannot be forwarded from.
    #[error("link {name} cannot be used: {why}")]
    LinkRejected {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// A daemon without a link to forward from would only look as if it worked.
    #[error(
        "there is no link to forward from; turn forwarding on (sysctl -w net.ipv4.ip_forward=1 \
         net.ipv6.conf.all.forwarding=1) or name links with --link\n{}", lines(.left)
    )]
    NoLinks {
        /// `LINK: why` of each that is left to the kernel.
        left: Vec<String>,
    },
    /// Never around the firewall.
    #[error(
        "not attached, because forwarded packets would bypass:\n{}\nPairs of links that no rule concerns are forwarded: accept them by \
         input and output link, both ways, in front of rules that look at connections or addresses. To forward around all of these \
         all the same: --allow-bypass",
        lines(.0)
    )]
    Bypass(Vec<Finding>),
    /// A seed by number, where there is nothing to set.
    #[error(
        "the hash seed {0} cannot be set: this kernel {CANNOT_BE_SET}; start without a seed, and packets with several \
         paths stay with the kernel"
    )]
    NoSeed(u32),
    /// The kernel refused the seed.
    #[error("cannot set the hash seed in {SETTING}: {0}; it needs CAP_NET_ADMIN")]
    SetSeed(io::Error),
    /// The address for FPM cannot be had.
    #[error(
        "cannot listen for FPM at {address}: {why}; somebody else may listen for zebra there: give both another \
         address (listen in [fpm] or --fpm=ADDRESS:PORT, and fpm address in zebra)"
    )]
    Fpm {
        /// Where.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// Pins would go with this process's mount namespace.
    #[error(
        "programs cannot be kept: what is pinned under {0} goes with this process, because it has mounts of its own, \
         as under ip netns exec; enter the namespace with nsenter --net=/run/netns/NAME instead, or use --on-exit detach"
    )]
    NotKept(&'static str),
    /// Programs without pins.
    #[error(
        "raddle's programs are on {}, and neither their daemon nor their pins are to be seen from here, as under ip netns \
         exec, which has mounts of its own: enter the namespace with nsenter --net=/run/netns/NAME instead",
        links.join(", ")
    )]
    PinsUnseen {
        /// The links' names.
        links: Vec<String>,
    },
    /// Pins that stay.
    #[error("cannot remove {path}: {source}; remove it by hand", path = .path.display())]
    RemovePins {
        /// Their folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The engine cannot be attached to a link.
    #[error("link {name}: {source}")]
    Attach {
        /// The link's name.
        name: String,
        /// Why not.
        source: raddle_xdp::Error,
    },
    /// A check without the privilege to load programs.
    #[error("whether the kernel takes raddle's programs could not be tried: {0}")]
    NotTried(raddle_xdp::Error),
    /// The control socket, or another daemon.
    #[error("{0}")]
    Control(#[from] raddle_control::Error),
    /// The metrics endpoint.
    #[error("{0}")]
    Metrics(#[from] raddle_metrics::Error),
    /// The kernel's notifications.
    #[error("{0}")]
    Netlink(#[from] raddle_netlink::Error),
    /// What would be bypassed cannot be seen.
    #[error("{0}")]
    Probe(#[from] raddle_netlink::probe::Error),
    /// The engine.
    #[error("{0}")]
    Xdp(#[from] raddle_xdp::Error),
    /// The system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Each in a line of its own.
fn lines<T: std::fmt::Display>(list: &[T]) -> String {
    let lines: Vec<String> = list.iter().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

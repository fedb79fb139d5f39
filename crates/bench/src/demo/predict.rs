//! Which link a stream will take: by raddle's own computation, and by the kernel's word.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;

use raddle_exit::Failure;
use raddle_netlink::{RouteQuery, Socket};

use super::fabric::Fabric;
use crate::program;
use crate::router::index_of;

/// TCP's protocol number.
const TCP: u8 = 6;

/// What is known about a stream before it is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prediction {
    /// The link that `raddle explain` names; none where the kernel hides its hash seed.
    pub explained: Option<String>,
    /// The link that the kernel itself names for the same flow (`RTM_GETROUTE`).
    pub kernel: String,
}

/// Predicts for flows from the sender to a port of the receiver that reach the leaf.
pub(super) struct Oracle {
    raddle: PathBuf,
    socket: Socket,
    addresses: [Ipv4Addr; 2],
    input: (String, u32),
    server_port: u16,
}

impl Oracle {
    /// Runs `ask` on the leaf.
    pub(super) fn consult<T: Send>(
        fabric: &Fabric,
        server_port: u16,
        ask: impl FnOnce(&mut Oracle) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let (input, addresses) = (fabric.input.clone(), fabric.addresses);
        fabric.lab.within(fabric.leaf, move || {
            let index = index_of(&input)?;
            ask(&mut Oracle {
                raddle: program::raddle()?,
                socket: Socket::open()?,
                addresses,
                input: (input, index),
                server_port,
            })
        })?
    }

    /// The links for a source port.
    pub(super) fn predict(&mut self, port: u16) -> Result<Prediction, Failure> {
        let [src, dst] = self.addresses;
        // What this thread starts is on the leaf as well.
        let mut explain = Command::new(&self.raddle);
        explain.args(["explain", "-j", &dst.to_string()]);
        explain.args(["from", &src.to_string(), "iif", &self.input.0]);
        explain.args(["ipproto", "tcp", "sport", &port.to_string()]);
        explain.args(["dport", &self.server_port.to_string()]);
        let explained = program::json(&mut explain)?["link"]
            .as_str()
            .map(str::to_owned);
        let query = RouteQuery {
            src: Some(src.into()),
            iif: Some(self.input.1),
            ip_proto: Some(TCP),
            sport: Some(port),
            dport: Some(self.server_port),
            ..RouteQuery::default()
        };
        let index = self.socket.get_route(IpAddr::V4(dst), &query)?.index;
        let name = nix::net::if_::if_indextoname(index);
        let kernel = name.map_or_else(
            |_| format!("if{index}"),
            |name| name.to_string_lossy().into_owned(),
        );
        Ok(Prediction { explained, kernel })
    }
}

//! Which link a stream will take: by raddle's own computation, and by the kernel's word.

use std::net::{IpAddr, Ipv4Addr};

use raddle_explain::{FlowWords, Images, Question, Surroundings, View, answer};
use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::Rib;

use super::fabric::Fabric;
use crate::error::Failure;
use crate::names::Names;
use crate::source;

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
    rib: Rib,
    socket: Socket,
    names: Names,
    addresses: [Ipv4Addr; 2],
    input: (String, u32),
    server_port: u16,
}

impl Oracle {
    /// Runs `ask` on the leaf, with its routing state as it is now.
    pub(super) fn consult<T: Send>(
        fabric: &Fabric,
        server_port: u16,
        ask: impl FnOnce(&mut Oracle) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let (input, addresses) = (fabric.input.clone(), fabric.addresses);
        fabric.lab.within(fabric.leaf, move || {
            let rib = source::mirror(None)?;
            let index = rib.link_named(&input).map(|link| link.index);
            let index = index.ok_or_else(|| {
                Failure::system(format!("the leaf has lost its link {input} to the sender"))
            })?;
            let socket = Socket::open()?;
            let input = (input, index);
            ask(&mut Oracle {
                rib,
                socket,
                names: Names::load(),
                addresses,
                input,
                server_port,
            })
        })?
    }

    /// The links for a source port.
    pub(super) fn predict(&mut self, port: u16) -> Result<Prediction, Failure> {
        let [src, dst] = self.addresses.map(IpAddr::V4);
        let flow = FlowWords {
            dst,
            src,
            iif: Some(self.input.0.clone()),
            proto: TCP,
            sport: port,
            dport: self.server_port,
            flow_label: 0,
            connected: false,
        };
        let (around, images) = (Surroundings::default(), Images::default());
        let view = View::new(&self.rib, &self.names, &around, &images);
        let question = Question {
            words: &flow,
            packet: None,
        };
        let explained = answer(view, question).link;
        let query = RouteQuery {
            src: Some(src),
            iif: Some(self.input.1),
            ip_proto: Some(TCP),
            sport: Some(port),
            dport: Some(self.server_port),
            ..RouteQuery::default()
        };
        let index = self.socket.get_route(dst, &query)?.index;
        let kernel = self
            .rib
            .link(index)
            .map_or(format!("if{index}"), |link| link.name.clone());
        Ok(Prediction { explained, kernel })
    }
}

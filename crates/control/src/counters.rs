//! The answer to [`Command::Counters`].

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Answer, Command};

/// What the engine has counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that were punted or dropped, by reason.
    pub reasons: Vec<ReasonCount>,
    /// Packets by link.
    pub links: Vec<LinkCount>,
    /// Packets that were forwarded, by neighbour.
    pub nexthops: Vec<NexthopCount>,
    /// Packets that were lost behind the engine's verdict, by link: of the links that have lost any.
    #[serde(default)]
    pub lost: Vec<LinkLoss>,
}

impl Answer for Counters {
    const COMMAND: Command = Command::Counters;
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What became of packets that were not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// They were punted.
    Punt,
    /// They were dropped.
    Drop,
}

/// Packets that were not forwarded, for one reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReasonCount {
    /// The reason's name.
    pub reason: String,
    /// What became of them.
    pub verdict: Verdict,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
}

/// What came in and went out by a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCount {
    /// The link's name when it carried them; empty of all whose names are no longer known.
    pub dev: String,
    /// What came in; none of a link that is not forwarded from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Count>,
    /// What of that the kernel got and raddle might have forwarded: not what is for this machine, for many, or not IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Count>,
    /// What was forwarded through it.
    pub sent: Count,
}

/// What was forwarded to a neighbour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NexthopCount {
    /// The link.
    pub ifindex: u32,
    /// The link's name.
    pub dev: String,
    /// The neighbour; none of a link without neighbours.
    pub via: Option<IpAddr>,
    /// The largest packet that is forwarded there.
    pub mtu: u32,
    /// Whether packets are forwarded there, and not punted.
    pub forwards: bool,
    /// Whether the kernel has not heard of the neighbour for a while.
    pub stale: bool,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
}

/// What was lost behind the engine's verdict, by a link's driver or before it. Packets that were to leave by the link count as
/// forwarded all the same. What other XDP programs of the network namespace have redirected to the link is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkLoss {
    /// The link's name when it was told; empty of all whose names are not known.
    pub dev: String,
    /// Packets that were to leave by it.
    pub lost: u64,
    /// Packets that came in by it, on which an XDP program has failed.
    pub aborted: u64,
    /// The kernel's error of the last that was to leave; none where the driver did not take it without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

impl LinkLoss {
    /// Why the last was lost that was to leave.
    pub fn why(&self) -> String {
        match self.errno {
            Some(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
            None => "its driver did not take it".to_owned(),
        }
    }
}

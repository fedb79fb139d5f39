//! The answer to [`Command::Status`].

use std::collections::BTreeMap;

use raddle_preflight::{Finding, Punted};
use raddle_rib::event::Settings;
use raddle_select::KeyKind;
use serde::{Deserialize, Serialize};

use crate::{Answer, Command, LinkLoss};

/// What the daemon does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Whether it forwards.
    pub state: State,
    /// Why everything is punted, if it is.
    pub held_because: Option<String>,
    /// What becomes of the programs when it ends: `detach` or `keep`.
    pub on_exit: String,
    /// How long packets pass without somebody who looks at the firewall.
    pub deadline: Deadline,
    /// Before whom its threads get a processor.
    pub priority: Priority,
    /// How far the image is behind the kernel.
    pub lag: Lag,
    /// Links that packets are forwarded from.
    pub links: Vec<Link>,
    /// Links that the program is attached to: those of the above that are no VLANs, and those below VLANs.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// Links that packets are only sent through.
    pub out_only: Vec<OutOnly>,
    /// Why links are left to the kernel, by name; of those above, why they are left in part.
    pub left_to_kernel: BTreeMap<String, String>,
    /// Packets that were lost behind the engine's verdict, by link: of the links that have lost any.
    #[serde(default)]
    pub lost: Vec<LinkLoss>,
    /// Why such packets are not counted, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_not_counted: Option<String>,
    /// Packets that are punted because the kernel's firewall may judge them, with its rules.
    #[serde(default)]
    pub punted: Vec<Punted>,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// The kernel's settings that it goes by.
    pub settings: Settings,
    /// Which key its hash has: never what it is.
    #[serde(default)]
    pub hash_key: KeyKind,
    /// Whether this kernel lets the seed of the hash be set.
    pub hash_seed_can_be_set: bool,
    /// The rules by which routes are spread otherwise than the kernel does, in order.
    pub mp_algos: Vec<String>,
    /// Prefixes with routes.
    pub routes: ByFamily,
    /// What the image holds.
    pub image: Image,
    /// SIDs and segment lists.
    pub segments: SegmentNumbers,
    /// FPM, where it is listened for.
    pub fpm: Option<Fpm>,
    /// What the kernel has told.
    pub mirror: Mirror,
    /// Times that changes were published to the engine.
    pub commits: u64,
    /// How long the last of them took.
    pub last_commit_microseconds: u64,
}

impl Answer for Status {
    const COMMAND: Command = Command::Status;
}

/// Whether the daemon forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    #[default]
    Forwarding,
    /// Everything is punted.
    Held,
}

impl State {
    /// As in the answer.
    pub fn name(self) -> &'static str {
        match self {
            State::Forwarding => "forwarding",
            State::Held => "held",
        }
    }
}

/// Without a look at the firewall for so long, everything is punted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Deadline {
    /// How long.
    pub seconds: u32,
    /// Times that it has passed.
    pub lapses: u64,
}

/// Before whom the daemon's threads get a processor: `realtime`, `nice` or `none`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Priority {
    /// What is configured.
    pub wanted: String,
    /// What the kernel has given.
    pub have: String,
    /// Times that it was lost for having computed too long.
    pub demotions: u64,
}

/// From the kernel's word of a change to its publication, over all that followed notifications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// How many.
    pub count: u64,
    /// The last.
    pub last_microseconds: u64,
    /// 99 of 100 took at most so long, rounded up to a bucket's bound.
    pub p99_microseconds: u64,
    /// The slowest.
    pub max_microseconds: u64,
    /// All together.
    pub sum_microseconds: u64,
    /// A histogram; what is longer than the last bound is in none.
    pub buckets: Vec<LagBucket>,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LagBucket {
    /// Its upper bound, which is in it.
    pub up_to_microseconds: u64,
    /// How many are in it, and in none before it.
    pub count: u64,
}

/// A link that packets are forwarded from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub dev: String,
    /// `up`, `down` or `no carrier`; none of one that is gone.
    pub state: Option<String>,
    /// How XDP is attached: `native` or `generic`. Of a VLAN `by` and the name of the link below it, which it is attached to.
    pub mode: String,
    /// What becomes of the receive hash, once that is known.
    pub rx_hash: Option<RxHash>,
    /// Whether packets are sent through it, too.
    pub out: bool,
    /// Why nothing is forwarded from it yet: a VLAN, while the programs for tagged frames are not there.
    #[serde(default)]
    pub lacking: Option<String>,
    /// Tunnels that the kernel alone takes packets in by, by name, and a rule that these may meet: the link itself, or ports of its bridge.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_in: BTreeMap<String, String>,
}

impl Link {
    /// Why nothing at all is forwarded from it: it is such a tunnel, or its packets come in by such alone.
    pub fn out_only(&self) -> Option<&str> {
        let (_, why) = self.not_in.first_key_value()?;
        let by = self.mode.strip_prefix("by ");
        let all = by.map_or(self.not_in.contains_key(&self.dev), |by| {
            by.split(", ").all(|name| self.not_in.contains_key(name))
        });
        all.then_some(why.as_str())
    }
}

/// A link that the program is attached to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub dev: String,
    /// `native` or `generic`.
    pub mode: String,
}

/// Whether policy 1 goes by the hash that the driver gives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RxHash {
    /// It does.
    pub read: bool,
    /// It should, and cannot.
    pub lacking: bool,
    /// Why it does not.
    pub why: Option<String>,
}

/// A link that packets are sent through, and not forwarded from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutOnly {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub dev: String,
    /// `up`, `down` or `no carrier`.
    pub state: String,
    /// Whether packets are sent through it now.
    pub out: bool,
}

/// Something that the user should know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Warning {
    /// In one line.
    pub text: String,
    /// In parts.
    pub finding: Finding,
}

/// Numbers of IPv4 and of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByFamily {
    /// IPv4.
    pub inet: u64,
    /// IPv6.
    pub inet6: u64,
}

impl ByFamily {
    /// Each family's name and number.
    pub fn each(self) -> [(&'static str, u64); 2] {
        [("inet", self.inet), ("inet6", self.inet6)]
    }
}

/// What the image holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Image {
    /// Entries of the IPv4 table.
    pub inet_entries: u64,
    /// Entries of the IPv6 table.
    pub inet6_entries: u64,
    /// Nexthop groups.
    pub groups: u64,
    /// Adjacencies.
    pub adjacencies: u64,
    /// Part of the traffic is punted for want of room.
    pub full: bool,
    /// The configuration's keys that make room.
    pub raise: Vec<String>,
}

/// How many SIDs and segment lists there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentNumbers {
    /// All.
    pub all: u64,
    /// Those that the kernel does not have.
    pub own: u64,
    /// Those that the kernel carries out.
    pub kernel: u64,
    /// Those that the kernel does not have and that cannot be carried out: their packets are dropped.
    pub dropped: u64,
    /// Those that raddle would carry out if the kernel had taken its programs for them.
    pub not_carried_out: Option<NotCarriedOut>,
}

/// SIDs and segment lists that there are no programs for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCarriedOut {
    /// How many.
    pub count: u64,
    /// Some of them.
    pub names: Vec<String>,
    /// Why.
    pub why: String,
}

/// What is listened for and heard by FPM.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fpm {
    /// The address.
    pub listen: Option<String>,
    /// The routing daemon that is connected.
    pub peer: Option<String>,
    /// Seconds until what is not sent again is removed.
    pub grace_seconds: Option<u64>,
    /// Whether the peer is sending all of its routes again.
    pub resync: bool,
    /// Routes by FPM.
    pub routes: ByFamily,
    /// Those of them that are used, as the kernel does not have them.
    pub used: ByFamily,
    /// Nexthop objects by FPM.
    pub nexthops: u64,
    /// Routes that there was no room for.
    pub no_room: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Connections that ended with a message that made no sense.
    pub broken: u64,
    /// Messages.
    pub messages: FpmMessages,
}

/// Messages by FPM, by type.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FpmMessages {
    /// Routes.
    pub route: u64,
    /// Routes that go.
    pub route_gone: u64,
    /// Nexthop objects.
    pub nexthop: u64,
    /// Nexthop objects that go.
    pub nexthop_gone: u64,
    /// Messages about something else.
    pub skipped: u64,
    /// Messages that make no sense.
    pub malformed: u64,
}

impl FpmMessages {
    /// Each type's name and number.
    pub fn each(self) -> [(&'static str, u64); 6] {
        [
            ("route", self.route),
            ("route-gone", self.route_gone),
            ("nexthop", self.nexthop),
            ("nexthop-gone", self.nexthop_gone),
            ("skipped", self.skipped),
            ("malformed", self.malformed),
        ]
    }
}

/// What the kernel has told.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Mirror {
    /// Notifications.
    pub notifications: u64,
    /// Dumps.
    pub dumps: u64,
    /// Times that notifications were lost, and everything was read again.
    pub overruns: u64,
    /// Messages that made no sense.
    pub malformed: u64,
}

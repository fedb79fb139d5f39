//! The daemon's configuration: a TOML file, then what the command line adds.

mod fpm;
mod plain;
mod point;
mod priority;
mod room;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub(crate) use fpm::Fpm;
use ipnet::IpNet;
use plain::plain;
pub(crate) use point::{in_a_line, pointed};
pub(crate) use priority::Priority;
use raddle_rib::{AlgoError, AlgoRules, MpAlgo};
use serde::Deserialize;

use crate::error::Failure;
use crate::own::{self, OwnEncap, OwnSid};

/// Where the configuration is looked for when no `--config` is given; it need not exist.
pub(crate) const DEFAULT_PATH: &str = "/etc/raddle/raddle.toml";

/// How programs are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// In the driver where it can, generic otherwise.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// In the network stack: works everywhere, and is slow.
    Generic,
}

/// What becomes of the programs when the daemon goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnExit {
    /// They are detached, at whatever way it ends, and the kernel forwards.
    #[default]
    Detach,
    /// They stay and forward by the last state for a bounded time, so that a new daemon can take
    /// over under traffic; then they hand everything to the kernel.
    Keep,
}

/// Whether policy 1 takes the hash that comes with a packet from the driver, as the kernel does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RxHash {
    /// On NICs that give the kernel one.
    #[default]
    Auto,
    /// On all links whose driver offers it, software included.
    On,
    /// Nowhere: by seed and fields always.
    Off,
}

/// The hash seed to set at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seed {
    /// This number.
    Number(u32),
    /// Drawn at random.
    Random,
}

impl std::str::FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Seed, String> {
        if text == "random" {
            return Ok(Seed::Random);
        }
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        match number {
            Ok(0) | Err(_) => Err(format!(
                "'{text}' is not a seed: give a number from 1 to 4294967295, or random"
            )),
            Ok(n) => Ok(Seed::Number(n)),
        }
    }
}

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Seed, D::Error> {
        struct NumberOrRandom;
        impl serde::de::Visitor<'_> for NumberOrRandom {
            type Value = Seed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 1 to 4294967295, or \"random\"")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Seed, E> {
                match u32::try_from(number) {
                    Ok(0) => Err(E::custom(
                        "a seed of 0 means unknown: leave it out, or say \"random\"",
                    )),
                    Ok(n) => Ok(Seed::Number(n)),
                    Err(_) => Err(E::invalid_value(
                        serde::de::Unexpected::Signed(number),
                        &self,
                    )),
                }
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Seed, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(NumberOrRandom)
    }
}

/// A list of names, with an example for who writes something else.
fn links<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    struct Names;
    impl<'de> serde::de::Visitor<'de> for Names {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of links, such as [\"eth0\", \"eth1\"]")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut list: A,
        ) -> Result<Self::Value, A::Error> {
            let mut names = Vec::new();
            while let Some(name) = list.next_element()? {
                names.push(name);
            }
            Ok(names)
        }
    }
    d.deserialize_seq(Names)
}

/// As [`links`], but not empty: whether that meant all or none would be a guess.
fn some_links<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let names = links(d)?;
    if names.is_empty() {
        let why = "it names no link; leave it out to forward from all suitable links";
        return Err(serde::de::Error::custom(why));
    }
    Ok(names)
}

/// How some routes are spread: those to destinations inside of a prefix, or by a nexthop group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawAlgoRule")]
pub(crate) struct AlgoRule {
    /// Which routes.
    pub what: What,
    /// How.
    pub algo: MpAlgo,
}

/// Which routes an [`AlgoRule`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Those to destinations inside of this prefix.
    Prefix(IpNet),
    /// Those by this nexthop group.
    Group(u32),
}

/// An [`AlgoRule`] as it stands in the file.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of its own: [[mp-algo]] with prefix or group, and algo"
)]
struct RawAlgoRule {
    prefix: Option<String>,
    group: Option<u32>,
    algo: MpAlgo,
}

impl TryFrom<RawAlgoRule> for AlgoRule {
    type Error = String;

    fn try_from(raw: RawAlgoRule) -> Result<AlgoRule, String> {
        let what = match (raw.prefix, raw.group) {
            (Some(prefix), None) => What::Prefix(prefix_of(&prefix)?),
            (None, Some(group)) => What::Group(group),
            _ => return Err("an mp-algo wants either a prefix or a group".into()),
        };
        Ok(AlgoRule {
            what,
            algo: raw.algo,
        })
    }
}

fn prefix_of(text: &str) -> Result<IpNet, String> {
    let prefix: IpNet = text
        .parse()
        .map_err(|_| format!("'{text}' is not a prefix such as 10.9.0.0/16"))?;
    if prefix.trunc() != prefix {
        return Err(format!(
            "'{text}' has bits beyond its length: use {}",
            prefix.trunc()
        ));
    }
    Ok(prefix)
}

impl std::str::FromStr for AlgoRule {
    type Err = String;

    /// `PREFIX=ALGO` or `nhid:ID=ALGO`.
    fn from_str(text: &str) -> Result<AlgoRule, String> {
        let (what, algo) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' is not PREFIX=ALGO or nhid:ID=ALGO"))?;
        let what = match what.strip_prefix("nhid:") {
            Some(id) => What::Group(
                id.parse()
                    .map_err(|_| format!("'{id}' is not the id of a nexthop group"))?,
            ),
            None => What::Prefix(prefix_of(what)?),
        };
        let algo = algo.parse().map_err(|e: AlgoError| e.to_string())?;
        Ok(AlgoRule { what, algo })
    }
}

impl std::fmt::Display for AlgoRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            What::Prefix(prefix) => write!(f, "{prefix}={}", self.algo),
            What::Group(id) => write!(f, "nhid:{id}={}", self.algo),
        }
    }
}

/// Everything that can be configured. The file's keys are these names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Links to forward from; all suitable links when empty, which the file says by leaving it out.
    #[serde(deserialize_with = "some_links")]
    pub links: Vec<String>,
    /// How programs are attached.
    #[serde(deserialize_with = "plain::word")]
    pub mode: Mode,
    /// What becomes of the programs when the daemon goes.
    #[serde(deserialize_with = "plain::word")]
    pub on_exit: OnExit,
    /// For how many seconds programs forward since a daemon last looked at the firewall.
    pub deadline: u32,
    /// Before whom the threads that follow the kernel get a processor.
    #[serde(deserialize_with = "plain::word")]
    pub priority: Priority,
    /// Attach although netfilter, tc or xfrm would have seen the packets.
    pub allow_bypass: bool,
    /// Send through these links although they have a shaping qdisc, which XDP bypasses.
    #[serde(deserialize_with = "links")]
    pub allow_qdisc: Vec<String>,
    /// Fix what would lose packets silently (GRO and checksum offload on veth peers).
    pub fix_offloads: bool,
    /// Set `net.ipv4.fib_multipath_hash_seed` at start, unless it is set already.
    pub seed: Option<Seed>,
    /// Take the hash that the driver gives with a packet: `rx-hash`.
    #[serde(
        rename = "rx-hash",
        alias = "rx_hash",
        deserialize_with = "plain::word"
    )]
    pub rx_hash: RxHash,
    /// Serve Prometheus metrics here (a loopback address).
    pub metrics: Option<SocketAddr>,
    /// Routes that are spread otherwise than by the namespace's hash policy: `[[mp-algo]]`.
    #[serde(rename = "mp-algo", alias = "mp_algo")]
    pub mp_algos: Vec<AlgoRule>,
    /// SIDs of raddle's own, for what this kernel lacks: `[[sid]]`.
    #[serde(deserialize_with = "tables::sid")]
    pub sid: Vec<OwnSid>,
    /// Encapsulations of raddle's own, by several segment lists: `[[encap]]`.
    #[serde(deserialize_with = "tables::encap")]
    pub encap: Vec<OwnEncap>,
    /// Take routes from a routing daemon by FPM: `[fpm]`.
    pub fpm: Option<Fpm>,
    /// The control socket; by default one for each network namespace under /run/raddle.
    pub socket: Option<PathBuf>,
    /// IPv4 routes to make room for.
    pub routes4: usize,
    /// IPv6 routes to make room for.
    pub routes6: usize,
    /// SIDs and encapsulations to make room for.
    #[serde(deserialize_with = "tables::sids")]
    pub sids: usize,
    /// Groups to make room for: places that routes lead to.
    pub groups: usize,
    /// Members of groups to make room for; a group of several takes the next power of two.
    pub members: usize,
    /// Adjacencies to make room for: neighbours, again for each MTU that routes set.
    pub adjacencies: usize,
}

impl Default for Config {
    fn default() -> Config {
        let room = raddle_image::Capacity::default();
        Config {
            links: Vec::new(),
            mode: Mode::Auto,
            on_exit: OnExit::Detach,
            deadline: 2,
            priority: Priority::Realtime,
            allow_bypass: false,
            allow_qdisc: Vec::new(),
            fix_offloads: true,
            seed: None,
            rx_hash: RxHash::Auto,
            metrics: None,
            mp_algos: Vec::new(),
            sid: Vec::new(),
            encap: Vec::new(),
            fpm: None,
            socket: None,
            routes4: 1_500_000,
            routes6: 400_000,
            sids: room.segments,
            groups: room.groups,
            members: room.members,
            adjacencies: room.adjacencies,
        }
    }
}

impl Config {
    /// Reads the file that was named, or the default one if it exists.
    pub(crate) fn load(path: Option<&Path>) -> Result<Config, Failure> {
        let (path, named) = match path {
            Some(path) => (path, true),
            None => (Path::new(DEFAULT_PATH), false),
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !named => {
                return Ok(Config::default());
            }
            Err(e) => {
                return Err(Failure::usage(format!(
                    "cannot read the configuration {}: {e}; name another with --config",
                    path.display()
                )));
            }
        };
        let config = Config::parse(&text);
        config.map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|e| {
            let said = e.message().trim();
            let message = plain(said);
            let message = match tables::meant(said) {
                Some(name) => format!("{message}; {name} may be meant"),
                None => message,
            };
            let Some(span) = e.span() else {
                return message;
            };
            let span = point::culprit(text, span.start, said).unwrap_or(span);
            pointed(text, span, &message)
        })?;
        config
            .check()
            .map_err(|message| match point::key_of(text, &message) {
                Some(span) => pointed(text, span, &message),
                None => message,
            })?;
        Ok(config)
    }

    /// What no single value shows to be wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let metrics = self
            .metrics
            .map_or(Ok(()), raddle_metrics::require_loopback);
        metrics.map_err(|e| e.to_string())?;
        if self.deadline == 0 || self.deadline > 3600 {
            return Err("deadline is at least 1 second and at most 3600".into());
        }
        self.check_room()?;
        if let Some(fpm) = &self.fpm {
            fpm.check()?;
        }
        own::check(&self.sid, &self.encap).map_err(|e| e.to_string())?;
        Ok(())
    }

    /// Whether there are SIDs or encapsulations that the kernel does not have.
    pub(crate) fn has_own(&self) -> bool {
        !self.sid.is_empty() || !self.encap.is_empty()
    }

    /// The same, or there may be some at any time.
    pub(crate) fn may_have_own(&self) -> bool {
        self.has_own() || self.fpm.is_some()
    }
}

/// The rules as the mirror wants them; of two for one group the last counts.
pub(crate) fn algo_rules(list: &[AlgoRule]) -> AlgoRules {
    let mut rules = AlgoRules::default();
    for rule in list {
        match &rule.what {
            What::Prefix(prefix) => rules.prefixes.push((*prefix, rule.algo)),
            What::Group(id) => {
                rules.groups.insert(*id, rule.algo);
            }
        }
    }
    rules
}

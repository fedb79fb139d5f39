//! The daemon's configuration: a TOML file, then what the command line adds.

mod algo;
mod error;
mod file;
mod fpm;
mod room;
mod seed;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
mod words;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use algo::{AlgoRule, AlgoRuleError, Target, algo_rules};
pub use error::Invalid;
pub use fpm::{Fpm, FpmInvalid};
use raddle_config::{Error, File};
pub use room::Room;
pub use seed::{BadSeed, Seed};
pub use words::{Conntrack, Mode, OnExit, Priority, RxHash};

use crate::statics::{self, StaticEncap, StaticSid};

/// Where the configuration is looked for when no `--config` is given; it need not exist.
pub const DEFAULT_PATH: &str = "/etc/raddle/raddle.toml";

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Links to forward from; all suitable links when empty, which the file says by leaving it out.
    pub links: Vec<String>,
    /// How programs are attached.
    pub mode: Mode,
    /// What becomes of the programs when the daemon goes.
    pub on_exit: OnExit,
    /// For how many seconds programs forward since a daemon last looked at the firewall.
    pub deadline: u32,
    /// Before whom the threads that follow the kernel get a processor.
    pub priority: Priority,
    /// Attach although netfilter, tc or xfrm would have seen the packets.
    pub allow_bypass: bool,
    /// What becomes of packets of connections that the kernel tracks.
    pub conntrack: Conntrack,
    /// Send through these links although they have a shaping qdisc, which XDP bypasses.
    pub allow_qdisc: Vec<String>,
    /// Fix what would lose packets silently (GRO and checksum offload on veth peers).
    pub fix_offloads: bool,
    /// Set `net.ipv4.fib_multipath_hash_seed` at start, unless it is set already.
    pub seed: Option<Seed>,
    /// Take the hash that the driver gives with a packet: `rx-hash`.
    pub rx_hash: RxHash,
    /// Serve Prometheus metrics here (a loopback address).
    pub metrics: Option<SocketAddr>,
    /// Routes that are spread otherwise than by the namespace's hash policy: `[[mp-algo]]`.
    pub mp_algos: Vec<AlgoRule>,
    /// Static SIDs, for what this kernel lacks: `[[sid]]`.
    pub sid: Vec<StaticSid>,
    /// Static encapsulations, by several segment lists: `[[encap]]`.
    pub encap: Vec<StaticEncap>,
    /// Take routes from a routing daemon by FPM: `[fpm]`.
    pub fpm: Option<Fpm>,
    /// The control socket; by default one for each network namespace under /run/raddle.
    pub socket: Option<PathBuf>,
    /// IPv4 routes to make room for.
    pub routes4: usize,
    /// IPv6 routes to make room for.
    pub routes6: usize,
    /// SIDs and encapsulations to make room for.
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
            conntrack: Conntrack::Forward,
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
    ///
    /// # Errors
    /// It cannot be read, or says something that cannot be.
    pub fn load(path: Option<&Path>) -> Result<Config, Error> {
        let file = match path {
            Some(path) => Some(File::read(path)?),
            None => File::read_if_any(Path::new(DEFAULT_PATH))?,
        };
        file.map_or_else(|| Ok(Config::default()), |file| Config::of(&file))
    }

    /// What a file says.
    ///
    /// # Errors
    /// It says something that cannot be.
    pub fn of(file: &File) -> Result<Config, Error> {
        file::read(file)
    }

    /// What the values together, or their meaning, show to be wrong.
    ///
    /// # Errors
    /// The first of it.
    pub fn check(&self) -> Result<(), Invalid> {
        self.metrics
            .map_or(Ok(()), raddle_metrics::require_loopback)?;
        if self.deadline == 0 || self.deadline > 3600 {
            return Err(Invalid::Deadline);
        }
        self.check_room()?;
        self.fpm.as_ref().map_or(Ok(()), Fpm::check)?;
        statics::check(&self.sid, &self.encap)
    }

    /// Whether there are SIDs or encapsulations that the kernel does not have.
    pub fn has_statics(&self) -> bool {
        !self.sid.is_empty() || !self.encap.is_empty()
    }

    /// The same, or there may be some at any time.
    pub fn may_have_statics(&self) -> bool {
        self.has_statics() || self.fpm.is_some()
    }
}

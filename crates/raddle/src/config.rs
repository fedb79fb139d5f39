//! The daemon's configuration: a TOML file, then what the command line adds.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::Failure;

/// Where the configuration is looked for when no `--config` is given; it need not exist.
pub(crate) const DEFAULT_PATH: &str = "/etc/raddle/raddle.toml";

/// How programs are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnExit {
    /// They are detached, at whatever way it ends, and the kernel forwards.
    #[default]
    Detach,
    /// They stay and forward by the last state for a bounded time, so that a new daemon can take
    /// over under traffic; then they hand everything to the kernel.
    Keep,
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
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u32),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(0) => Err(serde::de::Error::custom("a seed of 0 means unknown")),
            Either::Number(n) => Ok(Seed::Number(n)),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
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

/// Everything that can be configured. The file's keys are these names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Links to forward from; all suitable links when empty, which the file says by leaving it out.
    #[serde(deserialize_with = "some_links")]
    pub links: Vec<String>,
    /// How programs are attached.
    pub mode: Mode,
    /// What becomes of the programs when the daemon goes.
    pub on_exit: OnExit,
    /// With `on_exit = "keep"`: how long programs forward without a daemon, in seconds.
    pub keep_for: Option<u32>,
    /// Attach although netfilter, tc or xfrm would have seen the packets.
    pub allow_bypass: bool,
    /// Send through these links although they have a shaping qdisc, which XDP bypasses.
    #[serde(deserialize_with = "links")]
    pub allow_qdisc: Vec<String>,
    /// Mend what would lose packets silently (GRO and checksum offload on veth peers).
    pub mend: bool,
    /// Set `net.ipv4.fib_multipath_hash_seed` at start, unless it is set already.
    pub seed: Option<Seed>,
    /// Serve Prometheus metrics here (a loopback address).
    pub metrics: Option<SocketAddr>,
    /// The control socket; by default one for each network namespace under /run/raddle.
    pub socket: Option<PathBuf>,
    /// IPv4 routes to make room for.
    pub routes4: usize,
    /// IPv6 routes to make room for.
    pub routes6: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            links: Vec::new(),
            mode: Mode::Auto,
            on_exit: OnExit::Detach,
            keep_for: None,
            allow_bypass: false,
            allow_qdisc: Vec::new(),
            mend: true,
            seed: None,
            metrics: None,
            socket: None,
            routes4: 1_500_000,
            routes6: 400_000,
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
        let config: Config = toml::from_str(&text)
            .map_err(|e| Failure::usage(format!("{}: {}", path.display(), e.to_string().trim())))?;
        config
            .check()
            .map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
        Ok(config)
    }

    /// What no single value shows to be wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(metrics) = self.metrics
            && !metrics.ip().is_loopback()
        {
            return Err(format!(
                "metrics address {metrics} is not a loopback address: metrics have no access \
                 control, so put a proxy before 127.0.0.1 or ::1"
            ));
        }
        if self.keep_for == Some(0) {
            return Err(
                "keep_for must be at least 1 second; to detach use on_exit = \"detach\"".into(),
            );
        }
        if self.keep_for.is_some() && self.on_exit != OnExit::Keep {
            return Err("keep_for does nothing without on_exit = \"keep\" (--on-exit keep)".into());
        }
        if self.routes4 == 0 || self.routes6 == 0 {
            return Err(
                "routes4 and routes6 are at least 1; leave them out for the default".into(),
            );
        }
        if self.routes4 > 64_000_000 || self.routes6 > 16_000_000 {
            return Err("routes4 is at most 64000000, routes6 at most 16000000".into());
        }
        Ok(())
    }

    /// How long programs forward without a daemon when they are kept, in seconds.
    pub(crate) fn keep_for(&self) -> u32 {
        self.keep_for.unwrap_or(60)
    }

    /// The image that these numbers of routes want.
    pub(crate) fn capacity(&self) -> raddle_rib::image::Capacity {
        let default = raddle_rib::image::Capacity::default();
        raddle_rib::image::Capacity {
            // Two direct roots, so that a table can be rebuilt beside itself, and for each
            // route of unusual length a block of eight nodes in every fourth.
            nodes4: (2 << 19) + 2 * self.routes4.max(1 << 17),
            leaves4: (4 * self.routes4).max(1 << 20),
            words6: (16 * self.routes6).max(1 << 20),
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_mistakes_are_named() {
        let good: Config =
            toml::from_str("links = ['eth0']\nmode = 'generic'\nseed = 'random'\nkeep_for = 5")
                .unwrap();
        assert_eq!(
            (good.mode, good.seed, good.keep_for),
            (Mode::Generic, Some(Seed::Random), Some(5))
        );
        for (text, said) in [
            ("link = ['eth0']", "unknown field `link`"),
            ("mode = 'fast'", "unknown variant `fast`"),
            ("seed = 0", "a seed of 0 means unknown"),
            ("seed = 'x'", "is not a seed"),
            (
                "links = 'eth0'",
                "expected a list of links, such as [\"eth0\", \"eth1\"]",
            ),
            ("allow_qdisc = 'eth0'", "expected a list of links"),
            ("links = []", "it names no link"),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let open = Config {
            metrics: Some("0.0.0.0:1".parse().unwrap()),
            ..Config::default()
        };
        assert!(open.check().unwrap_err().contains("loopback"));
        for (text, said) in [
            ("routes4 = 0", "at least 1"),
            ("routes6 = 0", "at least 1"),
            ("keep_for = 5", "does nothing without on_exit"),
            ("keep_for = 0", "at least 1 second"),
        ] {
            let config: Config = toml::from_str(text).unwrap();
            assert!(config.check().unwrap_err().contains(said), "{text}");
        }
        let kept: Config = toml::from_str("on_exit = 'keep'\nkeep_for = 5").unwrap();
        assert_eq!((kept.check(), kept.keep_for()), (Ok(()), 5));
    }
}

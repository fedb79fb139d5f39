//! Settings that are one of a few words. The file's words are the names.

use serde::Deserialize;

/// How programs are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// In the driver where it can, generic otherwise.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// In the network stack: works everywhere, and is slow.
    Generic,
}

impl Mode {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }
}

/// What becomes of the programs when the daemon goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// They are detached, at whatever way it ends, and the kernel forwards.
    #[default]
    Detach,
    /// They stay and forward by the last state for a bounded time, so that a new daemon can take
    /// over under traffic; then they punt everything to the kernel.
    Keep,
}

impl OnExit {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            OnExit::Detach => "detach",
            OnExit::Keep => "keep",
        }
    }
}

/// What becomes of packets of connections that the kernel tracks, where no rule of it may judge them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conntrack {
    /// They are forwarded past its table.
    #[default]
    Forward,
    /// They are punted, so that the table has them.
    Punt,
}

impl Conntrack {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Conntrack::Forward => "forward",
            Conntrack::Punt => "punt",
        }
    }
}

/// Before whom the daemon's threads that follow the kernel get a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Before all that have no real-time priority themselves.
    #[default]
    Realtime,
    /// Before most, most of the time: nice -15.
    Nice,
    /// Before nobody.
    None,
}

impl Priority {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Priority::Realtime => "realtime",
            Priority::Nice => "nice",
            Priority::None => "none",
        }
    }
}

/// Whether policy 1 takes the hash that comes with a packet from the driver, as the kernel does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RxHash {
    /// On NICs that give the kernel one.
    #[default]
    Auto,
    /// On all links whose driver offers it, software included.
    On,
    /// Nowhere: by seed and fields always.
    Off,
}

impl RxHash {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            RxHash::Auto => "auto",
            RxHash::On => "on",
            RxHash::Off => "off",
        }
    }
}

//! Whether packets of a link are chosen for by the hash that they bring: per link, as the kernel does.

use std::collections::BTreeMap;
use std::fmt;

use raddle_control::status;
use raddle_netlink::probe::ethtool;
use raddle_rib::Rib;
use raddle_rib::event::{Link, Settings};
use raddle_xdp::{AttachedMode, Engine};

use super::links::Plan;
use super::report;
use crate::config::{Config, RxHash};

/// What the decision for a link depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The program runs in the driver.
    native: bool,
    /// The link has a kind (`IFLA_INFO_KIND`): it is software.
    software: bool,
    /// The driver lets programs read the hash that it gives with a packet.
    offered: bool,
    /// The driver passes the NIC's hash on (`receive-hashing`).
    passed_on: bool,
    /// There are SIDs or encapsulations that the kernel does not have, or may be.
    own: bool,
    /// There are links upon it that are forwarded from, VLANs, its bridge, macvlans; or tunnels, wherever.
    uppers: bool,
}

/// What becomes of the hash that packets of a link bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is read and counts, as it does for the kernel.
    Read,
    /// It is not read, and does not have to be.
    Needless(&'static str),
    /// It is not read although it was asked for, or although the kernel takes it.
    Lacking(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Read => f.write_str("read"),
            Verdict::Needless(why) => write!(f, "not read: {why}"),
            Verdict::Lacking(why) => write!(f, "not read: {why}"),
        }
    }
}

/// Decides for a link.
///
/// 1. The setting is `off`: not read.
/// 2. Neither family has policy 1: not read, for no other policy looks at it.
/// 3. `auto`, and the link is software: not read. A veth computes a hash for packets that bring none and
///    marks them with it, so that even the kernel would choose otherwise than without raddle.
/// 4. `auto`, and the NIC's hash is not passed on: not read, because the kernel has none either.
/// 5. The program does not run in the driver, or the driver does not offer it: not read, but lacking.
/// 6. There are SIDs or encapsulations that the kernel does not have, or FPM may tell some: not read, but lacking. The program that reads it cannot
///    carry them out, and the kernel, which gets SRv6 packets of its own routes from such a link, does not have these.
/// 7. There are VLANs upon the link that are forwarded from, a bridge that it is a port of, or macvlans, or any tunnel in use: likewise, for
///    it knows none.
/// 8. Read.
fn decide(setting: RxHash, settings: &Settings, facts: Facts) -> Verdict {
    let auto = match setting {
        RxHash::Off => return Verdict::Needless("rx-hash is off"),
        RxHash::Auto => true,
        RxHash::On => false,
    };
    if settings.hash_policy4 != 1 && settings.hash_policy6 != 1 {
        Verdict::Needless("only hash policy 1 looks at it")
    } else if auto && facts.software {
        Verdict::Needless("the link is software, which may make one up")
    } else if auto && !facts.passed_on {
        Verdict::Needless("receive-hashing is off, so the kernel has none either")
    } else if !facts.native {
        Verdict::Lacking("the program does not run in the driver".into())
    } else if !facts.offered {
        Verdict::Lacking("the driver does not offer it to programs".into())
    } else if facts.own {
        Verdict::Lacking(
            "a program that reads it cannot carry out SIDs that the kernel does not have".into(),
        )
    } else if facts.uppers {
        Verdict::Lacking(
            "a program that reads it cannot forward from the VLANs, the bridge or the macvlans upon the link, nor by tunnels"
                .into(),
        )
    } else {
        Verdict::Read
    }
}

fn facts(link: &Link, native: bool, own: bool, uppers: bool) -> Facts {
    Facts {
        native,
        own,
        uppers,
        software: link.kind.is_some(),
        // A link that has gone says no, and is not asked about again.
        offered: raddle_xdp::offers_rx_hash(link.index).unwrap_or(false),
        passed_on: ethtool::flags(&link.name).is_ok_and(|flags| flags.rx_hash),
    }
}

/// Whether the hash of a link would be read where the program runs in the driver as `native` says, and there are `uppers`, links
/// upon it that are forwarded from.
pub(super) fn would_read(
    rib: &Rib,
    config: &Config,
    link: &Link,
    (native, uppers): (bool, bool),
) -> bool {
    let facts = facts(link, native, config.may_have_statics(), uppers);
    decide(config.rx_hash, rib.settings(), facts) == Verdict::Read
}

/// What was decided for the attached links, and upon what.
#[derive(Clone, Debug, Default)]
pub(super) struct Decisions(BTreeMap<u32, (Facts, Verdict)>);

impl Decisions {
    /// Decides for all attached links, and has their programs read the hash or not. Where the kernel
    /// refuses, the link goes on without, and is tried again when the facts change.
    pub(super) fn renew(
        &mut self,
        engine: &mut Engine,
        (rib, plan): (&Rib, &Plan),
        config: &Config,
    ) {
        let attached: Vec<_> = engine.attached().collect();
        let carriers = plan.carriers(rib);
        let mut before = std::mem::take(&mut self.0);
        for (index, mode) in attached {
            let Some(link) = rib.link(index) else {
                continue;
            };
            let facts = facts(
                link,
                mode == AttachedMode::Native,
                config.may_have_statics(),
                carriers.contains(&index),
            );
            let wanted = decide(config.rx_hash, rib.settings(), facts);
            let read = wanted == Verdict::Read;
            let verdict = match (before.remove(&index), engine.reads_rx_hash(index)) {
                (_, reads) if reads == read => wanted,
                // Refused before, and nothing has changed.
                (Some((known, refused @ Verdict::Lacking(_))), _) if read && known == facts => {
                    refused
                }
                _ => match engine.set_rx_hash(index, read) {
                    Ok(()) => {
                        tracing::info!("receive hash of {}: {wanted}", link.name);
                        wanted
                    }
                    Err(e) => {
                        tracing::warn!(
                            "{e}; {} goes on without, so that packets that the kernel forwards \
                             itself may take another path",
                            report::name(rib, index)
                        );
                        Verdict::Lacking(match e {
                            raddle_xdp::Error::RxHash { why, .. } => why.to_string(),
                            e => e.to_string(),
                        })
                    }
                },
            };
            self.0.insert(index, (facts, verdict));
        }
    }

    /// As `status` shows it.
    pub(super) fn status(&self, index: u32) -> Option<status::RxHash> {
        let (_, verdict) = self.0.get(&index)?;
        let why = match verdict {
            Verdict::Read => None,
            Verdict::Needless(why) => Some(*why),
            Verdict::Lacking(why) => Some(why.as_str()),
        };
        Some(status::RxHash {
            read: *verdict == Verdict::Read,
            lacking: matches!(verdict, Verdict::Lacking(_)),
            why: why.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIC: Facts = Facts {
        native: true,
        software: false,
        offered: true,
        passed_on: true,
        own: false,
        uppers: false,
    };

    fn decided(setting: RxHash, policies: (u8, u8), facts: Facts) -> String {
        let settings = Settings {
            hash_policy4: policies.0,
            hash_policy6: policies.1,
            ..Settings::default()
        };
        decide(setting, &settings, facts).to_string()
    }

    #[test]
    fn a_nic_that_hashes_is_read_by_itself_under_policy_1() {
        let auto = |policies, facts| decided(RxHash::Auto, policies, facts);
        assert_eq!(auto((1, 0), NIC), "read");
        assert_eq!(auto((0, 1), NIC), "read");
        assert!(auto((0, 3), NIC).contains("only hash policy 1"));
        assert!(decided(RxHash::Off, (1, 1), NIC).contains("rx-hash is off"));
        let but = |change: fn(&mut Facts)| {
            let mut facts = NIC;
            change(&mut facts);
            facts
        };
        let generic = but(|f| f.native = false);
        let silent = but(|f| f.offered = false);
        let unhashed = but(|f| f.passed_on = false);
        let tagged = but(|f| f.uppers = true);
        let veth = but(|f| (f.software, f.passed_on) = (true, false));
        assert!(auto((1, 1), generic).contains("in the driver"));
        assert!(auto((1, 1), silent).contains("does not offer it"));
        assert!(auto((1, 1), unhashed).contains("receive-hashing is off"));
        assert!(auto((1, 1), veth).contains("software"));
        assert_eq!(decided(RxHash::On, (1, 1), veth), "read");
        for setting in [RxHash::Auto, RxHash::On] {
            assert!(decided(setting, (1, 1), tagged).contains("upon the link"));
        }
        assert!(decided(RxHash::On, (1, 1), generic).contains("in the driver"));
    }
}

//! Drivers that take what XDP sends by some of their queues only, or with some settings: told before the first packet is lost.

use std::collections::BTreeMap;

use raddle_netlink::probe::ethtool::{self, Channels};
use raddle_rib::event::Link;

use super::finding::{Finding, Role, Severity};

/// A NIC, as far as its driver tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nic {
    pub(super) link: String,
    /// `ethtool -i`.
    pub(super) driver: String,
    pub(super) channels: Channels,
    pub(super) mtu: u32,
}

/// Those of these links whose drivers tell of their channels, and the machine's CPUs.
pub(super) fn gather(links: &[Link], outs: &BTreeMap<u32, String>) -> (Vec<Nic>, u32) {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut nics = Vec::new();
    for link in links
        .iter()
        .filter(|l| outs.contains_key(&l.index) && l.kind.is_none())
    {
        // One that goes meanwhile has nothing to be told of.
        let Ok(Some(driver)) = ethtool::driver(&link.name) else {
            continue;
        };
        if let Ok(Some(channels)) = ethtool::channels(&link.name) {
            nics.push(Nic {
                link: link.name.clone(),
                driver,
                channels,
                mtu: link.mtu,
            });
        }
    }
    (nics, last_cpu(&online))
}

/// Of a list of CPUs as the kernel prints it (`0-3,8`), one more than the last; 1 where it says nothing.
fn last_cpu(list: &str) -> u32 {
    let last = list.trim().rsplit([',', '-']).next();
    last.and_then(|last| last.parse().ok())
        .map_or(1, |last: u32| last.saturating_add(1))
}

/// The longest packets that ena takes with XDP (`ENA_XDP_MAX_MTU`, with pages of 4096 bytes).
const ENA_MTU: u32 = 3498;

/// What is to be said of NICs on a machine with so many CPUs, none of which sends by a link that it is not to.
///
/// 1. i40e (`i40e_xdp_xmit`), mlx5 (`mlx5e_xdp_xmit`): the queue with the number of the CPU; what CPUs send for which there is none is
///    lost.
/// 2. ena (`ena_xdp_set`, `ena_xdp_legal_queue_count`): as many queues more as there are channels, so half of the most are too many; and no
///    MTU above [`ENA_MTU`]. Else no program can be attached by the driver.
pub(super) fn judge(nics: &[Nic], online: u32) -> Vec<Finding> {
    let findings = nics.iter().flat_map(|nic| {
        let Nic {
            link,
            channels: Channels { now, most },
            ..
        } = nic;
        let found = |what: String, why: &str, fix: Option<String>| {
            let finding = Finding::new(Severity::Warning, what, why).on(link, Role::Out);
            match fix {
                Some(fix) => finding.fix(fix),
                None => finding,
            }
        };
        let channels = |n: u32| Some(format!("ethtool -L {link} combined {n}"));
        match nic.driver.as_str() {
            "i40e" | "mlx5_core" if *now < online => vec![found(
                format!("{} sends for {now} of {online} CPUs with XDP", nic.driver),
                "what the other CPUs forward through it is lost: give it a channel for each, or keep interrupts of in-links on the first \
                 CPUs",
                if *most >= online { channels(online) } else { None },
            )],
            "ena" => {
                let many = (now.saturating_mul(2) > *most).then(|| {
                    found(
                        format!("ena uses {now} of {most} channels"),
                        "it takes XDP with half of them at most, as it needs as many again",
                        channels((most / 2).max(1)),
                    )
                });
                let long = (nic.mtu > ENA_MTU).then(|| {
                    found(
                        format!("ena has an MTU of {}", nic.mtu),
                        "it takes XDP with short packets only",
                        Some(format!("ip link set dev {link} mtu {ENA_MTU}")),
                    )
                });
                many.into_iter().chain(long).collect()
            }
            _ => Vec::new(),
        }
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(driver: &str, (now, most): (u32, u32), mtu: u32, cpus: u32) -> Vec<(String, String)> {
        let nic = Nic {
            link: "eth7".to_owned(),
            driver: driver.to_owned(),
            channels: Channels { now, most },
            mtu,
        };
        let findings = judge(&[nic], cpus);
        for finding in &findings {
            assert_eq!(finding.severity, Severity::Warning);
            assert_eq!(
                (finding.link.as_deref(), finding.role),
                (Some("eth7"), Role::Out)
            );
        }
        let told = findings.into_iter();
        told.map(|f| (f.what, f.fix.unwrap_or_default())).collect()
    }

    #[test]
    fn cpus_are_counted_by_the_last() {
        for (list, count) in [
            ("0-3\n", 4),
            ("0\n", 1),
            ("0-3,8\n", 9),
            ("0,2-5", 6),
            ("", 1),
        ] {
            assert_eq!(last_cpu(list), count, "{list}");
        }
    }

    #[test]
    fn software_is_not_asked() {
        let veth = Link {
            kind: Some("veth".to_owned()),
            ..Link::ethernet(2, "v0", [2; 6])
        };
        let outs = [(2, "v0".to_owned())].into();
        let (nics, cpus) = gather(&[veth], &outs);
        assert!(nics.is_empty() && cpus > 0);
        assert!(judge(&nics, cpus).is_empty());
    }

    #[test]
    fn drivers_that_lose_by_the_cpu() {
        for driver in ["i40e", "mlx5_core"] {
            let few = found(driver, (4, 64), 9000, 8);
            assert_eq!(few.len(), 1);
            assert!(few[0].0.contains("4 of 8 CPUs"), "{few:?}");
            assert_eq!(few[0].1, "ethtool -L eth7 combined 8");
            let capped = found(driver, (4, 4), 1500, 8);
            assert_eq!(capped[0].1, "");
            assert!(found(driver, (8, 64), 1500, 8).is_empty());
        }
        assert!(found("ixgbe", (1, 64), 9000, 8).is_empty());
    }

    #[test]
    fn ena_takes_half_and_short() {
        let both = found("ena", (8, 8), 9001, 8);
        assert_eq!(both[0].1, "ethtool -L eth7 combined 4");
        assert_eq!(both[1].1, "ip link set dev eth7 mtu 3498");
        assert!(found("ena", (4, 8), 3498, 8).is_empty());
    }
}

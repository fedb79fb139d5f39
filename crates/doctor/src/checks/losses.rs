//! What is lost of what XDP programs send to links, while a daemon runs.

use super::super::facts::{Daemon, Facts, Lost, Need};
use super::super::finding::{Found, Severity};
use super::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "redirects-lost",
        title: "packets that XDP programs sent to a link and that were lost there",
        source: "xdp_devmap_xmit, xdp_redirect_err, xdp_exception; ndo_xdp_xmit of each driver",
        needs: &[Need::Daemon],
        run: redirects,
    },
    Check {
        id: "xdp-aborted",
        title: "packets that an XDP program has failed on",
        source: "xdp_exception: XDP_ABORTED",
        needs: &[Need::Daemon],
        run: aborted,
    },
];

fn all(facts: &Facts) -> &[Lost] {
    match &facts.daemon {
        Daemon::Runs(punts) => &punts.lost,
        _ => &[],
    }
}

fn name(of: &Lost) -> &str {
    match &*of.link {
        "" => "links that have gone",
        link => link,
    }
}

/// One finding for each link.
///
/// 1. It is serious where a hundredth or more was lost of what was sent through the link, VLANs upon it included, since the daemon
///    started. What other XDP programs have sent there is not in the latter, but their losses are in the former.
/// 2. Less is a warning: short bursts may exceed any ring.
fn redirects(facts: &Facts) -> Vec<Found> {
    let lost = all(facts).iter().filter(|of| of.lost > 0);
    let found = lost.map(|of| {
        let severity = match of.lost.saturating_mul(100) >= of.sent {
            true => Severity::Serious,
            false => Severity::Warning,
        };
        let link = name(of);
        let found = Found::new(
            severity,
            format!(
                "{} packets that XDP programs sent to {link} were lost",
                of.lost
            ),
            "its driver did not take them; raddle's count as forwarded, and nobody else tells that they are lost",
        );
        let driver = of.driver.as_deref().unwrap_or("not known");
        let found = found.evidence([
            format!(
                "of {} packets that were sent through it; driver: {driver}",
                of.sent
            ),
            format!("why the last was lost: {}", of.why),
        ]);
        found.advice(advice(of.driver.as_deref(), link))
    });
    found.collect()
}

/// What is known of drivers, by how each takes what is redirected (`ndo_xdp_xmit`).
///
/// 1. veth (`veth_xdp_xmit`): a ring of 256 for each receive queue of the far end (`VETH_RING_SIZE`), which is the CPU's number modulo
///    the number of queues; nothing longer than the far end's MTU, nothing without XDP or GRO there.
/// 2. tun (`tun_xdp_xmit`): a ring of `txqueuelen` for each queue that a program reads.
/// 3. virtio_net (`virtnet_xdp_xmit`): a queue of its own for each CPU only where there are so many more than are in use; else those that
///    sockets send by are shared, with a lock. Nothing without an XDP program on the link (`ENXIO`).
/// 4. ena (`ena_xdp_xmit`): queues of their own, as many as there are channels, by the CPU's number modulo that; so channels may be half
///    of the most that there can be, and the MTU 3498 at most.
/// 5. i40e (`i40e_xdp_xmit`) and mlx5 (`mlx5e_xdp_xmit`): the channel with the CPU's number, and nothing from CPUs above (`ENXIO`).
/// 6. Of others, what holds for most.
fn advice(driver: Option<&str>, link: &str) -> String {
    match driver {
        Some("veth") => format!(
            "the far end of {link} takes 256 packets for each receive queue until its processor gets to them, and none that is longer \
             than its MTU: give it a receive queue for each CPU that sends to it (ethtool -L), the same MTU, and GRO or an XDP program"
        ),
        Some("tun") => format!(
            "the program that reads {link} does not keep up: a longer queue (ip link set dev {link} txqueuelen 10000) takes bursts, and \
             more queues (multi_queue) more traffic"
        ),
        Some("virtio_net") => format!(
            "where {link} has fewer than two queue pairs for each CPU, XDP shares those of sockets under a lock: give the virtual \
             machine more (queues=, and vectors= for them) and longer rings (tx_queue_size=); without an XDP program on it {link} \
             takes nothing"
        ),
        Some("ena") => format!(
            "ena has as many queues for XDP as channels: as many as there are CPUs, if half of the maximum allows that (ethtool -l {link}; \
             ethtool -L {link} combined N), the longest rings (ethtool -G {link} tx N), and an MTU of 3498 at most"
        ),
        Some(driver @ ("i40e" | "mlx5_core")) => format!(
            "{driver} takes nothing from CPUs whose number is not below that of its channels: as many channels as CPUs \
             (ethtool -L {link} combined N), or interrupts of the in-links on the first CPUs only; bursts want longer rings \
             (ethtool -G {link} tx N)"
        ),
        _ => format!(
            "as many channels as there are CPUs (ethtool -L {link} combined N) and longer rings (ethtool -G {link} tx N) help most \
             drivers; the driver's own counters (ethtool -S {link}) may tell more"
        ),
    }
}

/// One finding for each link.
fn aborted(facts: &Facts) -> Vec<Found> {
    let aborted = all(facts).iter().filter(|of| of.aborted > 0);
    let found = aborted.map(|of| {
        let link = name(of);
        let found = Found::new(
            Severity::Warning,
            format!("an XDP program has failed on {} packets that came in by {link}", of.aborted),
            "they are lost, and count nowhere",
        );
        let advice = "raddle's program never says so: look for another one on the link or below it (ip link show, bpftool net)";
        found.advice(advice)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::facts::Punts;
    use super::super::made_up::*;
    use super::*;

    fn seen(lost: &[Lost]) -> Facts {
        let punts = Punts {
            lost: lost.to_vec(),
            ..Punts::default()
        };
        Facts {
            daemon: Daemon::Runs(punts),
            ..healthy()
        }
    }

    fn of(driver: Option<&str>, sent: u64, lost: u64) -> Lost {
        Lost {
            link: "eth7".to_owned(),
            driver: driver.map(str::to_owned),
            sent,
            lost,
            why: "No such device or address".to_owned(),
            ..Lost::default()
        }
    }

    #[test]
    fn losses_are_told_with_what_to_do() {
        assert_clean("redirects-lost", &seen(&[]));
        assert_clean("redirects-lost", &seen(&[of(None, 7, 0)]));
        let few = seen(&[of(Some("i40e"), 10_000, 99)]);
        let said = [
            "99 packets that XDP programs sent to eth7",
            "of 10000",
            "i40e",
            "ethtool -L eth7 combined N",
        ];
        assert_found("redirects-lost", &few, Severity::Warning, &said);
        let many = seen(&[of(None, 10_000, 100)]);
        let said = ["driver: not known", "No such device", "ethtool -S eth7"];
        assert_found("redirects-lost", &many, Severity::Serious, &said);
        // Sent by another program.
        let foreign = seen(&[of(Some("veth"), 0, 1)]);
        assert_found(
            "redirects-lost",
            &foreign,
            Severity::Serious,
            &["256 packets"],
        );
    }

    #[test]
    fn each_known_driver_has_advice_of_its_own() {
        let known = ["veth", "tun", "virtio_net", "ena", "i40e", "mlx5_core"];
        let mut all: Vec<String> = known.map(|driver| advice(Some(driver), "x")).to_vec();
        all.push(advice(Some("another"), "x"));
        assert_eq!(advice(None, "x"), all[known.len()]);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), known.len() + 1);
    }

    #[test]
    fn programs_that_fail_are_told() {
        assert_clean("xdp-aborted", &seen(&[of(None, 1, 1)]));
        let failed = Lost {
            link: String::new(),
            aborted: 5,
            ..Lost::default()
        };
        let said = ["5 packets that came in by links that have gone"];
        assert_found(
            "xdp-aborted",
            &seen(std::slice::from_ref(&failed)),
            Severity::Warning,
            &said,
        );
        assert_clean("redirects-lost", &seen(&[failed]));
    }
}

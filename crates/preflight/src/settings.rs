//! Settings that send traffic to the kernel, or make the kernel's own choice of path differ from
//! the one that the packet's fields give.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use raddle_netlink::probe::ethtool::{self, Flags};
use raddle_netlink::probe::{Error, bpf};
use raddle_rib::event::Link;
use raddle_select::Steering;

use super::{Finding, Options, Role, Scene, Severity};
use crate::seed;

/// Links by index.
type Links = BTreeMap<u32, String>;

/// How packets are received.
#[derive(Clone, Debug, Default)]
pub(super) struct Receive {
    /// Offloads by link; links that have gone are missing.
    pub(super) flags: BTreeMap<u32, Flags>,
    /// Links with receive packet steering.
    pub(super) rps: Vec<u32>,
    /// The namespace's flow dissector in BPF.
    pub(super) dissector: Option<u32>,
    /// Links without a kind: hardware.
    pub(super) physical: Vec<u32>,
}

impl Receive {
    /// Of these links it has been told already what is done with tags.
    pub(super) fn tags_told(&mut self, links: impl Iterator<Item = u32>) {
        for link in links {
            if let Some(flags) = self.flags.get_mut(&link) {
                flags.rx_vlan = false;
            }
        }
    }
}

/// Asks the kernel.
pub(super) fn gather(links: &[Link], ins: &Links) -> Result<Receive, Error> {
    let mut receive = Receive {
        dissector: bpf::flow_dissector()?,
        ..Receive::default()
    };
    for link in links.iter().filter(|l| ins.contains_key(&l.index)) {
        match ethtool::flags(&link.name) {
            Ok(flags) => _ = receive.flags.insert(link.index, flags),
            Err(e) if e.errno() == Some(libc::ENODEV) => continue,
            Err(e) => return Err(e),
        }
        if is_steered(steering(Path::new("/sys/class/net"), link)) {
            receive.rps.push(link.index);
        }
        if link.kind.is_none() {
            receive.physical.push(link.index);
        }
    }
    Ok(receive)
}

fn is_steered(steering: Option<Steering>) -> bool {
    matches!(steering, Some(Steering::On | Steering::Partly))
}

/// Whether packets of a link are steered by their hash. None when it cannot be seen: /sys shows the
/// network namespace that it was mounted in, which index and address tell.
pub fn steering(sys: &Path, link: &Link) -> Option<Steering> {
    let folder = folder_of(sys, link)?;
    let (mut queues, mut steered, mut flows) = (0, 0, false);
    for queue in std::fs::read_dir(folder.join("queues")).ok()?.flatten() {
        let is_on = |file: &str| {
            let text = std::fs::read_to_string(queue.path().join(file)).ok()?;
            Some(text.trim().bytes().any(|b| !matches!(b, b'0' | b',')))
        };
        // Transmit queues have none.
        if let Some(on) = is_on("rps_cpus") {
            queues += 1;
            steered += u32::from(on);
            flows |= is_on("rps_flow_cnt") == Some(true);
        }
    }
    Some(match (steered, queues) {
        // Flow tables count as soon as any link of the machine steers, or `rps_sock_flow_entries` is set, which other
        // network namespaces than the first do not see (`rps_needed`).
        (0, _) if !flows => Steering::Off,
        (steered, queues) if steered == queues && steered > 0 => Steering::On,
        _ => Steering::Partly,
    })
}

/// The folder of a link in /sys/class/net; none where that is another network namespace's.
pub(super) fn folder_of(sys: &Path, link: &Link) -> Option<PathBuf> {
    let folder = sys.join(&link.name);
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    if read("ifindex")?.trim().parse() != Ok(link.index) {
        return None;
    }
    if let Some(mac) = link.mac {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        if read("address").is_some_and(|address| address.trim() != mac) {
            return None;
        }
    }
    Some(folder)
}

/// Decides what to warn of, for the links forwarded from, and `wires`, those by which their packets are received: themselves, or
/// what is beneath them.
///
/// 1. No hash seed is set, and the kernel's own key could not be read: multipath is the kernel's. A seed is advised
///    where the kernel has one that can be set.
/// 2. Forwarding off on all links, or on one.
/// 3. With policy 1, packet steering, or a hash from the NIC that the program does not read: the
///    kernel then hashes by `skb->hash`, so what it forwards itself may take another path. Likewise a flow dissector in
///    BPF, with policies 1 and up.
/// 4. LRO: merged packets are too long to forward.
/// 5. VLAN tags taken out by a NIC without VLANs ([`super::tags`]): XDP takes such frames for untagged ones.
/// 6. Forwarding by learnt path MTUs: only the kernel knows them.
pub(super) fn judge(
    scene: &Scene,
    options: &Options,
    (ins, wires): (&Links, &Links),
    receive: &Receive,
) -> Vec<Finding> {
    let mut findings = namespace(scene, options, receive.dissector);
    findings.extend(forwarding(scene, ins));
    for (index, name) in wires {
        let mut warn = |what: &str, why: &str, fix: String| {
            let finding = Finding::new(Severity::Warning, what, why);
            findings.push(finding.on(name, Role::In).fix(fix));
        };
        let flags = receive.flags.get(index).copied().unwrap_or_default();
        if scene.settings.hash_policy4 == 1 || scene.settings.hash_policy6 == 1 {
            let why = "with hash policy 1 the kernel then chooses by skb->hash, so that packets \
                       that it forwards itself may take another path";
            if receive.rps.contains(index) {
                let fix = format!(
                    "for f in /sys/class/net/{name}/queues/rx-*/rps_*; do echo 0 > $f; done"
                );
                warn("receive packet steering (RPS) is on", why, fix);
            }
            if flags.rx_hash && !options.reads_hash.contains(index) {
                warn(
                    "the NIC's receive hash is on",
                    why,
                    format!("ethtool -K {name} rxhash off"),
                );
            }
        }
        if flags.lro {
            let why = "merged packets are longer than the MTU and go to the kernel, or are lost";
            warn("LRO is on", why, format!("ethtool -K {name} lro off"));
        }
        if flags.rx_vlan && receive.physical.contains(index) {
            let why = "where the driver goes on with it under XDP, frames of a VLAN that has no \
                       device here look untagged, and are forwarded where the kernel drops them";
            let fix = format!("ethtool -K {name} rxvlan off");
            warn("the NIC takes VLAN tags out of frames", why, fix);
        }
    }
    findings
}

/// Rules 1 and 6, and the dissector of 3.
fn namespace(scene: &Scene, options: &Options, dissector: Option<u32>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let settings = &scene.settings;
    if let Some(why) = &options.no_key
        && settings.hash_seed == 0
        && !options.sets_seed
    {
        let what = "the kernel's own multipath hash key is not known";
        let why = format!("{why}. Packets with several paths go to the kernel");
        findings.push(match options.can_set_seed {
            true => Finding::new(
                Severity::Warning,
                what,
                format!("{why}; setting a seed moves flows once"),
            )
            .fix("raddle run --seed random (or sysctl -w net.ipv4.fib_multipath_hash_seed=N)"),
            false => Finding::new(
                Severity::Warning,
                what,
                format!("{why}, and this kernel {}", seed::CANNOT_BE_SET),
            ),
        });
    }
    let mut warn = |what: String, why: &str, fix: &str| {
        findings.push(Finding::new(Severity::Warning, what, why).fix(fix));
    };
    if settings.forward_use_pmtu {
        let at_least = settings.min_pmtu.max(68);
        warn(
            "net.ipv4.ip_forward_use_pmtu is on".into(),
            &format!(
                "the path MTUs that the kernel has learnt cannot be known, so packets longer than the \
                 least that it learns, {at_least} bytes, go to the kernel"
            ),
            "sysctl -w net.ipv4.ip_forward_use_pmtu=0",
        );
    }
    if let Some(id) = dissector
        && settings.hash_policy4.max(settings.hash_policy6) > 0
    {
        findings.push(Finding::new(
            Severity::Warning,
            format!("a BPF flow dissector is attached (program {id})"),
            "the kernel hashes by the fields that it finds, so that its paths may differ from \
             raddle's",
        ));
    }
    findings
}

/// Rule 2: one warning for a family that is off everywhere, one for each link that forwards
/// neither.
fn forwarding(scene: &Scene, ins: &Links) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (any4, any6) = ins
        .keys()
        .map(|i| scene.governing(*i))
        .fold((false, false), |(a, b), d| {
            (a || d.forwarding4, b || d.forwarding6)
        });
    for (on, family, fix) in [
        (any4, "IPv4", "sysctl -w net.ipv4.ip_forward=1"),
        (any6, "IPv6", "sysctl -w net.ipv6.conf.all.forwarding=1"),
    ] {
        if !on {
            let what = format!("{family} forwarding is off");
            let why = format!("no {family} packet is forwarded");
            findings.push(Finding::new(Severity::Warning, what, why).fix(fix));
        }
    }
    for (index, name) in ins {
        let device = scene.governing(*index);
        if (any4 || any6) && !device.forwarding4 && !device.forwarding6 {
            let what = "forwarding is off on it";
            let fix = format!(
                "sysctl -w net.ipv4.conf.{name}.forwarding=1 net.ipv6.conf.{name}.forwarding=1"
            );
            let finding = Finding::new(Severity::Warning, what, "nothing is forwarded from it");
            findings.push(finding.on(name, Role::In).fix(fix));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::{DeviceSettings, Settings};

    const GOOD: Settings = Settings {
        hash_policy4: 1,
        hash_policy6: 1,
        hash_fields4: 7,
        hash_fields6: 7,
        hash_seed: 9,
        use_neigh: false,
        forward_use_pmtu: false,
        min_pmtu: 552,
        seg6_flowlabel: 0,
        tunsrc: None,
        local_ports: (0, 0),
        default_ttl: 0,
    };

    fn options() -> Options {
        Options {
            can_set_seed: true,
            no_key: Some("CAP_BPF is missing".into()),
            ..Options::default()
        }
    }

    fn judged(settings: Settings, device: DeviceSettings, receive: &Receive) -> Vec<String> {
        let scene = Scene {
            settings,
            devices: [(2, device)].into(),
            ..Scene::default()
        };
        let ins = [(2, "eth0".to_owned())].into();
        let findings = judge(&scene, &options(), (&ins, &ins), receive);
        assert!(findings.iter().all(|f| f.severity == Severity::Warning));
        findings.into_iter().map(|f| f.what).collect()
    }

    fn forwards() -> DeviceSettings {
        DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        }
    }

    #[test]
    fn a_well_set_namespace_has_no_warnings() {
        assert!(judged(GOOD, forwards(), &Receive::default()).is_empty());
    }

    #[test]
    fn nothing_is_advised_that_the_kernel_cannot_do() {
        let scene = Scene {
            settings: Settings {
                hash_seed: 0,
                ..GOOD
            },
            devices: [(2, forwards())].into(),
            ..Scene::default()
        };
        let ins: Links = [(2, "eth0".to_owned())].into();
        let said = |can_set_seed, sets_seed| {
            let options = Options {
                can_set_seed,
                sets_seed,
                ..options()
            };
            let found = judge(&scene, &options, (&ins, &ins), &Receive::default());
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let old = said(false, false);
        assert!(old.len() == 1 && old[0].contains("Linux 6.11"), "{old:?}");
        assert!(
            !old[0].contains("--seed") && !old[0].contains("sysctl -w"),
            "{old:?}"
        );
        let new = said(true, false);
        assert!(
            new.len() == 1 && new[0].contains("--seed random"),
            "{new:?}"
        );
        assert!(said(true, true).is_empty());
        let known = Options {
            no_key: None,
            ..options()
        };
        assert!(judge(&scene, &known, (&ins, &ins), &Receive::default()).is_empty());
    }

    #[test]
    fn each_setting_has_its_warning() {
        let none = Receive::default();
        for (settings, expected) in [
            (
                Settings {
                    hash_seed: 0,
                    ..GOOD
                },
                "own multipath hash key is not known",
            ),
            (
                Settings {
                    forward_use_pmtu: true,
                    ..GOOD
                },
                "ip_forward_use_pmtu is on",
            ),
        ] {
            let found = judged(settings, forwards(), &none);
            assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        }
        let off4 = DeviceSettings {
            forwarding4: false,
            ..forwards()
        };
        assert_eq!(judged(GOOD, off4, &none), ["IPv4 forwarding is off"]);
    }

    #[test]
    fn steering_and_nic_hashes_matter_with_policy_1_only() {
        let receive = Receive {
            flags: [(
                2,
                Flags {
                    rx_vlan: false,
                    lro: false,
                    rx_hash: true,
                },
            )]
            .into(),
            rps: vec![2],
            dissector: Some(5),
            physical: vec![2],
        };
        assert_eq!(judged(GOOD, forwards(), &receive).len(), 3);
        let l3 = Settings {
            hash_policy4: 0,
            hash_policy6: 0,
            ..GOOD
        };
        assert!(judged(l3, forwards(), &receive).is_empty());
    }

    #[test]
    fn vlan_offload_is_a_matter_of_hardware() {
        let flags = Flags {
            rx_vlan: true,
            lro: true,
            rx_hash: false,
        };
        let mut receive = Receive {
            flags: [(2, flags)].into(),
            ..Receive::default()
        };
        assert_eq!(judged(GOOD, forwards(), &receive), ["LRO is on"]);
        receive.physical.push(2);
        assert_eq!(judged(GOOD, forwards(), &receive).len(), 2);
    }

    #[test]
    fn steering_is_read_from_the_right_namespace_only() {
        let sys = tempfile::tempdir().unwrap();
        let queue = sys.path().join("eth0/queues/rx-0");
        std::fs::create_dir_all(&queue).unwrap();
        std::fs::write(sys.path().join("eth0/ifindex"), "2\n").unwrap();
        let link = |index| Link {
            index,
            name: "eth0".into(),
            ..Link::default()
        };
        for (mask, on) in [
            ("00000000,00000000\n", Steering::Off),
            ("00000000,00000002\n", Steering::On),
        ] {
            std::fs::write(queue.join("rps_cpus"), mask).unwrap();
            assert_eq!(steering(sys.path(), &link(2)), Some(on));
        }
        let other = sys.path().join("eth0/queues/rx-1");
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("rps_cpus"), "0\n").unwrap();
        assert_eq!(steering(sys.path(), &link(2)), Some(Steering::Partly));
        assert_eq!(steering(sys.path(), &link(3)), None);
        let elsewhere = Link {
            mac: Some([2, 0, 0, 0, 0, 1]),
            ..link(2)
        };
        std::fs::write(sys.path().join("eth0/address"), "02:00:00:00:00:02\n").unwrap();
        assert_eq!(steering(sys.path(), &elsewhere), None);
    }
}

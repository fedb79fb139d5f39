//! The whole of it, in network namespaces of its own.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeMap;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use raddle_netlink::probe::ethtool::{self, Offload};
use raddle_netlink::probe::namespace::{Namespace, Place, links};
use raddle_preflight::{
    Beneath, Fix, Known, Options, Role, Scene, Severity, Way, bypass, inspect, shaped,
};
use raddle_rib::event::{DeviceSettings, Link, Settings, Vlan};

fn options() -> Options {
    Options {
        can_set_seed: true,
        ..Options::default()
    }
}

/// Runs `job` on a thread in a fresh network namespace that forwards between `va` and `vc`, whose
/// peers `vb` and `vd` are in a named namespace of their own.
fn router(name: &str, job: impl FnOnce(&str) + Send) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: {name} needs root (it makes network namespaces)");
        return;
    }
    let far = format!("raddle-preflight-{}-{name}", std::process::id());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            run(&format!("ip netns add {far}"));
            let _guard = Deleted(far.clone());
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            for (near, peer) in [("va", "vb"), ("vc", "vd")] {
                run(&format!(
                    "ip link add {near} type veth peer name {peer} netns {far}"
                ));
                run(&format!("ip link set {near} up"));
            }
            job(&far);
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

struct Deleted(String);

impl Drop for Deleted {
    fn drop(&mut self) {
        try_run(&format!("ip netns del {}", self.0));
    }
}

fn try_run(command: &str) -> bool {
    Command::new("sh")
        .args(["-c", command])
        .status()
        .is_ok_and(|s| s.success())
}

fn run(command: &str) {
    assert!(try_run(command), "{command}");
}

/// The scene as the daemon would have it, with everything set well.
fn scene() -> Scene {
    let links = links().unwrap();
    let settings = Settings {
        hash_seed: 1,
        ..Settings::default()
    };
    let forwards = DeviceSettings {
        forwarding4: true,
        forwarding6: true,
        ..DeviceSettings::default()
    };
    let devices = links.iter().map(|l| (l.index, forwards)).collect();
    Scene {
        links,
        devices,
        settings,
        ..Scene::default()
    }
}

fn index(name: &str) -> u32 {
    links()
        .unwrap()
        .iter()
        .find(|l| l.name == name)
        .unwrap()
        .index
}

#[test]
fn pairs_that_lose_packets_are_rejected_or_fixed() {
    router("fix", |far| {
        let scene = scene();
        let report = inspect(&scene, &options()).unwrap();
        assert_eq!(report.refusals().count(), 0, "{report:?}");
        for (role, word) in [(Role::In, "tx off"), (Role::Out, "gro on")] {
            let rejected = report.rejected(role);
            for (link, peer) in [("va", "vb"), ("vc", "vd")] {
                let command = format!("ip netns exec {far} ethtool -K {peer} {word}");
                assert!(rejected[link].contains(&command), "{rejected:?}");
            }
        }
        let would = Options {
            fix: Fix::Would,
            ..options()
        };
        let report = inspect(&scene, &would).unwrap();
        assert_eq!(
            report
                .warnings()
                .filter(|f| f.fix.is_some() && !f.fixed)
                .count(),
            4
        );
        assert!(!report.rejected(Role::Both).contains_key("va"));

        let fix = Options {
            fix: Fix::Do,
            ..options()
        };
        let report = inspect(&scene, &fix).unwrap();
        assert_eq!(
            report.warnings().filter(|f| f.fixed).count(),
            4,
            "{report:?}"
        );
        for peer in ["vb", "vd"] {
            let show = format!("ip netns exec {far} ethtool -k {peer}");
            run(&format!("{show} | grep -q '^generic-receive-offload: on'"));
            run(&format!("{show} | grep -q '^tx-checksumming: off'"));
        }
        // Nothing is left to say, whether fixing is allowed or not.
        let report = inspect(&scene, &options()).unwrap();
        assert_eq!(
            report
                .findings
                .iter()
                .filter(|f| f.link.as_deref() != Some("lo"))
                .count(),
            0
        );
    });
}

#[test]
fn pairs_are_no_trouble_in_generic_mode_and_within_one_namespace() {
    router("generic", |_| {
        let generic = Options {
            generic: true,
            ..options()
        };
        assert_eq!(inspect(&scene(), &generic).unwrap().findings.len(), 1, "lo");
        // Both ends are ours and will have our program: redirects arrive, checksums do not.
        run("ip link add ve type veth peer name vf");
        let own = Options {
            links: vec!["ve".into(), "vf".into()],
            ..options()
        };
        let rejected = inspect(&scene(), &own).unwrap();
        assert!(rejected.rejected(Role::In)["ve"].contains("ethtool -K vf tx off"));
        run("ethtool -K ve tx off >/dev/null");
        run("ethtool -K vf tx off >/dev/null");
        let rejected = inspect(&scene(), &own).unwrap().rejected(Role::Out);
        assert!(
            !rejected.contains_key("ve") && rejected.contains_key("va"),
            "{rejected:?}"
        );
    });
}

#[test]
fn what_would_be_bypassed_is_refused_while_it_is_there() {
    router("bypass", |_| {
        let ins: BTreeMap<_, _> = [(index("va"), "va".to_owned())].into();
        let outs: BTreeMap<_, _> = [(index("vc"), "vc".to_owned())].into();
        let mut known = Known::default();
        let mut look = || {
            bypass(
                Way::of(&ins, &Beneath::new()),
                Way::of(&outs, &Beneath::new()),
                &mut known,
            )
            .unwrap()
        };
        assert_eq!(look(), []);
        for (name, set, unset, words) in [
            (
                "nftables",
                "nft 'add table inet t; add chain inet t f { type filter hook forward priority 0; }; \
                 add rule inet t f ct state invalid counter drop'",
                "nft delete table inet t",
                "nftables chain inet t f (hook forward) has 1 rule(s), the first is handle",
            ),
            (
                "legacy iptables",
                "iptables-legacy -t nat -A POSTROUTING -o vc -j MASQUERADE",
                "iptables-legacy -t nat -F",
                "iptables-legacy table nat chain POSTROUTING has rules, the first is: -o vc -j MASQ",
            ),
            (
                "tracking for input",
                "nft 'add table inet u; add chain inet u i { type filter hook input priority 0; }; \
                 add rule inet u i ct state established accept'",
                "nft delete table inet u",
                "nftables rule inet u i handle 2 (ct) turns on connection tracking for IPv4 and IPv6",
            ),
            (
                "iptables over nftables",
                "iptables-nft -P FORWARD DROP",
                "iptables-nft -P FORWARD ACCEPT",
                "nftables chain ip filter FORWARD (hook forward) has policy drop",
            ),
            (
                "tc",
                "tc qdisc add dev va clsact && tc filter add dev va ingress pref 3 protocol ip u32 \
                 match u32 0 0 flowid 1:1",
                "tc filter del dev va ingress",
                "link va: tc filter u32 pref 3 on ingress",
            ),
            (
                "xfrm",
                "ip xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir fwd",
                "ip xfrm policy flush",
                "xfrm policy src 10.1.0.0/16 dst 10.2.0.0/16 dir fwd",
            ),
        ] {
            if !try_run(set) {
                eprintln!("skipped: this kernel has no {name}");
                continue;
            }
            let found = look();
            assert!(found.iter().all(|f| f.severity == Severity::Refuse));
            assert!(
                found.iter().any(|f| f.to_string().contains(words)),
                "{name}: {found:?}"
            );
            let allowed = Options {
                allow_bypass: true,
                generic: true,
                ..options()
            };
            let report = inspect(&scene(), &allowed).unwrap();
            assert_eq!(report.refusals().count(), 0);
            assert!(report.warnings().any(|f| f.to_string().contains(words)));
            run(unset);
            assert_eq!(look(), [], "{name}");
        }
    });
}

#[test]
fn shaped_and_stacked_links_are_rejected_in_their_role() {
    router("links", |far| {
        run("tc qdisc add dev vc root tbf rate 1gbit burst 100k latency 10ms");
        run("ip link add br0 type bridge");
        run("ip link add ve type veth peer name vf");
        run("ip link set ve master br0");
        // One takes only what is to it, the other everything.
        let macvlan = try_run(&format!(
            "ip link add link va name mv netns {far} type macvlan mode passthru && \
             ip link add link vc name mw netns {far} type macvlan mode bridge"
        ));
        let generic = Options {
            generic: true,
            ..options()
        };
        let report = inspect(&scene(), &generic).unwrap();
        let out = report.rejected(Role::Out);
        assert!(out["vc"].contains("qdisc tbf") && out["vc"].contains("--allow-qdisc vc"));
        assert!(!report.rejected(Role::In).contains_key("vc"), "{report:?}");
        assert!(
            !out.contains_key("ve") && !out.contains_key("br0"),
            "{out:?}"
        );
        if macvlan {
            let why = &report.rejected(Role::In)["va"];
            assert!(
                why.contains(&format!("mv in namespace {far} is stacked upon it")),
                "{why}"
            );
        } else {
            eprintln!("skipped: this kernel has no macvlan");
        }
        assert!(!out.contains_key("va"));
        let outs: BTreeMap<_, _> = [(index("vc"), "vc".to_owned())].into();
        assert_eq!(shaped(&outs, &[]).unwrap().len(), 1);
        assert_eq!(shaped(&outs, &["vc".into()]).unwrap(), []);
    });
}

#[test]
fn without_privilege_there_is_an_error_and_no_report() {
    router("unprivileged", |_| {
        let scene = scene();
        become_user(65534);
        let generic = Options {
            generic: true,
            ..options()
        };
        let report = inspect(&scene, &generic);
        become_user(0); // so that the namespace can be deleted
        let error = report.unwrap_err().to_string();
        assert!(error.contains("CAP_NET_ADMIN"), "{error}");
    });
}

/// Changes the effective user of this thread alone, which the raw system call does.
fn become_user(user: u32) {
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, -1i32, user, -1i32) };
    assert_eq!(result, 0);
}

#[test]
fn tags_are_put_into_frames_at_the_far_end() {
    router("tags", |far| {
        let mut scene = scene();
        // This kernel may have no VLANs.
        let vlan = Link {
            kind: Some("vlan".into()),
            vlan: Some(Vlan {
                protocol: 0x8100,
                id: 5,
                egress_qos: false,
            }),
            lower: Some(index("va")),
            ..Link::ethernet(9_999, "va.5", [2; 6])
        };
        let forwards = scene.devices[&index("va")];
        scene.devices.insert(vlan.index, forwards);
        scene.links.push(vlan);
        let far_end = || {
            let all = Namespace::all().unwrap();
            all.into_iter()
                .find(|it| it.place == Place::Named(far.to_owned()))
                .unwrap()
        };
        let on = |offload| far_end().run(|| ethtool::is_on("vb", offload)).unwrap();
        let (tag, service) = (Offload::TxVlan, Offload::TxServiceVlan);
        assert!(on(tag) && on(service));
        let report = inspect(&scene, &options()).unwrap();
        let rejected = report.rejected(Role::In);
        let command =
            format!("ip netns exec {far} ethtool -K vb txvlan off tx-vlan-stag-hw-insert off");
        for link in ["va", "va.5"] {
            let why = format!("its veth peer vb in namespace {far} leaves VLAN tags out of frames");
            assert!(rejected[link].contains(&why), "{rejected:?}");
            assert!(rejected[link].contains(&command), "{rejected:?}");
        }
        assert!(rejected["va.5"].starts_with("its lower link va: "));
        assert!(!rejected["vc"].contains("VLAN"), "{rejected:?}");
        let fix = Options {
            fix: Fix::Do,
            ..options()
        };
        let report = inspect(&scene, &fix).unwrap();
        assert!(report.rejected(Role::In).contains_key("lo"));
        assert!(
            !report.rejected(Role::In).contains_key("va.5"),
            "{report:?}"
        );
        assert!(
            !report.rejected(Role::Out).contains_key("va.5"),
            "{report:?}"
        );
        let fixed = |finding: &&raddle_preflight::Finding| finding.fix.as_ref() == Some(&command);
        assert!(
            report.warnings().any(|it| it.fixed && fixed(&it)),
            "{report:?}"
        );
        assert!(!on(tag) && !on(service));
        let again = inspect(&scene, &fix).unwrap();
        assert_eq!(again.warnings().filter(|it| fixed(it)).count(), 0);
        // By itself: the lower link is looked at all the same.
        far_end().run(|| ethtool::set("vb", tag, true)).unwrap();
        far_end()
            .run(|| ethtool::set("vb", Offload::TxChecksum, true))
            .unwrap();
        let alone = Options {
            links: vec!["va.5".into()],
            ..options()
        };
        let rejected = inspect(&scene, &alone).unwrap().rejected(Role::In);
        assert!(rejected["va.5"].ends_with("vb txvlan off"), "{rejected:?}");
        far_end().run(|| ethtool::set("vb", tag, false)).unwrap();
        let rejected = inspect(&scene, &alone).unwrap().rejected(Role::In);
        assert!(
            rejected["va.5"].contains("leaves checksums"),
            "{rejected:?}"
        );
    });
}

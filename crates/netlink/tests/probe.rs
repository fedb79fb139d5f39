//! The probes against a real kernel, each in a network namespace of its own, and their decoders
//! against anything at all.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;
use proptest::prelude::*;
use raddle_netlink::probe::namespace::{Namespace, Place, links};
use raddle_netlink::probe::tc::Direction;
use raddle_netlink::probe::{self, bpf, conntrack, ethtool, iptables, ipvs, nft, tc, xfrm};

/// Runs `job` on a thread in a fresh network namespace; says so when it cannot.
fn alone(name: &str, job: impl FnOnce() + Send) {
    if !geteuid().is_root() {
        eprintln!("skipped: {name} needs root (it makes a network namespace)");
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            job();
        });
        thread.join().unwrap();
    });
}

/// Runs a command in this thread's namespace; false, with its words, when it fails.
fn try_run(command: &str) -> bool {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    if !output.status.success() {
        eprintln!(
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    output.status.success()
}

fn run(command: &str) {
    assert!(try_run(command), "{command}");
}

fn index(name: &str) -> u32 {
    links()
        .unwrap()
        .into_iter()
        .find(|l| l.name == name)
        .unwrap()
        .index
}

#[test]
fn an_empty_namespace_has_nothing() {
    alone("an_empty_namespace_has_nothing", || {
        assert_eq!(nft::base_chains().unwrap(), []);
        assert_eq!(iptables::chains().unwrap(), []);
        assert_eq!(xfrm::policies().unwrap(), []);
        assert_eq!(xfrm::defaults().unwrap(), xfrm::Defaults::default());
        assert_eq!(ipvs::count().unwrap(), 0);
        assert_eq!(bpf::flow_dissector().unwrap(), None);
        assert_eq!(bpf::tcx(1, Direction::Ingress).unwrap(), []);
    });
}

#[test]
fn nftables_chains_and_rules_are_seen() {
    alone("nftables_chains_and_rules_are_seen", || {
        if !try_run("nft list tables") {
            eprintln!("skipped: this kernel has no nf_tables");
            return;
        }
        run("ip link add va type veth peer name vb");
        run("nft 'add table inet f
             add chain inet f empty { type filter hook forward priority 5; }
             add chain inet f closed { type filter hook forward priority 0; policy drop; }
             add chain inet f full { type filter hook postrouting priority -7; }
             add chain inet f helper
             add rule inet f full ct state established counter accept comment \"let it through\"
             add rule inet f full counter jump helper
             add rule inet f helper counter
             add table netdev n
             add chain netdev n in { type filter hook ingress devices = { va, vb } priority 0; }
             add chain netdev n out { type filter hook egress device va priority 0; }
             add rule netdev n out counter drop
             add table ip asleep { flags dormant; }
             add chain ip asleep c { type filter hook forward priority 0; policy drop; }'");
        let chains = nft::base_chains().unwrap();
        let seen: Vec<_> = chains
            .iter()
            .map(|c| (c.name.as_str(), c.hook, c.priority, c.policy_drop, c.rules))
            .collect();
        assert_eq!(
            seen,
            [
                ("empty", nft::Hook::Forward, 5, false, 0),
                ("closed", nft::Hook::Forward, 0, true, 0),
                ("full", nft::Hook::Postrouting, -7, false, 2),
                ("in", nft::Hook::Ingress, 0, false, 0),
                ("out", nft::Hook::Egress, 0, false, 1),
            ]
        );
        assert!(chains[3].is_on("va") && chains[3].is_on("vb") && !chains[3].is_on("v"));
        assert_eq!(chains[4].devices, ["va"]);
        let rule = nft::first_rule(&chains[2]).unwrap().unwrap();
        assert_eq!(rule.comment.as_deref(), Some("let it through"));
        assert!(rule.handle > 0);
        assert_eq!(rule.expressions.first().map(String::as_str), Some("ct"));
        assert_eq!(rule.expressions.last().map(String::as_str), Some("accept"));
        assert_eq!(nft::first_rule(&chains[0]).unwrap(), None);
        run("nft delete table inet f");
        assert_eq!(nft::base_chains().unwrap().len(), 2);
    });
}

#[test]
fn iptables_over_nftables_is_seen_as_nftables() {
    alone("iptables_over_nftables_is_seen_as_nftables", || {
        if !try_run("iptables-nft -A FORWARD -m conntrack --ctstate INVALID -j DROP") {
            eprintln!("skipped: iptables-nft does not work here");
            return;
        }
        let chains = nft::base_chains().unwrap();
        let forward = chains.iter().find(|c| c.name == "FORWARD").unwrap();
        assert_eq!((forward.family, forward.rules), (nft::Family::Ip, 1));
        let rule = nft::first_rule(forward).unwrap().unwrap();
        assert_eq!(
            rule.expressions.last().map(String::as_str),
            Some("drop"),
            "{rule:?}"
        );
    });
}

#[test]
fn legacy_iptables_chains_are_seen() {
    alone("legacy_iptables_chains_are_seen", || {
        if !try_run("iptables-legacy -t filter -S") {
            eprintln!("skipped: this kernel has no legacy iptables");
            return;
        }
        let idle = iptables::chains().unwrap();
        assert!(!idle.is_empty(), "listing a table creates it");
        assert!(
            idle.iter().all(|c| !c.has_rules && !c.policy_drop),
            "{idle:?}"
        );
        run("iptables-legacy -A FORWARD -s 10.1.0.0/16 ! -i eth+ -p tcp -m tcp --dport 22 -j DROP");
        run("iptables-legacy -A FORWARD -j ACCEPT");
        run("iptables-legacy -t nat -A POSTROUTING -o eth0 -j MASQUERADE");
        run("ip6tables-legacy -P FORWARD DROP");
        run("ip6tables-legacy -t mangle -A PREROUTING -d 2001:db8::/32 -j MARK --set-mark 1");
        let chains = iptables::chains().unwrap();
        let busy: Vec<_> = chains
            .iter()
            .filter(|c| c.has_rules || c.policy_drop)
            .map(|c| {
                (
                    c.family,
                    c.table.as_str(),
                    c.hook,
                    c.policy_drop,
                    c.first.as_deref(),
                )
            })
            .collect();
        use iptables::Family::{Ipv4, Ipv6};
        for expected in [
            (
                Ipv4,
                "filter",
                "FORWARD",
                false,
                Some("-s 10.1.0.0/16 ! -i eth+ -p tcp -m tcp -j DROP"),
            ),
            (
                Ipv4,
                "nat",
                "POSTROUTING",
                false,
                Some("-o eth0 -j MASQUERADE"),
            ),
            (Ipv6, "filter", "FORWARD", true, None),
            (
                Ipv6,
                "mangle",
                "PREROUTING",
                false,
                Some("-d 2001:db8::/32 -j MARK"),
            ),
        ] {
            assert!(busy.contains(&expected), "{expected:?} in {busy:?}");
        }
        assert_eq!(busy.len(), 4);
    });
}

#[test]
fn whoever_turns_on_tracking_is_seen() {
    use conntrack::Does::{Reassembles, Tracks};
    let seen = |trackers: Vec<conntrack::Tracker>| {
        let mut seen: Vec<_> = trackers
            .into_iter()
            .map(|t| (t.families, t.does, t.who))
            .collect();
        seen.sort();
        seen
    };
    alone("whoever_turns_on_tracking_is_seen", || {
        if !try_run("nft list tables") {
            eprintln!("skipped: this kernel has no nf_tables");
            return;
        }
        assert_eq!(seen(conntrack::of_nftables().unwrap()), []);
        let idle = nft::generation().unwrap();
        run("nft 'add table inet f
             add chain inet f input { type filter hook input priority 0; }
             add chain inet f unused
             add rule inet f input tcp dport 22 accept
             add rule inet f input ip saddr 10.0.0.1 limit rate 1/second drop'");
        assert_eq!(seen(conntrack::of_nftables().unwrap()), []);
        let changed = nft::generation().unwrap();
        assert_ne!(idle, changed, "a change is not seen");
        run("nft 'add rule inet f unused ct state established accept
             add table ip6 g
             add chain ip6 g input { type filter hook input priority 0; }
             add rule ip6 g input socket transparent 1 accept
             add table ip h
             add set ip h many { type ipv4_addr; flags dynamic; }
             add chain ip h output { type filter hook output priority 0; }
             add rule ip h output add @many { ip daddr ct count over 10 } drop
             add table ip i
             add set ip i few { type ipv4_addr; flags dynamic; ct count over 20; }'");
        let trackers = seen(conntrack::of_nftables().unwrap());
        let brief: Vec<_> = trackers
            .iter()
            .map(|(families, does, who)| (*families, *does, who.split(" handle").next().unwrap()))
            .collect();
        assert_eq!(
            brief,
            [
                ([false, true], Reassembles, "nftables rule ip6 g input"),
                ([true, false], Tracks, "nftables rule ip h output"),
                ([true, false], Tracks, "nftables set ip i few (connlimit)"),
                ([true, true], Tracks, "nftables rule inet f unused"),
            ]
        );
        assert_ne!(nft::generation().unwrap(), changed);
    });
    alone("whoever_turns_on_tracking_is_seen", || {
        if !try_run("iptables-nft -A INPUT -m conntrack --ctstate NEW -j ACCEPT") {
            eprintln!("skipped: iptables-nft does not work here");
            return;
        }
        let trackers = seen(conntrack::of_nftables().unwrap());
        assert_eq!(trackers.len(), 1, "{trackers:?}");
        assert_eq!((trackers[0].0, trackers[0].1), ([true, false], Tracks));
    });
    alone("whoever_turns_on_tracking_is_seen", || {
        if !try_run("iptables-legacy -A INPUT -p tcp -j ACCEPT") {
            eprintln!("skipped: this kernel has no legacy iptables");
            return;
        }
        let legacy = || seen(conntrack::of_iptables(&iptables::tables().unwrap()));
        assert_eq!(legacy(), []);
        run("iptables-legacy -A INPUT -p tcp -m conntrack --ctstate NEW -j ACCEPT");
        run("ip6tables-legacy -t mangle -A INPUT -m socket -j ACCEPT");
        let text = |text: &str| text.to_owned();
        let state = text("iptables-legacy table filter (-m conntrack)");
        let socket = text("ip6tables-legacy table mangle (-m socket)");
        assert_eq!(
            legacy(),
            [
                ([false, true], Reassembles, socket),
                ([true, false], Tracks, state)
            ]
        );
        run("iptables-legacy -F; ip6tables-legacy -t mangle -F");
        assert_eq!(legacy(), []);
    });
}

#[test]
fn qdiscs_and_filters_are_seen() {
    alone("qdiscs_and_filters_are_seen", || {
        run("ip link add va type veth peer name vb");
        run("ip link set va up");
        let va = index("va");
        run("tc qdisc add dev va root handle 7: htb default 1");
        run("tc class add dev va parent 7: classid 7:1 htb rate 1gbit");
        run("tc qdisc add dev va parent 7:1 tbf rate 1mbit burst 10k latency 1ms");
        run("tc qdisc add dev va clsact");
        let qdiscs = tc::qdiscs().unwrap();
        let kinds: Vec<_> = qdiscs
            .iter()
            .filter(|q| q.index == va)
            .map(|q| q.kind.as_str())
            .collect();
        assert_eq!(kinds, ["htb", "tbf", "clsact"]);
        let filters = |direction| tc::filters(va, direction, &qdiscs).unwrap();
        assert_eq!(filters(Direction::Ingress), []);
        assert_eq!(filters(Direction::Egress), []);
        run("tc filter add dev va ingress protocol ip pref 5 u32 match u32 0 0 classid 7:1");
        let seen = filters(Direction::Ingress);
        assert!(seen.iter().all(|f| f.kind == "u32" && f.priority == 5) && !seen.is_empty());
        assert_eq!(filters(Direction::Egress), []);
        run("tc filter add dev va parent 7: protocol ip pref 9 u32 match u32 0 0 classid 7:1");
        let seen = filters(Direction::Egress);
        assert!(seen.iter().all(|f| f.priority == 9) && !seen.is_empty());
        run("tc filter del dev va ingress");
        assert_eq!(filters(Direction::Ingress), []);
        // The qdiscs were listed before they went.
        run("tc qdisc del dev va root");
        assert_eq!(filters(Direction::Egress), []);
    });
}

#[test]
fn tcx_programs_are_seen() {
    alone("tcx_programs_are_seen", || {
        run("ip link add va type veth peer name vb");
        let va = index("va");
        let program = match raw_bpf::load_classifier() {
            Ok(program) => program,
            Err(e) => {
                eprintln!("skipped: cannot load a classifier: {e}");
                return;
            }
        };
        if let Err(e) = raw_bpf::attach_tcx_ingress(&program, va) {
            eprintln!("skipped: this kernel has no tcx: {e}");
            return;
        }
        assert_eq!(bpf::tcx(va, Direction::Ingress).unwrap().len(), 1);
        assert_eq!(bpf::tcx(va, Direction::Egress).unwrap(), []);
    });
}

#[test]
fn xfrm_policies_are_seen() {
    alone("xfrm_policies_are_seen", || {
        let policy = "ip xfrm policy add";
        if !try_run(&format!("{policy} src 10.1.0.0/16 dst 10.2.0.0/15 dir fwd")) {
            eprintln!("skipped: this kernel has no xfrm");
            return;
        }
        run(&format!(
            "{policy} src 2001:db8::/32 dst ::/0 proto tcp dir out action block"
        ));
        run(&format!(
            "{policy} src 10.9.0.0/16 dst 10.2.0.0/16 dir out if_id 5"
        ));
        let seen = xfrm::policies().unwrap();
        let mut texts: Vec<_> = seen.iter().map(ToString::to_string).collect();
        texts.sort();
        assert_eq!(
            texts,
            [
                "src 10.1.0.0/16 dst 10.2.0.0/15 dir fwd",
                "src 10.9.0.0/16 dst 10.2.0.0/16 dir out",
                "src 2001:db8::/32 dst ::/0 proto 6 dir out action block",
            ]
        );
        assert_eq!(seen.iter().filter(|p| p.if_id == 5).count(), 1);
        if try_run("ip xfrm policy setdefault fwd block") {
            let defaults = xfrm::defaults().unwrap();
            assert!(defaults.block_forward && !defaults.block_out);
        }
    });
}

#[test]
fn offloads_are_read_and_set() {
    alone("offloads_are_read_and_set", || {
        run("ip link add va type veth peer name vb");
        for offload in [ethtool::Offload::Gro, ethtool::Offload::TxChecksum] {
            for on in [true, false, true] {
                ethtool::set("va", offload, on).unwrap();
                assert_eq!(ethtool::is_on("va", offload).unwrap(), on);
            }
        }
        assert!(!ethtool::flags("va").unwrap().lro);
        let error = ethtool::flags("none").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
        assert!(ethtool::flags("a name that is much too long").is_err());
    });
}

#[test]
fn the_far_end_of_a_pair_is_found_by_name_and_by_process() {
    alone(
        "the_far_end_of_a_pair_is_found_by_name_and_by_process",
        || {
            let name = format!("raddle-probe-{}", std::process::id());
            run(&format!("ip netns add {name}"));
            let _guard = Deleted(name.clone());
            let mut sleeper = Command::new("unshare")
                .args(["-n", "sleep", "60"])
                .spawn()
                .unwrap();
            let pid = sleeper.id();
            // Until it is in a namespace of its own.
            let its = format!("/proc/{pid}/ns/net");
            let ours = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
            let parent = std::fs::read_link("/proc/self/ns/net").unwrap();
            while std::fs::read_link(&its).is_ok_and(|n| n == ours || n == parent) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            run(&format!(
                "ip link add va type veth peer name vb netns {name}"
            ));
            run(&format!(
                "ip link add vc type veth peer name vd netns {pid}"
            ));
            for (near, far, place) in [
                ("va", "vb", Place::Named(name.clone())),
                ("vc", "vd", Place::Process(pid)),
            ] {
                let all = Namespace::all().unwrap();
                let there = all.iter().find(|n| n.place == place).unwrap();
                let link = links()
                    .unwrap()
                    .into_iter()
                    .find(|l| l.name == near)
                    .unwrap();
                assert_eq!(there.id().unwrap(), link.lower_netns);
                assert!(link.lower_netns.is_some());
                let seen = there.run(links).unwrap();
                let peer = seen.iter().find(|l| Some(l.index) == link.lower).unwrap();
                assert_eq!(peer.name, far);
                there
                    .run(|| ethtool::set(far, ethtool::Offload::Gro, true))
                    .unwrap();
                assert!(
                    there
                        .run(|| ethtool::is_on(far, ethtool::Offload::Gro))
                        .unwrap()
                );
            }
            assert_eq!(
                std::fs::read_link("/proc/thread-self/ns/net").unwrap(),
                ours
            );
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
        },
    );
}

/// A named namespace that goes with the test.
struct Deleted(String);

impl Drop for Deleted {
    fn drop(&mut self) {
        try_run(&format!("ip netns del {}", self.0));
    }
}

#[test]
fn without_privilege_the_answer_is_an_error_and_not_none() {
    alone(
        "without_privilege_the_answer_is_an_error_and_not_none",
        || {
            // Files of root's are ours still, but not the capability to administer a namespace.
            nix::unistd::setgroups(&[]).unwrap();
            // The raw system call changes this thread alone.
            // SAFETY: no pointers.
            let result = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            assert_eq!(result, 0);
            for (what, error) in [
                ("nftables", nft::base_chains().map(|_| ()).unwrap_err()),
                ("xfrm", xfrm::policies().map(|_| ()).unwrap_err()),
                (
                    "tcx",
                    bpf::tcx(1, Direction::Ingress).map(|_| ()).unwrap_err(),
                ),
            ] {
                assert!(
                    matches!(error, probe::Error::Denied { .. }),
                    "{what}: {error}"
                );
                assert!(
                    error.to_string().contains("CAP_NET_ADMIN"),
                    "{what}: {error}"
                );
            }
        },
    );
}

proptest! {
    #[test]
    fn decoders_stand_anything(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        probe::decode_any(&bytes);
    }

    /// Messages of the right types, with attributes that are framed well and filled badly.
    #[test]
    fn decoders_stand_well_framed_nonsense(
        kind in prop_oneof![
            Just(0xa00u16), Just(0xa03), Just(0xa06), Just(36), Just(44), Just(0x13), Just(88)
        ],
        head in proptest::collection::vec(any::<u8>(), 0..180),
        attributes in proptest::collection::vec(
            (0u16..16, proptest::collection::vec(0u8..12, 0..40)), 0..12),
    ) {
        let mut b = raddle_netlink::codec::Builder::new();
        b.begin(kind, 0, &head);
        for (kind, payload) in &attributes {
            b.put(*kind, payload);
        }
        b.end().unwrap();
        probe::decode_any(b.as_bytes());
    }
}

/// Just enough of bpf(2) to attach a tcx program; iproute2 cannot everywhere.
mod raw_bpf {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    fn bpf(command: libc::c_long, attributes: &[u8; 128]) -> io::Result<libc::c_long> {
        // SAFETY: the attributes live through the call; what they point to does as well, see the
        // callers.
        match unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), 128) } {
            n if n < 0 => Err(io::Error::last_os_error()),
            n => Ok(n),
        }
    }

    pub(super) fn load_classifier() -> io::Result<OwnedFd> {
        // r0 = -1 (TCX_NEXT); exit
        let program: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
        let license = c"GPL";
        let mut a = [0; 128];
        a[0..4].copy_from_slice(&3u32.to_ne_bytes()); // BPF_PROG_TYPE_SCHED_CLS
        a[4..8].copy_from_slice(&2u32.to_ne_bytes());
        a[8..16].copy_from_slice(&(program.as_ptr().expose_provenance() as u64).to_ne_bytes());
        a[16..24].copy_from_slice(&(license.as_ptr().expose_provenance() as u64).to_ne_bytes());
        let fd = bpf(5, &a)?;
        // SAFETY: a fresh descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    pub(super) fn attach_tcx_ingress(program: &OwnedFd, index: u32) -> io::Result<()> {
        let mut a = [0; 128];
        a[0..4].copy_from_slice(&index.to_ne_bytes());
        a[4..8].copy_from_slice(&(program.as_raw_fd() as u32).to_ne_bytes());
        a[8..12].copy_from_slice(&46u32.to_ne_bytes());
        bpf(8, &a).map(|_| ())
    }
}

//! Which pairs are free beside the rulesets that others install, asked of the kernel that holds them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod net;

use std::collections::BTreeMap;

use raddle_preflight::{Known, Verdicts, look};

use net::{command, index, namespace, run, try_run};

const LINKS: [&str; 4] = ["eth0", "eth1", "lan0", "guest0"];

/// The links of a router, as they are named.
fn links() -> BTreeMap<u32, String> {
    LINKS.iter().map(|l| (index(l), (*l).to_owned())).collect()
}

/// In which version pairs are free, without ranges: `eth0>eth1 ...`.
fn free(verdicts: &Verdicts, version: usize) -> Vec<String> {
    let guarded = [&verdicts.firewall.v4, &verdicts.firewall.v6][version];
    let mut free = Vec::new();
    for (a, from) in links() {
        for (b, to) in links() {
            if !guarded.pairs.contains(&(a, b)) {
                free.push(format!("{from}>{to}"));
            }
        }
    }
    free
}

/// The ranges of a version as `source > destination`.
fn ranges(verdicts: &Verdicts, version: usize) -> Vec<String> {
    let guarded = [&verdicts.firewall.v4, &verdicts.firewall.v6][version];
    let text = |r: (std::net::IpAddr, std::net::IpAddr)| format!("{}-{}", r.0, r.1);
    guarded
        .ranges
        .iter()
        .map(|r| format!("{} > {}", text(r.src), text(r.dst)))
        .collect()
}

/// What is expected of a ruleset.
struct Case {
    name: &'static str,
    /// How many of the 16 pairs are free, of IPv4 and of IPv6.
    free: [usize; 2],
    ranges: [&'static [&'static str]; 2],
    /// A rule that is named.
    named: &'static str,
    fragments: [bool; 2],
    icmp_errors: [bool; 2],
}

const ALL: &str = "0.0.0.0-255.255.255.255";

fn cases() -> Vec<Case> {
    let docker = &["172.17.0.0-172.17.255.255 > 0.0.0.0-255.255.255.255"];
    let case = |name, free, ranges, named| Case {
        name,
        free,
        ranges,
        named,
        fragments: [true; 2],
        icmp_errors: [true, false],
    };
    assert!(docker[0].ends_with(ALL));
    vec![
        Case {
            fragments: [true, false],
            ..case("docker.iptables", [16, 16], [docker, &[]], "MASQUERADE")
        },
        Case {
            fragments: [true, false],
            ..case(
                "docker-drop.iptables",
                [0, 16],
                [&[], &[]],
                "FORWARD has policy ",
            )
        },
    ]
}

/// Puts a ruleset of `tests/rulesets` in force, by whichever iptables.
fn load(name: &str, iptables: &str) -> bool {
    let file = format!("{}/tests/rulesets/{name}", env!("CARGO_MANIFEST_DIR"));
    match name.rsplit_once('.').unwrap().1 {
        "nft" => try_run(&format!("nft -f {file}")),
        "iptables" => try_run(&format!("iptables-{iptables}-restore {file}")),
        "ip6tables" => try_run(&format!("ip6tables-{iptables}-restore {file}")),
        other => panic!("{other}"),
    }
}

#[test]
fn rulesets_that_others_install_leave_free_what_they_do_not_concern() {
    let mut wrong = Vec::new();
    for case in cases() {
        for iptables in ["nft", "legacy"] {
            if case.name.ends_with(".nft") && iptables == "legacy" {
                continue;
            }
            namespace(&format!("{}-{iptables}", case.name), |_| {
                for link in LINKS {
                    run(&format!(
                        "ip link add {link} type veth peer name {link}-far"
                    ));
                }
                if !load(case.name, iptables) {
                    eprintln!(
                        "skipped: this kernel does not take {} by {iptables}",
                        case.name
                    );
                    return;
                }
                let links = links();
                let verdicts = look(&links, &links, &mut Known::default()).unwrap();
                let is = |version: usize| {
                    let guarded = [&verdicts.firewall.v4, &verdicts.firewall.v6][version];
                    (
                        free(&verdicts, version).len(),
                        ranges(&verdicts, version),
                        (guarded.fragments, guarded.icmp_errors),
                    )
                };
                for version in 0..2 {
                    let expected = (
                        case.free[version],
                        case.ranges[version]
                            .iter()
                            .map(|r| (*r).to_owned())
                            .collect(),
                        (case.fragments[version], case.icmp_errors[version]),
                    );
                    if is(version) != expected {
                        wrong.push(format!(
                            "{} by {iptables}, version {version}: {:?} instead of {expected:?}: {:#?}",
                            case.name,
                            is(version),
                            verdicts.why
                        ));
                    }
                }
                if !case.named.is_empty()
                    && !verdicts.why.iter().any(|w| w.rule.contains(case.named))
                {
                    wrong.push(format!("{}: {:#?}", case.name, verdicts.why));
                }
            });
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_second_look_is_cheap_and_sees_changes() {
    namespace("again", |_| {
        for link in LINKS {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        if !load("docker.iptables", "nft") {
            return;
        }
        let links = links();
        let mut known = Known::default();
        let first = look(&links, &links, &mut known).unwrap();
        let begin = std::time::Instant::now();
        for _ in 0..100 {
            assert_eq!(look(&links, &links, &mut known).unwrap(), first);
        }
        println!("a look where nothing changed: {:?}", begin.elapsed() / 100);
        run("iptables-nft -I FORWARD -i eth0 -o eth1 -j DROP");
        let second = look(&links, &links, &mut known).unwrap();
        let pair = (index("eth0"), index("eth1"));
        assert!(second.firewall.v4.pairs.contains(&pair));
        assert_eq!(second.firewall.v4.pairs.len(), 1);
        assert!(second.firewall.v6.pairs.is_empty());
        let why = second.why.iter().find(|w| w.pairs.contains(&pair)).unwrap();
        assert!(
            why.rule.contains("iifname \"eth0\" oifname \"eth1\" drop"),
            "{}",
            why.rule
        );
        assert!(command("ip -br link").contains("eth0"));
    });
}

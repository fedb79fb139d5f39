use proptest::prelude::*;
use raddle_rib::Rib;
use raddle_rib::event::{
    Address, Bucket, Event, GroupMember, Nexthop, NexthopKind, Route, RouteNexthop, RouteOp,
    RouteTarget, Rule, Settings,
};
use serde_json::{Value, json};

use super::tests::{addressed, question, router};
use super::{Behind, Certificate, plan_beyond};
use crate::bonds::Bonds;

/// Paths over four links, of which some are shared, by these weights; one with weight 0 is dead.
fn rib(weights: &[u16], policy6: u8) -> Rib {
    let mut rib = addressed();
    rib.apply(Event::Settings(Settings {
        hash_policy4: 1,
        hash_policy6: policy6,
        hash_seed: 12345,
        ..Settings::default()
    }));
    for (priority, table) in [(0, 255), (32766, 254)] {
        rib.apply(Event::Rule(Rule {
            family: 6,
            priority,
            table,
            action: 1,
            ..Rule::default()
        }));
    }
    rib.apply(Event::Address(Address::new(
        1,
        "192.0.2.1".parse().unwrap(),
        32,
    )));
    let hop = |v6: bool| {
        move |(n, weight): (usize, &u16)| {
            let gateway = match v6 {
                true => format!("fd00:{}::{}", n % 4, n + 10),
                false => format!("10.0.{}.{}", n % 4 + 1, n + 10),
            };
            RouteNexthop {
                gateway: Some(gateway.parse().unwrap()),
                index: n as u32 % 4 + 1,
                weight: (*weight).max(1),
                flags: u8::from(*weight == 0),
                encap: None,
            }
        }
    };
    let members: Vec<GroupMember> = (0..weights.len())
        .map(|n| GroupMember {
            id: 10 + n as u32,
            weight: weights[n].max(1),
        })
        .collect();
    for RouteNexthop { gateway, index, .. } in weights.iter().enumerate().map(hop(false)) {
        let id = gateway.map_or(0, |gateway| match gateway {
            std::net::IpAddr::V4(ip) => u32::from(ip.octets()[3]),
            std::net::IpAddr::V6(_) => 0,
        });
        let encap = None;
        rib.apply(Event::Nexthop(Nexthop {
            protocol: 4,
            ..Nexthop::new(
                id,
                2,
                NexthopKind::Single {
                    gateway,
                    index,
                    encap,
                },
            )
        }));
    }
    let buckets = 32;
    for (id, kind) in [
        (200, NexthopKind::Group(members.clone())),
        (
            201,
            NexthopKind::Resilient {
                members: members.clone(),
                buckets,
                idle_timer: 12_000,
                unbalanced_timer: 0,
                unbalanced_time: 0,
            },
        ),
    ] {
        rib.apply(Event::Nexthop(Nexthop {
            protocol: 4,
            ..Nexthop::new(id, 0, kind)
        }));
    }
    for index in 0..buckets {
        let nexthop = members[usize::from(index) * 7 % members.len()].id;
        rib.apply(Event::Bucket(Bucket {
            group: 201,
            index,
            nexthop,
            idle_time: 0,
            flags: 0,
        }));
    }
    let multipath = |v6| RouteTarget::Multipath(weights.iter().enumerate().map(hop(v6)).collect());
    for (dst, target) in [
        ("198.18.1.0/24", multipath(false)),
        ("198.18.2.0/24", RouteTarget::Object(200)),
        ("198.18.3.0/24", RouteTarget::Object(201)),
        ("fd01::/64", multipath(true)),
    ] {
        let route = Route {
            dst: dst.parse().unwrap(),
            protocol: 4,
            target,
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    rib
}

const TO: [&str; 7] = [
    "198.18.1.7",
    "198.18.2.7",
    "198.18.3.7",
    "8.8.8.8",
    "198.18.1.7",
    "fd01::7",
    "fd01::7 --flow-labels",
];
const FROM4: [&str; 6] = [
    "",
    "",
    "--from 192.0.2.1",
    "--from 10.0.2.9",
    "--from 0.0.0.0",
    "--from 192.0.2.9 --iif eth2",
];
const FROM6: [&str; 2] = ["--from fd00::1", "--from fd00::1 --iif eth2"];
const RANGE: [&str; 4] = ["", "", "--first 1000 --last 3000", "--first 0 --last 65535"];
const KERNELS: [Option<&str>; 4] = [None, Some("6.12.1"), Some("6.17.0"), Some("6.18.44")];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is planned is a certificate for who reads it.
    #[test]
    fn what_is_planned_can_be_read(
        weights in proptest::collection::vec(0u16..6, 2..9),
        (to, from, range, kernel) in (0..7usize, 0..6usize, 0..4usize, 0..4usize),
        (count, by_weight, behind) in (1..70usize, any::<bool>(), 0..3usize),
    ) {
        let from = if to > 4 { FROM6[from % 2] } else { FROM4[from] };
        let by_weight = if by_weight { "--by-weight" } else { "" };
        let question = question(&format!(
            "{} -n {count} --dport 443 {from} {} {by_weight}", TO[to], RANGE[range],
        ));
        let text = |seed: u32| format!(
            "policy = 1\nseed = {seed}\n[[route]]\npaths = [ {{ link = 'a' }}, {{ link = 'b', weight = 3 }}, {{ link = 'a' }} ]\n"
        );
        let routers = [router(&text(7)), router(&text(8))];
        let names = ["spine.toml", "a leaf.toml"];
        let behind: Vec<Behind<'_>> = names.iter().zip(&routers).take(behind)
            .map(|(name, router)| Behind { name, router }).collect();
        let kernel = KERNELS[kernel].map(|kernel| kernel.parse().unwrap());
        let policy6 = if TO[to].contains("labels") { 0 } else { 1 };
        let plan = plan_beyond(&rib(&weights, policy6), kernel, &Bonds::default(), &question, &behind);
        // Some have no path, or too few ports.
        prop_assume!(plan.is_ok());
        let plan = plan.unwrap();
        prop_assert_eq!(plan.connections.len(), count);
        let text = serde_json::to_string_pretty(&plan).unwrap();
        match Certificate::parse("plan", text.as_bytes()) {
            Ok(read) => prop_assert_eq!(read, plan),
            Err(e) => prop_assert!(false, "{e}\n{text}"),
        }
    }
}

/// A plan of eight connections over four paths and the links of a router behind, as JSON.
fn certificate() -> Value {
    let spine =
        router("policy = 1\nseed = 7\n[[route]]\npaths = [ { link = 'a' }, { link = 'b' } ]\n");
    let behind = [Behind {
        name: "spine.toml",
        router: &spine,
    }];
    let asked = question("203.0.113.7 -n 8 --dport 443 --from 192.0.2.1");
    let plan = plan_beyond(&addressed(), None, &Bonds::default(), &asked, &behind).unwrap();
    serde_json::to_value(&plan).unwrap()
}

fn said(certificate: &Value) -> Result<(), String> {
    let text = certificate.to_string();
    let read = Certificate::parse("plan.json", text.as_bytes());
    read.map(drop).map_err(|e| e.to_string())
}

#[test]
fn what_contradicts_itself_is_no_certificate() {
    let good = certificate();
    assert_eq!(said(&good), Ok(()));
    let spare = good["spares"].as_array().unwrap().iter();
    let spare = spare
        .clone()
        .position(|spare| spare["connections"] != json!([]));
    let spare = format!("/spares/{}", spare.unwrap());
    let first = &good["connections"][0]["value"];
    let opened = |what: &str| format!("{spare}/connections/0/{what}");
    for (at, value, why) in [
        ("/connections", json!([]), "it has no connections"),
        (
            "/connections/1/value",
            first.clone(),
            "two connections with number",
        ),
        ("/connections/0/value", json!(0), "number 0: ports go"),
        (
            "/connections/0/value",
            json!(65536),
            "number 65536: ports go",
        ),
        (
            "/connections/0/path",
            json!(4),
            "path 4, and it has 4, from 0",
        ),
        (
            "/connections/0/beyond",
            json!([2]),
            "one link for each router behind",
        ),
        (
            "/connections/0/beyond",
            json!([]),
            "one link for each router behind",
        ),
        (
            "/connections/0/beyond",
            json!([0, 0]),
            "one link for each router behind",
        ),
        (
            "/beyond/0/links/0/connections",
            json!(5),
            "on link a of the router spine.toml are 4 connections, not 5",
        ),
        (
            &opened("value"),
            first.clone(),
            "two connections with number",
        ),
        (&opened("value"), json!(65536), "number 65536"),
        (&opened("path"), json!(4), "path 4, and it has 4"),
        (
            &opened("beyond"),
            json!([]),
            "one link for each router behind",
        ),
        (
            &format!("{spare}/dev"),
            json!("eth9"),
            "says what to do when eth9 fails",
        ),
        (
            &format!("{spare}/close"),
            json!([1]),
            "connection 1 is to be closed",
        ),
        (
            &format!("{spare}/close"),
            json!([first, first]),
            "named before",
        ),
        (
            &format!("{spare}/moved"),
            json!([1]),
            "connection 1 is to be closed or moves",
        ),
        (
            &format!("{spare}/loads"),
            json!([1, 1]),
            "not those of 4 paths",
        ),
        (
            &format!("{spare}/loads"),
            json!([8, 1, 0, 0]),
            "more than it has",
        ),
        (
            &format!("{spare}/loads"),
            json!([u64::MAX, 1, 0, 0]),
            "more than it has",
        ),
        ("/paths/0/dev", json!("\u{1b}[2J"), "not the name of a link"),
        (
            "/paths/0/dev",
            json!("a name of blanks"),
            "not the name of a link",
        ),
        ("/beyond/0/router", json!("\u{1b}[2J"), "control characters"),
        (
            "/beyond/0/links/0/link",
            json!(""),
            "not the name of a link",
        ),
        ("/route", json!("\u{9b}2J"), "control characters"),
        ("/flow/iif", json!("\n"), "control characters"),
        (
            "/format",
            json!("raddle-ports-2"),
            "has the format 'raddle-ports-2'",
        ),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(at).unwrap() = value;
        let error = said(&bad).unwrap_err();
        assert!(error.contains(why), "{at}: {error}");
        assert!(error.starts_with("plan.json "), "{at}: {error}");
    }
    // Flow labels are greater than ports.
    let mut labels = good.clone();
    labels["flow"]["vary"] = json!("flow-label");
    labels["connections"][0]["value"] = json!(0xf_ffff);
    labels["spares"] = json!([]);
    assert_eq!(said(&labels), Ok(()));
    labels["connections"][0]["value"] = json!(0x10_0000);
    assert!(said(&labels).unwrap_err().contains("number 1048576"));
}

#[test]
fn what_has_no_end_is_no_certificate() {
    let blanks = std::io::repeat(b' ');
    let error = Certificate::parse("-", blanks).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the certificate -: it has more than 256 MiB"),
        "{error}"
    );
}

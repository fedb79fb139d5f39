use std::net::IpAddr;

use raddle_netlink::probe::sockets::Connected;
use raddle_rib::Rib;
use raddle_rib::event::{Address, Event, Route, RouteOp, Rule, Settings};

use super::{Behind, Certificate, Question, ShareOut, Vary, audit, plan, plan_beyond};
use crate::bonds::Bonds;
use crate::state_test::{rib, ruled};

/// A question in the words of the command line.
pub(super) fn question(words: &str) -> Question {
    let mut words = words.split_whitespace();
    let mut question = Question::new(words.next().unwrap().parse().unwrap(), 0);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap();
        match word {
            "-n" => question.count = value().parse().unwrap(),
            "--from" => question.from = Some(value().parse().unwrap()),
            "--iif" => question.iif = Some(value().to_owned()),
            "--dport" => question.dport = value().parse().unwrap(),
            "--first" => question.first = Some(value().parse().unwrap()),
            "--last" => question.last = Some(value().parse().unwrap()),
            "--udp" => question.proto = 17,
            "--icmp" => question.proto = 1,
            "--by-weight" => question.share_out = ShareOut::ByWeight,
            "--flow-labels" => question.vary = Vary::FlowLabel,
            other => panic!("{other}"),
        }
    }
    question
}

fn planned(rib: &Rib, words: &str) -> Result<Certificate, String> {
    plan(rib, None, &Bonds::default(), &question(words)).map_err(|e| {
        assert!(!e.is_system(), "{e}");
        e.to_string()
    })
}

#[test]
fn what_a_plan_is_for_is_told() {
    let first = |words: &str| planned(&rib(), words).map(|plan| plan.to_string());
    let said = first("203.0.113.7 -n 4 --udp --dport 53 --from 192.0.2.1").unwrap();
    assert!(
        said.contains(" to 203.0.113.7, udp port 53, over "),
        "{said}"
    );
    let said = first("203.0.113.7 -n 4 --from 192.0.2.1").unwrap();
    assert!(
        said.contains(", tcp port 0 (none is named), over "),
        "{said}"
    );
    let said = first("203.0.113.7 -n 4 --icmp --from 192.0.2.1").unwrap_err();
    assert!(
        said.starts_with("protocol 1 has no source port; plan for"),
        "{said}"
    );
}

pub(super) fn router(text: &str) -> raddle_key_search::Router {
    raddle_key_search::Router::of(&raddle_config::File::new("router.toml", text)).unwrap()
}

const SPINE: &str = "policy = 1\nseed = 77\n[[route]]\npaths = [ { link = 'up1' }, { link = 'up2' }, { link = 'up3' }, { link = 'up4', weight = 3 } ]\n";

/// Each own path's connections lie on all links of a router behind, and as its file says flows go.
#[test]
fn links_of_routers_behind_are_covered() {
    let (spine, leaf) = (router(SPINE), router(&SPINE.replace("77", "78")));
    let behind = [("spine", &spine), ("leaf", &leaf)].map(|(name, router)| Behind { name, router });
    for (words, by_weight) in [("", false), (" --by-weight", true)] {
        let asked = question(&format!(
            "203.0.113.7 -n 48 --dport 2049 --from 192.0.2.1{words}"
        ));
        let plan = plan_beyond(&rib(), None, &Bonds::default(), &asked, &behind).unwrap();
        for (n, router) in plan.beyond.iter().enumerate() {
            let on: Vec<usize> = router.links.iter().map(|link| link.connections).collect();
            let wanted = if by_weight { [8, 8, 8, 24] } else { [12; 4] };
            assert_eq!(on, wanted, "{}", router.router);
            for path in 0..plan.paths.len() {
                for link in 0..4 {
                    let both = plan
                        .connections
                        .iter()
                        .filter(|c| (c.path, c.beyond[n]) == (path, link));
                    assert!(both.count() >= 2, "{path}, {link}: {plan}");
                }
            }
        }
        for connection in &plan.connections {
            let flow = raddle_select::Flow::new(plan.flow.from, plan.flow.dst).unwrap();
            let flow = flow.ports(6, connection.value as u16, 2049);
            let link = &plan.beyond[0].links[connection.beyond[0]].link;
            assert_eq!(spine.link_of(&flow), Some(link.as_str()));
        }
    }
    let asked = question("203.0.113.7 -n 4 --dport 2049 --from 192.0.2.1");
    let said = plan_beyond(&rib(), None, &Bonds::default(), &asked, &behind[..1]).unwrap();
    let text = said.to_string();
    assert!(text.contains("dev eth1, then up"), "{text}");
    assert!(
        text.contains("\nat spine: 4 of 4 links (up1 1, up2 1, up3 1, up4 1)\n"),
        "{text}"
    );
    let json = serde_json::to_string(&said).unwrap();
    assert_eq!(Certificate::parse("again", json.as_bytes()).unwrap(), said);
    let elsewhere = router(&SPINE.replace("[[route]]", "[[route]]\nto = [ '198.18.0.0/15' ]"));
    let behind = [Behind {
        name: "other",
        router: &elsewhere,
    }];
    let error = plan_beyond(&rib(), None, &Bonds::default(), &asked, &behind).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("other has no route to 203.0.113.7"),
        "{error}"
    );
}

#[test]
fn a_plan_is_told_in_full() {
    let plan = planned(&rib(), "203.0.113.7 -n 4 --dport 2049 --from 192.0.2.1").unwrap();
    assert_eq!(
        plan.to_string(),
        "4 connections from 192.0.2.1 to 203.0.113.7, tcp port 2049, over 203.0.113.0/24: 4 of 4 paths (random ones: 2.7 on \
         average)\n\
         \n\
         source port        hash  path\n\
         \x20     32769     3112501  via 10.0.1.1 dev eth1\n\
         \x20     32773   854384413  via 10.0.2.1 dev eth2\n\
         \x20     32768  1283881052  via 10.0.3.1 dev eth3\n\
         \x20     32772  1808539393  via 10.0.4.1 dev eth4\n\
         \n\
         path                       share  connections\n\
         via 10.0.1.1 dev eth1    25.00 %            1\n\
         via 10.0.2.1 dev eth2    25.00 %            1\n\
         via 10.0.3.1 dev eth3    25.00 %            1\n\
         via 10.0.4.1 dev eth4    25.00 %            1\n\
         \n\
         if a link fails\n  \
         eth1: open 32771: 3 paths\n  \
         eth2: open 32771: 3 paths\n  \
         eth3: open 32771: 3 paths\n  \
         eth4: open 32774: 3 paths\n"
    );
}

#[test]
fn certificates_survive_being_written() {
    for words in [
        "203.0.113.7 -n 9 --dport 2049 --from 192.0.2.1",
        "198.51.100.7 -n 4 --udp --from 192.0.2.1 --by-weight --first 1000 --last 2000",
    ] {
        let plan = planned(&rib(), words).unwrap();
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(Certificate::parse("again", json.as_bytes()).unwrap(), plan);
        assert!(plan.loads().iter().all(|load| *load > 0), "{words}");
    }
}

/// As [`rib`], with an address on each of the links.
pub(super) fn addressed() -> Rib {
    let mut rib = rib();
    for index in 1..=4 {
        rib.apply(Event::Address(Address::new(
            index,
            IpAddr::from([10, 0, index as u8, 9]),
            24,
        )));
    }
    rib
}

/// Linux from 6.16 on prefers nexthops by the source.
#[test]
fn a_source_of_one_link_leads_there_alone() {
    let of = |kernel: &str, dst| {
        let question = question(&format!("{dst} -n 4 --from 10.0.2.9"));
        let plan = plan(
            &addressed(),
            Some(kernel.parse().unwrap()),
            &Bonds::default(),
            &question,
        )
        .unwrap();
        plan.loads()
    };
    assert_eq!(of("6.18.44", "198.51.100.7"), [0, 4, 0, 0]);
    assert_eq!(of("6.12.1", "198.51.100.7"), [1; 4]);
    assert_eq!(of("6.18.44", "203.0.113.7"), [1; 4], "groups prefer none");
}

#[test]
fn connections_without_a_source_get_that_of_their_path() {
    let rib = addressed();
    for dst in ["198.51.100.7", "203.0.113.7"] {
        let plan = planned(&rib, &format!("{dst} -n 4 --dport 2049")).unwrap();
        assert_eq!(plan.loads(), [1; 4], "{dst}");
        assert_eq!(plan.flow.from.to_string(), "0.0.0.0");
        for connection in &plan.connections {
            let from = connection.from.unwrap().octets();
            assert_eq!((from[0], from[3]), (10, 9));
            // A route's own nexthop is chosen by the source that it gave.
            if plan.group.is_none() {
                assert_eq!(usize::from(from[2]), connection.path + 1);
            }
        }
        for spare in &plan.spares {
            assert_eq!(spare.loads.iter().sum::<usize>(), 4, "{dst} {spare:?}");
            assert_eq!(spare.loads.iter().filter(|load| **load > 0).count(), 3);
            // What is opened then has the address of a link that lives then.
            for connection in &spare.connections {
                let from = connection.from.unwrap().octets();
                assert_ne!(format!("eth{}", from[2]), spare.dev, "{dst}");
                if plan.group.is_none() {
                    assert_eq!(usize::from(from[2]), connection.path + 1);
                }
            }
        }
        assert!(
            plan.to_string()
                .contains("4 connections from their paths' addresses to")
        );
    }
}

/// The kernel lets no socket have an address of another machine.
#[test]
fn a_live_machine_sends_from_its_own_addresses() {
    let ask = |live, words: &str| {
        let question = Question {
            live,
            ..question(&format!(
                "203.0.113.7 -n 4 --first 1000 --last 9999 {words}"
            ))
        };
        let done = plan(&addressed(), None, &Bonds::default(), &question);
        done.map(|plan| plan.flow.from.to_string())
            .map_err(|e| e.to_string())
    };
    assert_eq!(ask(true, "--from 10.0.2.9").as_deref(), Ok("10.0.2.9"));
    let error = ask(true, "--from 10.0.2.10").unwrap_err();
    assert!(
        error.starts_with("10.0.2.10 is no address of this machine"),
        "{error}"
    );
    assert!(error.contains("--iif LINK"), "{error}");
    // Those of a host behind, and of another machine.
    assert!(ask(true, "--from 10.0.2.10 --iif eth1").is_ok());
    assert!(ask(false, "--from 10.0.2.10").is_ok());
    // None is named.
    assert_eq!(ask(true, "--from 0.0.0.0"), ask(true, ""));
    assert!(
        ask(true, "--from 0.0.0.0 --iif eth1")
            .unwrap_err()
            .contains("add --from")
    );
}

/// Rules of the daemon hold for packets that come in by a link, and decide what is hashed.
#[test]
fn plans_go_by_the_daemons_rules() {
    let ruled = |words: &str, rule: &str| {
        let mut rib = rib();
        rib.apply(Event::Settings(Settings {
            hash_policy4: 0,
            hash_seed: 12345,
            ..Settings::default()
        }));
        planned(&ruled(rib, rule), words)
    };
    let words = "203.0.113.7 -n 4 --from 192.0.2.1 --iif eth1";
    for rule in ["203.0.113.0/24=l4", "nhid:100=l4"] {
        let plan = ruled(words, rule).unwrap();
        assert_eq!((plan.loads(), plan.settings.policy), (vec![1; 4], 1));
    }
    for (words, rule, said) in [
        (words, "10.0.0.0/8=l4", "ipv4.fib_multipath_hash_policy=1"),
        (
            words,
            "nhid:100=round-robin",
            "no flow has a path of its own",
        ),
        (words, "nhid:100=flowlet", "mp-algo flowlet,gap=500us"),
        // This machine's own are the kernel's, which has no such rules.
        (
            "203.0.113.7 -n 4 --from 192.0.2.1",
            "nhid:100=l4",
            "ipv4.fib_multipath_hash_policy=1",
        ),
    ] {
        let error = ruled(words, rule).unwrap_err();
        assert!(error.contains(said), "{rule}: {error}");
    }
}

#[test]
fn what_cannot_be_planned_is_said() {
    let mut by_address = rib();
    by_address.apply(Event::Settings(Settings {
        hash_policy4: 0,
        hash_seed: 12345,
        ..Settings::default()
    }));
    let mut unknown = rib();
    unknown.apply(Event::Settings(Settings::default()));
    let steered = addressed();
    for (rib, words, said) in [
        (
            &by_address,
            "203.0.113.7 -n 4 --from 192.0.2.1",
            "ipv4.fib_multipath_hash_policy=1",
        ),
        (
            &unknown,
            "203.0.113.7 -n 4 --from 192.0.2.1",
            "the hash key is unknown",
        ),
        (
            &steered,
            "203.0.113.7 -n 4 --from fd00::1",
            "different families",
        ),
        (
            &steered,
            "203.0.113.7 -n 4 --iif eth1",
            "add --from ADDRESS",
        ),
        (&unknown, "198.51.100.7 -n 4", "has no source address"),
        (
            &steered,
            "203.0.113.7 -n 4 --from 192.0.2.1 --iif eth9",
            "no link 'eth9'",
        ),
        (
            &steered,
            "203.0.113.7 -n 4 --from 192.0.2.1 --first 9 --last 8",
            "is no range",
        ),
        (
            &steered,
            "203.0.113.7 -n 4 --from 192.0.2.1 --first 9 --last 10",
            "widen --first and --last",
        ),
        (
            &steered,
            "203.0.113.7 -n 4 --from 192.0.2.1 --flow-labels",
            "IPv4 has no flow labels",
        ),
        (
            &steered,
            "fd00::1 -n 4 --from fd00::2",
            "no path to compute with",
        ),
    ] {
        let error = planned(rib, words).unwrap_err();
        assert!(error.contains(said), "{words}: {error}");
    }
    for from in ["224.0.0.5", "255.255.255.255", "ff02::1"] {
        for iif in ["", "--iif eth1"] {
            let error = planned(&steered, &format!("203.0.113.7 -n 4 --from {from} {iif}"));
            assert!(
                error.unwrap_err().contains("nothing is sent from"),
                "{from}"
            );
        }
    }
    assert!(
        planned(&steered, "203.0.113.7 -n 4 --from 10.0.2.9").is_ok(),
        "groups prefer no sources"
    );
}

#[test]
fn connections_are_counted_where_they_lie() {
    let rib = rib();
    let planned = planned(&rib, "203.0.113.7 -n 8 --dport 2049 --from 192.0.2.1").unwrap();
    let socket = |sport: u32, remote: &str| Connected {
        protocol: 6,
        local: "192.0.2.1".parse().unwrap(),
        sport: sport as u16,
        remote: remote.parse().unwrap(),
        dport: 2049,
    };
    let mut sockets: Vec<Connected> = planned
        .connections
        .iter()
        .map(|c| socket(c.value, "203.0.113.7"))
        .collect();
    // Over a route with one path, and over another one.
    sockets.push(socket(5, "8.8.8.8"));
    sockets.push(socket(6, "198.51.100.1"));
    let audits = audit(&rib, None, &Bonds::default(), &sockets, &[])
        .unwrap()
        .0;
    let routes: Vec<&str> = audits.iter().map(|audit| audit.route.as_str()).collect();
    assert_eq!(routes, ["198.51.100.0/24", "203.0.113.0/24"]);
    let to: IpAddr = "203.0.113.200".parse().unwrap();
    let to_one = audit(&rib, None, &Bonds::default(), &sockets, &[to]).unwrap();
    let [group] = to_one.0.try_into().unwrap();
    let counts: Vec<u64> = group.paths.iter().map(|path| path.connections).collect();
    assert_eq!(counts, [2; 4]);
    assert!((group.evenness.imbalance - 1.0).abs() < 1e-9 && group.evenness.used == 4);
    assert!(
        audit(&rib, None, &Bonds::default(), &[], &[])
            .unwrap()
            .0
            .is_empty()
    );
}

/// Routing rules by what packets show decide for connections, too: by the source that they are given, or that the kernel gives them.
#[test]
fn rules_by_packet_are_followed() {
    let mut rib = rib();
    let rule = Rule {
        family: 4,
        priority: 100,
        table: 7,
        action: 1,
        ..Rule::default()
    };
    rib.apply(Event::Rule(Rule {
        from: Some("192.0.2.5/32".parse().unwrap()),
        ..rule.clone()
    }));
    let route = rib
        .routes4()
        .find(|route| route.dst.to_string() == "203.0.113.0/24");
    let route = Route {
        dst: "0.0.0.0/0".parse().unwrap(),
        table: 7,
        ..route.unwrap()
    };
    rib.apply(Event::Route(route, RouteOp::Add));
    let ask = |rib: &Rib, words: &str| planned(rib, words).map(|plan| plan.route);
    assert_eq!(
        ask(&rib, "8.8.8.8 -n 4 --from 192.0.2.5"),
        Ok("0.0.0.0/0".into())
    );
    let one = planned(&rib, "8.8.8.8 -n 4 --from 192.0.2.5").unwrap();
    assert_eq!(one.paths.len(), 4, "by the rule's table");
    assert_eq!(
        planned(&rib, "8.8.8.8 -n 4 --from 192.0.2.6")
            .unwrap()
            .paths
            .len(),
        1
    );
    assert_eq!(
        ask(&rib, "203.0.113.7 -n 4 --from 192.0.2.6"),
        Ok("203.0.113.0/24".into())
    );

    // All ports are asked for, or none of those that are planned.
    rib.apply(Event::Rule(Rule {
        sport: Some((40000, 50000)),
        ip_proto: Some(6),
        priority: 101,
        ..rule
    }));
    let of = |words: &str| {
        planned(&rib, &format!("8.8.8.8 -n 4 --from 192.0.2.6 {words}"))
            .map(|plan| plan.paths.len())
    };
    assert_eq!(of("--first 41000 --last 42000"), Ok(4));
    assert_eq!(of("--first 50001 --last 52000"), Ok(1));
    assert_eq!(of("--udp"), Ok(1));
    assert_eq!(
        of(""),
        Err("packets to 8.8.8.8 are looked up by rule 101: from all ipproto tcp sport 40000-50000 lookup 7, which asks for more than \
             is said of them, or for what is not modelled"
            .into())
    );
}

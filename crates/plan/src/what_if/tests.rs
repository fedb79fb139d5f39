use raddle_rib::event::{Bucket, Event, GroupMember, Nexthop, NexthopKind, Settings};
use raddle_select::{Brings, HashKey};
use raddle_sim::sample;

use super::*;
use crate::state_test::{rib, ruled};

fn ask(words: &str) -> Result<Report, Error> {
    asked_with(words, None, None)
}

fn asked_with(
    words: &str,
    samples: Option<&[Sample]>,
    budget: Option<f64>,
) -> Result<Report, Error> {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    answer(
        &rib(),
        &Bonds::default(),
        &Question::parse(&words).unwrap(),
        samples,
        budget,
    )
}

fn moved(words: &str) -> f64 {
    ask(words).unwrap().moved
}

fn flows() -> Vec<Sample> {
    let dst = Some("203.0.113.7".parse().unwrap());
    let flows = sample::synthetic("10.9.0.0/16".parse().unwrap(), dst, 4000, 1).unwrap();
    flows.into_iter().map(Sample::of).collect()
}

#[test]
fn a_link_that_goes_down_is_told_in_full() {
    let report = ask("203.0.113.7 link-down eth4").unwrap();
    assert_eq!(
        report.text(false),
        "203.0.113.7: 203.0.113.0/24, nexthop group 100; what if link-down eth4\n\
         moves 50.00 % of the hash space (1073741824 of 2147483648 hashes)\n\
         at least 25.00 % would have to\n\
         \n\
         path                      before      after\n\
         via 10.0.1.1 dev eth1    25.00 %    33.33 %\n\
         via 10.0.2.1 dev eth2    25.00 %    33.33 %\n\
         via 10.0.3.1 dev eth3    25.00 %    33.33 %\n\
         via 10.0.4.1 dev eth4    25.00 %     0.00 %\n\
         \n\
         from                   to                         moves\n\
         via 10.0.4.1 dev eth4  via 10.0.3.1 dev eth3    25.00 %\n\
         via 10.0.3.1 dev eth3  via 10.0.2.1 dev eth2    16.67 %\n\
         via 10.0.2.1 dev eth2  via 10.0.1.1 dev eth1     8.33 %\n\
         \n\
         in the best order of members 33.33 % would move (choose it when the group is made: to change the \
         order moves flows too):\n  \
         via 10.0.1.1 dev eth1, via 10.0.2.1 dev eth2, via 10.0.4.1 dev eth4, via 10.0.3.1 dev eth3\n"
    );
}

#[test]
fn plain_routes_and_groups_lose_a_link_alike() {
    for link in 1..=4 {
        let plain = ask(&format!("198.51.100.1 link-down eth{link}")).unwrap();
        let group = ask(&format!("203.0.113.1 link-down eth{link}")).unwrap();
        let object = ask(&format!("203.0.113.1 nexthop-del {link}")).unwrap();
        let own = ask(&format!("198.51.100.1 nexthop-del dev eth{link}")).unwrap();
        for other in [&group, &object, &own] {
            assert_eq!(plain.moved_hashes, other.moved_hashes);
        }
        let expected = if [1, 4].contains(&link) {
            0.5
        } else {
            1.0 / 3.0
        };
        assert!(
            (plain.moved - expected).abs() < 1e-8,
            "{link}: {}",
            plain.moved
        );
    }
}

#[test]
fn a_route_without_nexthops_falls_through_to_the_next() {
    let all = "198.51.100.1 link-down eth2 link-down eth3 link-down eth4 nexthop-del via 10.0.1.1";
    let report = ask(all).unwrap();
    assert_eq!(report.route_after, "default, one nexthop");
    assert!(
        (report.moved - 0.75).abs() < 1e-8,
        "what was on eth1 stays there"
    );
    let report =
        ask("203.0.113.1 link-down eth1 link-down eth2 link-down eth3 link-down eth4").unwrap();
    assert!(
        report.route_after.starts_with("none: "),
        "{}",
        report.route_after
    );
    assert!((report.moved - 1.0).abs() < 1e-12);
    assert!(report.moves.iter().all(|step| step.to.is_none()));
}

#[test]
fn nexthops_come_and_weights_change() {
    // Of 4 to 5 members at the end: 1/5 for the new one, and what the others hand on.
    assert!((moved("203.0.113.1 nexthop-add via 10.0.4.9 dev eth4") - 0.5).abs() < 1e-8);
    assert!((moved("198.51.100.1 nexthop-add via 10.0.4.9 dev eth4") - 0.5).abs() < 1e-8);
    for words in [
        "203.0.113.1 weight id 4 2",
        "198.51.100.1 weight via 10.0.4.1 2",
    ] {
        let report = ask(words).unwrap();
        let last = &report.paths[3];
        assert!((last.after - 0.4).abs() < 1e-8 && (last.before - 0.25).abs() < 1e-8);
        assert!((report.least - 0.15).abs() < 1e-8);
        assert!((report.moved - 0.3).abs() < 1e-8, "{}", report.moved);
    }
}

/// Where the daemon spreads a route by a rule, the namespace's policy does not matter to it.
#[test]
fn rules_decide_what_is_hashed() {
    let asked = |rule: &str, words: &str| {
        let rib = ruled(rib(), rule);
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let question = Question::parse(&words).unwrap();
        answer(&rib, &Bonds::default(), &question, Some(&flows()), None)
    };
    let (by_rule, own) = ("203.0.113.7 iif eth1 policy 0", "203.0.113.7 policy 0");
    let kept = asked("nhid:100=l4", by_rule).unwrap();
    assert_eq!((kept.moved, kept.flows.unwrap().moved), (0.0, 0));
    // The kernel sends this machine's own, and other routes are not concerned.
    for (rule, words) in [("nhid:100=l4", own), ("nhid:7=l4", by_rule)] {
        let moved = asked(rule, words).unwrap();
        assert!(moved.moved > 0.7 && moved.flows.unwrap().moved > 0);
    }
    // A resilient group is hashed by the kernel's policy, whatever the rule says.
    let resilient = asked("nhid:100=l3", "203.0.113.7 iif eth1 resilient 8").unwrap();
    assert!(resilient.moved > 0.7, "{}", resilient.moved);
    for algo in ["round-robin", "flowlet"] {
        let error = asked(&format!("nhid:100={algo}"), by_rule).unwrap_err();
        assert!(
            error.to_string().contains("go round robin (mp-algo"),
            "{error}"
        );
    }
}

#[test]
fn another_hash_moves_what_chance_says() {
    for words in ["seed 9", "policy 0", "policy 0 seed 9"] {
        let report = asked_with(&format!("203.0.113.1 {words}"), Some(&flows()), None).unwrap();
        assert_eq!(report.moved_hashes, None);
        assert!(
            (report.moved - 0.75).abs() < 1e-8,
            "{words}: {}",
            report.moved
        );
        assert!(report.least < 1e-9);
        let flows = report.flows.unwrap();
        assert!(
            (flows.share() - 0.75).abs() < 0.05,
            "{words}: {}",
            flows.share()
        );
    }
    assert!(
        moved("203.0.113.1 policy 1") < 1e-12,
        "that is the policy already"
    );
    assert!(
        moved("203.0.113.1 fields 0x3") < 1e-12,
        "fields count with policy 3 only"
    );
}

#[test]
fn a_resilient_group_is_laid_out_anew() {
    let report = ask("203.0.113.1 resilient 64").unwrap();
    assert!((report.moved - 0.75).abs() < 1e-6, "{}", report.moved);
    assert!(
        report
            .paths
            .iter()
            .all(|share| (share.after - 0.25).abs() < 1e-9)
    );
}

/// The group as a resilient one with 64 buckets, which the kernel has told.
fn resilient_rib() -> Rib {
    let mut rib = rib();
    let members: Vec<GroupMember> = (1..=4).map(|id| GroupMember { id, weight: 1 }).collect();
    rib.apply(Event::Nexthop(Nexthop {
        kind: NexthopKind::Resilient {
            members,
            buckets: 64,
            idle_timer: 12000,
            unbalanced_timer: 0,
            unbalanced_time: 0,
        },
        ..rib.nexthop(100).unwrap().clone()
    }));
    for index in 0..64 {
        rib.apply(Event::Bucket(Bucket {
            group: 100,
            index,
            nexthop: 4 - u32::from(index) / 16,
            idle_time: 0,
            flags: 0,
        }));
    }
    rib
}

#[test]
fn a_resilient_group_moves_no_more_than_it_must() {
    let rib = resilient_rib();
    let ask = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        answer(
            &rib,
            &Bonds::default(),
            &Question::parse(&words).unwrap(),
            None,
            None,
        )
        .unwrap()
    };
    for words in ["link-down eth4", "nexthop-del 4"] {
        let report = ask(&format!("203.0.113.1 {words}"));
        assert_eq!(report.route, "203.0.113.0/24, resilient nexthop group 100");
        assert_eq!(report.route_after, report.route);
        assert!(
            (report.moved - 0.25).abs() < 1e-9,
            "{words}: {}",
            report.moved
        );
        assert_eq!(report.in_the_end, Some(report.moved));
        assert!(report.order.is_none());
    }
    // A new member waits for idle buckets.
    let report = ask("203.0.113.1 nexthop-add via 10.0.4.9 dev eth4");
    assert!(report.moved < 1e-12);
    assert!(
        (report.in_the_end.unwrap() - 13.0 / 64.0).abs() < 1e-9,
        "{:?}",
        report.in_the_end
    );
    let all = report.text(false);
    assert!(
        all.contains("and 20.31 % in the end, when buckets are idle: flows in use stay"),
        "{all}"
    );
    assert!(ask("203.0.113.1 policy 1").moved < 1e-12);
    assert!((ask("203.0.113.1 seed 3").moved - 0.75).abs() < 1e-6);
}

#[test]
fn flows_move_as_the_hash_space_does() {
    let report = asked_with("203.0.113.1 link-down eth4", Some(&flows()), Some(0.6)).unwrap();
    assert_eq!(report.within_budget, Some(true));
    let flows = report.flows.unwrap();
    assert_eq!((flows.given, flows.on_route), (4000, 4000));
    assert!((flows.share() - 0.5).abs() < 0.03, "{}", flows.share());
    assert_eq!(flows.list.len(), flows.moved);
    for flow in &flows.list {
        assert_ne!(flow.from, flow.to);
        assert_ne!(flow.to.as_ref().unwrap().dev, "eth4");
    }
}

#[test]
fn flows_of_other_routes_are_left_out() {
    let report = asked_with("198.51.100.1 link-down eth4", Some(&flows()), Some(0.1)).unwrap();
    assert_eq!(report.within_budget, Some(false), "half of the hash space");
    let flows = report.flows.unwrap();
    assert_eq!((flows.given, flows.on_route, flows.moved), (4000, 0, 0));
}

#[test]
fn what_cannot_be_is_said() {
    for (words, said) in [
        ("203.0.113.1 link-down eth9", "there is no link 'eth9'"),
        ("203.0.113.1 nexthop-del 9", "no nexthop 'id 9'"),
        ("203.0.113.1 nexthop-add 9", "there is no nexthop object 9"),
        ("203.0.113.1 nexthop-add via 10.0.0.1", "wants 'dev LINK'"),
        ("198.51.100.1 nexthop-del id 1", "nexthops of its own"),
        ("198.51.100.1 nexthop-add dev eth1 weight 300", "above 256"),
        ("198.51.100.1 weight dev eth9 2", "no nexthop 'dev eth9'"),
    ] {
        let failure = ask(words).unwrap_err();
        assert!(failure.to_string().contains(said), "{words}: {failure}");
    }
    let mut empty = Rib::detached();
    empty.apply(Event::Settings(Settings::default()));
    let words = ["10.0.0.1", "seed", "1"].map(str::to_owned);
    let failure = answer(
        &empty,
        &Bonds::default(),
        &Question::parse(&words).unwrap(),
        None,
        None,
    )
    .unwrap_err();
    assert!(failure.to_string().contains("no-route"), "{failure}");
}

/// Only of packets that bring a hash along does a change of the key move none.
#[test]
fn a_key_moves_what_brings_no_hash_along() {
    let mut rib = rib();
    let index = rib.link_named("eth1").unwrap().index;
    rib.set_brings(
        index,
        Brings {
            nic: None,
            software: Some(HashKey::new(3, 4)),
        },
    );
    let moved = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let question = Question::parse(&words).unwrap();
        answer(&rib, &Bonds::default(), &question, None, None)
            .unwrap()
            .moved
    };
    let seed = "203.0.113.7 iif eth1 from 10.9.0.1";
    assert_eq!(moved(&format!("{seed} ipproto udp seed 5")), 0.0);
    assert!(moved(&format!("{seed} ipproto icmp seed 5")) > 0.5);
    assert!(moved(&format!("{seed} seed 5")) > 0.5);
}

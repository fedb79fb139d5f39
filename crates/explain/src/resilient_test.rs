//! The way through a resilient group, to the letter.

use raddle_rib::Rib;
use raddle_rib::event::{
    Bucket, DeviceSettings, Event, GroupMember, Link, Neighbour, Nexthop, NexthopKind, Route,
    RouteOp, RouteTarget, Settings,
};

use super::tests::WellKnown;
use super::{Answer, FlowWords, Images, Question, Surroundings, View, answer, text};

const FLOW: &str = "10.9.0.7 from 10.1.1.2 iif l1 ipproto udp sport 1000 dport 53";

/// Links 1 to 3; behind 2 and 3 a nexthop each; a group of both with 8 buckets, of which `known` are.
fn rib(known: u16) -> Rib {
    let mut rib = Rib::detached();
    rib.apply(Event::Settings(Settings {
        hash_policy4: 1,
        hash_seed: 7,
        ..Settings::default()
    }));
    let nexthop = |id, kind| Event::Nexthop(Nexthop::new(id, 2, kind));
    for index in 1..=3 {
        rib.apply(Event::Link(Link {
            index,
            name: format!("l{index}"),
            flags: 0x1_0041,
            ..Link::default()
        }));
        let forwarding = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(index, forwarding));
        let gateway = [10, 0, index as u8, 2].into();
        let single = NexthopKind::Single {
            gateway: Some(gateway),
            index,
            encap: None,
        };
        rib.apply(nexthop(index, single));
        rib.apply(Event::Neighbour(Neighbour {
            index,
            dst: gateway,
            mac: Some([2, 0, 0, 0, 0, index as u8]),
            state: 2,
            flags: 0,
            protocol: 0,
        }));
    }
    let members = [(2, 3), (3, 1)].map(|(id, weight)| GroupMember { id, weight });
    let group = NexthopKind::Resilient {
        members: members.to_vec(),
        buckets: 8,
        idle_timer: 12_000,
        unbalanced_timer: 0,
        unbalanced_time: 0,
    };
    rib.apply(nexthop(13, group));
    for index in 0..known {
        rib.apply(Event::Bucket(Bucket {
            group: 13,
            index,
            nexthop: if index < 2 { 3 } else { 2 },
            idle_time: 0,
            flags: 0,
        }));
    }
    let route = Route {
        dst: "10.9.0.0/16".parse().unwrap(),
        protocol: 4,
        target: RouteTarget::Object(13),
        ..Route::default()
    };
    rib.apply(Event::Route(route, RouteOp::Add));
    rib
}

fn answered(known: u16) -> Answer {
    let words: Vec<String> = FLOW.split(' ').map(str::to_owned).collect();
    let words = FlowWords::parse(&words).unwrap();
    let around = Surroundings {
        kernel: None,
        ..Surroundings::default()
    };
    let (rib, images) = (rib(known), Images::default());
    let view = View::new(&rib, &WellKnown, &around, &images);
    let question = Question {
        words: &words,
        packet: None,
    };
    answer(view, question)
}

#[test]
fn a_bucket_leads_to_its_owner() {
    let answer = answered(8);
    let text = text::render(&answer);
    let step = |number: &str| -> Vec<&str> {
        text.lines()
            .skip_while(|line| !line.trim_start().starts_with(number))
            .enumerate()
            .take_while(|(i, line)| *i == 0 || line.starts_with("      "))
            .map(|(_, line)| line)
            .collect()
    };
    assert_eq!(
        step("4. "),
        [
            "  4. group      nexthop group 13, resilient, 8 buckets over 2 nexthops [nh_res_group_rebalance]",
            "                0: id 2 via 10.0.2.2 dev l2 weight 3: owns 6 buckets",
            "                1: id 3 via 10.0.3.2 dev l3 weight 1: owns 2 buckets",
        ]
    );
    let hash = answer.steps.iter().find(|s| s.step == 8).unwrap().data["hash31"].clone();
    let hash = hash.as_u64().unwrap();
    let (bucket, owner) = (hash % 8, if hash % 8 < 2 { 1 } else { 0 });
    assert_eq!(
        step("9. "),
        [format!(
            "  9. member     {owner}: owns bucket {bucket} = {hash} % 8 [nexthop_select_path_res]"
        )]
    );
    let member = &answer.steps.iter().find(|s| s.step == 9).unwrap().data;
    assert_eq!(
        (&member["bucket"], &member["id"]),
        (&bucket.into(), &(2 + owner).into())
    );
    assert_eq!(answer.link, Some(format!("l{}", 2 + owner)));
}

#[test]
fn an_unknown_table_is_the_kernels() {
    let answer = answered(7);
    assert_eq!((answer.link, answer.reason), (None, Some("resilient")));
    assert_eq!(
        answer.steps.last().unwrap().text,
        "a resilient group, and the owners of its buckets are not all known: to the kernel"
    );
}

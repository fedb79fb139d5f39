use raddle_image::{segment_flags, segment_kind};
use raddle_rib::event::{Link, RouteTarget};
use raddle_rib::seg6::Seg6;

use super::*;
use crate::statics::StaticSid;

fn config(text: &str) -> Result<Config, raddle_config::Error> {
    Config::of(&raddle_config::File::new("raddle.toml", text))
}

#[test]
fn they_become_routes_and_follow_their_links() {
    let config = config(
        "[[sid]]\nprefix = 'fc00::1/128'\naction = 'End.DX2'\noif = 'a'\n\
         [[encap]]\nprefix = 'fd99::/64'\nlists = [{ segs = ['fc00:1::'] }, { segs = ['fc00:2::'] }]",
    )
    .unwrap();
    let mut rib = Rib::detached();
    let mut statics = StaticRoutes::default();
    let events = statics.follow(&config, &rib);
    assert_eq!(events.len(), 2);
    events.into_iter().for_each(|event| rib.apply(event));
    assert!(statics.follow(&config, &rib).is_empty());
    rib.apply(raddle_rib::event::Event::Link(Link {
        index: 7,
        name: "a".into(),
        ..Link::default()
    }));
    let events = statics.follow(&config, &rib);
    assert_eq!(events.len(), 1);
    events.into_iter().for_each(|event| rib.apply(event));
    let routes: Vec<Route> = rib.routes6().collect();
    assert_eq!(routes.len(), 2);
    let RouteTarget::Single(hop) = &routes[0].target else {
        panic!("{:?}", routes[0])
    };
    let Seg6::Sid(sid) = Seg6::parse(hop.encap.as_ref().unwrap()).unwrap() else {
        panic!("{hop:?}")
    };
    assert_eq!(sid.behaviour, raddle_rib::seg6::Behaviour::Dx2 { oif: 7 });
    let resolved = rib.trace("a", "fd99::5".parse().unwrap()).resolved;
    let Resolved::Many { hops, .. } = resolved else {
        panic!("{resolved:?}")
    };
    assert!(hops.iter().all(|hop| hop.segment.as_ref().unwrap().own));
}

#[test]
fn engines_get_them_as_own() {
    let config = config("[[sid]]\nprefix = 'fc00::/64'\naction = 'End.DT46'\ntable = 100").unwrap();
    let mut rib = Rib::detached();
    rib.set_ports(raddle_rib::Ports {
        enabled: [7].into(),
        out: [7].into(),
    });
    rib.apply(raddle_rib::event::Event::Link(Link::ethernet(
        7, "a", [2; 6],
    )));
    for event in StaticRoutes::default().follow(&config, &rib) {
        rib.apply(event);
    }
    rib.commit();
    let (_, what, segment) = rib.segments().next().unwrap();
    assert!(what.own);
    assert_eq!(segment.kind, segment_kind::END_DT46);
    assert_eq!(segment.flags, segment_flags::NO_PUNT);
}

#[test]
fn several_lists_want_a_seed() {
    let encap = "[[encap]]\nprefix = '10.9.0.0/16'\n";
    let one = config(&format!("{encap}segs = ['fc00:1::']")).unwrap();
    let lists = format!("{encap}lists = [{{ segs = ['fc00:1::'] }}, {{ segs = ['fc00:2::'] }}]");
    let two = config(&lists).unwrap();
    let given = config(&format!("seed = 7\n{lists}")).unwrap();
    assert_eq!(check_seed(&one, false, true), Ok(()));
    assert_eq!(check_seed(&one, false, false), Ok(()));
    assert_eq!(check_seed(&given, false, true), Ok(()));
    for config in [&two, &given] {
        let error = check_seed(config, false, false).unwrap_err().to_string();
        assert!(
            error.contains("10.9.0.0/16") && error.contains("Linux 6.11"),
            "{error}"
        );
        assert!(!error.contains("--seed"), "{error}");
    }
    let error = check_seed(&two, false, true).unwrap_err().to_string();
    assert!(
        error.contains("10.9.0.0/16") && error.contains("--seed random"),
        "{error}"
    );
    assert_eq!(check_seed(&two, true, false), Ok(()));
}

/// A mirror with two links that forward, and these routes.
fn forwarding(routes: impl IntoIterator<Item = Route>) -> Rib {
    use raddle_rib::event::{Event, RouteOp};
    let mut rib = Rib::detached();
    rib.set_ports(raddle_rib::Ports {
        enabled: [7, 8].into(),
        out: [7, 8].into(),
    });
    for (index, name) in [(7, "a"), (8, "b")] {
        rib.apply(Event::Link(Link::ethernet(index, name, [2; 6])));
    }
    for route in routes {
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    rib
}

fn hop(index: u32, gateway: Option<&str>) -> raddle_rib::event::RouteNexthop {
    raddle_rib::event::RouteNexthop {
        index,
        gateway: gateway.map(|ip| ip.parse().unwrap()),
        weight: 1,
        ..Default::default()
    }
}

#[test]
fn gateways_behind_a_table_of_its_own_are_named_to_the_kernel() {
    let config = config("[[sid]]\nprefix = 'fc00::/64'\naction = 'End.DT46'\ntable = 100").unwrap();
    let mut rib = forwarding([Route {
        table: 100,
        dst: "10.9.0.0/16".parse().unwrap(),
        target: RouteTarget::Single(hop(7, Some("10.0.1.2"))),
        ..Route::default()
    }]);
    let mut statics = StaticRoutes::default();
    for event in statics.follow(&config, &rib) {
        rib.apply(event);
    }
    rib.commit();
    let gateway = (7, "10.0.1.2".parse().unwrap());
    assert_eq!(statics.unresolved(&rib, "a"), [gateway]);
}

#[test]
fn all_paths_to_a_first_segment_are_named_to_the_kernel() {
    let list = raddle_rib::seg6::Encaps::new(Default::default(), &["fc00:2::7".parse().unwrap()]);
    let encap = Some(Seg6::Encaps(list.unwrap()).encode());
    let towards = |hops: Vec<raddle_rib::event::RouteNexthop>| Route {
        table: 254,
        dst: "fc00:2::/48".parse().unwrap(),
        target: match hops.as_slice() {
            [one] => RouteTarget::Single(one.clone()),
            _ => RouteTarget::Multipath(hops),
        },
        ..Route::default()
    };
    let encapsulating = Route {
        table: 254,
        dst: "10.9.0.0/16".parse().unwrap(),
        target: RouteTarget::Single(raddle_rib::event::RouteNexthop {
            encap,
            ..hop(7, None)
        }),
        ..Route::default()
    };
    let both = vec![hop(7, Some("fd01::2")), hop(8, Some("fd02::2"))];
    let mut rib = forwarding([encapsulating.clone(), towards(both)]);
    rib.commit();
    let wanted = [
        (7, "fd01::2".parse().unwrap()),
        (8, "fd02::2".parse().unwrap()),
    ];
    assert_eq!(StaticRoutes::default().unresolved(&rib, "a"), wanted);
    // One path is the kernel's, too: it resolves that itself.
    let mut rib = forwarding([encapsulating, towards(vec![hop(7, Some("fd01::2"))])]);
    rib.commit();
    assert!(StaticRoutes::default().unresolved(&rib, "a").is_empty());
}

#[test]
fn tables_have_names_and_what_is_missing_is_said() {
    let config = config(
        "[[sid]]\nprefix = 'fc00:1::/64'\naction = 'End.DT6'\ntable = 'main'\n\
         [[sid]]\nprefix = 'fc00:2::/64'\naction = 'End.DT6'\ntable = 999\n\
         [[sid]]\nprefix = 'fc00:3::/64'\naction = 'End.DX2V'\nvlans = [{ vlan = 1, dev = 'a' }, { vlan = 2, dev = 'c' }]\n\
         [[encap]]\nprefix = 'fd99::/64'\nsegs = ['fc00:1::']\ndev = 'd'",
    )
    .unwrap();
    let same: StaticSid = "fc00:1::/64 encap seg6local action End.DT6 table 254"
        .parse()
        .unwrap();
    assert_eq!(config.sid[0], same);
    let rib = forwarding([Route {
        table: 254,
        dst: "::/0".parse().unwrap(),
        target: RouteTarget::Single(hop(7, Some("fd01::2"))),
        ..Route::default()
    }]);
    assert_eq!(
        missing(&config, &rib),
        [
            "fc00:3::/64: there is no link c",
            "fd99::/64: there is no link d",
            "fc00:2::/64: there are no routes in table 999",
        ]
    );
}

//! Wrong words, help, and readers that leave. The expected lines were printed by iproute2 6.1 on
//! Linux 6.18.

use super::*;

#[test]
fn errors_are_ips() {
    let world = World::new();
    let cases = [
        (
            "frob",
            false,
            "Object \"frob\" is unknown, try \"raddle help\".",
        ),
        (
            "route frob",
            false,
            "Command \"frob\" is unknown, try \"raddle route help\".",
        ),
        (
            "nex frob",
            false,
            "Command \"frob\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "-x route",
            false,
            "Option \"-x\" is unknown, try \"raddle route help\".",
        ),
        (
            "-f foo route",
            false,
            "Error: argument \"foo\" is wrong: invalid protocol family",
        ),
        (
            "route show frob",
            false,
            "Error: any valid prefix is expected rather than \"frob\".",
        ),
        (
            "-4 route show ::/0",
            false,
            "Error: inet prefix is expected rather than \"::/0\".",
        ),
        (
            "route show dev nosuch",
            false,
            "Cannot find device \"nosuch\"",
        ),
        (
            "route show dev",
            false,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show exact",
            false,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show table nosuch",
            false,
            "Error: argument \"nosuch\" is wrong: table id value is invalid",
        ),
        (
            "route show proto 300",
            false,
            "Error: argument \"300\" is wrong: invalid \"protocol\"",
        ),
        (
            "route show scope nosuch",
            false,
            "Error: argument \"nosuch\" is wrong: invalid \"scope\"",
        ),
        (
            "route show type nosuch",
            false,
            "Error: argument \"nosuch\" is wrong: node type value is invalid",
        ),
        (
            "route show metric x",
            false,
            "Error: argument \"x\" is wrong: \"metric\" value is invalid",
        ),
        (
            "route show d eth1",
            false,
            "Error: argument \"eth1\" is wrong: TOS value is invalid",
        ),
        (
            "neigh show nud foo",
            false,
            "Error: argument \"foo\" is wrong: nud state is bad",
        ),
        (
            "neigh show router",
            false,
            "Error: any valid prefix is expected rather than \"router\".",
        ),
        (
            "neigh show dev nosuch",
            false,
            "Cannot find device \"nosuch\"",
        ),
        (
            "nexthop show id x",
            false,
            "Error: argument \"x\" is wrong: invalid id value",
        ),
        (
            "nexthop show id 77",
            true,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop get",
            false,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show id 77",
            true,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop bucket show id 1",
            true,
            "Error: nexthop id 1 is not a resilient group.",
        ),
        (
            "nexthop bucket get id 13 index 8",
            true,
            "Error: bucket index out of bounds: the group has 8 buckets, from 0.",
        ),
        (
            "nexthop bucket get id 13",
            false,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show index 1",
            false,
            "Error: argument \"index\" is wrong: expected id, nhid or dev",
        ),
        (
            "nexthop bucket flush",
            false,
            "Command \"flush\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "nexthop show foo",
            false,
            "Error: argument \"foo\" is wrong: expected id, dev, groups, proto or fdb",
        ),
    ];
    for (line, is_absent, expected) in cases {
        let error = world.try_show(line).expect_err(line);
        assert_eq!(
            (error.to_string().as_str(), error.is_absent()),
            (expected, is_absent),
            "{line}"
        );
    }
}

#[test]
fn help_needs_no_state() {
    for (line, start) in [
        ("route help", "Usage: raddle [ OPTIONS ] route"),
        ("n h", "Usage: raddle [ OPTIONS ] neigh"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(Command::parse(&words, Names::built_in()).unwrap().is_help());
        assert!(World::new().show(line).starts_with(start), "{line}");
    }
}

#[test]
fn a_reader_that_leaves_is_an_error_not_a_panic() {
    let world = World::new();
    let state = State {
        links: &world.links,
        routes: &world.routes,
        ..State::default()
    };
    let command = Command::parse(&["route"], Names::built_in()).unwrap();
    let mut full: &mut [u8] = &mut [];
    assert!(matches!(
        command.print(&state, &mut full),
        Err(Error::Write(_))
    ));
}

//! Wrong words, help, and readers that leave. The expected lines were printed by iproute2 6.1 on
//! Linux 6.18.

use super::*;

#[test]
fn errors_are_ips() {
    let world = World::new();
    let cases = [
        (
            "frob",
            2,
            "Object \"frob\" is unknown, try \"raddle help\".",
        ),
        (
            "route frob",
            2,
            "Command \"frob\" is unknown, try \"raddle route help\".",
        ),
        (
            "nex frob",
            2,
            "Command \"frob\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "-x route",
            2,
            "Option \"-x\" is unknown, try \"raddle route help\".",
        ),
        (
            "-f foo route",
            2,
            "Error: argument \"foo\" is wrong: invalid protocol family",
        ),
        (
            "route show frob",
            2,
            "Error: any valid prefix is expected rather than \"frob\".",
        ),
        (
            "-4 route show ::/0",
            2,
            "Error: inet prefix is expected rather than \"::/0\".",
        ),
        ("route show dev nosuch", 2, "Cannot find device \"nosuch\""),
        (
            "route show dev",
            2,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show exact",
            2,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show table nosuch",
            2,
            "Error: argument \"nosuch\" is wrong: table id value is invalid",
        ),
        (
            "route show proto 300",
            2,
            "Error: argument \"300\" is wrong: invalid \"protocol\"",
        ),
        (
            "route show scope nosuch",
            2,
            "Error: argument \"nosuch\" is wrong: invalid \"scope\"",
        ),
        (
            "route show type nosuch",
            2,
            "Error: argument \"nosuch\" is wrong: node type value is invalid",
        ),
        (
            "route show metric x",
            2,
            "Error: argument \"x\" is wrong: \"metric\" value is invalid",
        ),
        (
            "route show d eth1",
            2,
            "Error: argument \"eth1\" is wrong: TOS value is invalid",
        ),
        (
            "neigh show nud foo",
            2,
            "Error: argument \"foo\" is wrong: nud state is bad",
        ),
        (
            "neigh show router",
            2,
            "Error: any valid prefix is expected rather than \"router\".",
        ),
        ("neigh show dev nosuch", 2, "Cannot find device \"nosuch\""),
        (
            "nexthop show id x",
            2,
            "Error: argument \"x\" is wrong: invalid id value",
        ),
        (
            "nexthop show id 77",
            3,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop get",
            2,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show id 77",
            3,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop bucket show id 1",
            3,
            "Error: nexthop id 1 is not a resilient group.",
        ),
        (
            "nexthop bucket get id 13 index 8",
            3,
            "Error: bucket index out of bounds: the group has 8 buckets, from 0.",
        ),
        (
            "nexthop bucket get id 13",
            2,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show index 1",
            2,
            "Error: argument \"index\" is wrong: expected id, nhid or dev",
        ),
        (
            "nexthop bucket flush",
            2,
            "Command \"flush\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "nexthop show foo",
            2,
            "Error: argument \"foo\" is wrong: expected id, dev, groups, proto or fdb",
        ),
    ];
    for (line, code, expected) in cases {
        let error = world.try_show(line).expect_err(line);
        assert_eq!(
            (error.to_string().as_str(), error.exit_code()),
            (expected, code),
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

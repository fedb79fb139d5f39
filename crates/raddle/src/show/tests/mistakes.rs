//! Wrong words, help, and readers that leave. The expected lines were printed by iproute2 6.1 on
//! Linux 6.18.

use super::*;

#[test]
fn errors_are_ips() {
    let world = World::new();
    let cases = [
        (
            "frob",
            1,
            "Object \"frob\" is unknown, try \"raddle help\".",
        ),
        (
            "route frob",
            1,
            "Command \"frob\" is unknown, try \"raddle route help\".",
        ),
        (
            "nex frob",
            1,
            "Command \"frob\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "-x route",
            1,
            "Option \"-x\" is unknown, try \"raddle route help\".",
        ),
        (
            "-f foo route",
            1,
            "Error: argument \"foo\" is wrong: invalid protocol family",
        ),
        (
            "route show frob",
            1,
            "Error: any valid prefix is expected rather than \"frob\".",
        ),
        (
            "-4 route show ::/0",
            1,
            "Error: inet prefix is expected rather than \"::/0\".",
        ),
        ("route show dev nosuch", 1, "Cannot find device \"nosuch\""),
        (
            "route show dev",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show exact",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show table nosuch",
            1,
            "Error: argument \"nosuch\" is wrong: table id value is invalid",
        ),
        (
            "route show proto 300",
            1,
            "Error: argument \"300\" is wrong: invalid \"protocol\"",
        ),
        (
            "route show scope nosuch",
            1,
            "Error: argument \"nosuch\" is wrong: invalid \"scope\"",
        ),
        (
            "route show type nosuch",
            1,
            "Error: argument \"nosuch\" is wrong: node type value is invalid",
        ),
        (
            "route show metric x",
            1,
            "Error: argument \"x\" is wrong: \"metric\" value is invalid",
        ),
        (
            "route show d eth1",
            1,
            "Error: argument \"eth1\" is wrong: TOS value is invalid",
        ),
        (
            "neigh show nud foo",
            1,
            "Error: argument \"foo\" is wrong: nud state is bad",
        ),
        (
            "neigh show router",
            1,
            "Error: any valid prefix is expected rather than \"router\".",
        ),
        ("neigh show dev nosuch", 1, "Cannot find device \"nosuch\""),
        (
            "nexthop show id x",
            1,
            "Error: argument \"x\" is wrong: invalid id value",
        ),
        (
            "nexthop show id 77",
            2,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop get",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show id 77",
            2,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop bucket show id 1",
            2,
            "Error: nexthop id 1 is not a resilient group.",
        ),
        (
            "nexthop bucket get id 13 index 8",
            2,
            "Error: bucket index out of bounds: the group has 8 buckets, from 0.",
        ),
        (
            "nexthop bucket get id 13",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show index 1",
            1,
            "Error: argument \"index\" is wrong: expected id, nhid or dev",
        ),
        (
            "nexthop bucket flush",
            1,
            "Command \"flush\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "nexthop show foo",
            1,
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

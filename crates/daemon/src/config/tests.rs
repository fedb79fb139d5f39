//! What the configuration file takes, and what it says of mistakes.

use super::*;

/// What a file with this text says.
pub(crate) fn parsed(text: &str) -> Config {
    Config::of(&File::new("raddle.toml", text)).unwrap()
}

/// What is wrong with one.
pub(crate) fn refused(text: &str) -> Error {
    Config::of(&File::new("raddle.toml", text)).unwrap_err()
}

#[test]
fn tables_that_are_misspelt_are_named() {
    for (text, said) in [
        ("[[sids]]\nprefix = 'fc00::/64'", "a SID is a table [[sid]]"),
        ("[sids]\nprefix = 'fc00::/64'", "a SID is a table [[sid]]"),
        ("sids = -1", "how many SIDs and encapsulations"),
        (
            "[sid]\nprefix = 'fc00::/64'",
            "a table [[sid]] for each SID",
        ),
        ("sid = 7", "sids = N is how many"),
        (
            "[encap]\nprefix = 'fc00::/64'",
            "a table [[encap]] for each",
        ),
        ("[[encaps]]\nprefix = 'fc00::/64'", "encap may be meant"),
        ("[[sidd]]\nprefix = 'fc00::/64'", "sid may be meant"),
        ("[[mp-algos]]\ngroup = 7", "mp-algo may be meant"),
        (
            "[[encap]]\nprefix = 'fc00::/64'\nlist = []",
            "lists may be meant",
        ),
    ] {
        let error = refused(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    let error = refused("quux = 7").to_string();
    assert!(!error.contains("may be meant"), "{error}");
}

#[test]
fn a_caret_stands_below_what_is_wrong_in_a_table() {
    let sid = |keys: &str| format!("routes4 = 7\n\n[[sid]]\nprefix = 'fc00::/64'\n{keys}");
    for (text, below) in [
        (sid("action = 'End.DT9'\ntable = 7"), "'End.DT9'"),
        (sid("action = 'End.DX4'"), "'End.DX4'"),
        (sid("action = 'End'\nnh4 = '10.0.0.1'"), "'10.0.0.1'"),
        (sid("action = 'End'\nflavors = ['psp', 'psk']"), "'psk'"),
        (sid("action = 'End.DT6'\ntable = 'no-such'"), "'no-such'"),
        (sid("action = 'End.X'\nnh6 = 'fd00::g'"), "'fd00::g'"),
        (sid("action = 'End'\nlblen = 32"), "32"),
        (
            sid("action = 'End.DX2V'\nvlans = [{ vlan = 4095, dev = 'a' }]"),
            "4095",
        ),
        (sid("routes = 7"), "routes"),
        (sid(""), "[[sid]]"),
        (
            "[[sid]]\naction = 'End'\nprefix = '10.0.0.0/8'".into(),
            "'10.0.0.0/8'",
        ),
        (
            "[[sid]]\naction = 'End'\nprefix = 'fc00::1/64'".into(),
            "'fc00::1/64'",
        ),
        (
            "[[encap]]\nprefix = 'fc00::/64'\nmode = 'encaps'\nsegs = ['fc00::1']".into(),
            "'encaps'",
        ),
        (
            "[[mp-algo]]\nprefix = '10.9.0.1/16'\nalgo = 'l4'".into(),
            "'10.9.0.1/16'",
        ),
        ("[[mp-algo]]\ngroup = 7\nalgo = 'l5'".into(), "'l5'"),
        ("mode = 'fast'".into(), "'fast'"),
    ] {
        let error = refused(&text);
        let place = error.place().unwrap();
        let shown = place.text.chars().skip(place.column - 1);
        let marked: String = shown.take(place.width).collect();
        assert_eq!(marked, below, "{error}");
    }
}

#[test]
fn a_file_is_read_and_mistakes_are_named() {
    let good = parsed("links = ['eth0']\nmode = 'generic'\nseed = 'random'\ndeadline = 5");
    assert_eq!(parsed("").rx_hash, RxHash::Auto);
    assert_eq!(parsed("rx-hash = 'on'").rx_hash, RxHash::On);
    assert_eq!(
        (good.mode, good.seed, good.deadline),
        (Mode::Generic, Some(Seed::Random), 5)
    );
    for (text, said) in [
        (
            "link = ['eth0']",
            "there is no key 'link' here; there are links, mode, ",
        ),
        ("link = ['eth0']", "; links may be meant"),
        (
            "mode = 'fast'",
            "there is no 'fast'; it is one of \"auto\", \"native\", \"generic\"",
        ),
        ("on_exit = 'keep'", "; on-exit may be meant"),
        (
            "on-exit = 7",
            "this is 7, and should be one of \"detach\", \"keep\"",
        ),
        ("seed = 0", "a seed of 0 means unknown"),
        ("seed = 'x'", "is not a seed"),
        (
            "seed = true",
            "this is true, and should be a number from 1 to 4294967295, or \"random\"",
        ),
        (
            "links = 'eth0'",
            "this is \"eth0\", and should be a list of links, such as [\"eth0\", \"eth1\"]",
        ),
        ("links = [1]", "this is 1, and should be text in quotes"),
        ("allow-qdisc = 'eth0'", "should be a list of links"),
        ("links = []", "it names no link"),
        (
            "routes4 = '7'",
            "this is \"7\", and should be a whole number, 0 or more",
        ),
        (
            "allow-bypass = 'yes'",
            "this is \"yes\", and should be true or false, without quotes",
        ),
        ("[[mp-algo]]\ngroup = 7", "the key 'algo' is missing here"),
        (
            "mp-algo = ['10.9.0.0/16 = l3']",
            "and should be a table of its own: [[mp-algo]] with prefix or group, and algo",
        ),
        (
            "sid = ['fc00::1']",
            "and should be a table of its own: [[sid]]",
        ),
        ("encap = [7]", "and should be a table of its own: [[encap]]"),
        (
            "[[encap]]\nprefix = 'fc00::/16'\nlists = ['fc00::1']",
            "and should be a table, such as { segs",
        ),
        (
            "metrics = 'localhost:9'",
            "'localhost:9' is no ADDRESS:PORT, such as \"127.0.0.1:1234\"",
        ),
        ("metrics = '192.0.2.1:9'", "is not a loopback address"),
        ("deadline = 0", "deadline is at least 1 second"),
        ("routes4 = 0", "routes4 is at least 1"),
        ("[fpm]\ngrace = 3601", "grace is at most 3600 seconds"),
        ("[fpm]\nlisten = '0.0.0.0:1'", "it has no access control"),
    ] {
        let error = refused(&format!("\n{text}"));
        let words = error.to_string();
        assert!(words.contains(said), "{text}: {error}");
        // With its place, and a caret below it.
        let place = error.place().unwrap();
        let key = place.line == 2 && place.column == 1;
        assert!(key || place.line == 1 + text.lines().count(), "{error}");
        let head = format!(
            "raddle.toml: line {}, column {}\n",
            place.line, place.column
        );
        assert!(words.starts_with(&head), "{error}");
        assert!(words.contains("^\n"), "{text}: {error}");
    }
    let spread = parsed(
        "[[mp-algo]]\nprefix = '10.9.0.0/16'\nalgo = 'l4,icmp-follows-flow'\n\
         [[mp-algo]]\ngroup = 7\nalgo = 'round-robin'",
    );
    let words: Vec<String> = spread.mp_algos.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        ["10.9.0.0/16=l4,icmp-follows-flow", "nhid:7=round-robin"]
    );
    let again: Vec<AlgoRule> = words.iter().map(|word| word.parse().unwrap()).collect();
    assert_eq!(again, spread.mp_algos);
    assert_eq!(algo_rules(&again).groups.len(), 1);
    for (text, said) in [
        ("[[mp-algo]]\nalgo = 'l4'", "either a prefix or a group"),
        (
            "[[mp-algo]]\ngroup = 1\nprefix = '::/0'\nalgo = 'l4'",
            "either a prefix or a group",
        ),
        (
            "[[mp-algo]]\ngroup = 1\nalgo = 'drr'",
            "'drr' is not a multipath algorithm",
        ),
        (
            "[[mp-algo]]\nprefix = '10.0.0.1/8'\nalgo = 'l4'",
            "use 10.0.0.0/8",
        ),
    ] {
        let error = refused(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    for (word, said) in [
        ("10.0.0.0/8", "PREFIX=ALGO"),
        ("nhid:x=l4", "'x' is not the id"),
    ] {
        let error = word.parse::<AlgoRule>().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let open = Config {
        metrics: Some("0.0.0.0:1".parse().unwrap()),
        ..Config::default()
    };
    assert!(open.check().unwrap_err().to_string().contains("loopback"));
    for (text, said) in [
        ("routes4 = 0", "at least 1"),
        ("routes6 = 0", "at least 1"),
        (
            "routes4 = 64000000",
            "routes4 is at least 1 and at most 33000000",
        ),
        (
            "routes6 = 16000000",
            "routes6 is at least 1 and at most 4000000",
        ),
        ("groups = 15", "groups is at least 16"),
        (
            "members = 100000000",
            "members is at least 16 and at most 33554432",
        ),
        ("adjacencies = 2000000", "at most 1048576"),
        ("deadline = 0", "at least 1 second"),
        ("deadline = 3601", "at most 3600"),
    ] {
        let error = refused(text);
        assert!(error.to_string().contains(said), "{text}: {error}");
        assert!(error.place().is_some(), "{text}: {error}");
    }
    let kept = parsed("on-exit = 'keep'\ndeadline = 5");
    assert_eq!((kept.on_exit, kept.deadline), (OnExit::Keep, 5));
}

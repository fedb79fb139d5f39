use super::*;
use crate::config::Config;

fn config(text: &str) -> Result<Config, raddle_config::Error> {
    Config::of(&raddle_config::File::new("raddle.toml", text))
}

/// What a file and an option of the same meaning come to.
fn same_sid(toml: &str, words: &str) -> StaticSid {
    let config = config(&format!("[[sid]]\n{toml}")).unwrap();
    let option: StaticSid = words.parse().unwrap();
    assert_eq!(config.sid, std::slice::from_ref(&option), "{words}");
    option
}

#[test]
fn file_and_option_say_the_same() {
    same_sid(
        "prefix = 'fc00::/64'\naction = 'End.DT46'\ntable = 100\ncounters = true",
        "fc00::/64 encap seg6local action End.DT46 table 100 count",
    );
    same_sid(
        "prefix = 'fc00::1/128'\naction = 'End'\nflavors = ['usp', 'replace-csid']\nlblen = 48\nnflen = 32",
        "fc00::1 encap seg6local action End flavors usp,replace-csid lblen 48 nflen 32",
    );
    same_sid(
        "prefix = 'fc00::1/128'\naction = 'End.DX2V'\n\
         vlans = [{ vlan = 20, dev = 'b' }, { vlan = 10, dev = 'a' }]",
        "fc00::1/128 encap seg6local action End.DX2V vlan 10 dev a vlan 20 dev b",
    );
    same_sid(
        "prefix = 'fc00::1/128'\nroute-table = 7\naction = 'End.B6.Encaps.Red'\nsegs = ['fc00:1::', 'fc00:2::']\n\
         dev = 'a'",
        "fc00::1/128 table 7 encap seg6local action End.B6.Encaps.Red srh segs fc00:1::,fc00:2:: dev a",
    );
    let file = config(
        "[[encap]]\nprefix = '10.9.0.0/16'\nmode = 'encap.red'\n\
         lists = [{ segs = ['fc00:1::'], weight = 3 }, { segs = ['fc00:2::', 'fc00:1::'] }]",
    );
    let option: StaticEncap =
        "10.9.0.0/16 encap seg6 mode encap.red segs fc00:1:: weight 3 segs fc00:2::,fc00:1::"
            .parse()
            .unwrap();
    assert_eq!(file.unwrap().encap, [option]);
}

/// As a template writes it.
#[test]
fn empty_lists_are_left_out() {
    let action = "prefix = 'fc00::/64'\naction = 'End.DT6'\ntable = 100";
    same_sid(
        &format!("{action}\nsegs = []\nvlans = []\nflavors = []"),
        "fc00::/64 encap seg6local action End.DT6 table 100",
    );
    let lists = "[[encap]]\nprefix = 'fc00::/64'\nlists = [{ segs = ['fc00:1::'] }]";
    let of = |text: &str| config(text).unwrap().encap;
    assert_eq!(of(&format!("{lists}\nsegs = []")), of(lists));
}

#[test]
fn an_empty_list_that_is_needed_is_shown() {
    let sid = "[[sid]]\nprefix = 'fc00::/64'\naction";
    for text in [
        format!("{sid} = 'End.DX2V'\nvlans = []"),
        format!("{sid} = 'End.B6'\nvlans = []\nsegs = []"),
        "[[encap]]\nprefix = 'fc00::/64'\nmode = 'encap'\nsegs = []".to_owned(),
    ] {
        let error = config(&text).unwrap_err();
        let place = error.place().unwrap();
        assert!(
            place.line == text.lines().count() && place.width == 2,
            "{error}"
        );
    }
}

#[test]
fn mistakes_are_named() {
    for (words, said) in [
        ("fc00::1/64 encap seg6local action End", "use fc00::/64"),
        ("10.0.0.1 encap seg6local action End", "only IPv6 has SIDs"),
        ("x encap seg6local action End", "not a prefix"),
        ("fc00::1 encap seg6 action End", "encap seg6local"),
        ("fc00::1 encap seg6local action End.Y", "no behaviour"),
        ("fc00::1 encap seg6local action End.DT4", "needs table"),
        (
            "fc00::1 encap seg6local action End.X nh4 10.0.0.1",
            "needs nh6",
        ),
        (
            "fc00::1 encap seg6local action End.T table 9 oif a",
            "no use for oif",
        ),
        (
            "fc00::1 encap seg6local action End.DT6 table 9 flavors usd",
            "no use for flavors",
        ),
        (
            "fc00::1 encap seg6local action End flavors foo",
            "no flavour",
        ),
        (
            "fc00::1 encap seg6local action End flavors next-csid,replace-csid",
            "exclude each other",
        ),
        (
            "fc00::1 encap seg6local action End lblen 32",
            "add next-csid",
        ),
        (
            "fc00::1 encap seg6local action End flavors next-csid lblen 33",
            "multiple of 8",
        ),
        // It would pass no packet at all.
        (
            "fc00::1 encap seg6local action End flavors replace-csid lblen 112 nflen 16",
            "at most 120, not 128",
        ),
        (
            "fc00::1 encap seg6local action End.DX2V vlan 4095 dev a",
            "VLAN 4095",
        ),
        (
            "fc00::1 encap seg6local action End.DX2V vlan 9 dev a vlan 9 dev b",
            "each once",
        ),
        ("fc00::1 encap seg6local action End.DX2V", "needs vlans"),
        (
            "fc00::1 encap seg6local action End.T table x",
            "is no table",
        ),
        (
            "fc00::1 encap seg6local action End.T table",
            "wants a value",
        ),
        (
            "fc00::1 encap seg6local action End via x",
            "'via' is not understood",
        ),
        (
            "fc00::1 encap seg6local action End.B6 srh segs x",
            "not a segment",
        ),
    ] {
        let error = words.parse::<StaticSid>().unwrap_err().to_string();
        assert!(error.contains(said), "{words}: {error}");
    }
    for (words, said) in [
        (
            "10.0.0.0/8 encap seg6 mode inline segs fc00::1",
            "is for IPv6",
        ),
        ("10.0.0.0/8 encap seg6 mode x segs fc00::1", "no mode"),
        ("10.0.0.0/8 encap seg6 mode encap", "wants segs"),
        ("10.0.0.0/8 encap seg6 segs fc00::1 weight 0", "1 to 65535"),
        (
            "10.0.0.0/8 encap seg6 segs fc00::1 weight x",
            "not a number",
        ),
        ("10.0.0.0/8 encap seg6 segs fc00::1 segs fc00::1", "twice"),
    ] {
        let error = words.parse::<StaticEncap>().unwrap_err().to_string();
        assert!(error.contains(said), "{words}: {error}");
    }
    for (text, said) in [
        (
            "[[sid]]\nprefix = 'fc00::1/128'\naction = 'End'\nnh = 1",
            "there is no key 'nh' here",
        ),
        (
            "[[sid]]\nprefix = 'fc00::/64'\naction = 'End'\n[[encap]]\nprefix = 'fc00::/64'\nsegs = ['fc00:1::']",
            "is there twice",
        ),
        ("sids = 0", "at least 1"),
        ("[[sid]]\nprefix = 'fc00::/64'", "wants an action"),
        (
            "[[sid]]\nprefix = 'fc00::/64'\naction = 'End.T'\ntable = 'nowhere'",
            "'nowhere' is no table",
        ),
        (
            "[[encap]]\nprefix = 'fc00::/64'\nlists = [{ segs = [] }]",
            "at least one segment",
        ),
        (
            "[[sid]]\nprefix = 'fc00::/64'\naction = 'End'\n[[sid]]\nprefix = 'fc00::/64'\naction = 'End'",
            "fc00::/64 in table main is there twice",
        ),
    ] {
        let error = config(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

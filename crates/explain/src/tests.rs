//! What answers about one state have in common. The state is that of `tests/topologies/net`, where answers are held
//! to the letter.

use std::borrow::Cow;
use std::path::Path;

use raddle_rib::event::Rule;
use raddle_rib::{AlgoRules, Rib, Snapshot};

use super::confidence::Level;
use super::*;

/// The names that answers have.
pub(super) struct WellKnown;

impl Names for WellKnown {
    fn table(&self, number: u32) -> Cow<'_, str> {
        match number {
            253 => "default".into(),
            254 => "main".into(),
            255 => "local".into(),
            other => other.to_string().into(),
        }
    }

    fn protocol(&self, number: u8) -> Cow<'_, str> {
        match number {
            2 => "kernel".into(),
            4 => "static".into(),
            186 => "bgp".into(),
            other => other.to_string().into(),
        }
    }
}

fn snapshot() -> Snapshot {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/topologies/net/state.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// What is not the machine's usual state.
#[derive(Default)]
pub(super) struct Odd {
    policy: u8,
    both: bool,
}

fn answer_to(question: &str, odd: &Odd) -> Answer {
    answer_in(question, odd, |_| ())
}

/// The same in a state that is changed.
pub(super) fn answer_in(question: &str, odd: &Odd, change: impl FnOnce(&mut Snapshot)) -> Answer {
    let mut snapshot = snapshot();
    change(&mut snapshot);
    snapshot.settings.hash_policy4 = odd.policy;
    snapshot.settings.hash_policy6 = odd.policy;
    let kernel = snapshot.kernel.clone();
    let around = Surroundings {
        kernel: kernel.and_then(|text| text.parse().ok()),
        ..Surroundings::default()
    };
    let mut rib = Rib::detached();
    snapshot.into_events().for_each(|event| rib.apply(event));
    let words: Vec<String> = question.split_whitespace().map(str::to_owned).collect();
    let (words, packet) = match words.split_first() {
        Some((first, rest)) if first == "hex" => {
            let packet = Packet::of_hex(&rest[0]).unwrap();
            let iif = FlowWords::parse_input(&rest[1..]).unwrap();
            (packet.words(&iif), Some(packet))
        }
        _ => (FlowWords::parse(&words).unwrap(), None),
    };
    let images = Images::default();
    let view = View::new(&rib, &WellKnown, &around, &images);
    let question = Question {
        words: &words,
        packet: packet.as_ref(),
    };
    match odd.both {
        true => both(view, question).unwrap(),
        false => answer(view, question),
    }
}

/// An IPv4 packet without options.
fn ipv4(proto: u8, fragment: u16, body: &str) -> String {
    with_ttl(64, proto, fragment, body)
}

pub(super) fn with_ttl(ttl: u8, proto: u8, fragment: u16, body: &str) -> String {
    let length = 20 + body.len() / 2;
    let words = [
        0x4500,
        length as u16,
        0,
        fragment,
        u16::from(ttl) << 8 | u16::from(proto),
        0,
        0xc000,
        0x0201,
        0xc612,
        0x0009,
    ];
    let header: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let sum = raddle_packet::checksum::checksum(&header);
    format!("4500{length:04x}0000{fragment:04x}{ttl:02x}{proto:02x}{sum:04x}c0000201c6120009{body}")
}

pub(super) fn frame(mac: &str, packet: &str) -> String {
    format!("{mac}0200000000200800{packet}")
}

/// The MAC address of in0.
pub(super) const IN0: &str = "020000000010";

/// What the kernel does not forward has no link, whatever its destination's route says.
#[test]
fn refused_addresses() {
    let udp = "iif in0 ipproto udp sport 1 dport 2";
    for (words, reason) in [
        ("198.18.0.9 from 127.0.0.1", "martian-source"),
        ("198.18.0.9 from 255.255.255.255", "martian-source"),
        ("198.18.0.9 from 10.0.1.1", "local-source"),
        ("255.255.255.255 from 10.0.0.7", "broadcast"),
        ("224.0.0.5 from 10.0.0.7", "multicast"),
        ("ff02::1 from 2001:db8::7", "multicast"),
        ("2001:db8:9::1 from fe80::1", "link-local"),
    ] {
        let answer = answer_to(&format!("{words} {udp}"), &Odd::default());
        assert_eq!(
            (answer.link, answer.reason),
            (None, Some(reason)),
            "{words}"
        );
    }
}

/// An answer that depends on what nobody has named does not look sure.
#[test]
fn unnamed_fields_are_doubts() {
    let l4 = |words: &str| {
        let odd = Odd {
            policy: 1,
            ..Odd::default()
        };
        let json = serde_json::to_value(answer_to(words, &odd)).unwrap();
        json["confidence"]["level"].clone()
    };
    assert_eq!(
        l4("198.18.0.9 iif in0 ipproto udp sport 1 dport 2"),
        "unknown"
    );
    assert_eq!(l4("198.18.0.9 from 10.0.0.7 iif in0"), "unknown");
    assert_eq!(
        l4("198.18.0.9 from 10.0.0.7 iif in0 ipproto tcp dport 2"),
        "unknown"
    );
    assert_ne!(
        l4("198.18.0.9 from 10.0.0.7 iif in0 ipproto tcp sport 1 dport 2"),
        "unknown"
    );
}

/// Packets that are not forwarded have no link, whatever their destination's route says.
#[test]
fn packets_end_as_what_happens_to_them() {
    let body = "03e8003500080000";
    let long = format!("03e8003507d00000{}", "00".repeat(1992));
    let ask = |packet: &str| format!("hex {packet} iif in0");
    let mut bad = ipv4(17, 0, body);
    bad.replace_range(20..24, "dead");
    for (name, packet) in [
        ("packet-ttl", with_ttl(1, 17, 0, body)),
        ("packet-ttl-icmp", with_ttl(1, 1, 0, "0300000000000000")),
        ("packet-df", ipv4(17, 0x4000, &long)),
        ("packet-long", ipv4(17, 0, &long)),
        ("packet-checksum", frame(IN0, &bad)),
        ("packet-mac", frame("020000000099", &ipv4(17, 0, body))),
        ("packet-all", frame("ffffffffffff", &ipv4(17, 0, body))),
    ] {
        let answer = answer_to(&ask(&packet), &Odd::default());
        let leaves = name == "packet-long";
        assert_eq!(answer.link.is_some(), leaves, "{name}: {answer:?}");
        assert_eq!(answer.confidence.level, Level::Exact, "{name}: {answer:?}");
        assert!(answer.fate.is_some());
    }
}

/// What raddle is told to spread otherwise is the kernel's choice where raddle does not forward it.
#[test]
fn a_choice_that_is_not_the_kernels_names_the_kernels() {
    let answer_by = |rules: &[(&str, &str)], words: &str| {
        let snapshot = snapshot();
        let rule = |(prefix, algo): &(&str, &str)| (prefix.parse().unwrap(), algo.parse().unwrap());
        let around = Surroundings {
            kernel: "6.18.44".parse().ok(),
            algos: AlgoRules {
                prefixes: rules.iter().map(rule).collect(),
                ..AlgoRules::default()
            },
            ..Surroundings::default()
        };
        let mut rib = Rib::detached();
        snapshot.into_events().for_each(|event| rib.apply(event));
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let images = Images::default();
        let view = View::new(&rib, &WellKnown, &around, &images);
        let words = FlowWords::parse(&words).unwrap();
        let question = Question {
            words: &words,
            packet: None,
        };
        answer(view, question)
    };
    let mut named = 0;
    for port in 1..20 {
        let words = format!("198.18.0.9 from 10.0.0.7 iif in0 ipproto udp sport {port} dport 53");
        let kernel = answer_by(&[], &words);
        let ours = answer_by(&[("198.18.0.0/16", "l4")], &words);
        assert_eq!(kernel.confidence.level, Level::Exact);
        let via = kernel.via.as_deref().unwrap();
        let says = ours.confidence.why.iter().any(|why| {
            why.contains("the kernel then chooses by its own hash policy") && why.contains(via)
        });
        assert_eq!(says, ours.via != kernel.via, "{ours:?}");
        // Hashes that packets bring do not count for such a route.
        let level = if says {
            Level::ExactUnless
        } else {
            Level::Exact
        };
        assert_eq!(ours.confidence.level, level);
        named += u32::from(says);
    }
    assert!(named > 0);
}

/// Of a connected socket it is the second look-up that counts, also among the gateways of one link.
#[test]
fn connected_sockets_take_their_second_look_up() {
    for port in 1..60 {
        let words = format!("198.18.0.9 ipproto udp sport {port} dport 53");
        let odd = || Odd {
            policy: 1,
            ..Odd::default()
        };
        let loose = answer_to(&words, &odd());
        let connected = answer_to(&format!("{words} connected"), &odd());
        let source = loose.source.unwrap();
        assert_eq!(connected.source, Some(source));
        let named = format!("198.18.0.9 from {source} ipproto udp sport {port} dport 53");
        let second = answer_to(&named, &odd());
        assert_eq!(
            (&connected.link, &connected.via),
            (&second.link, &second.via)
        );
        let doubts = loose.confidence.why.iter();
        let doubt = doubts
            .filter(|why| why.contains("the socket is connected"))
            .count();
        let differ = (&loose.link, &loose.via) != (&second.link, &second.via);
        assert_eq!(doubt == 1, differ, "{loose:?}");
    }
}

#[test]
fn json_has_what_it_had_and_more() {
    let odd = Odd {
        policy: 1,
        both: true,
    };
    let words = "198.18.0.9 from 10.0.0.2 iif in0 ipproto tcp sport 1000 dport 80";
    let json = serde_json::to_value(answer_to(words, &odd)).unwrap();
    for key in [
        "flow",
        "steps",
        "link",
        "via",
        "reason",
        "confidence",
        "kernel",
        "reverse",
    ] {
        assert!(json.get(key).is_some(), "{key}: {json}");
    }
    assert_eq!(json["flow"]["from"], "10.0.0.2");
    assert_eq!(json["confidence"]["level"], "exact-unless");
    assert_eq!(json["symmetry"]["same_link"], true);
    assert_eq!(json["reverse"]["link"], "in0");
    let steps = json["steps"].as_array().unwrap();
    let step = |name: &str| steps.iter().find(|step| step["name"] == name).unwrap();
    assert_eq!(step("member")["data"]["rule"], 1);
    assert_eq!(step("member")["function"], "fib_select_multipath");
    assert_eq!(step("policy")["function"], "fib_multipath_hash");
    assert_eq!(step("fields")["data"]["fields"][0], "ip-proto");
}

#[test]
fn a_flow_is_symmetric_where_the_kernel_orders_it() {
    // Between destinations behind choices both hashes are needed, and are one.
    for policy in [0, 1] {
        let odd = Odd { policy, both: true };
        let words = "198.18.0.9 from 198.19.0.2 iif up1 ipproto udp sport 7 dport 9";
        let symmetry = answer_to(words, &odd).symmetry.unwrap();
        assert_eq!(symmetry.same_hash, Some(true));
    }
}

/// What a routing rule asks for and the question does not name is a condition of the answer; what it cannot have is none.
#[test]
fn what_rules_ask_for_and_nobody_names_is_a_doubt() {
    let asks = |question: &str, rule: Rule| {
        let answer = answer_in(question, &Odd::default(), |snapshot| {
            let rule = Rule {
                family: 4,
                priority: 100,
                table: 254,
                action: 1,
                ..rule
            };
            snapshot.rules.push(rule);
        });
        let mut why = answer.confidence.why.iter();
        why.any(|why| why.contains("rule 100: "))
    };
    let from = || Rule {
        from: Some("10.0.1.0/24".parse().unwrap()),
        ..Rule::default()
    };
    let web = || Rule {
        ip_proto: Some(6),
        dport: Some((443, 443)),
        ..Rule::default()
    };
    // A socket without an address has no source when it is looked up first, and the kernel's choice then.
    assert!(!asks("198.51.100.7", from()));
    // By one path, where no hash wants the source.
    assert!(asks("10.0.2.2 iif in0", from()));
    assert!(!asks("10.0.2.2 from 10.0.0.9 iif in0", from()));
    let of = |words: &str| asks(&format!("10.0.2.2 from 10.0.0.9 iif in0 {words}"), web());
    assert!(of(""));
    assert!(of("ipproto tcp sport 5"));
    assert!(!of("ipproto tcp dport 80"));
    assert!(!of("ipproto udp"));
    let any = Rule {
        dport: Some((443, 443)),
        ..Rule::default()
    };
    assert!(!asks(
        "198.51.100.7 from 10.0.1.9 iif in0 ipproto icmp",
        any
    ));
}

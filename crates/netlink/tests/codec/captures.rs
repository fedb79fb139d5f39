//! Messages recorded from a 6.18 kernel (`tests/kernel/record.rs`) decode to what the text beside
//! them says. `RADDLE_UPDATE_CAPTURES=1` writes the texts anew.

use std::fmt::Write;
use std::path::Path;

use raddle_netlink::codec::{Decoded, Messages, decode_message};

fn check(name: &str) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let bytes = std::fs::read(data.join(format!("{name}.bin"))).unwrap();
    let mut text = String::new();
    for message in Messages::new(&bytes) {
        let message = message.unwrap();
        match decode_message(&message).unwrap() {
            Decoded::Event(event) => writeln!(text, "{event:?}").unwrap(),
            Decoded::Vlans(vlans) => {
                for event in vlans.events() {
                    writeln!(text, "{event:?}").unwrap();
                }
            }
            Decoded::Port(change) => writeln!(text, "{change:?}").unwrap(),
            Decoded::Netconf(netconf) => writeln!(text, "{netconf:?}").unwrap(),
            Decoded::Outcome(outcome) => writeln!(text, "{outcome:?}").unwrap(),
            Decoded::Other => writeln!(text, "type {} is not for us", message.kind).unwrap(),
        }
    }
    hold(name, &text);
}

/// Holds a text against the one that is kept beside the capture, or writes that anew.
pub(crate) fn hold(name: &str, text: &str) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let expected = data.join(format!("{name}.txt"));
    if std::env::var_os("RADDLE_UPDATE_CAPTURES").is_some() {
        std::fs::write(&expected, text).unwrap();
    }
    let expected = std::fs::read_to_string(&expected).unwrap();
    for (number, (got, want)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(got, want, "{name}.txt, line {}", number + 1);
    }
    assert_eq!(text.lines().count(), expected.lines().count());
}

/// Of a 6.12 kernel, which filters VLANs.
#[test]
fn bridges() {
    check("bridge-dumps");
    check("bridge-notifications");
}

#[test]
fn dumps() {
    check("dumps");
}

#[test]
fn notifications() {
    check("notifications");
}

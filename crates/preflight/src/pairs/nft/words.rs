//! Tests in nft's words.

use raddle_netlink::probe::nft::Side;

use super::super::model::Interval;

pub(super) fn link_word(side: Side, name: &str) -> &'static str {
    match (side, name) {
        (Side::From, "name") => "iifname",
        (Side::To, "name") => "oifname",
        (Side::From, _) => "iif",
        (Side::To, _) => "oif",
    }
}

pub(super) fn list(values: &[Interval]) -> String {
    let shown: Vec<_> = values.iter().map(|v| v.0.to_string()).collect();
    braces(&shown)
}

pub(super) fn names_text(names: &[Interval]) -> String {
    let text = |n: &Interval| {
        let bytes = n.0.to_be_bytes();
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(16);
        let wild = if n.1.count_ones() > n.0.count_ones() && end < 15 && n.1 != n.0 {
            // All that begins with it, unless its end is part of what is compared.
            let rest = n.1.to_be_bytes();
            if rest[end] == 0 { "" } else { "*" }
        } else {
            ""
        };
        format!("\"{}{wild}\"", String::from_utf8_lossy(&bytes[..end]))
    };
    let shown: Vec<_> = names.iter().map(text).collect();
    braces(&shown)
}

pub(super) fn braces(shown: &[String]) -> String {
    match shown {
        [one] => one.clone(),
        some if some.len() <= 8 => format!("{{ {} }}", some.join(", ")),
        many => format!("{{ {}, ... }}", many[..8].join(", ")),
    }
}

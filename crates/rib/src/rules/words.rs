//! Rules in the words of `ip rule`.

use std::fmt::Write;

use super::asked::{Asked, write_selectors};
use super::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::event::{RULE_OTHER_INVERT, RULE_OTHER_L3MDEV, Rule};

/// A rule as `ip rule` prints it, as far as the mirror keeps it.
pub fn describe_rule(rule: &Rule) -> String {
    let net = |net: &Option<ipnet::IpNet>| match net {
        Some(net) if net.prefix_len() == net.max_prefix_len() => net.addr().to_string(),
        Some(net) if net.prefix_len() > 0 => net.to_string(),
        _ => "all".to_owned(),
    };
    let mut text = format!("{}:", rule.priority);
    if rule.other.contains(&RULE_OTHER_INVERT) {
        text.push_str(" not");
    }
    let _ = write!(text, " from {}", net(&rule.from));
    if rule.to.is_some_and(|to| to.prefix_len() > 0) {
        let _ = write!(text, " to {}", net(&rule.to));
    }
    if let Some((mark, mask)) = rule.fwmark {
        let _ = write!(text, " fwmark {mark:#x}");
        if mask != u32::MAX {
            let _ = write!(text, "/{mask:#x}");
        }
    }
    for (word, link) in [("iif", &rule.iif), ("oif", &rule.oif)] {
        if let Some(link) = link {
            let _ = write!(text, " {word} {link}");
        }
    }
    if let Some((first, last)) = rule.uidrange {
        let _ = write!(text, " uidrange {first}-{last}");
    }
    let _ = write_selectors(&Asked::of(rule), &mut text);
    let l3mdev = rule.other.contains(&RULE_OTHER_L3MDEV);
    let named = [RULE_OTHER_INVERT, RULE_OTHER_L3MDEV];
    for attribute in rule.other.iter().filter(|a| !named.contains(a)) {
        let _ = write!(text, " {}", selector(*attribute));
    }
    match (rule.action, rule.table) {
        (1, _) if l3mdev => text.push_str(" lookup [l3mdev-table]"),
        (1, TABLE_LOCAL) => text.push_str(" lookup local"),
        (1, TABLE_MAIN) => text.push_str(" lookup main"),
        (1, TABLE_DEFAULT) => text.push_str(" lookup default"),
        (1, table) => _ = write!(text, " lookup {table}"),
        (2, _) => {
            text.push_str(" goto");
            if let Some(target) = rule.goto {
                let _ = write!(text, " {target}");
            }
        }
        (3, _) => text.push_str(" nop"),
        (6, _) => text.push_str(" blackhole"),
        (7, _) => text.push_str(" unreachable"),
        (8, _) => text.push_str(" prohibit"),
        (action, _) => _ = write!(text, " action {action}"),
    }
    if let Some(length) = rule.suppress_prefixlength {
        let _ = write!(text, " suppress_prefixlength {length}");
    }
    text
}

/// What a rule selects by or changes, `FRA_*` of `linux/fib_rules.h`, in the words of `ip rule`; its
/// value is not kept.
fn selector(attribute: u16) -> String {
    let word = match attribute {
        11 => "realms",
        12 => "tun_id",
        13 => "suppress_ifgroup",
        26 | 27 => "flowlabel",
        28 => "a mask for sport",
        29 => "a mask for dport",
        30 => "a mask for dscp",
        number => return format!("(attribute {number})"),
    };
    format!("{word} ...")
}

//! The words of a question: a destination and changes.

use std::fmt;
use std::net::IpAddr;

use raddle_rib::Asked;

use super::WordsError;
use crate::paths;

/// Which nexthop is meant: by its object's id, or by where it leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `id N`, or a bare number.
    pub id: Option<u32>,
    /// `via ADDRESS`.
    pub via: Option<IpAddr>,
    /// `dev LINK`.
    pub dev: Option<String>,
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id.map(|id| format!("id {id}"));
        let via = self.via.map(|via| format!("via {via}"));
        let dev = self.dev.as_ref().map(|dev| format!("dev {dev}"));
        let words: Vec<String> = [id, via, dev].into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

/// A change to evaluate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `link-down LINK`.
    LinkDown(String),
    /// `nexthop-del NEXTHOP`.
    Delete(Selector),
    /// `nexthop-add NEXTHOP [weight W]`.
    Add(Selector, u16),
    /// `weight NEXTHOP W`.
    Weight(Selector, u16),
    /// `policy N`.
    Policy(u8),
    /// `seed N`.
    Seed(u32),
    /// `fields MASK`.
    Fields(u32),
    /// `resilient BUCKETS`.
    Resilient(u16),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::LinkDown(link) => write!(f, "link-down {link}"),
            Change::Delete(which) => write!(f, "nexthop-del {which}"),
            Change::Add(which, weight) => write!(f, "nexthop-add {which} weight {weight}"),
            Change::Weight(which, weight) => write!(f, "weight {which} {weight}"),
            Change::Policy(n) => write!(f, "policy {n}"),
            Change::Seed(n) => write!(f, "seed {n}"),
            Change::Fields(mask) => write!(f, "fields {mask:#x}"),
            Change::Resilient(buckets) => write!(f, "resilient {buckets}"),
        }
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Destination.
    pub dst: IpAddr,
    /// Input link of the packets; without it they are this machine's own.
    pub iif: Option<String>,
    /// What else is said of them, for routing rules that ask for it.
    pub packets: Asked,
    /// Changes, one or more, that happen together.
    pub changes: Vec<Change>,
}

pub(super) const CHANGES: &str = "link-down LINK, nexthop-del NEXTHOP, nexthop-add NEXTHOP [weight W], weight NEXTHOP W, \
                       policy N, seed N, fields MASK, resilient BUCKETS; a NEXTHOP is id N, via ADDRESS, \
                       dev LINK";

type Words<'a> = std::iter::Peekable<std::slice::Iter<'a, String>>;

impl Question {
    /// Reads the words: `DST [iif LINK] [from SRC] [ipproto PROTO] [sport PORT] [dport PORT] CHANGE...`.
    ///
    /// # Errors
    /// Which word is wrong.
    pub fn parse(words: &[String]) -> Result<Question, WordsError> {
        let mut words = words.iter().peekable();
        let mut first = words.next().ok_or(WordsError::NoDestination)?;
        if first == "to" {
            first = words.next().ok_or(WordsError::NoDestinationBehindTo)?;
        }
        let dst = address(first)?;
        let mut iif = None;
        let mut packets = paths::packets_to(dst);
        let mut changes = Vec::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "iif" => iif = Some(value(&mut words, "iif")?),
                "from" => {
                    let from = value(&mut words, "from")?;
                    let src = address(&from)?;
                    if src.is_ipv4() != dst.is_ipv4() {
                        return Err(WordsError::Family(from));
                    }
                    packets.src = src.into();
                }
                "ipproto" => packets.proto = Some(protocol(&value(&mut words, "ipproto")?)?),
                "sport" => packets.sport = port(&mut words, word)?,
                "dport" => packets.dport = port(&mut words, word)?,
                word => changes.push(change(word, &mut words)?),
            }
        }
        if changes.is_empty() {
            return Err(WordsError::NoChange);
        }
        Ok(Question {
            dst,
            iif,
            packets,
            changes,
        })
    }
}

fn protocol(word: &str) -> Result<u8, WordsError> {
    raddle_explain::protocol_number(word).map_err(|_| WordsError::Protocol(word.to_owned()))
}

fn port(words: &mut Words<'_>, key: &str) -> Result<(u16, u16), WordsError> {
    let port = number(words, key, 0..=65535)? as u16;
    Ok((port, port))
}

fn change(word: &str, words: &mut Words<'_>) -> Result<Change, WordsError> {
    Ok(match word {
        "link-down" => Change::LinkDown(value(words, word)?),
        "nexthop-del" => Change::Delete(selector(words, word)?),
        "nexthop-add" => {
            let which = selector(words, word)?;
            let weight = words.next_if(|next| *next == "weight");
            let weight = match weight {
                Some(key) => number(words, key, 1..=65535)? as u16,
                None => 1,
            };
            Change::Add(which, weight)
        }
        "weight" => {
            let which = selector(words, word)?;
            Change::Weight(which, number(words, word, 1..=65535)? as u16)
        }
        "policy" => Change::Policy(number(words, word, 0..=3)? as u8),
        "seed" => Change::Seed(number(words, word, 1..=u32::MAX)?),
        "fields" => Change::Fields(number(words, word, 0..=0xfff)?),
        "resilient" => Change::Resilient(number(words, word, 1..=65535)? as u16),
        other => return Err(WordsError::Change(other.to_owned())),
    })
}

fn value(words: &mut Words<'_>, key: &str) -> Result<String, WordsError> {
    let value = words.next().cloned();
    value.ok_or_else(|| WordsError::NoValue(key.to_owned()))
}

fn address(word: &str) -> Result<IpAddr, WordsError> {
    let address = word.parse();
    address.map_err(|_| WordsError::Address(word.to_owned()))
}

fn selector(words: &mut Words<'_>, key: &str) -> Result<Selector, WordsError> {
    let mut which = Selector::default();
    if let Some(id) = words.peek().and_then(|word| word.parse().ok()) {
        words.next();
        which.id = Some(id);
        return Ok(which);
    }
    while let Some(word) = words.next_if(|word| ["id", "via", "dev"].contains(&word.as_str())) {
        match word.as_str() {
            "id" => which.id = Some(number(words, word, 1..=u32::MAX)?),
            "via" => which.via = Some(address(&value(words, word)?)?),
            _ => which.dev = Some(value(words, word)?),
        }
    }
    match which == Selector::default() {
        true => Err(WordsError::NoNexthop(key.to_owned())),
        false => Ok(which),
    }
}

fn number(
    words: &mut Words<'_>,
    key: &str,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, WordsError> {
    let word = value(words, key)?;
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    let within = parsed.filter(|n| range.contains(n));
    within.ok_or_else(|| WordsError::Number {
        key: key.to_owned(),
        word,
        least: *range.start(),
        most: *range.end(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Question, WordsError> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Question::parse(&words)
    }

    #[test]
    fn changes_survive_being_printed() {
        for text in [
            "link-down eth1",
            "nexthop-del id 5",
            "nexthop-del via 10.0.0.1 dev eth1",
            "nexthop-add via fe80::1 dev eth1 weight 4",
            "weight dev eth1 3",
            "policy 1",
            "seed 4294967295",
            "fields 0x37",
            "resilient 128",
        ] {
            let question = parse(&format!("10.0.0.9 iif eth0 {text}")).unwrap();
            assert_eq!(question.changes[0].to_string(), text);
            assert_eq!(question.iif.as_deref(), Some("eth0"));
        }
        let said = parse("10.0.0.9 from 10.1.0.1 ipproto tcp dport 80 link-down eth1").unwrap();
        let packets = said.packets;
        assert_eq!(
            (packets.src.to_string(), packets.proto),
            ("10.1.0.1/32".into(), Some(6))
        );
        assert_eq!((packets.dport, packets.sport), ((80, 80), (0, 65535)));
        let two = parse("to 10.0.0.9 nexthop-add 7 link-down eth1").unwrap();
        assert_eq!(two.changes.len(), 2);
        assert_eq!(two.changes[0].to_string(), "nexthop-add id 7 weight 1");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("", "name a destination"),
            ("there", "'there' is not an address"),
            ("10.0.0.1", "name a change: link-down LINK"),
            ("10.0.0.1 link-down", "'link-down' wants a value"),
            ("10.0.0.1 explode", "'explode' is not a change"),
            ("10.0.0.1 nexthop-del", "'nexthop-del' wants a nexthop"),
            ("10.0.0.1 nexthop-del via x", "'x' is not an address"),
            (
                "10.0.0.1 policy 4",
                "'4' is not a policy: a number from 0 to 3",
            ),
            ("10.0.0.1 from ::1 policy 1", "'::1' is of another family"),
            ("10.0.0.1 ipproto x policy 1", "'x' is not a protocol"),
            ("10.0.0.1 seed 0", "'0' is not a seed"),
            ("10.0.0.1 weight id 4", "'weight' wants a value"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

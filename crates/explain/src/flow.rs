//! The words of a flow: `DST [from SRC] [iif LINK] [ipproto P] [sport N] [dport N] [flowlabel N]
//! [tos N] [connected]`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_packet::protocol::ports_offset;
use raddle_rib::{Asked, Fields};
use raddle_select::Flow;
use serde::Serialize;

use super::error::Error;

/// A flow as the user named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowWords {
    /// Destination.
    pub dst: IpAddr,
    /// Source; the unspecified address when none was given.
    #[serde(rename = "from")]
    pub src: IpAddr,
    /// Input link; none for this machine's own packets.
    pub iif: Option<String>,
    /// Protocol; 0 when none was given.
    pub proto: u8,
    /// Source port; 0 when none was given.
    pub sport: u16,
    /// Destination port; 0 when none was given.
    pub dport: u16,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// TOS or traffic class of a packet that comes in.
    #[serde(skip_serializing_if = "is_zero")]
    pub tos: u8,
    /// This machine's own UDP socket is connected to the destination.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub connected: bool,
}

fn is_zero(tos: &u8) -> bool {
    *tos == 0
}

const UDP: u8 = 17;

/// What may follow the destination.
const KEYS: [&str; 8] = [
    "from",
    "iif",
    "ipproto",
    "sport",
    "dport",
    "flowlabel",
    "tos",
    "connected",
];

/// Protocols by name, as `ip route get` takes them, and their numbers.
const PROTOCOLS: [(&str, u8); 8] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("sctp", 132),
];

impl FlowWords {
    /// Reads the words of `ip route get`.
    ///
    /// # Errors
    /// Which word is wrong, and why.
    pub fn parse(words: &[String]) -> Result<FlowWords, Error> {
        let flow = FlowWords::parse_line(words)?;
        flow.check_tos()?;
        Ok(flow)
    }

    /// Packets of this machine's own have the TOS of their sockets, which may not be named.
    ///
    /// # Errors
    /// [`Error::Tos`].
    pub fn check_tos(&self) -> Result<(), Error> {
        match self.tos != 0 && self.iif.is_none() {
            true => Err(Error::Tos),
            false => Ok(()),
        }
    }

    /// The same of a line of a list: the link may be named for all of them.
    ///
    /// # Errors
    /// Which word is wrong, and why.
    pub fn parse_line(words: &[String]) -> Result<FlowWords, Error> {
        let mut words = words.iter().map(String::as_str);
        let mut first = words.next().ok_or(Error::NoDestination)?;
        if first == "to" {
            first = words.next().ok_or(Error::NoDestinationBehindTo)?;
        }
        let dst: IpAddr = address(first)?;
        let unspecified = match dst {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let mut flow = FlowWords {
            dst,
            src: unspecified,
            iif: None,
            proto: 0,
            sport: 0,
            dport: 0,
            flow_label: 0,
            tos: 0,
            connected: false,
        };
        while let Some(key) = words.next() {
            if key == "connected" {
                flow.connected = true;
                continue;
            }
            let mut value = || words.next().ok_or_else(|| Error::NoValue(key.to_owned()));
            match key {
                "from" => flow.src = address(value()?)?,
                "iif" => flow.iif = Some(value()?.to_owned()),
                "ipproto" => flow.proto = protocol_number(value()?)?,
                "sport" => flow.sport = number(key, value()?, 65535)? as u16,
                "dport" => flow.dport = number(key, value()?, 65535)? as u16,
                "tos" => flow.tos = number(key, value()?, 255)? as u8,
                "flowlabel" => flow.flow_label = number(key, value()?, 0xf_ffff)?,
                other => {
                    return Err(Error::Word {
                        word: other.to_owned(),
                        known: KEYS.join(", "),
                    });
                }
            }
        }
        if flow.src.is_ipv4() != flow.dst.is_ipv4() {
            return Err(Error::Families {
                src: flow.src,
                dst: flow.dst,
            });
        }
        if flow.connected && (flow.proto != UDP || flow.iif.is_some()) {
            return Err(Error::Connected);
        }
        flow.checked()
    }

    /// What selection hashes, in words.
    ///
    /// # Errors
    /// [`Error::Ports`].
    pub fn of(flow: &Flow) -> Result<FlowWords, Error> {
        let (src, dst) = flow.addresses.ends();
        let words = FlowWords {
            dst,
            src,
            iif: None,
            proto: flow.proto,
            sport: flow.sport,
            dport: flow.dport,
            flow_label: flow.flow_label,
            tos: 0,
            connected: false,
        };
        words.checked()
    }

    fn checked(self) -> Result<FlowWords, Error> {
        if self.proto == 0 && (self.sport != 0 || self.dport != 0) {
            return Err(Error::Ports);
        }
        Ok(self)
    }

    /// Whether [`FlowWords::parse`] is who reads these words, and not who reads other programs' lists.
    pub fn are(words: &[String]) -> bool {
        let mut words = words.iter().map(String::as_str);
        match (words.next(), words.next()) {
            (Some("to"), _) => true,
            (Some(dst), next) => {
                dst.parse::<IpAddr>().is_ok() && next.is_none_or(|next| KEYS.contains(&next))
            }
            (None, _) => false,
        }
    }

    /// Reads what a packet leaves to be said: `iif LINK`.
    ///
    /// # Errors
    /// [`Error::NoInput`], [`Error::MoreThanInput`].
    pub fn parse_input(words: &[String]) -> Result<String, Error> {
        match words {
            [word, name] if word == "iif" => Ok(name.clone()),
            [] => Err(Error::NoInput),
            _ => Err(Error::MoreThanInput),
        }
    }

    /// What is known of its packets where routing rules may ask for it: what is not named is any, but for ports of a protocol that has
    /// none, and for the source of this machine's own packets, which have none when they are looked up first.
    pub(crate) fn packets(&self) -> Asked {
        let has_ports = self.proto == 0 || ports_offset(self.proto).is_some();
        let ports = |port: u16| match port == 0 && has_ports {
            true => (0, u16::MAX),
            false => (port, port),
        };
        let mut packets = Asked {
            tos: (self.tos, u8::MAX),
            proto: (self.proto != 0).then_some(self.proto),
            sport: ports(self.sport),
            dport: ports(self.dport),
            ..Asked::to(self.dst)
        };
        if !self.src.is_unspecified() || self.iif.is_none() {
            packets.src = self.src.into();
        }
        packets
    }

    /// What routing rules look at.
    pub(crate) fn fields(&self) -> Fields {
        Fields {
            src: self.src,
            dst: self.dst,
            tos: self.tos,
            proto: self.proto,
            sport: self.sport,
            dport: self.dport,
        }
    }

    /// What selection hashes.
    pub fn flow(&self) -> Option<Flow> {
        let flow = Flow::new(self.src, self.dst)?.ports(self.proto, self.sport, self.dport);
        Some(Flow {
            flow_label: self.flow_label,
            ..flow
        })
    }
}

impl std::fmt::Display for FlowWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} from {}", self.dst, self.src)?;
        if let Some(iif) = &self.iif {
            write!(f, " iif {iif}")?;
        }
        if self.proto != 0 {
            write!(f, " ipproto {}", protocol_name(self.proto))?;
        }
        for (name, value) in [("sport", self.sport), ("dport", self.dport)] {
            if value != 0 {
                write!(f, " {name} {value}")?;
            }
        }
        if self.flow_label != 0 {
            write!(f, " flowlabel {:#x}", self.flow_label)?;
        }
        if self.tos != 0 {
            write!(f, " tos {:#04x}", self.tos)?;
        }
        if self.connected {
            f.write_str(" connected")?;
        }
        Ok(())
    }
}

/// The name of a protocol, or its number.
pub(super) fn protocol_name(number: u8) -> String {
    match PROTOCOLS.iter().find(|(_, n)| *n == number) {
        Some((name, _)) => (*name).to_owned(),
        None => number.to_string(),
    }
}

fn address(word: &str) -> Result<IpAddr, Error> {
    word.parse().map_err(|_| Error::Address(word.to_owned()))
}

/// A protocol by its name or its number.
///
/// # Errors
/// [`Error::Protocol`].
pub fn protocol_number(word: &str) -> Result<u8, Error> {
    let named = PROTOCOLS
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, n)| *n);
    named
        .or_else(|| word.parse().ok())
        .ok_or_else(|| Error::Protocol(word.to_owned()))
}

fn number(key: &str, word: &str, most: u32) -> Result<u32, Error> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    parsed.filter(|n| *n <= most).ok_or_else(|| Error::Number {
        key: key.to_owned(),
        word: word.to_owned(),
        most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FlowWords, Error> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        FlowWords::parse(&words)
    }

    #[test]
    fn words_survive_being_printed() {
        for text in [
            "10.0.2.1 from 10.0.1.1 iif eth0 ipproto tcp sport 40000 dport 5201",
            "fd00::2 from fd00::1 ipproto udp sport 1 dport 2 flowlabel 0x12345",
            "10.0.2.1 from 10.0.1.1 iif eth0 tos 0x10",
            "10.0.2.1 from 0.0.0.0",
            "10.0.2.1 from 0.0.0.0 ipproto udp sport 5 dport 6 connected",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("", "name a destination"),
            ("10.0.0", "'10.0.0' is not an address"),
            ("10.0.0.1 from", "'from' wants a value"),
            ("10.0.0.1 from ::1", "different families"),
            ("10.0.0.1 sport 5", "ports want a protocol"),
            ("10.0.0.1 ipproto tcp sport 70000", "'70000' is not a sport"),
            ("10.0.0.1 ipproto tcp dport 5 connected", "own UDP sockets"),
            ("10.0.0.1 tos 16", "name the link"),
            ("10.0.0.1 oif eth0", "'oif' is not a word of a flow"),
        ] {
            assert!(
                parse(text).unwrap_err().to_string().contains(said),
                "{text}"
            );
        }
        let input = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            FlowWords::parse_input(&words)
        };
        assert_eq!(input(&["iif", "eth0"]).unwrap(), "eth0");
        assert!(matches!(input(&[]), Err(Error::NoInput)));
        assert!(matches!(input(&["10.0.0.1"]), Err(Error::MoreThanInput)));
    }
}

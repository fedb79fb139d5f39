//! Prefixes on the command line, and what they select.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use super::args::Args;
use super::{Error, Family};

/// A prefix as `ip` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// `any` or `all`: no restriction.
    Any,
    /// `default`: everything, of either family.
    Default,
    /// An address, with or without a length; the bits beyond the length do not matter.
    Net(IpNet),
}

impl Prefix {
    /// Parses a prefix of `family`. IPv4 addresses may be short: `10/8` is `10.0.0.0/8`.
    pub(crate) fn parse(text: &str, family: Option<Family>) -> Result<Prefix, Error> {
        let expected = match family {
            None => "any valid",
            Some(Family::Inet) => "inet",
            Some(Family::Inet6) => "inet6",
        };
        let prefix = match text {
            "any" | "all" => Some(Prefix::Any),
            "default" => Some(Prefix::Default),
            _ => parse_net(text).map(Prefix::Net),
        };
        let fits = |prefix: &Prefix| match (prefix.family(), family) {
            (Some(have), Some(want)) => have == want,
            _ => true,
        };
        prefix.filter(fits).ok_or_else(|| Error::Prefix {
            expected,
            value: text.to_owned(),
        })
    }

    pub(crate) fn family(&self) -> Option<Family> {
        match self {
            Prefix::Net(IpNet::V4(_)) => Some(Family::Inet),
            Prefix::Net(IpNet::V6(_)) => Some(Family::Inet6),
            _ => None,
        }
    }

    /// Whether `net` lies within this prefix.
    pub(crate) fn contains(&self, net: &IpNet) -> bool {
        match self {
            Prefix::Any | Prefix::Default => true,
            Prefix::Net(own) => own.contains(net),
        }
    }

    /// Whether this prefix lies within `net`.
    fn lies_within(&self, net: &IpNet) -> bool {
        match self {
            Prefix::Any => true,
            Prefix::Default => net.prefix_len() == 0,
            Prefix::Net(own) => net.contains(own),
        }
    }

    /// One address, which every object that it selects has; `ip` does not print it again.
    pub(crate) fn is_host(&self) -> bool {
        matches!(self, Prefix::Net(net) if net.prefix_len() == net.max_prefix_len())
    }

    /// Whether `address`, if there is one, lies within this prefix.
    pub(crate) fn selects(&self, address: Option<IpAddr>) -> bool {
        match address {
            Some(address) => self.contains(&IpNet::from(address)),
            None => *self == Prefix::Any,
        }
    }
}

/// `ADDRESS[/LENGTH]`, with short IPv4 addresses.
fn parse_net(text: &str) -> Option<IpNet> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    if address.contains(':') {
        let address: IpAddr = address.parse().ok()?;
        return IpNet::new(address, length.unwrap_or(128))
            .ok()
            .map(|net| net.trunc());
    }
    let mut octets = [0; 4];
    for (i, octet) in address.split('.').enumerate() {
        *octets.get_mut(i)? = octet.parse::<u8>().ok()?;
    }
    let net = Ipv4Net::new(Ipv4Addr::from(octets), length.unwrap_or(32)).ok()?;
    Some(IpNet::V4(net.trunc()))
}

/// A selection of prefixes: `root`, `match`, `exact` or nothing before one.
#[derive(Debug, Default)]
pub(crate) struct Range {
    /// Only what lies within.
    root: Option<Prefix>,
    /// Only what covers.
    covers: Option<Prefix>,
}

impl Range {
    /// Adds `root PREFIX`, `match PREFIX`, `[exact] PREFIX` to the selection; `word` has been read
    /// already. Later ones replace earlier ones.
    pub(crate) fn parse(
        &mut self,
        word: &str,
        args: &mut Args<'_>,
        family: Option<Family>,
    ) -> Result<(), Error> {
        let is = |keyword| super::abbreviates(word, keyword);
        if is("root") {
            self.root = Some(Prefix::parse(args.value()?, family)?);
        } else if is("match") {
            self.covers = Some(Prefix::parse(args.value()?, family)?);
        } else {
            let text = if is("exact") { args.value()? } else { word };
            let prefix = Prefix::parse(text, family)?;
            (self.root, self.covers) = (Some(prefix), Some(prefix));
        }
        Ok(())
    }

    pub(crate) fn family(&self) -> Option<Family> {
        [&self.root, &self.covers]
            .into_iter()
            .flatten()
            .find_map(Prefix::family)
    }

    pub(crate) fn selects(&self, net: &IpNet) -> bool {
        self.root.is_none_or(|prefix| prefix.contains(net))
            && self.covers.is_none_or(|prefix| prefix.lies_within(net))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Prefix {
        Prefix::Net(text.parse().unwrap())
    }

    #[test]
    fn prefixes_parse_as_in_ip() {
        let parse = |text| Prefix::parse(text, None);
        assert_eq!(parse("10/8").unwrap(), net("10.0.0.0/8"));
        assert_eq!(parse("10.9.8.7/8").unwrap(), net("10.0.0.0/8"));
        assert_eq!(parse("10.1").unwrap(), net("10.1.0.0/32"));
        assert_eq!(parse("0/0").unwrap(), net("0.0.0.0/0"));
        assert_eq!(parse("2001:db8::1/32").unwrap(), net("2001:db8::/32"));
        assert_eq!(parse("::1").unwrap(), net("::1/128"));
        assert_eq!(parse("default").unwrap(), Prefix::Default);
        for wrong in [
            "",
            "frob",
            "10.0.0.0/33",
            "1.2.3.4.5",
            "10./8",
            "::1/129",
            "1.2.3.256",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("Error: any valid prefix is expected rather than \"{wrong}\".")
            );
        }
        let error = Prefix::parse("2001:db8::/32", Some(Family::Inet)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Error: inet prefix is expected rather than \"2001:db8::/32\"."
        );
    }

    #[test]
    fn ranges_select_as_in_ip() {
        let select = |words: &[&str], text: &str| {
            let (_, mut args) = super::super::args::split(words.iter().copied()).unwrap();
            let mut range = Range::default();
            let word = args.next().unwrap();
            range.parse(word, &mut args, None).unwrap();
            range.selects(&text.parse().unwrap())
        };
        assert!(select(&["root", "10.0.0.0/8"], "10.1.0.0/16"));
        assert!(!select(&["root", "10.0.0.0/16"], "10.0.0.0/8"));
        assert!(select(&["match", "10.1.2.3"], "10.1.0.0/16"));
        assert!(select(&["m", "10.1.2.3"], "0.0.0.0/0"));
        assert!(!select(&["match", "10.1.2.3"], "10.2.0.0/16"));
        assert!(select(&["exact", "10.1.0.0/16"], "10.1.0.0/16"));
        assert!(!select(&["10.1.0.0/16"], "10.1.0.0/17"));
        assert!(select(&["default"], "::/0") && !select(&["default"], "1.0.0.0/8"));
        assert!(select(&["any"], "::/0") && select(&["any"], "1.0.0.0/8"));
        assert!(!select(&["10.0.0.0/8"], "a00::/8"));
    }
}

//! Which source ports connections may be given: those that the kernel itself would draw from.

use raddle_image::Placing;

use crate::Error;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
/// Ports below are for servers, whatever the range.
const PRIVILEGED: u16 = 1024;

/// The ports that may be taken, from `first` to `last` without those that are reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
    reserved: Vec<(u16, u16)>,
}

impl Ports {
    /// Those of this thread's network namespace.
    ///
    /// # Errors
    /// A setting cannot be read, or makes no sense.
    pub fn read() -> Result<Ports, Error> {
        let read =
            |path| std::fs::read_to_string(path).map_err(|source| Error::Setting { path, source });
        let (range, reserved) = (read(RANGE)?, read(RESERVED)?);
        let senseless = |path, text: &str| Error::Ports {
            path,
            text: text.trim().to_owned(),
        };
        let (first, last) = range_of(&range).ok_or_else(|| senseless(RANGE, &range))?;
        let reserved = list_of(&reserved).ok_or_else(|| senseless(RESERVED, &reserved))?;
        Ok(Ports {
            first,
            last,
            reserved,
        })
    }

    /// What the programs are told, for sockets of the network namespace with this cookie.
    pub fn placing(&self, netns: u64) -> Placing {
        let low = self.first.max(PRIVILEGED);
        let mut allowed = [0u64; 1024];
        for port in low..=self.last.max(low) {
            let is_reserved = |(first, last): &(u16, u16)| (*first..=*last).contains(&port);
            if port <= self.last && !self.reserved.iter().any(is_reserved) {
                allowed[usize::from(port / 64)] |= 1 << (port % 64);
            }
        }
        let is_any = allowed.iter().any(|word| *word != 0);
        Placing {
            netns,
            low: low.into(),
            span: match is_any {
                true => u32::from(self.last) - u32::from(low) + 1,
                false => 0,
            },
            allowed,
        }
    }
}

/// Two numbers, the first not above the second.
fn range_of(text: &str) -> Option<(u16, u16)> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    let (first, last) = (words.next()??, words.next()??);
    (words.next().is_none() && first <= last).then_some((first, last))
}

/// `5000,6000-6100`, or nothing.
fn list_of(text: &str) -> Option<Vec<(u16, u16)>> {
    let entries = text.trim().split(',').filter(|entry| !entry.is_empty());
    let range = |entry: &str| {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    };
    entries.map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_the_kernel_prints_them() {
        assert_eq!(range_of("32768\t60999\n"), Some((32768, 60999)));
        for wrong in ["", "5", "7 5", "1 2 3", "1 70000"] {
            assert_eq!(range_of(wrong), None, "{wrong}");
        }
        assert_eq!(list_of("\n"), Some(Vec::new()));
        assert_eq!(list_of("80,90-99\n"), Some(vec![(80, 80), (90, 99)]));
        for wrong in ["x", "9-8", "1-2-3", "65536"] {
            assert_eq!(list_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn reserved_and_privileged_ports_are_never_taken() {
        let ports = Ports {
            first: 1000,
            last: 1100,
            reserved: vec![(1030, 1031), (1100, 2000)],
        };
        let placing = ports.placing(7);
        let is_allowed =
            |port: u16| placing.allowed[usize::from(port / 64)] >> (port % 64) & 1 != 0;
        let allowed: Vec<u16> = (0..=u16::MAX).filter(|port| is_allowed(*port)).collect();
        let expected: Vec<u16> = (1024..1100)
            .filter(|port| !(1030..=1031).contains(port))
            .collect();
        assert_eq!(allowed, expected);
        assert_eq!((placing.netns, placing.low, placing.span), (7, 1024, 77));
    }

    #[test]
    fn a_range_of_privileged_ports_leaves_none() {
        let ports = Ports {
            first: 500,
            last: 600,
            reserved: Vec::new(),
        };
        assert_eq!(ports.placing(1).span, 0);
        let last = Ports {
            first: 65535,
            last: 65535,
            reserved: Vec::new(),
        };
        assert_eq!((last.placing(1).low, last.placing(1).span), (65535, 1));
    }
}

//! Source ports that connections may have.

use std::fs;
use std::ops::RangeInclusive;

use super::Error;

/// Linux's default for `ip_local_port_range`.
const DEFAULT: RangeInclusive<u16> = 32768..=60999;

/// The ports that the kernel gives to sockets itself, less the reserved ones: `ip_local_port_range` and
/// `ip_local_reserved_ports` of this namespace; Linux's default without a live kernel.
pub(super) fn local(live: bool) -> Result<Vec<u32>, Error> {
    if !live {
        return Ok(DEFAULT.map(u32::from).collect());
    }
    let read = |key: &str| {
        let path = format!("/proc/sys/net/ipv4/{key}");
        fs::read_to_string(&path).map_err(|why| Error::Setting { path, why })
    };
    let (ports, taken) = ("ip_local_port_range", "ip_local_reserved_ports");
    let range = range(&read(ports)?).ok_or(Error::SettingText(ports))?;
    let reserved = reserved(&read(taken)?).ok_or(Error::SettingText(taken))?;
    let free = |port: &u16| !reserved.iter().any(|range| range.contains(port));
    Ok(range.filter(free).map(u32::from).collect())
}

/// First and last, with white space between.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut words = text.split_whitespace().map(str::parse);
    let (first, last) = (words.next()?.ok()?, words.next()?.ok()?);
    Some(first..=last)
}

/// `8080,9000-9009`, or nothing.
fn reserved(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let words = text.trim().split(',').filter(|word| !word.is_empty());
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    words.map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_lists() {
        assert_eq!(range("32768\t60999\n"), Some(32768..=60999));
        assert_eq!(range("x y"), None);
        assert_eq!(reserved("\n"), Some(vec![]));
        assert_eq!(
            reserved("8080,9000-9009\n"),
            Some(vec![8080..=8080, 9000..=9009])
        );
        assert_eq!(reserved("9000-x"), None);
        assert_eq!(local(false).unwrap().len(), 28232);
        assert!(!local(true).unwrap().is_empty());
    }
}

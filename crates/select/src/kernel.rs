//! Kernel versions, where a choice depends on them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A version of Linux: 6.18.44.
///
/// What follows the numbers (`-generic`, `-rc1+`) is not kept: a distribution's own changes cannot be
/// told from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// 6 in 6.18.44.
    pub major: u16,
    /// 18 in 6.18.44.
    pub minor: u16,
    /// 44 in 6.18.44; 0 where there is none.
    pub patch: u16,
}

impl KernelVersion {
    /// The oldest version that the rules of this crate are held against.
    pub const OLDEST: KernelVersion = KernelVersion::new(6, 12, 0);
    /// The newest one, whatever its patch level.
    pub const NEWEST: KernelVersion = KernelVersion::new(6, 18, u16::MAX);

    /// The version with these numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> KernelVersion {
        KernelVersion {
            major,
            minor,
            patch,
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A text that is no kernel version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a kernel version: write it as uname -r does, such as 6.12.5")]
pub struct NotAVersion(String);

impl FromStr for KernelVersion {
    type Err = NotAVersion;

    /// Reads `uname -r`'s form: two or three numbers, and anything behind them.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let bad = || NotAVersion(text.to_owned());
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let mut numbers = text[..end].trim_end_matches('.').split('.');
        let mut number = || numbers.next().map(str::parse::<u16>);
        let (Some(Ok(major)), Some(Ok(minor))) = (number(), number()) else {
            return Err(bad());
        };
        let patch = number().transpose().map_err(|_| bad())?.unwrap_or(0);
        Ok(KernelVersion::new(major, minor, patch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_uname_prints() {
        for (text, version) in [
            ("6.18.44-fc-v595", (6, 18, 44)),
            ("6.12.5", (6, 12, 5)),
            ("6.16", (6, 16, 0)),
            ("6.19-rc1", (6, 19, 0)),
            ("5.15.0-119-generic", (5, 15, 0)),
            ("6.1.0.1", (6, 1, 0)),
        ] {
            let (major, minor, patch) = version;
            let version = KernelVersion::new(major, minor, patch);
            assert_eq!(text.parse(), Ok(version), "{text}");
        }
        for text in ["", "six", "6", "6.x", "6.70000", "-6.1", "6..1"] {
            let said = text.parse::<KernelVersion>().unwrap_err().to_string();
            assert!(said.contains("is not a kernel version"), "{said}");
        }
    }

    #[test]
    fn orders_by_number() {
        let version = |text: &str| text.parse::<KernelVersion>().unwrap();
        assert!(version("6.9.1") < version("6.12.0"));
        assert!(version("6.18.3") < version("6.18.44"));
        assert!(version("6.18.44") < KernelVersion::NEWEST);
        assert_eq!(version("6.12").to_string(), "6.12.0");
    }
}

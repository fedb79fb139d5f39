//! Kernel versions, and the faults that some of them have.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A kernel version: `6.18.44`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version(pub u16, pub u16, pub u16);

impl Version {
    /// The same series (`6.18`)?
    fn same_series(self, other: Version) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }

    /// The version that `uname` tells. Distributions often stop the release at `6.1.0-13` and name
    /// the patch level in `uname -v` (`Debian 6.1.55-1`), so one of the same series in there counts.
    ///
    /// None for a release that does not begin with a version.
    pub(crate) fn of_uname(release: &str, version: &str) -> Option<Version> {
        let named: Version = release.parse().ok()?;
        let told = version
            .split(|c: char| c.is_whitespace() || c == '-')
            .filter(|word| word.matches('.').count() >= 2)
            .filter_map(|word| word.parse().ok())
            .find(|told: &Version| told.same_series(named));
        Some(told.map_or(named, |told| told.max(named)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Text that is no kernel version.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not a kernel version: give one as uname -r does, such as 6.18.3")]
pub(crate) struct NoVersion(String);

impl FromStr for Version {
    type Err = NoVersion;

    /// `6.18`, `6.18.44`, `6.18.44-anything`, `6.1.0-13-amd64`.
    fn from_str(text: &str) -> Result<Version, NoVersion> {
        let wrong = || NoVersion(text.to_owned());
        let end = text.find(|c: char| c != '.' && !c.is_ascii_digit());
        let numbers = text[..end.unwrap_or(text.len())].trim_end_matches('.');
        let mut parts = numbers.split('.').map(str::parse);
        let mut next = || parts.next().transpose().map_err(|_| wrong());
        match (next()?, next()?, next()?) {
            (Some(major), Some(minor), patch) => {
                Ok(Version(major, minor, patch.unwrap_or_default()))
            }
            _ => Err(wrong()),
        }
    }
}

/// Kernel versions that behave in some way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first that does.
    pub from: Version,
    /// The first that does not any more; none when the newest does.
    pub until: Option<Version>,
    /// Patch levels of older series from which on they do not either.
    pub mended: &'static [Version],
}

impl Span {
    /// Whether a version is one of them.
    pub(crate) fn holds(&self, version: Version) -> bool {
        let mended = |m: &Version| m.same_series(version) && version >= *m;
        version >= self.from
            && self.until.is_none_or(|until| version < until)
            && !self.mended.iter().any(mended)
    }
}

/// The sysctl of the hash seed exists.
pub(crate) const SEED: Version = Version(6, 11, 0);
/// Weights of nexthop groups have 16 bits.
pub(crate) const WIDE_WEIGHTS: Version = Version(6, 12, 0);

/// The route of the packet before it in a batch is taken for packets to the same destination, and with
/// it the path that was chosen for that one.
pub(crate) const DST_HINT: Span = Span {
    from: Version(5, 5, 0),
    until: Some(Version(6, 6, 0)),
    mended: &[
        Version(6, 5, 4),
        Version(6, 1, 54),
        Version(5, 15, 132),
        Version(5, 10, 195),
    ],
};

/// IPv4 addresses are put in order by the sign of a 32-bit difference, which for some pairs is
/// negative both ways.
pub(crate) const SIGNED_ORDER: Span = Span {
    from: Version(4, 2, 0),
    until: Some(Version(6, 0, 0)),
    mended: &[Version(5, 19, 12), Version(5, 15, 71), Version(5, 10, 146)],
};

/// Local TCP connections without a bound port are looked up with a random one.
pub(crate) const RANDOM_CONNECT: Span = Span {
    from: Version(6, 16, 0),
    until: None,
    mended: &[],
};

/// A local source address that belongs to none of the nexthops makes all flows take the last.
pub(crate) const SOURCE_TO_LAST: Span = Span {
    from: Version(6, 16, 0),
    until: Some(Version(6, 19, 0)),
    mended: &[Version(6, 18, 4)],
};

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        for (text, expected) in [
            ("6.18.44", Version(6, 18, 44)),
            ("6.18", Version(6, 18, 0)),
            ("6.18.44-fc-v595", Version(6, 18, 44)),
            ("6.1.0-13-amd64", Version(6, 1, 0)),
            ("5.14.0-427.el9.x86_64", Version(5, 14, 0)),
            ("6.19.0-rc3+", Version(6, 19, 0)),
            ("6.19-rc3", Version(6, 19, 0)),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
        for text in ["", "linux", "6", "6.", ".1.2", "70000.1.1", "6..1"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_patch_level_is_taken_from_where_it_is_told() {
        let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)";
        let of = Version::of_uname;
        assert_eq!(of("6.1.0-13-amd64", debian), Some(Version(6, 1, 55)));
        assert_eq!(of("6.5.0-1-amd64", debian), Some(Version(6, 5, 0)));
        assert_eq!(of("6.18.44", "#1 SMP Sat Nov 21"), Some(Version(6, 18, 44)));
        assert_eq!(of("mine", debian), None);
    }

    #[test]
    fn faults_begin_and_end_where_they_do() {
        for (span, has, has_not) in [
            (
                DST_HINT,
                &["5.5", "5.15.131", "6.1.53", "6.4.16", "6.5.3"][..],
                &["5.4.300", "5.15.132", "6.1.54", "6.5.4", "6.6", "6.18.44"][..],
            ),
            (
                SIGNED_ORDER,
                &["5.10.145", "5.14", "5.19.11"],
                &["5.10.146", "5.15.71", "5.19.12", "6.0", "6.1"],
            ),
            (
                RANDOM_CONNECT,
                &["6.16", "6.18.44", "7.0"],
                &["6.15.9", "6.12.60"],
            ),
            (
                SOURCE_TO_LAST,
                &["6.16", "6.17.13", "6.18.3"],
                &["6.15.9", "6.12.60", "6.18.4", "6.18.44", "6.19", "7.0"],
            ),
        ] {
            for text in has {
                assert!(span.holds(version(text)), "{text} {span:?}");
            }
            for text in has_not {
                assert!(!span.holds(version(text)), "{text} {span:?}");
            }
        }
    }
}

//! Kernel versions, where a choice depends on them.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
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
    pub const OLDEST: KernelVersion = KernelVersion::new(6, 1, 0);
    /// The newest one, whatever its patch level.
    pub const NEWEST: KernelVersion = KernelVersion::new(6, 18, u16::MAX);
    /// The first that has `net.ipv4.fib_multipath_hash_seed`; before, nobody can set the seed of choices.
    pub const HASH_SEED: KernelVersion = KernelVersion::new(6, 11, 0);

    /// What there is to say of a kernel without that seed; behind "this kernel".
    pub const WITHOUT_HASH_SEED: &str = "has no hash seed that could be set (net.ipv4.fib_multipath_hash_seed came with Linux 6.11)";

    /// The version with these numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> KernelVersion {
        KernelVersion {
            major,
            minor,
            patch,
        }
    }

    /// The version that a kernel tells by its release (`uname -r`), its build (`uname -v`) and Ubuntu's
    /// `/proc/version_signature`, each of the latter empty where there is none.
    ///
    /// 1. The release says the series, and the patch level on most kernels.
    /// 2. Debian's says the series and the number of the ABI (`6.1.0-56-amd64`), Ubuntu's the same
    ///    (`6.8.0-45-generic`). The stable version that they are made of is told by the build
    ///    (`Debian 6.1.192-2`) or the signature (`Ubuntu 6.8.0-45.45-generic 6.8.12`). The highest of the
    ///    same series counts; numbers of another series are not the kernel's.
    ///
    /// # Errors
    /// A release that does not begin with a version.
    pub fn of_uname(
        release: &str,
        build: &str,
        signature: &str,
    ) -> Result<KernelVersion, NotAVersion> {
        let named = of_release(release)?;
        let words = build.split_whitespace().chain(signature.split_whitespace());
        let told = words
            .filter(|word| word.split('.').nth(2).is_some())
            .filter_map(|word| of_release(word).ok())
            .filter(|told| told.same_series(named));
        Ok(told.fold(named, KernelVersion::max))
    }

    /// Whether both are of one series, as 6.18.
    pub fn same_series(self, other: KernelVersion) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }

    /// Whether the seed of choices among several paths can be set.
    pub fn has_hash_seed(self) -> bool {
        self >= KernelVersion::HASH_SEED
    }

    /// The same of a kernel that may be unknown: where nobody says which it is, it is taken for a newer one.
    pub fn may_have_hash_seed(kernel: Option<KernelVersion>) -> bool {
        kernel.is_none_or(KernelVersion::has_hash_seed)
    }
}

/// Two or three numbers, and anything behind them.
fn of_release(text: &str) -> Result<KernelVersion, NotAVersion> {
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

    /// Reads what `uname -r` prints, or `uname -rv`, by the rules of [`KernelVersion::of_uname`].
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let (release, build) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        KernelVersion::of_uname(release, build, "")
    }
}

impl Serialize for KernelVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
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
            ("5.14.0-427.el9.x86_64", (5, 14, 0)),
            ("6.1.0-56-amd64", (6, 1, 0)),
            (
                "6.1.0-56-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-01)\n",
                (6, 1, 192),
            ),
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
    fn takes_the_stable_version_from_where_it_is_told() {
        let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-01)";
        let ubuntu = "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024";
        for (release, build, signature, version) in [
            // Debian: stock, cloud, backports, and the older form of the build.
            ("6.1.0-56-amd64", debian, "", (6, 1, 192)),
            ("6.1.0-56-cloud-amd64", debian, "", (6, 1, 192)),
            (
                "6.12.117+deb12-amd64",
                "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~bpo12+1 (2026-10-20)",
                "",
                (6, 12, 117),
            ),
            (
                "6.1.0-0.deb11.13-amd64",
                "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1~bpo11+1 (2023-10-08)",
                "",
                (6, 1, 55),
            ),
            (
                "5.10.0-26-amd64",
                "#1 SMP Debian 5.10.197-1 (2023-09-29)",
                "",
                (5, 10, 197),
            ),
            // Ubuntu: the build has the number of the ABI only.
            (
                "6.8.0-45-generic",
                ubuntu,
                "Ubuntu 6.8.0-45.45-generic 6.8.12\n",
                (6, 8, 12),
            ),
            (
                "6.8.0-1017-aws",
                "#18~22.04.1-Ubuntu SMP Thu Oct  3 19:57:42 UTC 2024",
                "Ubuntu 6.8.0-1017.18~22.04.1-aws 6.8.12",
                (6, 8, 12),
            ),
            ("6.8.0-45-generic", ubuntu, "", (6, 8, 0)),
            // Kernels of one's own, and others that say it by their release.
            ("6.18.44", "#1 SMP PREEMPT_DYNAMIC @0", "", (6, 18, 44)),
            (
                "6.19.0-rc3+",
                "#12 SMP PREEMPT Sat Nov 21 10.11.12 UTC",
                "",
                (6, 19, 0),
            ),
            // A version of something else.
            ("6.5.0-1-amd64", debian, "", (6, 5, 0)),
            ("6.1.0-13-amd64", "gcc 12.2.0 6.1", "", (6, 1, 0)),
        ] {
            let (major, minor, patch) = version;
            assert_eq!(
                KernelVersion::of_uname(release, build, signature),
                Ok(KernelVersion::new(major, minor, patch)),
                "{release} {build} {signature}"
            );
        }
        assert!(KernelVersion::of_uname("mine", debian, "").is_err());
    }

    #[test]
    fn the_seed_came_with_6_11() {
        let has = |text: &str| text.parse::<KernelVersion>().unwrap().has_hash_seed();
        assert!(!has("6.1.192") && !has("6.10.14") && has("6.11") && has("6.18.44"));
    }

    #[test]
    fn orders_by_number() {
        let version = |text: &str| text.parse::<KernelVersion>().unwrap();
        assert!(version("6.9.1") < version("6.12.0"));
        assert!(version("6.18.3") < version("6.18.44"));
        assert!(version("6.18.44") < KernelVersion::NEWEST);
        assert_eq!(version("6.12").to_string(), "6.12.0");
    }

    #[test]
    fn an_unknown_kernel_counts_as_a_newer_one() {
        let of = |text: &str| KernelVersion::may_have_hash_seed(Some(text.parse().unwrap()));
        assert!(!of("6.1.0-56-amd64 #1 SMP Debian 6.1.192-2") && !of("6.10.14"));
        assert!(of("6.12.117+deb12-amd64") && KernelVersion::may_have_hash_seed(None));
    }
}

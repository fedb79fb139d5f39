//! Behaviours of the kernel's choices that only some versions have, most of them faults.

use crate::KernelVersion;

/// Kernel versions that behave in some way.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first that does.
    pub from: KernelVersion,
    /// The first that does not any more; none when the newest does.
    pub until: Option<KernelVersion>,
    /// Patch levels of older series from which on they do not either.
    pub fixed: &'static [KernelVersion],
}

impl Span {
    /// Whether a version is one of them.
    pub fn holds(&self, version: KernelVersion) -> bool {
        let fixed = |m: &KernelVersion| m.same_series(version) && version >= *m;
        version >= self.from
            && self.until.is_none_or(|until| version < until)
            && !self.fixed.iter().any(fixed)
    }
}

/// From this version on weights of nexthop groups have 16 bits.
pub const WIDE_WEIGHTS: KernelVersion = KernelVersion::new(6, 12, 0);

/// The route of the packet before it in a batch is taken for packets to the same destination, and with
/// it the path that was chosen for that one.
pub const DST_HINT: Span = Span {
    from: KernelVersion::new(5, 5, 0),
    until: Some(KernelVersion::new(6, 6, 0)),
    fixed: &[
        KernelVersion::new(6, 5, 4),
        KernelVersion::new(6, 1, 54),
        KernelVersion::new(5, 15, 132),
        KernelVersion::new(5, 10, 195),
    ],
};

/// IPv4 addresses are put in order by the sign of a 32-bit difference, which for some pairs is
/// negative both ways.
pub const SIGNED_ORDER: Span = Span {
    from: KernelVersion::new(4, 2, 0),
    until: Some(KernelVersion::new(6, 0, 0)),
    fixed: &[
        KernelVersion::new(5, 19, 12),
        KernelVersion::new(5, 15, 71),
        KernelVersion::new(5, 10, 146),
    ],
};

/// Local TCP connections without a bound port are looked up with a random one.
pub const RANDOM_CONNECT: Span = Span {
    from: KernelVersion::new(6, 16, 0),
    until: None,
    fixed: &[],
};

/// A local source address that belongs to none of the nexthops makes all flows take the last.
pub const SOURCE_TO_LAST: Span = Span {
    from: KernelVersion::new(6, 16, 0),
    until: Some(KernelVersion::new(6, 19, 0)),
    fixed: &[KernelVersion::new(6, 18, 4)],
};

/// A bond reads beside the packet for its hash where the headers are not all in the packet's first buffer
/// (`bond_pull_data`).
pub const BOND_PULL: Span = Span {
    from: KernelVersion::new(5, 17, 0),
    until: Some(KernelVersion::new(6, 6, 0)),
    fixed: &[KernelVersion::new(6, 5, 9), KernelVersion::new(6, 1, 60)],
};

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> KernelVersion {
        text.parse().unwrap()
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
                BOND_PULL,
                &["5.17", "6.1.59", "6.4.16", "6.5.8"],
                &["6.1.60", "6.5.9", "6.6", "6.18.44"],
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

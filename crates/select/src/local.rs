//! What this machine's own packets take: local output differs from forwarding in what is hashed and,
//! by kernel version, in which nexthops of a route are preferred.
//!
//! A socket asks for a path with a flow, not with a packet ([`crate::keys_of_flow`]): what is
//! drawn or chosen later, such as the automatic IPv6 flow label, counts as 0. Nexthop groups choose for
//! local packets as for forwarded ones ([`crate::choose_group`]).

use serde::Serialize;

use crate::kernel::KernelVersion;
use crate::threshold::{Choice, MAX_HASH};

/// How `fib_select_multipath` treats the source address of this machine's own packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourcePreference {
    /// Not at all: before 6.16.
    None,
    /// 6.16 to 6.18.3: a nexthop with that source is preferred, and where no nexthop has it, all goes to
    /// the last one (32607a332cfe).
    Faulty,
    /// From 6.18.4 on: a nexthop with that source is preferred (6e17474aa9fe).
    Scored,
}

impl SourcePreference {
    /// That of a kernel.
    pub fn of(kernel: KernelVersion) -> SourcePreference {
        if kernel < KernelVersion::new(6, 16, 0) {
            SourcePreference::None
        } else if kernel < KernelVersion::new(6, 18, 4) {
            SourcePreference::Faulty
        } else {
            SourcePreference::Scored
        }
    }
}

/// Whether a look-up hashes a random number in place of the source port, anew each time: a TCP connect
/// whose port is still to be drawn, under a policy that looks at ports (`FLOWI_FLAG_ANY_SPORT`).
///
/// # Minimum kernel version
/// 6.16; older ones hash 0.
pub fn draws_source_port(kernel: KernelVersion, proto: u8, sport: u16) -> bool {
    const TCP: u8 = 6;
    kernel >= KernelVersion::new(6, 16, 0) && proto == TCP && sport == 0
}

/// A nexthop of an IPv4 route, as local output sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalHop {
    /// Upper bound of its share; none where it has no share.
    pub upper: Option<u32>,
    /// False under `fib_multipath_use_neigh` where its neighbour is in no valid state.
    pub good: bool,
    /// Its preferred source (`nh_saddr`) is the source address of the look-up.
    pub has_source: bool,
}

impl LocalHop {
    fn is_eligible(&self) -> bool {
        self.upper.is_some() && self.good
    }

    fn holds(&self, hash31: u32) -> bool {
        self.is_eligible() && self.upper.is_some_and(|upper| hash31 <= upper)
    }
}

/// Which nexthop of an IPv4 route this machine's own packets take (`fib_select_multipath` with a
/// `flowi4`).
///
/// `sourced` says that the look-up has a source address; a socket's first one may not. A nexthop is
/// eligible where it has a bound and is good. Rules 1 to 4 are those of [`crate::choose_plain`], and
/// decide alone without a source address or [`SourcePreference`].
///
/// 1. The first eligible nexthop whose bound is not below the hash.
/// 2. Else the first eligible one.
/// 3. Else the first with a bound: none is good.
/// 4. Else none: the route falls through to the next best one.
///
/// [`SourcePreference::Scored`], before rule 1:
///
/// 5. Of the eligible nexthops with that source, the first whose bound is not below the hash.
/// 6. Else the first eligible nexthop with that source.
///
/// [`SourcePreference::Faulty`], in place of rules 1 and 2 (from the source; not held against such a
/// kernel):
///
/// 7. From the first eligible nexthop with that source on, the first eligible one whose bound is not
///    below the hash, if it has that source itself.
/// 8. Else the first eligible nexthop with that source.
/// 9. No eligible nexthop has that source: the last eligible one, whatever the hash.
pub fn choose_local4(
    preference: SourcePreference,
    hops: &[LocalHop],
    sourced: bool,
    hash31: u32,
) -> Option<Choice> {
    let first = |fits: &dyn Fn(&LocalHop) -> bool| hops.iter().position(fits);
    let rule = |rule, member: Option<usize>| member.map(|member| Choice { member, rule });
    let with_source = || first(&|hop| hop.is_eligible() && hop.has_source);
    let preferred = match preference {
        _ if !sourced => None,
        SourcePreference::None => None,
        SourcePreference::Scored => rule(5, first(&|hop| hop.holds(hash31) && hop.has_source))
            .or_else(|| rule(6, with_source())),
        SourcePreference::Faulty => match with_source() {
            Some(at) => {
                let holder = hops[at..].iter().position(|hop| hop.holds(hash31));
                let holder = holder.map(|i| at + i).filter(|i| hops[*i].has_source);
                rule(7, holder).or(Some(Choice {
                    member: at,
                    rule: 8,
                }))
            }
            None => rule(9, hops.iter().rposition(LocalHop::is_eligible)),
        },
    };
    preferred
        .or_else(|| rule(1, first(&|hop| hop.holds(hash31))))
        .or_else(|| rule(2, first(&LocalHop::is_eligible)))
        .or_else(|| rule(3, first(&|hop| hop.upper.is_some())))
}

/// The decisions of [`choose_local4`] as a list of (upper bound, index of the hop), strictly ascending, as
/// [`crate::compile_threshold`] makes it of [`crate::choose_plain`]'s. Empty only where no hop has a bound.
///
/// Decisions change at bounds of hops only, so one look at each tells them all. O(n^2).
pub fn compile_local4(
    preference: SourcePreference,
    hops: &[LocalHop],
    sourced: bool,
) -> Vec<(u32, usize)> {
    let mut bounds: Vec<u32> = hops.iter().filter_map(|hop| hop.upper).collect();
    bounds.push(MAX_HASH);
    bounds.sort_unstable();
    bounds.dedup();
    let mut list: Vec<(u32, usize)> = Vec::with_capacity(bounds.len());
    for bound in bounds {
        let Some(choice) = choose_local4(preference, hops, sourced, bound) else {
            continue;
        };
        match list.last_mut() {
            Some((upper, member)) if *member == choice.member => *upper = bound,
            _ => list.push((bound, choice.member)),
        }
    }
    list
}

/// Which nexthop of an IPv6 route the packets of a machine that does not forward take
/// (`fib6_select_path` under `RT6_LOOKUP_F_REACHABLE`). One that forwards
/// (`net.ipv6.conf.all.forwarding`) chooses by [`crate::choose_plain`], where all nexthops are good.
///
/// `failed` is true for a nexthop whose gateway has a neighbour entry in the state `NUD_FAILED`.
///
/// 1. The first nexthop whose bound is not below the hash, unless its neighbour has failed.
/// 2. Else the first with a bound whose neighbour has not failed.
/// 3. Else the first with a bound.
/// 4. Else none.
pub fn choose_local6(
    uppers: &[Option<u32>],
    failed: impl Fn(usize) -> bool,
    hash31: u32,
) -> Option<Choice> {
    let usable = || (0..uppers.len()).filter(|i| uppers[*i].is_some());
    let by_hash = usable().find(|i| uppers[*i].is_some_and(|upper| hash31 <= upper));
    let rule = |rule, member: Option<usize>| member.map(|member| Choice { member, rule });
    rule(1, by_hash.filter(|i| !failed(*i)))
        .or_else(|| rule(2, usable().find(|i| !failed(*i))))
        .or_else(|| rule(3, usable().next()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::threshold::{choose_plain, upper_bounds};

    fn kernel(text: &str) -> KernelVersion {
        text.parse().unwrap()
    }

    /// The kernel's loop from 6.18.4 on, in our words: a score for each nexthop, the best one wins, of
    /// equals the first.
    fn scored(hops: &[LocalHop], sourced: bool, hash31: u32) -> Option<usize> {
        let mut best: Option<(u8, usize)> = None;
        for (i, hop) in hops.iter().enumerate() {
            let Some(upper) = hop.upper.filter(|_| hop.good) else {
                continue;
            };
            let score = 2 * u8::from(sourced && hop.has_source) + u8::from(hash31 <= upper);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, i));
            }
        }
        let first_usable = || hops.iter().position(|hop| hop.upper.is_some());
        best.map(|(_, i)| i).or_else(first_usable)
    }

    /// The loop of 6.16 to 6.18.3: until a nexthop with the source is found, each takes the place of
    /// the one before; a bound that holds ends the walk only from there on.
    fn faulty(hops: &[LocalHop], sourced: bool, hash31: u32) -> Option<usize> {
        let mut taken = hops.iter().position(|hop| hop.upper.is_some());
        let mut found = false;
        for (i, hop) in hops.iter().enumerate() {
            let Some(upper) = hop.upper.filter(|_| hop.good) else {
                continue;
            };
            let fits = !sourced || hop.has_source;
            if !found {
                taken = Some(i);
                found = fits;
            }
            if hash31 <= upper && fits {
                return Some(i);
            }
            if hash31 <= upper && found {
                return taken;
            }
        }
        taken
    }

    fn hops() -> impl Strategy<Value = Vec<LocalHop>> {
        let hop = (
            proptest::option::weighted(0.8, 1u32..9),
            any::<bool>(),
            any::<bool>(),
        );
        proptest::collection::vec(hop, 0..6).prop_map(|hops| {
            let weights: Vec<_> = hops.iter().map(|hop| hop.0).collect();
            let uppers = upper_bounds(&weights);
            let hop = |((_, good, has_source), upper): (&(_, bool, bool), _)| LocalHop {
                upper,
                good: *good,
                has_source: *has_source,
            };
            hops.iter().zip(uppers).map(hop).collect()
        })
    }

    proptest! {
        #[test]
        fn chooses_as_the_loops_do(
            hops in hops(), sourced in any::<bool>(), hash31 in 0u32..=0x7fff_ffff,
        ) {
            let choose = |preference| {
                choose_local4(preference, &hops, sourced, hash31).map(|choice| choice.member)
            };
            let uppers: Vec<_> = hops.iter().map(|hop| hop.upper).collect();
            let plain = choose_plain(&uppers, |i| hops[i].good, hash31);
            prop_assert_eq!(
                choose_local4(SourcePreference::None, &hops, sourced, hash31), plain
            );
            prop_assert_eq!(choose(SourcePreference::Scored), scored(&hops, sourced, hash31));
            prop_assert_eq!(choose(SourcePreference::Faulty), faulty(&hops, sourced, hash31));
        }

        #[test]
        fn compiled_decisions_are_the_same(
            hops in hops(), sourced in any::<bool>(), hash31 in 0u32..=0x7fff_ffff,
        ) {
            for preference in [
                SourcePreference::None, SourcePreference::Faulty, SourcePreference::Scored,
            ] {
                let list = compile_local4(preference, &hops, sourced);
                let bounds = hops.iter().filter_map(|hop| hop.upper);
                let near = bounds.flat_map(|b| [b.saturating_sub(1), b, (b + 1).min(MAX_HASH)]);
                for hash31 in near.chain([0, MAX_HASH, hash31]) {
                    let choice = choose_local4(preference, &hops, sourced, hash31);
                    let held = list.iter().find(|(upper, _)| hash31 <= *upper);
                    prop_assert_eq!(held.map(|(_, i)| *i), choice.map(|choice| choice.member));
                }
            }
        }

        #[test]
        fn a_machine_that_forwards_takes_no_notice_of_failures(
            hops in hops(), hash31 in 0u32..=0x7fff_ffff,
        ) {
            let uppers: Vec<_> = hops.iter().map(|hop| hop.upper).collect();
            let without = choose_local6(&uppers, |_| false, hash31);
            prop_assert_eq!(without, choose_plain(&uppers, |_| true, hash31));
            let choice = choose_local6(&uppers, |i| !hops[i].good, hash31);
            prop_assert_eq!(choice.is_some(), without.is_some());
            if let Some(choice) = choice {
                let any_lives = hops.iter().any(LocalHop::is_eligible);
                prop_assert_eq!(hops[choice.member].good, any_lives);
            }
        }
    }

    #[test]
    fn a_source_on_lo_goes_to_the_last_nexthop_in_faulty_kernels_only() {
        let half = |upper| LocalHop {
            upper: Some(upper),
            good: true,
            has_source: false,
        };
        let hops = [half(0x3fff_ffff), half(0x7fff_ffff)];
        let choose = |version: &str, hash31| {
            let preference = SourcePreference::of(kernel(version));
            let choice = choose_local4(preference, &hops, true, hash31).unwrap();
            (choice.member, choice.rule)
        };
        assert_eq!(choose("6.12.5", 7), (0, 1));
        assert_eq!(choose("6.15.11", 7), (0, 1));
        assert_eq!(choose("6.16.0", 7), (1, 9));
        assert_eq!(choose("6.18.3", 7), (1, 9));
        assert_eq!(choose("6.18.4", 7), (0, 1));
        assert_eq!(choose("6.18.44", 0x7000_0000), (1, 1));
    }

    #[test]
    fn only_unbound_tcp_draws() {
        assert!(draws_source_port(kernel("6.16.0"), 6, 0));
        assert!(!draws_source_port(kernel("6.15.9"), 6, 0));
        assert!(!draws_source_port(kernel("6.18.44"), 6, 40_000));
        assert!(!draws_source_port(kernel("6.18.44"), 17, 0));
    }
}

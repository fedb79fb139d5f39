//! Which client is taken in where many are connected, so that no user locks out the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// What becomes of a client that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is taken in.
    Welcome,
    /// It is, and the connection with this index is closed.
    InPlaceOf(usize),
    /// It is refused.
    Refused,
}

/// Decides about a client of this user; `connected` are the users of those that are connected, and for how long each
/// has been idle, if it is. The first rule that applies counts.
///
/// 1. Its user has fewer connections than may still be made: welcome. So a user alone has half of all, and always
///    leaves as many to others as it has.
/// 2. Of the users that have at least as many connections as its own, the one with the most that has idle ones: in
///    place of the one that has been idle for longest.
/// 3. Refused.
pub fn admit<U: Eq + Hash>(
    most: usize,
    user: &U,
    connected: &[(U, Option<Duration>)],
) -> Admission {
    let mut counts: HashMap<&U, usize> = HashMap::new();
    for (of, _) in connected {
        *counts.entry(of).or_default() += 1;
    }
    let own = counts.get(user).copied().unwrap_or(0);
    if own < most.saturating_sub(connected.len()) {
        return Admission::Welcome;
    }
    let idle = connected.iter().enumerate().filter_map(|(i, (of, idle))| {
        let count = counts.get(of).copied().unwrap_or(0);
        Some((count, (*idle)?, i)).filter(|_| count >= own)
    });
    match idle.max() {
        Some((_, _, i)) => Admission::InPlaceOf(i),
        None => Admission::Refused,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_user_that_takes_all_leaves_half() {
        let second = Duration::from_secs(1);
        let mut connected: Vec<(u32, Option<Duration>)> = Vec::new();
        while admit(100, &1, &connected) == Admission::Welcome {
            connected.push((1, None));
        }
        assert_eq!(connected.len(), 50);
        assert_eq!(admit(100, &1, &connected), Admission::Refused);
        assert_eq!(admit(100, &2, &connected), Admission::Welcome);
        // Its own idle connections go first.
        connected[7].1 = Some(second);
        connected[9].1 = Some(2 * second);
        assert_eq!(admit(100, &1, &connected), Admission::InPlaceOf(9));
        // One that has few is not closed for one that has many.
        connected[7].1 = None;
        connected[9].1 = None;
        connected.push((2, Some(9 * second)));
        assert_eq!(admit(100, &1, &connected), Admission::Refused);
    }

    proptest! {
        #[test]
        fn a_new_user_is_refused_only_where_all_are_busy(
            most in 2..64_usize, wishes in proptest::collection::vec((0..4_u32, any::<bool>()), 0..300),
        ) {
            let mut connected: Vec<(u32, Option<Duration>)> = Vec::new();
            for (user, idle) in wishes {
                let idle = idle.then_some(Duration::ZERO);
                match admit(most, &user, &connected) {
                    Admission::Welcome => connected.push((user, idle)),
                    Admission::InPlaceOf(i) => connected[i] = (user, idle),
                    Admission::Refused => {}
                }
                prop_assert!(connected.len() <= most);
                let busy = connected.len() == most && connected.iter().all(|(_, idle)| idle.is_none());
                prop_assert_eq!(admit(most, &9, &connected) == Admission::Refused, busy);
            }
        }
    }
}

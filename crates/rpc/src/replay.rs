//! What becomes of a call when its connection fails before the reply has come.

use std::time::Duration;

use crate::program::Class;

/// How much of a call has been handed to the connection that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing.
    Nothing,
    /// Some, and certainly not all: the server cannot have made a call of it.
    Part,
    /// All, or it is not known: the server may have run it.
    All,
}

/// What is known about a call that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How much was sent.
    pub sent: Sent,
    /// What it does when it is made twice.
    pub class: Class,
    /// Whether its header is signed (RPCSEC_GSS).
    pub signed: bool,
    /// Whether all of it is here, so that it can be sent again.
    pub complete: bool,
    /// Whether a part of the reply has been passed on to the client.
    pub answered: bool,
    /// Whether its client is still there.
    pub wanted: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forget it.
    Drop,
    /// Close the client's connection: it asks again by itself.
    Disconnect,
    /// Send it by another connection, under an XID of that one.
    Elsewhere,
    /// Send it again with the same XID from the same address and port, so that the server's duplicate request
    /// cache answers if it was run. Until that is possible it is held, and reported.
    SamePort,
}

/// Decides. The first rule that applies counts; the number is what reports print.
///
/// 1. Its client is gone: drop it.
/// 2. A part of the reply is with the client already: disconnect the client, whose stream cannot be
///    continued.
/// 3. It has not come completely from its client: elsewhere, as it comes. The server has not all of it either,
///    and a client that is disconnected repeats all its calls, under way elsewhere or not.
/// 4. Not all of it was sent: elsewhere. The server has not run it.
/// 5. It is signed: the server drops a sequence number of RPCSEC_GSS that it has seen (RFC 2203, section 5.3.3.1),
///    and only the client can sign a new one. Idempotent: disconnect the client. Otherwise: same port, as by
///    rule 7.
/// 6. It is idempotent, or the server counts it under a slot: elsewhere, at once.
/// 7. It counts once, or is unknown: same port, never elsewhere.
pub fn decide(cut: &Cut) -> (Action, u8) {
    let repeatable = matches!(cut.class, Class::Idempotent | Class::Slot);
    match cut {
        Cut { wanted: false, .. } => (Action::Drop, 1),
        Cut { answered: true, .. } => (Action::Disconnect, 2),
        Cut {
            complete: false,
            sent: Sent::Nothing | Sent::Part,
            ..
        } => (Action::Elsewhere, 3),
        Cut {
            complete: false, ..
        } => (Action::Disconnect, 3),
        Cut {
            sent: Sent::Nothing | Sent::Part,
            ..
        } => (Action::Elsewhere, 4),
        Cut { signed: true, .. } if repeatable => (Action::Disconnect, 5),
        Cut { signed: true, .. } => (Action::SamePort, 5),
        _ if repeatable => (Action::Elsewhere, 6),
        _ => (Action::SamePort, 7),
    }
}

/// What is known of a way to the server while held calls look for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Whether it is the one that routing gives to the connection's address and port.
    pub own: bool,
    /// Whether another connection to the server that works goes out by it.
    pub works: bool,
    /// Whether it was tried since all were tried last.
    pub tried: bool,
}

/// Where held calls are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// By the way with this index.
    By(usize),
    /// Nowhere for now, and then from the start.
    Wait(Blame),
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Only the connection's own way was tried.
    OwnWay,
    /// Others are answered by ways that were tried: the server's answers are lost on their way back, and it
    /// is the server's routing that sends them there.
    WayBack,
    /// Nothing answers.
    Server,
}

/// Decides by which way the same address and port are tried next. The first rule that applies counts.
///
/// 1. The connection was reset or closed: its own way, if that was not tried. Somebody was there to say so.
/// 2. It went silent, and detours are possible: the first other way that was not tried and by which another
///    connection works.
/// 3. Detours are possible: any other way that was not tried.
/// 4. Its own way, if that was not tried. The link may be back.
/// 5. All were tried. Without detours it is its own way that is silent; if others work by one of the ways,
///    the way back is; else the server is. Wait, and begin again.
pub fn next_way(silent: bool, detours: bool, ways: &[Way]) -> (Try, u8) {
    let find = |fits: &dyn Fn(&Way) -> bool| ways.iter().position(|way| !way.tried && fits(way));
    let own = find(&|way| way.own);
    if let (false, Some(own)) = (silent, own) {
        return (Try::By(own), 1);
    }
    if detours {
        if let Some(other) = find(&|way| !way.own && way.works) {
            return (Try::By(other), 2);
        }
        if let Some(other) = find(&|way| !way.own) {
            return (Try::By(other), 3);
        }
    }
    match own {
        Some(own) => (Try::By(own), 4),
        None if !detours => (Try::Wait(Blame::OwnWay), 5),
        None if ways.iter().any(|way| way.works) => (Try::Wait(Blame::WayBack), 5),
        None => (Try::Wait(Blame::Server), 5),
    }
}

/// How long a replayed call waits for its reply before it is sent again.
const REPEATS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// When a call that was replayed `times` times, 1 or more, goes out again on the same connection and with the
/// same XID: a server that was still running it has dropped the replay, and its reply went to the
/// connection that is no more. 5 s, twice as long each time, 60 s at most.
pub fn repeat_after(times: u32) -> Duration {
    let doubled = REPEATS.0 * 2_u32.pow(times.saturating_sub(1).min(8));
    doubled.min(REPEATS.1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut() -> impl Strategy<Value = Cut> {
        let sent = prop_oneof![Just(Sent::Nothing), Just(Sent::Part), Just(Sent::All)];
        let class = prop_oneof![
            Just(Class::Idempotent),
            Just(Class::Slot),
            Just(Class::Once),
            Just(Class::Unknown),
        ];
        (sent, class, any::<[bool; 4]>()).prop_map(|(sent, class, flags)| Cut {
            sent,
            class,
            signed: flags[0],
            complete: flags[1],
            answered: flags[2],
            wanted: flags[3],
        })
    }

    proptest! {
        #[test]
        fn nothing_that_counts_is_ever_run_twice(cut in cut()) {
            let (action, _) = decide(&cut);
            let may_have_run = cut.sent == Sent::All && cut.complete;
            let counts = matches!(cut.class, Class::Once | Class::Unknown);
            if may_have_run && counts {
                prop_assert_ne!(action, Action::Elsewhere);
            }
            // What is signed passes unchanged, and a server takes a number once.
            if may_have_run && cut.signed {
                prop_assert_ne!(action, Action::Elsewhere);
            }
            // A client that waits is either answered or told.
            prop_assert_eq!(action == Action::Drop, !cut.wanted);
        }
    }

    #[test]
    fn rules_have_their_numbers() {
        let plain = Cut {
            sent: Sent::All,
            class: Class::Once,
            signed: false,
            complete: true,
            answered: false,
            wanted: true,
        };
        let read = Cut {
            class: Class::Idempotent,
            ..plain
        };
        for (cut, decided) in [
            (
                Cut {
                    wanted: false,
                    ..plain
                },
                (Action::Drop, 1),
            ),
            (
                Cut {
                    answered: true,
                    ..plain
                },
                (Action::Disconnect, 2),
            ),
            (
                Cut {
                    complete: false,
                    ..plain
                },
                (Action::Disconnect, 3),
            ),
            (
                Cut {
                    complete: false,
                    sent: Sent::Part,
                    ..plain
                },
                (Action::Elsewhere, 3),
            ),
            (
                Cut {
                    sent: Sent::Part,
                    ..plain
                },
                (Action::Elsewhere, 4),
            ),
            (
                Cut {
                    signed: true,
                    ..read
                },
                (Action::Disconnect, 5),
            ),
            (
                Cut {
                    signed: true,
                    ..plain
                },
                (Action::SamePort, 5),
            ),
            (read, (Action::Elsewhere, 6)),
            (plain, (Action::SamePort, 7)),
        ] {
            assert_eq!(decide(&cut), decided, "{cut:?}");
        }
    }

    fn way() -> impl Strategy<Value = Way> {
        any::<[bool; 2]>().prop_map(|[works, tried]| Way {
            own: false,
            works,
            tried,
        })
    }

    proptest! {
        /// Whatever is known, every way is tried once, no other than the own one without detours, and then
        /// somebody is blamed.
        #[test]
        fn every_way_is_tried_once(
            mut ways in proptest::collection::vec(way(), 0..6), own in 0..6_usize, silent: bool, detours: bool,
        ) {
            ways.iter_mut().for_each(|way| way.tried = false);
            let own = own.min(ways.len());
            ways.insert(own, Way { own: true, works: false, tried: false });
            let mut rules = Vec::new();
            let blame = loop {
                match next_way(silent, detours, &ways) {
                    (Try::By(i), rule) => {
                        prop_assert!(!ways[i].tried);
                        prop_assert!(detours || ways[i].own);
                        ways[i].tried = true;
                        rules.push(rule);
                    }
                    (Try::Wait(blame), _) => break blame,
                }
            };
            prop_assert!(rules.is_sorted());
            prop_assert_eq!(ways.iter().filter(|way| way.tried).count(), if detours { ways.len() } else { 1 });
            prop_assert_eq!(blame == Blame::OwnWay, !detours);
            let works = ways.iter().any(|way| way.works);
            prop_assert!(!detours || (blame == Blame::WayBack) == works);
        }
    }

    #[test]
    fn ways_have_their_order() {
        let own = Way {
            own: true,
            works: false,
            tried: false,
        };
        let dark = Way { own: false, ..own };
        let works = Way {
            works: true,
            ..dark
        };
        let ways = [own, dark, works];
        assert_eq!(next_way(false, true, &ways), (Try::By(0), 1));
        assert_eq!(next_way(true, true, &ways), (Try::By(2), 2));
        assert_eq!(next_way(true, true, &ways[..2]), (Try::By(1), 3));
        assert_eq!(next_way(true, false, &ways), (Try::By(0), 4));
        assert_eq!(next_way(true, true, &[]), (Try::Wait(Blame::Server), 5));
    }

    #[test]
    fn repeats_are_rarer_and_rarer() {
        let seconds: Vec<u64> = (0..7).map(|n| repeat_after(n).as_secs()).collect();
        assert_eq!(seconds, [5, 5, 10, 20, 40, 60, 60]);
        assert_eq!(repeat_after(u32::MAX).as_secs(), 60);
    }
}

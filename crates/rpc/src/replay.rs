//! What becomes of a call when its connection fails before the reply has come.

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
/// 3. It has not come completely from its client: disconnect the client if any of it was sent; else it
///    goes elsewhere, once it has come.
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
            sent: Sent::Nothing,
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
                    sent: Sent::Nothing,
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
}

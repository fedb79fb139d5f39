//! Whether a connection that says nothing is dead: a link can lose everything without a reset, and so does a firewall
//! that has forgotten the connection.

use std::time::Duration;

/// Silence that is asked about, at least.
const SILENCE: Duration = Duration::from_millis(250);
/// Time that an answer gets, at least.
const ANSWER: Duration = Duration::from_millis(300);

/// Silence in which answers to what TCP sends again may be missing: a kernel answers what it has no room for twice a
/// second at most, and so may leave out one of the first few.
const LEFT_OUT: Duration = Duration::from_millis(1500);

/// What is known about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    /// Whether something is to come: replies to calls, or an answer to a keep-alive of TCP.
    pub outstanding: bool,
    /// How long nothing has been heard, acknowledgements included.
    pub silent: Duration,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Whether bytes that were sent, or probes of its window, have no answer.
    pub unacknowledged: bool,
    /// How long ago it was asked, if it has been silent since.
    pub asked: Option<Duration>,
    /// How long nothing has been heard on the connection to the same server that was heard last, of the
    /// others; none if there is none.
    pub others: Option<Duration>,
    /// How long ago a connection was made beside it.
    pub beside: Option<Duration>,
    /// How long TCP waits before it sends again what is not acknowledged.
    pub repeats: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Ask it, and the others, by a call that does nothing.
    Ask,
    /// Make a connection beside it, which says whether the server can be reached.
    Beside,
    /// Give it up.
    Dead,
}

/// Judges; the first rule that applies counts.
///
/// 1. Nothing is to come: fine.
/// 2. It was heard within 250 ms, or two round trips if these are longer: fine.
/// 3. It was not asked since it was heard last: ask.
/// 4. The answer still has time, 300 ms or two round trips: fine. A server that is busy does not answer, but
///    its kernel acknowledges the question.
/// 5. All that was sent is acknowledged: fine. The server takes no more for now (a window of zero), and the
///    question waits behind what has to.
/// 6. Another connection to the server was heard since it was asked: dead.
/// 7. TCP has sent nothing again since it was heard last, or the answer to that still has time: fine. A server whose
///    buffers are full acknowledges nothing, and answers each repetition.
/// 8. A connection was made beside it since it was asked: dead. A firewall between has forgotten all connections, and
///    drops what is of none; or the way was gone, and is back.
/// 9. Otherwise the server may be down, or the way to it. A connection beside it will tell: make one.
pub fn judge(signs: &Signs) -> Verdict {
    let trips = 2 * signs.rtt;
    if !signs.outstanding || signs.silent < SILENCE.max(trips) {
        return Verdict::Fine;
    }
    let Some(asked) = signs.asked.filter(|asked| *asked <= signs.silent) else {
        return Verdict::Ask;
    };
    if asked < ANSWER.max(trips) || !signs.unacknowledged {
        return Verdict::Fine;
    }
    match signs.others {
        Some(others) if others < asked => Verdict::Dead,
        _ if signs.silent < signs.repeats.max(LEFT_OUT) + ANSWER.max(trips) => Verdict::Fine,
        _ if signs.beside.is_some_and(|beside| beside < asked) => Verdict::Dead,
        _ => Verdict::Beside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn silence_is_asked_about_and_compared() {
        let signs = Signs {
            outstanding: true,
            silent: ms(260),
            rtt: ms(1),
            unacknowledged: true,
            asked: None,
            others: Some(ms(0)),
            beside: None,
            repeats: ms(200),
        };
        assert_eq!(judge(&signs), Verdict::Ask);
        assert_eq!(
            judge(&Signs {
                outstanding: false,
                ..signs
            }),
            Verdict::Fine
        );
        assert_eq!(
            judge(&Signs {
                rtt: ms(140),
                ..signs
            }),
            Verdict::Fine
        );
        let asked = Signs {
            silent: ms(600),
            asked: Some(ms(310)),
            ..signs
        };
        assert_eq!(judge(&asked), Verdict::Dead);
        assert_eq!(
            judge(&Signs {
                asked: Some(ms(200)),
                ..asked
            }),
            Verdict::Fine
        );
        assert_eq!(
            judge(&Signs {
                unacknowledged: false,
                ..asked
            }),
            Verdict::Fine
        );
        // Nobody is heard: that may not be this connection's fault.
        for others in [Some(ms(400)), None] {
            assert_eq!(judge(&Signs { others, ..asked }), Verdict::Fine);
            let longer = Signs {
                others,
                silent: ms(2000),
                ..asked
            };
            assert_eq!(judge(&longer), Verdict::Beside);
        }
        let beside = Signs {
            others: None,
            beside: Some(ms(100)),
            silent: ms(2000),
            ..asked
        };
        assert_eq!(judge(&beside), Verdict::Dead);
        // TCP would have said something later.
        let repeats = ms(1800);
        assert_eq!(judge(&Signs { repeats, ..beside }), Verdict::Fine);
        // It was heard after it was asked, and is silent again.
        assert_eq!(
            judge(&Signs {
                asked: Some(ms(900)),
                ..asked
            }),
            Verdict::Ask
        );
    }
}

//! Whether a connection that says nothing is dead: a link can lose everything without a reset.

use std::time::Duration;

/// Silence that is asked about, at least.
const SILENCE: Duration = Duration::from_millis(250);
/// Time that an answer gets, at least.
const ANSWER: Duration = Duration::from_millis(300);

/// What is known about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    /// Whether calls wait for replies.
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
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Ask it, and the others, by a call that does nothing.
    Ask,
    /// Give it up.
    Dead,
}

/// Judges; the first rule that applies counts.
///
/// 1. Nothing waits for a reply: fine.
/// 2. It was heard within 250 ms, or two round trips if these are longer: fine.
/// 3. It was not asked since it was heard last: ask.
/// 4. The answer still has time, 300 ms or two round trips: fine. A server that is busy does not answer, but
///    its kernel acknowledges the question.
/// 5. All that was sent is acknowledged: fine. The server takes no more for now (a window of zero), and the
///    question waits behind what has to.
/// 6. Another connection to the server was heard since: dead. Otherwise fine: the server may be down, and
///    TCP decides.
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
        _ => Verdict::Fine,
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
        // Nobody is heard: that is not this connection's fault.
        assert_eq!(
            judge(&Signs {
                others: Some(ms(400)),
                ..asked
            }),
            Verdict::Fine
        );
        assert_eq!(
            judge(&Signs {
                others: None,
                ..asked
            }),
            Verdict::Fine
        );
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

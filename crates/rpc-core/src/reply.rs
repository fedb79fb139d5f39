//! What a server says to a call (RFC 5531, section 9).

use std::fmt;

use bytes::Bytes;
use thiserror::Error;

use crate::message::MAX_AUTH;
use crate::wire::Cursor;

/// The results of a call that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Flavour of the server's verifier; 0 is none.
    pub verifier: u32,
    /// The results, in XDR, as the program defines them.
    pub results: Bytes,
}

/// Why a call has no results.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// It is longer than records may be.
    #[error(
        "a call of {length} bytes: records may have {most}; raise Config::most or ask for less"
    )]
    TooLong {
        /// Its bytes, header included.
        length: usize,
        /// The maximum.
        most: u32,
    },
    /// The server does not speak version 2 of RPC (`RPC_MISMATCH`).
    #[error("the server speaks RPC versions {low} to {high}, not 2")]
    RpcMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The credentials are refused (`AUTH_ERROR`).
    #[error("the server refuses the credentials: {0}")]
    Auth(AuthStatus),
    /// There is no such program at this port (`PROG_UNAVAIL`).
    #[error("the server has no such program at this port; ask its portmapper for the port")]
    NoProgram,
    /// The program has other versions (`PROG_MISMATCH`).
    #[error("the server has versions {low} to {high} of the program")]
    ProgramMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The program has no such procedure (`PROC_UNAVAIL`).
    #[error("the program has no such procedure")]
    NoProcedure,
    /// The arguments make no sense to the server (`GARBAGE_ARGS`).
    #[error("the server could not read the arguments")]
    GarbageArguments,
    /// Something is wrong with the server (`SYSTEM_ERR`).
    #[error("the server has failed, such as for want of memory")]
    System,
    /// The reply is none by RFC 5531.
    #[error("the server's reply makes no sense: {0}")]
    Malformed(&'static str),
    /// The connection failed, and the call could not be repeated.
    #[error("no reply: {0}; the server may have run the call")]
    Lost(String),
    /// The client has ended.
    #[error("the client has ended")]
    Ended,
}

/// Why credentials are refused (`auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthStatus(pub u32);

impl fmt::Display for AuthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "bad credentials (AUTH_BADCRED)",
            2 => "a new session is wanted (AUTH_REJECTEDCRED)",
            3 => "bad verifier (AUTH_BADVERF)",
            4 => "expired or repeated verifier (AUTH_REJECTEDVERF)",
            5 => "too weak; it may want other credentials or a port below 1024 (AUTH_TOOWEAK)",
            6 => "invalid verifier in a reply (AUTH_INVALIDRESP)",
            7 => "for a reason that it does not know (AUTH_FAILED)",
            13 => "no such context (RPCSEC_GSS_CREDPROBLEM)",
            14 => "a problem with the context (RPCSEC_GSS_CTXPROBLEM)",
            other => return write!(f, "auth_stat {other}"),
        })
    }
}

impl Reply {
    /// Reads a reply, from its XID on and without record marks. O(1): the results are a part of it.
    ///
    /// # Errors
    /// What the server says, or [`CallError::Malformed`].
    pub fn parse(record: &Bytes) -> Result<Reply, CallError> {
        let mut cursor = Cursor::new(record);
        let mut word = || {
            let word = cursor.u32();
            word.ok_or(CallError::Malformed("it ends within its header"))
        };
        let (_, kind, status) = (word()?, word()?, word()?);
        if kind != 1 {
            return Err(CallError::Malformed("it is no reply"));
        }
        match status {
            0 => {}
            1 => {
                return Err(match word()? {
                    0 => CallError::RpcMismatch {
                        low: word()?,
                        high: word()?,
                    },
                    1 => CallError::Auth(AuthStatus(word()?)),
                    _ => CallError::Malformed("it is rejected for no known reason"),
                });
            }
            _ => return Err(CallError::Malformed("it is neither accepted nor rejected")),
        }
        let verifier = word()?;
        let short = CallError::Malformed("it ends within its verifier");
        let body = cursor.opaque().ok_or(short)?;
        if body.len() > MAX_AUTH {
            return Err(CallError::Malformed("its verifier is too long"));
        }
        let mut word = || {
            let word = cursor.u32();
            word.ok_or(CallError::Malformed("it ends within its header"))
        };
        match word()? {
            0 => Ok(Reply {
                verifier,
                results: record.slice(record.len() - cursor.left()..),
            }),
            1 => Err(CallError::NoProgram),
            2 => Err(CallError::ProgramMismatch {
                low: word()?,
                high: word()?,
            }),
            3 => Err(CallError::NoProcedure),
            4 => Err(CallError::GarbageArguments),
            5 => Err(CallError::System),
            _ => Err(CallError::Malformed("it is accepted with no known status")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(words: &[u32]) -> Result<Reply, CallError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Reply::parse(&bytes.into())
    }

    #[test]
    fn every_status_has_its_name() {
        let done = of(&[9, 1, 0, 1, 4, 77, 0, 5, 6]).unwrap();
        assert_eq!(done.verifier, 1);
        assert_eq!(done.results[..], [0, 0, 0, 5, 0, 0, 0, 6]);
        for (words, error) in [
            (&[9, 1, 0, 0, 0, 1][..], CallError::NoProgram),
            (
                &[9, 1, 0, 0, 0, 2, 3, 4],
                CallError::ProgramMismatch { low: 3, high: 4 },
            ),
            (&[9, 1, 0, 0, 0, 3], CallError::NoProcedure),
            (&[9, 1, 0, 0, 0, 4], CallError::GarbageArguments),
            (&[9, 1, 0, 0, 0, 5], CallError::System),
            (
                &[9, 1, 1, 0, 3, 3],
                CallError::RpcMismatch { low: 3, high: 3 },
            ),
            (&[9, 1, 1, 1, 5], CallError::Auth(AuthStatus(5))),
        ] {
            assert_eq!(of(words), Err(error.clone()), "{words:?}");
            let cut = of(&words[..words.len() - 1]);
            assert!(matches!(cut, Err(CallError::Malformed(_))), "{cut:?}");
        }
        for words in [
            &[9, 0, 0, 0, 0, 0][..],
            &[9, 1, 2],
            &[9, 1, 0, 0, 401, 0],
            &[9, 1, 0, 0, 0, 6],
            &[9, 1, 1, 2],
        ] {
            assert!(matches!(of(words), Err(CallError::Malformed(_))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(words in proptest::collection::vec(prop_oneof![0..7_u32, any::<u32>()], 0..12),
                               cut in 0..4_usize) {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            bytes.truncate(bytes.len().saturating_sub(cut));
            let _ = Reply::parse(&bytes.into());
        }
    }
}

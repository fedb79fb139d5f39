//! Headers of calls and replies (RFC 5531, section 9), as far as a proxy has to know them.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::wire::Cursor;

/// Longest body of credentials and verifiers (RFC 5531, section 8.2), in bytes.
pub const MAX_AUTH: usize = 400;
/// Credentials of RPCSEC_GSS (RFC 2203), whose verifier signs the header with the XID in it.
pub const RPCSEC_GSS: u32 = 6;
/// Credentials that ask for TLS (RFC 9289).
pub const AUTH_TLS: u32 = 7;

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Transaction id.
    pub xid: u32,
    /// Program number, such as 100003 for NFS.
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Flavour of the credentials.
    pub flavour: u32,
    /// Where the arguments begin, in bytes from the XID.
    pub arguments: usize,
}

/// The first words of a message from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromServer {
    /// An answer to the call with this XID.
    Reply(u32),
    /// A call by the server (an NFSv4.1 backchannel).
    Call(u32),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It ends within its header.
    #[error("a message that ends within its header")]
    Short,
    /// A reply where a call belongs, or neither.
    #[error("a message of type {0}, which is no {1}")]
    Kind(u32, &'static str),
    /// Another version of RPC than 2.
    #[error("a call of RPC version {0}, not 2")]
    Version(u32),
    /// Credentials or a verifier that are too long.
    #[error("credentials or a verifier of {0} bytes, {MAX_AUTH} are allowed")]
    Auth(usize),
}

impl Call {
    /// Reads a header; `bytes` may hold more. O(1).
    ///
    /// # Errors
    /// [`MessageError`]: it is no call.
    pub fn parse(bytes: &[u8]) -> Result<Call, MessageError> {
        let mut cursor = Cursor::new(bytes);
        let mut word = || cursor.u32().ok_or(MessageError::Short);
        let xid = word()?;
        match word()? {
            0 => {}
            kind => return Err(MessageError::Kind(kind, "call")),
        }
        match word()? {
            2 => {}
            version => return Err(MessageError::Version(version)),
        }
        let (program, version, procedure, flavour) = (word()?, word()?, word()?, word()?);
        let body = |cursor: &mut Cursor<'_>| {
            let length = { *cursor }.u32().ok_or(MessageError::Short)? as usize;
            if length > MAX_AUTH {
                return Err(MessageError::Auth(length));
            }
            cursor.opaque().map(drop).ok_or(MessageError::Short)
        };
        body(&mut cursor)?;
        cursor.u32().ok_or(MessageError::Short)?;
        body(&mut cursor)?;
        Ok(Call {
            xid,
            program,
            version,
            procedure,
            flavour,
            arguments: bytes.len() - cursor.left(),
        })
    }

    /// Whether the header is signed, and so has to pass unchanged.
    pub fn is_signed(&self) -> bool {
        self.flavour == RPCSEC_GSS
    }
}

impl FromServer {
    /// Reads the first words; `bytes` may hold more.
    ///
    /// # Errors
    /// [`MessageError`]: it is neither.
    pub fn parse(bytes: &[u8]) -> Result<FromServer, MessageError> {
        let mut cursor = Cursor::new(bytes);
        let xid = cursor.u32().ok_or(MessageError::Short)?;
        match cursor.u32().ok_or(MessageError::Short)? {
            0 => Ok(FromServer::Call(xid)),
            1 => Ok(FromServer::Reply(xid)),
            kind => Err(MessageError::Kind(kind, "reply")),
        }
    }
}

/// Answers that the proxy gives itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is no such program here (`PROG_UNAVAIL`).
    NoProgram,
    /// The program has no such procedure (`PROC_UNAVAIL`).
    NoProcedure,
    /// The credentials are refused (`AUTH_ERROR`, `AUTH_REJECTEDCRED`): TLS is not spoken here.
    NoTls,
}

/// A reply without a record mark.
pub fn answer(xid: u32, answer: Answer) -> Bytes {
    let mut bytes = BytesMut::with_capacity(24);
    bytes.put_u32(xid);
    bytes.put_u32(1);
    match answer {
        Answer::NoProgram | Answer::NoProcedure => {
            // MSG_ACCEPTED, an empty verifier, the status.
            bytes.put_slice(&[0; 12]);
            bytes.put_u32(if answer == Answer::NoProgram { 1 } else { 3 });
        }
        Answer::NoTls => {
            // MSG_DENIED, AUTH_ERROR, AUTH_REJECTEDCRED.
            [1, 1, 2].into_iter().for_each(|word| bytes.put_u32(word));
        }
    }
    bytes.freeze()
}

/// A call of procedure 0 (NULL), which every program has, without credentials and record mark.
pub fn null(xid: u32, program: u32, version: u32) -> Bytes {
    let mut bytes = BytesMut::with_capacity(40);
    for word in [xid, 0, 2, program, version, 0, 0, 0, 0, 0] {
        bytes.put_u32(word);
    }
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_header_of_a_call() {
        let mut bytes = Vec::new();
        for word in [
            9_u32,
            0,
            2,
            100_003,
            3,
            6,
            1,
            5,
            0x0102_0304,
            0x0500_0000,
            0,
            0,
            77,
        ] {
            bytes.extend(word.to_be_bytes());
        }
        let call = Call::parse(&bytes).unwrap();
        assert_eq!((call.xid, call.program, call.version), (9, 100_003, 3));
        assert_eq!((call.procedure, call.flavour, call.arguments), (6, 1, 48));
        for length in 0..48 {
            assert_eq!(Call::parse(&bytes[..length]), Err(MessageError::Short));
        }
        bytes[7] = 1;
        assert_eq!(Call::parse(&bytes), Err(MessageError::Kind(1, "call")));
        bytes[7] = 0;
        bytes[30] = 4;
        assert_eq!(Call::parse(&bytes), Err(MessageError::Auth(0x405)));
    }

    #[test]
    fn own_answers_and_pings_are_messages() {
        for kind in [Answer::NoProgram, Answer::NoProcedure, Answer::NoTls] {
            assert_eq!(
                FromServer::parse(&answer(5, kind)),
                Ok(FromServer::Reply(5))
            );
        }
        let call = Call::parse(&null(7, 100_003, 3)).unwrap();
        assert_eq!((call.xid, call.procedure, call.arguments), (7, 0, 40));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(call) = Call::parse(&bytes) {
                prop_assert!(call.arguments <= bytes.len());
            }
            let _ = FromServer::parse(&bytes);
        }
    }
}

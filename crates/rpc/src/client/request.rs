//! A call as a program makes it.

use bytes::{BufMut, Bytes, BytesMut};

use super::CallError;
use super::Credentials;
use crate::assemble::HEAD;
use crate::program::Class;
use crate::proxy::Message;

/// A call to be made.
#[derive(Clone, Debug)]
pub struct Request {
    program: u32,
    version: u32,
    procedure: u32,
    credentials: Credentials,
    arguments: Bytes,
    class: Option<Class>,
}

impl Request {
    /// Of this program, version and procedure, without credentials and arguments.
    pub fn new(program: u32, version: u32, procedure: u32) -> Request {
        Request {
            program,
            version,
            procedure,
            credentials: Credentials::none(),
            arguments: Bytes::new(),
            class: None,
        }
    }

    /// With these credentials.
    pub fn credentials(mut self, credentials: &Credentials) -> Request {
        self.credentials = credentials.clone();
        self
    }

    /// With these arguments, in XDR; they are not copied where they are large.
    pub fn arguments(mut self, arguments: impl Into<Bytes>) -> Request {
        self.arguments = arguments.into();
        self
    }

    /// What the call does when it is run twice. Needed for programs other than NFS and MOUNT, whose calls
    /// count as [`Class::Unknown`] and are repeated only from the same port.
    pub fn class(mut self, class: Class) -> Request {
        self.class = Some(class);
        self
    }

    /// The call without marks; its XID is set when it has a connection.
    pub(super) fn message(self, most: u32) -> Result<Message, CallError> {
        let credentials = self.credentials.encoded();
        let header = 24 + credentials.len() + 8;
        let length = header.saturating_add(self.arguments.len());
        if length > most as usize {
            return Err(CallError::TooLong { length, most });
        }
        let mut arguments = self.arguments.clone();
        let first = arguments.split_to(arguments.len().min(HEAD));
        let mut head = BytesMut::with_capacity(header + first.len());
        for word in [0, 0, 2, self.program, self.version, self.procedure] {
            head.put_u32(word);
        }
        head.put_slice(credentials);
        head.put_slice(&[0; 8]);
        head.put_slice(&first);
        Ok(Message {
            head: head.freeze(),
            rest: arguments,
            class: self.class,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Call;

    #[test]
    fn a_request_is_a_call() {
        let sys = Credentials::sys("here", 1, 2, &[]).unwrap();
        for size in [0, 4, HEAD, HEAD + 4, 100_000] {
            let request = Request::new(100_003, 3, 7).credentials(&sys);
            let request = request.arguments(vec![9; size]);
            let message = request.clone().message(1 << 20).unwrap();
            let call = Call::parse(&message.head).unwrap();
            assert_eq!(
                (call.program, call.version, call.procedure),
                (100_003, 3, 7)
            );
            assert_eq!(call.flavour, 1);
            let arguments = [&message.head[call.arguments..], &message.rest[..]].concat();
            assert_eq!(arguments, vec![9; size]);
            let length = message.head.len() + message.rest.len();
            assert!(request.clone().message(length as u32).is_ok());
            let most = length as u32 - 1;
            let error = request.message(most).unwrap_err();
            assert_eq!(error, CallError::TooLong { length, most });
        }
    }
}

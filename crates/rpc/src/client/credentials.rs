//! Who calls, as the server is told.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// `AUTH_SYS` (RFC 5531, appendix A).
const AUTH_SYS: u32 = 1;
/// Longest name of a machine, in bytes.
const NAME: usize = 255;
/// Most groups beside the first.
const GROUPS: usize = 16;

/// Credentials of a call. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Flavour, length and body.
    encoded: Bytes,
}

/// Why there are no such credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CredentialsError {
    /// The machine's name.
    #[error("a machine's name of {0} bytes: AUTH_SYS has room for {NAME}")]
    Name(usize),
    /// The groups.
    #[error("{0} groups: AUTH_SYS has room for {GROUPS} beside the first")]
    Groups(usize),
}

impl Credentials {
    /// `AUTH_NONE`: nobody.
    pub fn none() -> Credentials {
        Credentials {
            encoded: Bytes::from_static(&[0; 8]),
        }
    }

    /// `AUTH_SYS` (RFC 5531, appendix A): a user of a machine, by numbers that the server believes or not. The
    /// stamp is 0; servers do not look at it.
    ///
    /// ```
    /// use raddle_rpc::client::Credentials;
    /// let root = Credentials::sys("client1", 0, 0, &[])?;
    /// assert!(Credentials::sys("client1", 0, 0, &[1; 17]).is_err());
    /// # Ok::<(), raddle_rpc::client::CredentialsError>(())
    /// ```
    ///
    /// # Errors
    /// A name of more than 255 bytes, or more than 16 groups.
    pub fn sys(
        machine: &str,
        user: u32,
        group: u32,
        groups: &[u32],
    ) -> Result<Credentials, CredentialsError> {
        if machine.len() > NAME {
            return Err(CredentialsError::Name(machine.len()));
        }
        if groups.len() > GROUPS {
            return Err(CredentialsError::Groups(groups.len()));
        }
        let mut body = BytesMut::new();
        body.put_u32(0);
        body.put_u32(machine.len() as u32);
        body.put_slice(machine.as_bytes());
        body.put_bytes(0, machine.len().next_multiple_of(4) - machine.len());
        for word in [user, group, groups.len() as u32].iter().chain(groups) {
            body.put_u32(*word);
        }
        let mut encoded = BytesMut::new();
        encoded.put_u32(AUTH_SYS);
        encoded.put_u32(body.len() as u32);
        encoded.put(body);
        Ok(Credentials {
            encoded: encoded.freeze(),
        })
    }

    /// As they stand in a call.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.encoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_sys_is_as_the_rfc_has_it() {
        let sys = Credentials::sys("abcde", 7, 8, &[9, 10]).unwrap();
        let words = [1, 36, 0, 5, 0x6162_6364, 0x6500_0000, 7, 8, 2, 9, 10_u32];
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(sys.encoded(), expected);
        let longest = Credentials::sys(&"x".repeat(255), 0, 0, &[0; 16]).unwrap();
        assert!(longest.encoded().len() - 8 <= crate::message::MAX_AUTH);
        assert_eq!(
            Credentials::sys(&"x".repeat(256), 0, 0, &[]),
            Err(CredentialsError::Name(256))
        );
    }
}

//! How a request ended (`NLMSG_DONE`, `NLMSG_ERROR`), with the kernel's own words.

use super::number::nlm;
use super::wire::{Attributes, DecodeError, HEADER_LEN, Message, align4, read_u32};

pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;

const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;

/// A request's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelError {
    /// `errno`, positive.
    pub errno: i32,
    /// What the kernel says about it (`NLMSGERR_ATTR_MSG`).
    pub text: Option<String>,
    /// Offset of the offending attribute in the request (`NLMSGERR_ATTR_OFFS`).
    pub offset: Option<u32>,
}

impl std::fmt::Display for KernelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let errno = std::io::Error::from_raw_os_error(self.errno);
        match &self.text {
            Some(text) => write!(f, "{text} ({errno})"),
            None => write!(f, "{errno}"),
        }
    }
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done, or the dump is complete.
    Done,
    /// It was refused, or the dump broke off.
    Failed(KernelError),
}

/// The code is at the front of both. In an error the request's header and, unless capped, the
/// request follow, and then attributes; in the end of a dump the attributes follow at once.
pub(super) fn decode(message: &Message<'_>) -> Result<Outcome, DecodeError> {
    let Some(code) = message.payload.first_chunk::<4>() else {
        if message.kind == DONE {
            return Ok(Outcome::Done); // not all dumps say how they went
        }
        let have = message.payload.len();
        return Err(DecodeError::Truncated {
            what: "nlmsgerr",
            need: 4,
            have,
        });
    };
    let code = i32::from_ne_bytes(*code);
    if code >= 0 {
        return Ok(Outcome::Done);
    }
    let mut error = KernelError {
        errno: code.saturating_neg(),
        text: None,
        offset: None,
    };
    if message.flags & nlm::ACK_TLVS != 0 {
        let from = if message.kind == DONE {
            4
        } else {
            4 + echoed(message)
        };
        // A refusal stands even if its explanation is garbled.
        for attribute in Attributes::new(message.payload.get(from..).unwrap_or_default()).flatten()
        {
            match attribute.kind {
                NLMSGERR_ATTR_MSG => error.text = Some(attribute.string()),
                NLMSGERR_ATTR_OFFS => error.offset = attribute.u32("offset").ok(),
                _ => {}
            }
        }
    }
    Ok(Outcome::Failed(error))
}

/// Bytes of the request that an error echoes.
fn echoed(message: &Message<'_>) -> usize {
    let length = message.payload[4..]
        .first_chunk::<4>()
        .map_or(0, |b| read_u32(b, 0) as usize);
    if message.flags & nlm::CAPPED != 0 {
        HEADER_LEN
    } else {
        align4(length.min(1 << 20))
    }
}

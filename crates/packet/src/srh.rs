//! The segment routing header (RFC 8754, section 2).

use crate::bytes::copy;

/// Type of a routing header that is an SRH.
pub const ROUTING_TYPE: u8 = 4;
/// Length of the fixed part in bytes; the segments follow, 16 bytes each.
pub const FIXED: usize = 8;
/// TLV type of an HMAC (RFC 8754, section 2.1.2).
pub const TLV_HMAC: u8 = 5;
/// Length of an HMAC TLV in bytes.
pub const HMAC_LEN: usize = 40;
/// Flag that Linux takes for "there is an HMAC at the end".
pub const FLAG_HMAC: u8 = 0x08;

mod field {
    pub(super) const NEXT_HEADER: usize = 0;
    pub(super) const HDR_EXT_LEN: usize = 1;
    pub(super) const TYPE: usize = 2;
    pub(super) const SEGMENTS_LEFT: usize = 3;
    pub(super) const LAST_ENTRY: usize = 4;
    pub(super) const FLAGS: usize = 5;
}

/// Why bytes are not an SRH that may be acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SrhError {
    /// Fewer bytes than the header says that it has.
    #[error("the SRH needs {need} bytes, there are {have}")]
    Truncated {
        /// Bytes that it takes.
        need: usize,
        /// Bytes that there were.
        have: usize,
    },
    /// Another type of routing header.
    #[error("routing header of type {0}, an SRH has type 4")]
    Type(u8),
    /// The last entry lies behind the end of the header.
    #[error("last entry {last_entry} does not fit a header of {length} bytes")]
    LastEntry {
        /// Last entry, as it stands there.
        last_entry: u8,
        /// Length of the header in bytes.
        length: usize,
    },
    /// More segments left than the list has.
    #[error("{segments_left} segments left of a list with last entry {last_entry}")]
    SegmentsLeft {
        /// Segments left, as it stands there.
        segments_left: u8,
        /// Last entry.
        last_entry: u8,
    },
    /// The TLVs do not end where the header does.
    #[error("a TLV at byte {0} of the SRH runs out of it")]
    Tlv(usize),
}

/// An SRH whose lengths have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Srh<'a>(&'a [u8]);

impl<'a> Srh<'a> {
    /// Takes an SRH from the beginning of `bytes`, checked as Linux does (`seg6_validate_srh`):
    ///
    /// 1. The 8 bytes of its fixed part, and all that its length says, are there.
    /// 2. The routing type is 4.
    /// 3. The segments up to the last entry fit.
    /// 4. Segments left are at most the last entry; one more when `reduced`, where the list leaves out
    ///    the segment that is visited first.
    /// 5. What follows the segments is TLVs of two bytes and their length each, up to the end. There is
    ///    no Pad1: the kernel does not know it.
    ///
    /// # Errors
    /// The first of these that is not so. Costs a step for each TLV, at most 1020.
    #[inline]
    pub fn new_checked(bytes: &'a [u8], reduced: bool) -> Result<Srh<'a>, SrhError> {
        let have = bytes.len();
        let need = FIXED;
        let Some(fixed) = bytes.first_chunk::<FIXED>() else {
            return Err(SrhError::Truncated { need, have });
        };
        let need = (usize::from(fixed[field::HDR_EXT_LEN]) + 1) * 8;
        let Some(bytes) = bytes.get(..need) else {
            return Err(SrhError::Truncated { need, have });
        };
        if fixed[field::TYPE] != ROUTING_TYPE {
            return Err(SrhError::Type(fixed[field::TYPE]));
        }
        let last_entry = fixed[field::LAST_ENTRY];
        let segments_left = fixed[field::SEGMENTS_LEFT];
        let list_end = FIXED + 16 * (usize::from(last_entry) + 1);
        if list_end > need {
            let length = need;
            return Err(SrhError::LastEntry { last_entry, length });
        }
        if u16::from(segments_left) > u16::from(last_entry) + u16::from(reduced) {
            return Err(SrhError::SegmentsLeft {
                segments_left,
                last_entry,
            });
        }
        let mut at = list_end;
        while at < need {
            let end = bytes.get(at + 1).map(|len| at + 2 + usize::from(*len));
            match end {
                Some(end) if end <= need => at = end,
                _ => return Err(SrhError::Tlv(at)),
            }
        }
        Ok(Srh(bytes))
    }

    /// The header's bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// What follows the header ([`crate::protocol`]).
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0[field::NEXT_HEADER]
    }

    /// Index of the active segment.
    #[inline]
    pub fn segments_left(&self) -> u8 {
        self.0[field::SEGMENTS_LEFT]
    }

    /// Index of the last element of the list, which is visited first.
    #[inline]
    pub fn last_entry(&self) -> u8 {
        self.0[field::LAST_ENTRY]
    }

    /// Flags; see [`FLAG_HMAC`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.0[field::FLAGS]
    }

    /// The segment with this index; segment 0 is visited last.
    #[inline]
    pub fn segment(&self, index: u8) -> Option<[u8; 16]> {
        let at = FIXED + 16 * usize::from(index);
        (index <= self.last_entry()).then(|| copy::<16>(self.0, at))
    }

    /// The segments in the order of the list: visited last to visited first.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = [u8; 16]> + use<'a> {
        let list = &self.0[FIXED..FIXED + 16 * (usize::from(self.last_entry()) + 1)];
        list.chunks_exact(16).map(|chunk| copy::<16>(chunk, 0))
    }

    /// The TLVs: type and value.
    pub fn tlvs(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = &self.0[FIXED + 16 * (usize::from(self.last_entry()) + 1)..];
        core::iter::from_fn(move || {
            let (&[kind, len], tail) = rest.split_first_chunk::<2>()?;
            let (value, tail) = tail.split_at_checked(usize::from(len))?;
            rest = tail;
            Some((kind, value))
        })
    }

    /// The HMAC TLV as Linux finds it (`seg6_get_tlv_hmac`): the flag says so, and the last 40 bytes
    /// are one. `None` where it says so and they are not, too: that is how the kernel sees it.
    #[inline]
    pub fn hmac(&self) -> Option<&'a [u8; HMAC_LEN]> {
        if self.flags() & FLAG_HMAC == 0 {
            return None;
        }
        let after = self.0.len() - (FIXED + 16 * (usize::from(self.last_entry()) + 1));
        let tlv = self.0.last_chunk::<HMAC_LEN>()?;
        (after >= HMAC_LEN && tlv[0] == TLV_HMAC && usize::from(tlv[1]) == HMAC_LEN - 2)
            .then_some(tlv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn srh(segments: u8, left: u8, tlvs: &[u8]) -> Vec<u8> {
        let length = 16 * usize::from(segments) + tlvs.len();
        let mut bytes = vec![41, (length / 8) as u8, 4, left, segments - 1, 0, 0, 0];
        for segment in 0..segments {
            bytes.extend([segment; 16]);
        }
        bytes.extend(tlvs);
        bytes
    }

    #[test]
    fn segments_are_found() {
        let bytes = srh(3, 2, &[]);
        let header = Srh::new_checked(&bytes, false).unwrap();
        assert_eq!(header.segment(2), Some([2; 16]));
        assert_eq!(header.segment(3), None);
        assert_eq!(header.segments().next_back(), Some([2; 16]));
        assert_eq!(header.tlvs().count(), 0);
    }

    #[test]
    fn one_more_segment_left_in_a_reduced_list() {
        let bytes = srh(2, 2, &[]);
        assert!(Srh::new_checked(&bytes, true).is_ok());
        assert_eq!(
            Srh::new_checked(&bytes, false).unwrap_err(),
            SrhError::SegmentsLeft {
                segments_left: 2,
                last_entry: 1
            }
        );
    }

    #[test]
    fn tlvs_end_where_the_header_does() {
        let bytes = srh(1, 0, &[4, 6, 0, 0, 0, 0, 0, 0]);
        let header = Srh::new_checked(&bytes, true).unwrap();
        assert_eq!(header.tlvs().next(), Some((4, &[0u8; 6][..])));
        for tlv in [[4, 7, 0, 0, 0, 0, 0, 0], [4, 5, 0, 0, 0, 0, 0, 4]] {
            assert!(matches!(
                Srh::new_checked(&srh(1, 0, &tlv), true),
                Err(SrhError::Tlv(_))
            ));
        }
    }

    #[test]
    fn an_hmac_is_flagged_and_last() {
        let mut tlv = [0; 40];
        tlv[..2].copy_from_slice(&[5, 38]);
        let mut bytes = srh(1, 0, &tlv);
        assert!(Srh::new_checked(&bytes, true).unwrap().hmac().is_none());
        bytes[5] = FLAG_HMAC;
        assert!(Srh::new_checked(&bytes, true).unwrap().hmac().is_some());
        bytes[24] = 4;
        assert!(Srh::new_checked(&bytes, true).unwrap().hmac().is_none());
    }

    #[test]
    fn cut_anywhere_is_an_error() {
        let bytes = srh(2, 1, &[4, 6, 0, 0, 0, 0, 0, 0]);
        for length in 0..bytes.len() {
            assert!(Srh::new_checked(&bytes[..length], true).is_err());
        }
    }
}

//! A cursor over XDR (RFC 4506): big-endian words, and opaque data padded to four bytes.

/// Reads from the front of some bytes; every step gives `None` at their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes }
    }

    /// What has not been read.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes = self.bytes.get(count..)?;
        Some(())
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(u32::from_be_bytes(*word))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_be_bytes(*word))
    }

    /// Variable-length opaque data or a string, with its padding.
    pub(crate) fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let data = self.bytes.get(..length)?;
        self.skip(length.checked_next_multiple_of(4)?)?;
        Some(data)
    }

    /// An array of words, such as a bitmap.
    pub(crate) fn words(&mut self) -> Option<()> {
        let count = self.u32()? as usize;
        self.skip(count.checked_mul(4)?)
    }
}

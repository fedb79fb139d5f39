//! Reading at an offset, or not at all.

/// `N` bytes at `offset`, where all of them are there (the kernel's `skb_header_pointer`).
#[inline(always)]
pub(crate) fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk()
}

/// A big-endian number at `offset` of a header whose length was checked when its view was made.
#[inline(always)]
pub(crate) fn be16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

/// As [`be16`], four bytes.
#[inline(always)]
pub(crate) fn be32(bytes: &[u8], offset: usize) -> u32 {
    u32::from(be16(bytes, offset)) << 16 | u32::from(be16(bytes, offset + 2))
}

/// A copy of `N` bytes at `offset` of a header whose length was checked when its view was made.
#[inline(always)]
pub(crate) fn copy<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

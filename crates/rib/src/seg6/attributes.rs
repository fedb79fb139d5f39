//! Netlink attributes inside of an encapsulation.

use super::Seg6Error;

/// Bytes of an attribute's header.
const HEADER: usize = 4;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// What is left of an attribute's type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const TYPE_MASK: u16 = 0x3fff;

/// The attributes of an encapsulation, or of one of its attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Number, where its value begins, and value of each. Ends at the first that does not fit.
    pub(super) fn iter(self) -> impl Iterator<Item = (u16, usize, &'a [u8])> {
        let all = self.0;
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = all.get(at..)?;
            let &[a, b, c, d] = rest.first_chunk::<HEADER>()?;
            let length = usize::from(u16::from_ne_bytes([a, b]));
            let number = u16::from_ne_bytes([c, d]) & TYPE_MASK;
            let value = rest.get(HEADER..length)?;
            let begin = at + HEADER;
            at += length.next_multiple_of(4);
            Some((number, begin, value))
        })
    }

    /// The value of the last attribute with this number, which is the one that the kernel takes.
    pub(super) fn find(self, number: u16) -> Option<&'a [u8]> {
        let of_number = self.iter().filter(|(n, _, _)| *n == number);
        of_number.last().map(|(_, _, value)| value)
    }

    /// As [`Attributes::find`], for a value of a fixed length.
    pub(super) fn array<const N: usize>(
        self,
        number: u16,
        what: &'static str,
    ) -> Result<Option<[u8; N]>, Seg6Error> {
        let Some(value) = self.find(number) else {
            return Ok(None);
        };
        let length = value.len();
        match value.try_into() {
            Ok(array) => Ok(Some(array)),
            Err(_) => Err(Seg6Error::Length { what, length }),
        }
    }

    pub(super) fn u32(self, number: u16, what: &'static str) -> Result<Option<u32>, Seg6Error> {
        Ok(self.array(number, what)?.map(u32::from_ne_bytes))
    }

    pub(super) fn u8(self, number: u16, what: &'static str) -> Result<Option<u8>, Seg6Error> {
        Ok(self.array::<1>(number, what)?.map(|[byte]| byte))
    }
}

/// Appends an attribute. Its value must be shorter than 64 KiB, as all of an encapsulation is.
pub(super) fn put(out: &mut Vec<u8>, number: u16, value: &[u8]) {
    let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
    out.extend(length.to_ne_bytes());
    out.extend(number.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends an attribute that holds others.
pub(super) fn put_nested(out: &mut Vec<u8>, number: u16, inner: &[u8]) {
    put(out, number | NESTED, inner);
}

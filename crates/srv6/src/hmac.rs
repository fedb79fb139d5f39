//! HMACs of segment routing headers (RFC 8754, section 2.1.2; `seg6_hmac.c`).

use std::collections::HashMap;

use hmac::{Hmac, Mac};
use raddle_image::Reason;
use raddle_packet::Srh;
use raddle_packet::srh::{FIXED, HMAC_LEN};
use sha1::Sha1;
use sha2::Sha256;

/// Longest secret in bytes (`SEG6_HMAC_SECRET_LEN`).
pub const MAX_SECRET: usize = 64;
/// Length of the field that holds the HMAC; shorter ones are padded with zeros.
pub(crate) const FIELD: usize = 32;
/// Longest text that Linux makes an HMAC of, in bytes; it refuses 256 (`SEG6_HMAC_RING_SIZE`).
const MAX_TEXT: usize = 255;

/// How an HMAC is made (`SEG6_HMAC_ALGO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// HMAC-SHA-1, 20 bytes.
    Sha1 = 1,
    /// HMAC-SHA-256, 32 bytes.
    Sha256 = 2,
}

impl Algorithm {
    /// By the number that the kernel has for it (`SEG6_ATTR_ALGID`).
    pub fn from_number(number: u8) -> Option<Algorithm> {
        match number {
            1 => Some(Algorithm::Sha1),
            2 => Some(Algorithm::Sha256),
            _ => None,
        }
    }
}

/// A key that is ready to be used.
#[derive(Clone)]
pub struct Key(Keyed);

#[derive(Clone)]
enum Keyed {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
}

impl Key {
    /// A key; none where the secret is empty or longer than [`MAX_SECRET`].
    pub fn new(algorithm: Algorithm, secret: &[u8]) -> Option<Key> {
        if secret.is_empty() || secret.len() > MAX_SECRET {
            return None;
        }
        Some(Key(match algorithm {
            Algorithm::Sha1 => Keyed::Sha1(Hmac::new_from_slice(secret).ok()?),
            Algorithm::Sha256 => Keyed::Sha256(Hmac::new_from_slice(secret).ok()?),
        }))
    }

    /// The field as it has to be for this text.
    fn field(&self, text: &[u8]) -> [u8; FIELD] {
        let mut field = [0; FIELD];
        match &self.0 {
            Keyed::Sha1(mac) => {
                let mac = mac.clone().chain_update(text).finalize().into_bytes();
                field[..20].copy_from_slice(&mac);
            }
            Keyed::Sha256(mac) => {
                let mac = mac.clone().chain_update(text).finalize().into_bytes();
                field.copy_from_slice(&mac);
            }
        }
        field
    }

    /// Whether the field is right, in a time that does not depend on where it is not.
    fn verify(&self, text: &[u8], field: &[u8]) -> bool {
        match &self.0 {
            Keyed::Sha1(mac) => {
                let (sent, padding) = field.split_at(20);
                let right = mac.clone().chain_update(text).verify_slice(sent).is_ok();
                let zero = padding.iter().fold(0, |all, byte| all | byte) == 0;
                right & zero
            }
            Keyed::Sha256(mac) => mac.clone().chain_update(text).verify_slice(field).is_ok(),
        }
    }
}

impl std::fmt::Debug for Key {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Keyed::Sha1(_) => "Key(Sha1)",
            Keyed::Sha256(_) => "Key(Sha256)",
        })
    }
}

/// Keys by their identifier.
#[derive(Clone, Debug, Default)]
pub struct Keys(HashMap<u32, Key>);

impl FromIterator<(u32, Key)> for Keys {
    fn from_iter<I: IntoIterator<Item = (u32, Key)>>(keys: I) -> Keys {
        Keys(keys.into_iter().collect())
    }
}

/// Whether SRHs must have an HMAC (`net.ipv6.conf.<dev>.seg6_require_hmac`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// -1: not looked at.
    Ignored,
    /// 0: checked where there is one.
    #[default]
    IfPresent,
    /// 1: must be there.
    Required,
}

/// What is authenticated: source address, last entry, flags, key, segments.
fn text<'b>(
    buffer: &'b mut [u8; MAX_TEXT],
    src: &[u8; 16],
    srh: &Srh<'_>,
    key: [u8; 4],
) -> Option<&'b [u8]> {
    let list = &srh.bytes()[FIXED..FIXED + 16 * (usize::from(srh.last_entry()) + 1)];
    let text = buffer.get_mut(..22 + list.len())?;
    text[..16].copy_from_slice(src);
    text[16] = srh.last_entry();
    text[17] = srh.flags();
    text[18..22].copy_from_slice(&key);
    text[22..].copy_from_slice(list);
    Some(text)
}

/// Rule S3's last part, for an SRH at this offset of `l3` (`seg6_hmac_validate_skb`).
///
/// # Errors
/// 1. [`Reason::HmacCheck`]: an HMAC matters, and the SRH does not follow the IPv6 header at once. The
///    kernel then takes other bytes for the SRH.
/// 2. [`Reason::Hmac`]: there is none and there must be; its key is not known; it is wrong; or the list
///    is too long for one.
#[inline]
pub(crate) fn check(
    keys: &Keys,
    demand: Demand,
    l3: &[u8],
    offset: usize,
    srh: &Srh<'_>,
) -> Result<(), Reason> {
    if demand == Demand::Ignored {
        return Ok(());
    }
    let flagged = raddle_packet::srh::FLAG_HMAC;
    let taken_for_flags = l3.get(45).is_some_and(|flags| flags & flagged != 0);
    if !taken_for_flags && srh.flags() & flagged == 0 && demand == Demand::IfPresent {
        return Ok(());
    }
    if offset != 40 {
        return Err(Reason::HmacCheck);
    }
    checked(keys, demand, l3, srh)
}

#[cold]
fn checked(keys: &Keys, demand: Demand, l3: &[u8], srh: &Srh<'_>) -> Result<(), Reason> {
    let Some(tlv) = srh.hmac() else {
        return match demand {
            Demand::Required => Err(Reason::Hmac),
            _ => Ok(()),
        };
    };
    let src = l3.get(8..24).and_then(<[u8]>::first_chunk::<16>);
    let id = [tlv[4], tlv[5], tlv[6], tlv[7]];
    let key = keys.0.get(&u32::from_be_bytes(id));
    let (Some(src), Some(key)) = (src, key) else {
        return Err(Reason::Hmac);
    };
    let mut buffer = [0; MAX_TEXT];
    let text = text(&mut buffer, src, srh, id).ok_or(Reason::Hmac)?;
    match key.verify(text, &tlv[HMAC_LEN - FIELD..]) {
        true => Ok(()),
        false => Err(Reason::Hmac),
    }
}

/// Writes the HMAC of an SRH that has room for one, for packets from `src` (`seg6_push_hmac`): what no packet
/// changes of it can be signed once. None where it has no room for one, or the list is too long.
pub fn sign(srh: &mut [u8], src: &[u8; 16], key: &Key) -> Option<()> {
    let view = Srh::new_checked(srh, true).ok()?;
    let field = signed(&view, src, view.hmac()?, key)?;
    srh.last_chunk_mut::<FIELD>()?.copy_from_slice(&field);
    Some(())
}

/// The field of an SRH with this TLV.
fn signed(srh: &Srh<'_>, src: &[u8; 16], tlv: &[u8; HMAC_LEN], key: &Key) -> Option<[u8; FIELD]> {
    let mut buffer = [0; MAX_TEXT];
    let text = text(&mut buffer, src, srh, [tlv[4], tlv[5], tlv[6], tlv[7]])?;
    Some(key.field(text))
}

/// The HMAC of an SRH that a packet from `src` carries; none where the SRH has no place for one
/// (`seg6_push_hmac`).
///
/// # Errors
/// [`Reason::Hmac`] where its key is not known, or the list is too long.
#[cold]
pub(crate) fn made(
    keys: &Keys,
    src: &[u8; 16],
    srh: &Srh<'_>,
) -> Result<Option<[u8; FIELD]>, Reason> {
    let Some(tlv) = srh.hmac() else {
        return Ok(None);
    };
    let id = [tlv[4], tlv[5], tlv[6], tlv[7]];
    let key = keys.0.get(&u32::from_be_bytes(id)).ok_or(Reason::Hmac)?;
    signed(srh, src, tlv, key).ok_or(Reason::Hmac).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An SRH with `count` segments and room for an HMAC by key 7.
    fn srh(count: u8) -> Vec<u8> {
        let length = (16 * usize::from(count) + HMAC_LEN) / 8;
        let mut bytes = vec![0, length as u8, 4, count - 1, count - 1, 8, 0, 0];
        bytes.extend((0..count).flat_map(|n| [n; 16]));
        bytes.extend([5, 38, 0, 0, 0, 0, 0, 7]);
        bytes.extend([0; 32]);
        bytes
    }

    fn key(algorithm: Algorithm) -> Key {
        Key::new(algorithm, b"secret").unwrap()
    }

    #[test]
    fn the_field_is_filled_and_padded() {
        let signed = |algorithm| {
            let mut bytes = srh(2);
            sign(&mut bytes, &[1; 16], &key(algorithm)).unwrap();
            let view = Srh::new_checked(&bytes, false).unwrap();
            view.hmac().unwrap()[HMAC_LEN - FIELD..].to_vec()
        };
        let short = signed(Algorithm::Sha1);
        assert_ne!(short[..20], [0; 20]);
        assert_eq!(short[20..], [0; 12]);
        assert_ne!(signed(Algorithm::Sha256)[20..], [0; 12]);
    }

    #[test]
    fn fourteen_segments_are_the_most() {
        let fits = |count| sign(&mut srh(count), &[1; 16], &key(Algorithm::Sha1)).is_some();
        assert!(fits(14) && !fits(15));
        let mut none = srh(2);
        none[5] = 0;
        assert!(sign(&mut none, &[1; 16], &key(Algorithm::Sha1)).is_none());
    }

    /// What is signed once is what is signed for each packet, and is checked.
    #[test]
    fn what_is_signed_passes() {
        for algorithm in [Algorithm::Sha1, Algorithm::Sha256] {
            let mut bytes = srh(3);
            sign(&mut bytes, &[1; 16], &key(algorithm)).unwrap();
            let view = Srh::new_checked(&bytes, false).unwrap();
            let keys: Keys = [(7, key(algorithm))].into_iter().collect();
            let field = made(&keys, &[1; 16], &view).unwrap().unwrap();
            assert_eq!(view.hmac().unwrap()[HMAC_LEN - FIELD..], field);
        }
    }
}

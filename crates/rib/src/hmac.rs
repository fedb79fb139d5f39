//! HMACs of the SRHs that encapsulations put in front of packets.

use hmac::{Hmac, Mac};
use raddle_packet::Srh;
use raddle_packet::srh::HMAC_LEN;
use sha1::Sha1;
use sha2::Sha256;

use crate::event::{HmacAlgorithm, HmacKey};

/// Bytes of a TLV in front of the HMAC: type, length, two of zero, key.
const HEAD: usize = 8;
/// The kernel has room for a text shorter than this (`SEG6_HMAC_RING_SIZE`).
const LONGEST: usize = 256;

/// Writes the HMAC of an SRH that has room for one (`seg6_push_hmac`, `seg6_hmac_compute`).
///
/// The text is the source, last entry, flags, the key's number and the segments, which no packet
/// changes. A SHA-1 is 20 bytes; the others are zero. None where there is no such TLV, or the text is too
/// long for the kernel.
pub(crate) fn sign(srh: &mut [u8], source: [u8; 16], key: &HmacKey) -> Option<()> {
    let view = Srh::new_checked(srh, true).ok()?;
    view.hmac()?;
    let mut text = source.to_vec();
    text.extend([view.last_entry(), view.flags()]);
    text.extend(key.id.to_be_bytes());
    text.extend(view.segments().flatten());
    if text.len() >= LONGEST {
        return None;
    }
    let tlv = srh.last_chunk_mut::<HMAC_LEN>()?;
    let field = &mut tlv[HEAD..];
    field.fill(0);
    match key.algorithm {
        HmacAlgorithm::Sha1 => {
            let mac = Hmac::<Sha1>::new_from_slice(&key.secret).ok()?;
            let mac = mac.chain_update(&text).finalize().into_bytes();
            field[..mac.len()].copy_from_slice(&mac);
        }
        HmacAlgorithm::Sha256 => {
            let mac = Hmac::<Sha256>::new_from_slice(&key.secret).ok()?;
            let mac = mac.chain_update(&text).finalize().into_bytes();
            field[..mac.len()].copy_from_slice(&mac);
        }
    }
    Some(())
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

    fn key(algorithm: HmacAlgorithm) -> HmacKey {
        HmacKey {
            id: 7,
            algorithm,
            secret: b"secret".to_vec(),
        }
    }

    #[test]
    fn the_field_is_filled_and_padded() {
        let signed = |algorithm| {
            let mut bytes = srh(2);
            sign(&mut bytes, [1; 16], &key(algorithm)).unwrap();
            let view = Srh::new_checked(&bytes, false).unwrap();
            view.hmac().unwrap()[HEAD..].to_vec()
        };
        let short = signed(HmacAlgorithm::Sha1);
        assert_ne!(short[..20], [0; 20]);
        assert_eq!(short[20..], [0; 12]);
        assert_ne!(signed(HmacAlgorithm::Sha256)[20..], [0; 12]);
    }

    #[test]
    fn fourteen_segments_are_the_most() {
        let fits = |count| sign(&mut srh(count), [1; 16], &key(HmacAlgorithm::Sha1)).is_some();
        assert!(fits(14) && !fits(15));
        let mut none = srh(2);
        none[5] = 0;
        assert!(sign(&mut none, [1; 16], &key(HmacAlgorithm::Sha1)).is_none());
    }
}

//! HMACs, against an HMAC made by hand (RFC 2104) with the hash functions alone.

use raddle_image::{Reason, link_flags, segment_flags, segment_kind};
use raddle_srv6::{Algorithm, Key};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::packets::{frame, ip6, srh, udp};
use crate::router::{Router, octets, plain};

const SRC: &str = "2001:db8::1";
const SID: &str = "fc00:1::1";
const NEXT: &str = "fc00:2::1";
const KEY: u32 = 0x0102_0304;
const SECRET: &[u8] = b"a secret of some length";

fn mac(algorithm: Algorithm, text: &[u8]) -> Vec<u8> {
    let hash = |parts: [&[u8]; 2]| match algorithm {
        Algorithm::Sha1 => Sha1::digest(parts.concat()).to_vec(),
        Algorithm::Sha256 => Sha256::digest(parts.concat()).to_vec(),
    };
    let mut padded = SECRET.to_vec();
    padded.resize(64, 0);
    let pad = |with: u8| padded.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
    let mut field = hash([&pad(0x5c), &hash([&pad(0x36), text])]);
    field.resize(32, 0);
    field
}

fn tlv(field: &[u8]) -> Vec<u8> {
    let mut tlv = vec![5, 38, 0, 0];
    tlv.extend(KEY.to_be_bytes());
    tlv.extend(field);
    tlv
}

/// RFC 8754, 2.1.2.1: source, last entry, flags, key, segments.
fn right(algorithm: Algorithm, src: &str, list: &[[u8; 16]]) -> Vec<u8> {
    let mut text = octets(src).to_vec();
    text.extend([list.len() as u8 - 1, 8]);
    text.extend(KEY.to_be_bytes());
    text.extend(list.concat());
    mac(algorithm, &text)
}

fn signed(next: u8, left: u8, list: &[[u8; 16]], field: &[u8]) -> Vec<u8> {
    let mut header = srh(next, left, list, &tlv(field));
    header[5] = 8;
    header
}

fn router(flags: u32, algorithm: Algorithm) -> Router {
    let mut router = Router::with(link_flags::FORWARD6 | flags, 1);
    router.via("fc00:2::/32", 0);
    router.sid("fc00:1::/32", plain(segment_kind::END));
    let key = Key::new(algorithm, SECRET).unwrap();
    router
        .engine
        .set_hmac_keys([(KEY, key)].into_iter().collect());
    router
}

#[test]
fn hmacs_are_checked() {
    let list = [octets(NEXT), octets(SID)];
    for algorithm in [Algorithm::Sha1, Algorithm::Sha256] {
        let mut router = router(0, algorithm);
        let field = right(algorithm, SRC, &list);
        let with = |field: &[u8]| {
            let header = signed(17, 1, &list, field);
            frame(&ip6(SRC, SID, 43, &[header, udp(1)].concat()))
        };
        router.forwards(&with(&field), 0);
        for bit in 0..256 {
            let mut wrong = field.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            router.drops(&with(&wrong), Reason::Hmac);
        }
        router.engine.set_hmac_keys([].into_iter().collect());
        router.drops(&with(&field), Reason::Hmac);
    }
}

/// `seg6_require_hmac`.
#[test]
fn links_demand_or_ignore() {
    let list = [octets(NEXT), octets(SID)];
    let without = frame(&ip6(SRC, SID, 43, &srh(59, 1, &list, &[])));
    let wrong = frame(&ip6(SRC, SID, 43, &signed(59, 1, &list, &[7; 32])));
    let algorithm = Algorithm::Sha256;
    router(0, algorithm).forwards(&without, 0);
    router(link_flags::HMAC_REQUIRED, algorithm).drops(&without, Reason::Hmac);
    router(link_flags::HMAC_REQUIRED, algorithm).drops(&wrong, Reason::Hmac);
    router(link_flags::HMAC_IGNORED, algorithm).forwards(&without, 0);
    router(link_flags::HMAC_IGNORED, algorithm).forwards(&wrong, 0);
    // Where the SRH does not follow the IPv6 header the kernel looks at something else.
    let options = [43, 0, 1, 4, 0, 0, 0, 0];
    let behind = [&options[..], &signed(59, 1, &list, &[7; 32])].concat();
    let behind = frame(&ip6(SRC, SID, 60, &behind));
    router(0, algorithm).punts(&behind, Reason::HmacCheck);
}

/// 14 segments make 246 bytes of text; 15 are too many.
#[test]
fn long_lists_have_none() {
    let algorithm = Algorithm::Sha256;
    let mut router = router(0, algorithm);
    for (count, fits) in [(14, true), (15, false)] {
        let list = vec![octets(NEXT); count];
        let header = signed(59, 1, &list, &right(algorithm, SRC, &list));
        let packet = frame(&ip6(SRC, SID, 43, &header));
        match fits {
            true => drop(router.forwards(&packet, 0)),
            false => router.drops(&packet, Reason::Hmac),
        }
    }
}

#[test]
fn insertions_are_signed() {
    let algorithm = Algorithm::Sha1;
    let mut router = router(0, algorithm);
    let list = [[0; 16], octets(NEXT)];
    let template = signed(0, 1, &list, &[0; 32]);
    let segment = router.with_template(segment_kind::INSERT, segment_flags::HAS_SRH, &template);
    router.sid("2001:db8:2::/48", segment);
    let packet = frame(&ip6(SRC, "2001:db8:2::2", 17, &udp(1)));
    let sent = router.forwards(&packet, 0);
    let list = [octets("2001:db8:2::2"), octets(NEXT)];
    let expected = signed(17, 1, &list, &right(algorithm, SRC, &list));
    assert_eq!(sent[40..40 + expected.len()], expected);
    router.engine.set_hmac_keys([].into_iter().collect());
    router.drops(&packet, Reason::Hmac);
}

#[test]
fn secrets_have_a_length() {
    for (len, fits) in [(0, false), (1, true), (64, true), (65, false)] {
        assert_eq!(Key::new(Algorithm::Sha1, &vec![1; len]).is_some(), fits);
    }
}

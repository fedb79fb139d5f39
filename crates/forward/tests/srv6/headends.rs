//! Encapsulations and insertions, byte for byte (RFC 8986, section 5; spec D.5).

use raddle_forward::Verdict;
use raddle_image::{Reason, segment_flags, segment_kind};

use crate::packets::{frame, ip4, ip6, older, srh, udp};
use crate::router::{INGRESS, Router, octets};

const SELF: &str = "fc00:f::1";
const FIRST: &str = "fc00:2::1";
const LAST: &str = "fc00:3::1";

/// An IPv6 header as templates have it, and what follows.
pub(crate) fn template(first: &str, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut template = ip6(SELF, first, next, rest);
    template[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, next, 64]);
    template
}

/// What comes out: an outer header with these bytes and what it carries.
fn outer(first: &str, head: [u8; 4], next: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ip6(SELF, first, next, payload);
    packet[..4].copy_from_slice(&head);
    packet[7] = hop_limit;
    packet
}

fn six() -> Vec<u8> {
    ip6("2001:db8:1::1", "2001:db8:2::2", 17, &udp(9))
}

fn four() -> Vec<u8> {
    ip4("192.0.2.1", "198.51.100.2", 17, &udp(9))
}

/// A router that encapsulates for two prefixes.
fn router(kind: u8, flags: u8, template: &[u8]) -> Router {
    let mut router = Router::new();
    router.via("fc00:2::/32", 0);
    let segment = router.with_template(kind, flags, template);
    router.sid("2001:db8:2::/48", segment);
    router.sid("198.51.100.0/24", segment);
    router
}

/// Spec D.5: two segments, traffic class and hop limit of IPv6, nothing of IPv4, inner packets as they
/// came. The outer hop limit is one less for the forwarding.
#[test]
fn encaps() {
    let list = [octets(LAST), octets(FIRST)];
    let with = |next| srh(next, 1, &list, &[]);
    let mut router = router(
        segment_kind::ENCAPS,
        segment_flags::HAS_SRH | segment_flags::LABEL_FROM_INNER,
        &template(FIRST, 43, &with(0)),
    );
    let sent = router.forwards(&frame(&six()), 0);
    let carried = [with(41), six()].concat();
    assert_eq!(
        sent,
        outer(FIRST, [0x61, 0x23, 0x45, 0x67], 43, 49, &carried)
    );
    let sent = router.forwards(&frame(&four()), 0);
    let carried = [with(4), four()].concat();
    assert_eq!(sent, outer(FIRST, [0x60, 0, 0, 0], 43, 63, &carried));
}

/// Reduced with one segment: no SRH at all. Without a label from anywhere it is 0.
#[test]
fn encaps_reduced() {
    let mut router = router(segment_kind::ENCAPS, 0, &template(FIRST, 0, &[]));
    let sent = router.forwards(&frame(&six()), 0);
    assert_eq!(sent, outer(FIRST, [0x61, 0x20, 0, 0], 41, 49, &six()));
    let sent = router.forwards(&frame(&four()), 0);
    assert_eq!(sent, outer(FIRST, [0x60, 0, 0, 0], 4, 63, &four()));
}

/// The MAC header goes in as it came.
#[test]
fn encaps_of_frames() {
    let mut router = router(segment_kind::ENCAPS_L2, 0, &template(FIRST, 0, &[]));
    let sent = router.forwards(&frame(&six()), 0);
    let head = [0x61, 0x20, 0, 0];
    assert_eq!(sent, outer(FIRST, head, 143, 49, &frame(&six())));
    let sent = router.forwards(&frame(&four()), 0);
    assert_eq!(
        sent,
        outer(FIRST, [0x60, 0, 0, 0], 143, 63, &frame(&four()))
    );
}

/// Spec D.5: a TTL of 1 is encapsulated, a hop limit of 1 is not.
#[test]
fn what_lives_no_longer() {
    let mut router = router(segment_kind::ENCAPS, 0, &template(FIRST, 0, &[]));
    let mut packet = four();
    packet[8] = 1;
    crate::packets::set_checksum(&mut packet);
    assert_eq!(router.forwards(&frame(&packet), 0)[40..], packet);
    let mut packet = six();
    packet[7] = 1;
    router.punts(&frame(&packet), Reason::TtlExceeded);
}

/// RFC 8754: the SRH goes between the header and what follows it, and the destination to its end.
#[test]
fn insert() {
    let list = [[0; 16], octets(LAST), octets(FIRST)];
    let mut router = router(
        segment_kind::INSERT,
        segment_flags::HAS_SRH,
        &srh(0, 2, &list, &[]),
    );
    let sent = router.forwards(&frame(&six()), 0);
    let list = [octets("2001:db8:2::2"), octets(LAST), octets(FIRST)];
    let carried = [srh(17, 2, &list, &[]), udp(9)].concat();
    assert_eq!(sent, older(ip6("2001:db8:1::1", FIRST, 43, &carried)));
    router.punts(&frame(&four()), Reason::Encap);
}

/// The MTU holds for the whole packet, and without room in front there is no encapsulation.
#[test]
fn limits() {
    let mut router = router(segment_kind::ENCAPS, 0, &template(FIRST, 0, &[]));
    let packet = |payload: usize| ip6("2001:db8:1::1", "2001:db8:2::2", 59, &vec![7; payload]);
    assert_eq!(router.forwards(&frame(&packet(1420)), 0).len(), 1500);
    router.punts(&frame(&packet(1421)), Reason::Mtu);
    let mut bare = frame(&six());
    let verdict = router.engine.forward(&mut bare, INGRESS, 0);
    assert_eq!(verdict, Verdict::Kernel(Reason::Headroom));
    assert_eq!(bare, frame(&six()));
}

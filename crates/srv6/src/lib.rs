//! SRv6: what a segment does with a packet.
//!
//! Pure functions over a packet in a buffer with room in front of it ([`Packet`]) and the image's
//! [`Segment`]s. Look-ups, checks and choices are the engines'; what they do and in which order is
//! written here once, for both of them.
//!
//! # The rules
//!
//! A *segment* is reached when a packet's route is a [`raddle_image::Group::Segment`], or when the
//! chosen member's adjacency is one (`ADJ_SEGMENT`). A route that is a segment comes before TTL or hop limit
//! are looked at (A10, B8): `seg6_local_input` does not, and `seg6_input` encapsulates what has a TTL of 1.
//! So does a member of a single or hash-threshold group; members of groups with a state (resilient, turns)
//! come behind that check, as for any packet.
//!
//! A packet that is not forwarded is byte for byte as it came. "Now" is the packet as it stands after the
//! segments so far, from its IP header to the end of the outermost packet that came in: Linux does not
//! shorten an inner packet to its own length, and neither does anybody here (`skb->len`; it is this length
//! that is counted, hashed over, compared with MTUs and sent).
//!
//! **S1, which segment.**
//! 1. The fifth segment on one packet: `sid-chain`.
//! 2. A record that is the kernel's: its reason. It is not on the way (S10), and neither is the fifth; but where
//!    it is NO_PUNT, the packet is dropped as if it were.
//!
//! **S2, families.**
//! 1. Behaviours of SIDs (kinds below 32) and insertions want IPv6 now, else `encap`.
//! 2. What a segment counts as bytes is the packet's length now, when it reaches the segment: of the first,
//!    40 and the payload length. Spec: `seg6_local_update_counters`.
//!
//! **S3, the SRH** (End, End.X, End.T, End.B6.Insert, End.B6.Encaps; `get_and_validate_srh`, RFC 8754, 4.3.1).
//! 1. The first routing header with segments left, of any type ([`find()`]; `ipv6_find_hdr` with
//!    `IP6_FH_F_SKIP_RH`). None: `no-srh`.
//! 2. With PSP as the kernel has it (not NO_PUNT, no NEXT-C-SID): the first routing header, whatever it has left
//!    (`end_flv8986_core`).
//! 3. It is an SRH by the rules of [`raddle_packet::Srh::new_checked`] with `reduced`, else `bad-srh`.
//! 4. HMAC ([`Demand`], `seg6_hmac_validate_skb`, RFC 8754, 2.1.2.1): not looked at where the link says so
//!    (`seg6_require_hmac` -1). A missing one where it says 1, an unknown key, a wrong HMAC, and a list
//!    of more than 14 segments are `hmac`. Where an HMAC matters and the SRH is not directly behind the IPv6
//!    header: `hmac-check`, since the kernel takes the header that is there for the SRH. The XDP engine gives
//!    `hmac-check` for everything that would be decided here.
//! 5. No segments left (only after rule 2): `no-srh`.
//!
//! **S4, compressed SIDs** (RFC 9800), of B bytes of block and C bytes of C-SID.
//! 1. NEXT-C-SID (4.1): the argument is what follows block and C-SID in the destination. If it is not 0, it
//!    moves up by C bytes, zeros follow, and that is the step: the SRH is not looked at, nor needed. If it
//!    is 0: as without this flavour.
//! 2. REPLACE-C-SID (4.2): the SRH is the first routing header. The argument's last bits, as many as count to
//!    16 / C (rounded up), are the index; an entry of the list holds 16 / C C-SIDs. Nothing is left
//!    when segments left is 0 and the index is 0 or the C-SID below it is 0: S5.4. With an index: a list that
//!    ends below segments left is `bad-srh`; the index goes down; if the C-SID there is 0, segments
//!    left goes down, and that entry becomes the destination as it is. Without: segments left goes down, the
//!    index becomes the highest. The C-SID goes behind the block, the index into its bits.
//! 3. An index beyond the entry: `bad-srh`. C of 0, or no byte for the index: `encap`.
//!
//! **S5, the step** (End, End.X, End.T; B6.Encaps does the same with no flavour but those of S4).
//! 1. Segments left less one; the destination is that segment (RFC 8986, 4.1; `advance_nextseg`).
//! 2. PSP, when segments left was 1 (with REPLACE-C-SID: nothing is left by S4.2): the SRH is cut out. Headers
//!    in front of it stay; whichever names it names what followed it; the payload length is the length now
//!    less 40 (RFC 8986, 4.16.1; `seg6_pop_srh`).
//! 3. USP, segments left 0 on arrival (NO_PUNT only): that SRH is cut out, once, and the packet goes on: with an
//!    SRH behind it that has segments left, if there is one, else with S5.4 (RFC 8986, 4.16.2).
//! 4. The upper layer has been reached. USD (NO_PUNT only): the inner packet, IPv6 or IPv4, is taken out as by S6.3
//!    and routed in the segment's place: `target` of End.X for both families, `table6` or `table4` else
//!    (RFC 8986, 4.16.3). Without USD: `payload`, or `no-srh` where there was none.
//!
//! **S6, taking out** (End.DX*, End.DT*; `decap_and_validate`, RFC 8986, 4.4 to 4.12).
//! 1. The first routing header, if it is an SRH by S3.3; otherwise it counts as absent.
//! 2. Segments left: `segments-left`. Then S3.4.
//! 3. The first header that is no extension header is 41 (IPv6; 40 bytes are there), 4 (IPv4; 20 bytes), 143
//!    (Ethernet; 14 bytes), as the behaviour wants; DT46 takes 41 or 4. Else `payload`. Everything in front of
//!    it is taken off.
//!
//! **S7, where to.**
//! 1. The packet now is checked as one that arrives on this link: A1 to A7 or B1 to B5, except that it may be
//!    shorter than the packet that carried it. Rules count only where the link's own table is used;
//!    reverse-path filtering only where no segment on the way is NO_PUNT (a table of its own is a VRF, in which the
//!    link is not).
//! 2. The destination, or `target` if it is not zero, is looked up in `table6` or `table4`, or the
//!    link's table for `image::LINK_TABLE`.
//! 3. End.DX4 with `target` whose group is a `Neighbour`: `encap`, unless `DIRECT_NH4`. The kernel asks for the
//!    *inner destination* on that link.
//! 4. A group that is the kernel's: its reason. A segment: S1.
//! 5. TTL or hop limit above 1, else `ttl-exceeded`. Of a packet with a segment behind it in a group: see above; which
//!    member that is, the hash of the packet now says, also of an encapsulated one.
//! 6. The member by the hash of the packet now (A11, B9), or by S9.6. Then A12 (B9): another link, MTU.
//! 7. A13 (B10), in front of the packet now; the frame is as long as the packet and its Ethernet header. Of
//!    what followed the outermost packet it keeps what Ethernet's minimum asks for.
//!
//! **S8, frames** (`input_action_end_dx2`, RFC 8986, 4.9 and 4.10).
//! 1. S6 with Ethernet; an EtherType of 0x600 or more, else `payload`.
//! 2. End.DX2V: an 802.1Q tag behind the addresses, and an entry for its VLAN, else `payload`.
//! 3. The frame without its 14 bytes is at most as long as the out-link's MTU, and there is an out-link (not 0),
//!    else `segment-link`. Whether that link may be sent through is the record's matter (its kind is the
//!    kernel's where not). It may be the link that the packet came in on.
//! 4. It leaves as it is: no MAC address, TTL or tag changes. It counts for no adjacency.
//!
//! **S9, putting around** (encapsulations: `seg6_do_srh_encap`, RFC 8986, 5.1 to 5.4; insertions:
//! `seg6_do_srh_inline`).
//! 1. End.B6.Insert wants S3, End.B6.Encaps S3 to S5.1 first.
//! 2. Encapsulation: the template in front. Traffic class and hop limit of an IPv6 packet, also where a frame
//!    is put around it; 0 and the template's for IPv4. The inner TTL or hop limit stays. The next header of the SRH, or of
//!    the IPv6 header where there is none, is 41, 4 or 143. L2: the 14 bytes of Ethernet header that came in
//!    stand between template and packet, whatever has happened since.
//! 3. Flow label: the inner packet's (`LABEL_FROM_INNER`, 0 for IPv4), [`label_of`] the flow's `hash31` (`LABEL_FROM_FLOW`, S9.6), or 0.
//! 4. Insertion: the SRH behind the IPv6 header; it gets that one's next header, which becomes 43; its segment 0
//!    is the destination that was; the destination is its last entry. Segments left of an SRH that was there
//!    does not change.
//! 5. More than 65,535 bytes of payload: `mtu`. No room in front for it and an Ethernet header: `headroom`. A
//!    template that is none: `encap`. An HMAC flag and TLV in the template's SRH: the HMAC is computed; no such
//!    key, or more than 14 segments: `hmac` (`seg6_push_hmac`).
//! 6. What an encapsulation (not an insertion) has made chooses its member by `spread(hash31, salt) >> 1`:
//!    `hash31` of the packet before the first encapsulation, by the namespace's policy of its family whatever
//!    policy the group has; `salt` of the last. This is where we differ from the kernel on purpose, which keeps
//!    one path for each core. It does not hold for End.B6.Encaps of the kernel (not NO_PUNT): this hashes the outer
//!    header, and so do we. Once a behaviour takes something out, its own hash chooses again.
//! 7. S7 with `table6`, IPv6, on the outermost packet.
//!
//! **S10, the end.**
//! 1. Forwarded: every segment on the way counts one packet, and the bytes of S2.2.
//! 2. A blackhole behind a segment: the same, and the packet is dropped (the kernel's behaviour returns 0).
//! 3. Any other reason: every segment on the way counts one at
//!    [`segment_counter::of`](raddle_image::segment_counter::of) it, and nothing else. The packet is
//!    dropped where [`Reason::is_drop`] says so, or a segment on the way is NO_PUNT; else it is the kernel's.
//! 4. Segments without `COUNTERS` count nothing. Counters of reasons, links and adjacencies count as for every
//!    packet.

mod decap;
mod encap;
mod endpoint;
mod find;
mod hmac;
mod packet;
mod plan;
mod refusal;
pub mod tunnel;

use std::hash::Hasher as _;

use raddle_image::{Memory, Reason, Segment, flavours, segment_flags, segment_kind};
use raddle_packet::Family;
use siphasher::sip::SipHasher24;

pub use decap::Frame;
pub use find::{Found, find};
pub use hmac::{Algorithm, Demand, Key, Keys, MAX_SECRET, sign};
pub use packet::{ETHERNET, Flow, Packet, Undo};
pub use plan::{Around, Plan, Step, Usual};
pub use refusal::{Refusal, Rule};

/// Segments that a packet may meet on one machine (rule S1).
pub const MAX_CHAIN: usize = 4;

/// The most bytes that one segment puts around a packet: an IPv6 header, an SRH and an Ethernet header.
pub const MAX_TEMPLATE: usize = 40 + 8 * 256 + ETHERNET;

/// Hashes a packet of this family, from its IP header on.
pub type FlowHash<'a> = dyn Fn(Family, &[u8]) -> Result<u32, Reason> + 'a;

/// What segments need besides the packet.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Has the templates.
    pub memory: &'a Memory,
    /// Keys of HMACs.
    pub keys: &'a Keys,
    /// Of the link that the packet came in on.
    pub demand: Demand,
    /// The 31-bit hash of a packet from its IP header on, by the namespace's policy (rule S9.6).
    pub hash31: &'a FlowHash<'a>,
}

/// What comes behind a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Rule S7.
    Route(Route),
    /// Rule S8.
    Frame(Frame),
}

/// Where the packet is to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Table, or [`raddle_image::LINK_TABLE`].
    pub table: u32,
    /// What is looked up.
    pub target: Target,
    /// A neighbour on a connected prefix will not do (rule S7.3).
    pub gateway_only: bool,
}

/// What is looked up; host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The packet's destination.
    Destination,
    /// This IPv4 address.
    V4(u32),
    /// This IPv6 address.
    V6(u128),
}

/// The flow label of a flow with this hash: the low 20 bits of SipHash-2-4 of its four bytes, in the order of little-endian machines,
/// with a key of its own (rule S9.3). Whoever sees labels learns nothing of the key that the hash was made with.
pub fn label_of([k0, k1]: [u64; 2], hash31: u32) -> u32 {
    const LABEL: u64 = 0xf_ffff;
    let mut hasher = SipHasher24::new_with_keys(k0, k1);
    hasher.write(&hash31.to_le_bytes());
    (hasher.finish() & LABEL) as u32
}

/// MurmurHash3's finaliser: every bit of the result depends on every bit of `h` (rule S9.6).
#[inline]
pub fn spread(hash31: u32, salt: u32) -> u32 {
    let mut h = hash31 ^ salt;
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

/// Rules S2.1, S3 to S6, S8 and S9 for one segment.
///
/// # Errors
/// Why the packet is not forwarded, and by which rule; [`Packet::restore`] then gives it back as it came.
#[inline]
pub fn carry_out(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &mut Packet<'_>,
) -> Result<Next, Refusal> {
    if segment.kind < segment_kind::INSERT && packet.family() != Family::V6 {
        return Err(Rule::S2_1.gives(Reason::Encap));
    }
    let nexthop6 = || match u128::from_be_bytes(segment.target) {
        0 => Target::Destination,
        address => Target::V6(address),
    };
    let mut target = Target::Destination;
    let mut gateway_only = false;
    match segment.kind {
        segment_kind::END | segment_kind::END_T => endpoint::step(settings, segment, packet)?,
        segment_kind::END_X => {
            endpoint::step(settings, segment, packet)?;
            target = nexthop6();
        }
        segment_kind::END_DX2 => {
            return decap::dx2(settings, segment, packet).map(Next::Frame);
        }
        segment_kind::END_DX2V => {
            let word = |place| settings.memory.template_word(place);
            return decap::dx2v(settings, segment, packet, word).map(Next::Frame);
        }
        segment_kind::END_DX6 => {
            decap::decap(settings, packet, &[Family::V6])?;
            target = nexthop6();
        }
        segment_kind::END_DX4 => {
            decap::decap(settings, packet, &[Family::V4])?;
            let [a, b, c, d, ..] = segment.target;
            match u32::from_be_bytes([a, b, c, d]) {
                0 => {}
                address => {
                    target = Target::V4(address);
                    gateway_only = segment.flags & segment_flags::DIRECT_NH4 == 0;
                }
            }
        }
        segment_kind::END_DT6 => decap::decap(settings, packet, &[Family::V6])?,
        segment_kind::END_DT4 => decap::decap(settings, packet, &[Family::V4])?,
        segment_kind::END_DT46 => decap::decap(settings, packet, &[Family::V6, Family::V4])?,
        segment_kind::END_B6 => {
            endpoint::check(settings, packet)?;
            encap::insert(settings, segment, packet)?;
        }
        segment_kind::END_B6_ENCAPS => {
            let compressed = flavours::NEXT_CSID | flavours::REPLACE_CSID;
            let stepping = Segment {
                flavours: segment.flavours & compressed,
                ..*segment
            };
            endpoint::step(settings, &stepping, packet)?;
            encap::encapsulate(settings, segment, packet)?;
        }
        segment_kind::INSERT => encap::insert(settings, segment, packet)?,
        segment_kind::ENCAPS | segment_kind::ENCAPS_L2 => {
            encap::encapsulate(settings, segment, packet)?;
        }
        _ => return Err(Rule::S1_2.gives(Reason::Encap)),
    }
    let table = match packet.family() {
        Family::V4 => segment.table4,
        Family::V6 => segment.table6,
    };
    // A neighbour of End.X takes an inner IPv4 packet, too (USD): its address is IPv6.
    let table = match target {
        Target::V6(_) => segment.table6,
        _ => table,
    };
    Ok(Next::Route(Route {
        table,
        target,
        gateway_only,
    }))
}

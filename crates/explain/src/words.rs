//! What segments are called, what they do, and by which rules.

use std::net::Ipv6Addr;

use raddle_image::{Reason, Segment, segment_kind};
use raddle_rib::SegmentUse;
use raddle_rib::seg6::Seg6;

/// `End.X`, `encap segs A,B`.
pub(super) fn name_of(what: &SegmentUse) -> String {
    let list = |segments: &[Ipv6Addr]| {
        let texts: Vec<String> = segments.iter().map(ToString::to_string).collect();
        match texts.is_empty() {
            true => String::new(),
            false => format!(" segs {}", texts.join(",")),
        }
    };
    match &what.what {
        Seg6::Sid(sid) => {
            let behaviour = &sid.behaviour;
            let number = || format!("action {}", behaviour.number());
            let name = behaviour.name().map_or_else(number, str::to_owned);
            name + &list(&behaviour.segments())
        }
        Seg6::Encaps(encaps) => format!("{}{}", encaps.mode, list(&encaps.segments())),
    }
}

/// The rules that a segment of this kind is carried out by.
pub(super) fn rules_of(segment: &Segment) -> Vec<&'static str> {
    use raddle_image::flavours::{NEXT_CSID, REPLACE_CSID};
    let compressed = segment.flavours & (NEXT_CSID | REPLACE_CSID) != 0;
    match segment.kind {
        segment_kind::END | segment_kind::END_X | segment_kind::END_T if compressed => {
            vec!["S4", "S5"]
        }
        segment_kind::END | segment_kind::END_X | segment_kind::END_T => vec!["S3", "S5"],
        segment_kind::END_DX2 | segment_kind::END_DX2V => vec!["S6", "S8"],
        segment_kind::END_B6 => vec!["S3", "S9"],
        segment_kind::END_B6_ENCAPS => vec!["S3", "S5", "S9"],
        kind if kind < segment_kind::INSERT => vec!["S6"],
        _ => vec!["S9"],
    }
}

pub(super) fn what_is_done(segment: &Segment) -> &'static str {
    match segment.kind {
        segment_kind::END | segment_kind::END_X | segment_kind::END_T => "on to the next segment",
        segment_kind::END_DX2 | segment_kind::END_DX2V => "the frame inside is taken out",
        segment_kind::END_B6 => "an SRH goes in",
        segment_kind::END_B6_ENCAPS => "on to the next segment, and an outer header goes around",
        segment_kind::INSERT => "an SRH goes in",
        segment_kind::ENCAPS => "an outer header goes around",
        segment_kind::ENCAPS_L2 => "an outer header goes around the frame",
        _ => "the packet inside is taken out",
    }
}

pub(super) fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::NoSrh => "there is no SRH with segments left",
        Reason::BadSrh => "the SRH is not valid",
        Reason::Hmac => "the HMAC is wrong, or missing where it is wanted",
        Reason::HmacCheck => "the HMAC is the kernel's to check",
        Reason::SegmentsLeft => "there are segments left, and the path ends here",
        Reason::Payload => "what is inside is not what the behaviour takes out",
        Reason::SegmentLink => "the out-link cannot take the frame",
        Reason::Mtu => "it would be longer than a packet can be",
        _ => "not modelled",
    }
}

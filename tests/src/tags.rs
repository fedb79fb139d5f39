//! VLAN tags in frames.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::agreement::{hex, is_noise};
use crate::frame::{identity, ip_end, ip_start};
use crate::{Arrival, Crafted};

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// EtherType: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub kind: u16,
    /// Priority, "may be dropped", and the VLAN's number.
    pub tci: u16,
}

/// Of 802.1Q.
pub const fn q(tci: u16) -> Tag {
    Tag { kind: 0x8100, tci }
}

/// Of 802.1ad.
pub const fn ad(tci: u16) -> Tag {
    Tag { kind: 0x88a8, tci }
}

/// A frame with these tags put in, the outer one first.
pub fn tagged(frame: &[u8], tags: &[Tag]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    let tags = tags.iter().flat_map(|tag| {
        let Tag { kind, tci } = *tag;
        [kind.to_be_bytes(), tci.to_be_bytes()].concat()
    });
    [addresses, &tags.collect::<Vec<u8>>(), rest].concat()
}

/// The tags of a frame, the outer one first.
pub fn tags(frame: &[u8]) -> Vec<Tag> {
    let tags = frame.get(12..ip_start(frame) - 2).unwrap_or_default();
    let tags = tags.chunks_exact(4).map(|bytes| Tag {
        kind: u16::from_be_bytes([bytes[0], bytes[1]]),
        tci: u16::from_be_bytes([bytes[2], bytes[3]]),
    });
    tags.collect()
}

/// A frame without its tags.
pub fn bare(frame: &[u8]) -> Vec<u8> {
    let start = (ip_start(frame) - 2).clamp(frame.len().min(12), frame.len());
    [&frame[..frame.len().min(12)], &frame[start..]].concat()
}

/// Whether a frame is not about what was sent: neighbours' questions to each other, news of those that do not answer, and who listens to
/// groups (IGMP; that of IPv6 is among the questions).
pub fn about_neighbours(frame: &[u8]) -> bool {
    let frame = bare(frame);
    let group = frame.starts_with(&[1, 0, 0x5e]) && frame.get(12..14) == Some(&[8, 0]);
    is_noise(&frame) || group && frame.get(23) == Some(&2)
}

/// How frames that came out are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The packet in a frame that was sent by which it is known again, as a frame.
    pub inner: fn(&[u8]) -> Vec<u8>,
    /// What came out, without what is drawn at random; whether nobody but the router has sent it.
    pub smooth: fn(&Arrival, bool) -> Arrival,
}

impl Look {
    /// Packets that are in nothing else.
    pub const PLAIN: Look = Look {
        inner: <[u8]>::to_vec,
        smooth: |arrival, _| arrival.clone(),
    };
}

/// All that came out of the router for frames that were sent: how many times which bytes by which link.
#[derive(Clone, Debug, Default)]
pub struct CameOut {
    frames: BTreeMap<(String, Vec<u8>), i64>,
    /// Which of those that were sent were forwarded, and not bridged.
    pub forwarded: HashSet<usize>,
}

impl CameOut {
    /// Of these frames. What pads short ones is left out, and what the kernel draws at random in messages of its own.
    pub fn of(sent: &[Crafted], arrived: &[Arrival], look: Look) -> CameOut {
        let inner: Vec<Vec<u8>> = sent.iter().map(|f| (look.inner)(&f.bytes)).collect();
        let known: HashMap<Vec<u8>, usize> = (0..)
            .zip(&inner)
            .map(|(n, frame)| (identity(frame), n))
            .collect();
        let mut out = CameOut::default();
        for Arrival { link, frame } in arrived {
            let mut arrival = Arrival {
                link: link.clone(),
                frame: frame[..ip_end(frame)].to_vec(),
            };
            let packet = (look.inner)(&arrival.frame);
            if [frame, &packet].into_iter().any(|f| about_neighbours(f)) {
                continue;
            }
            let of = known.get(&identity(&packet));
            match of {
                Some(n) if hops(&packet) == hops(&inner[*n]) => {}
                Some(n) => drop(out.forwarded.insert(*n)),
                None => blank(&mut arrival.frame),
            }
            let Arrival { link, frame } = (look.smooth)(&arrival, of.is_none());
            *out.frames.entry((link, frame)).or_default() += 1;
        }
        out
    }

    /// How many frames came out.
    pub fn count(&self) -> usize {
        self.frames.values().sum::<i64>() as usize
    }

    /// Where this and what came out another time differ, with the kinds of the frames.
    pub fn differences(&self, other: &CameOut, sent: &[Crafted]) -> Vec<String> {
        let mut all = self.frames.clone();
        for (key, count) in &other.frames {
            *all.entry(key.clone()).or_default() -= count;
        }
        all.retain(|_, count| *count != 0);
        if all.is_empty() {
            return Vec::new();
        }
        let mut parts: HashMap<&[u8], Option<usize>> = HashMap::new();
        for (n, frame) in sent.iter().enumerate() {
            for part in frame.bytes[ip_start(&frame.bytes).min(frame.bytes.len())..].windows(PART) {
                // Zeros and the like are in many.
                let of = parts.entry(part).or_insert(Some(n));
                *of = of.filter(|of| *of == n);
            }
        }
        let told = all.iter().map(|((link, frame), count)| {
            let when = if *count > 0 { "without" } else { "with" };
            let of = frame.windows(PART).rev().find_map(|part| *parts.get(part)?);
            let of = of.map_or("nothing that was sent".into(), |n| {
                format!("{} {}", sent[n].kind, hex(&sent[n].bytes))
            });
            format!(
                "only {when} raddle ({}): by {link}: {}, of {of}",
                count.abs(),
                hex(frame)
            )
        });
        told.collect()
    }
}

/// TTL or hop limit.
fn hops(frame: &[u8]) -> Option<u8> {
    let start = ip_start(frame);
    let at = match frame.get(start - 2..start)? {
        [0x08, 0x00] => 8,
        [0x86, 0xdd] => 7,
        _ => return None,
    };
    frame.get(start + at).copied()
}

/// Bytes that frames are told apart by.
const PART: usize = 8;

/// The router's own messages without the IPv4 identification and what is summed over it, and without IPv6 flow labels.
pub(crate) fn blank(frame: &mut [u8]) {
    let start = ip_start(frame);
    let packet = frame.get_mut(start..).unwrap_or_default();
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.get(9) == Some(&1) && packet.len() >= 20 => {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        Some(6) if packet.len() >= 40 => packet[1..4].fill(0),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_put_in_and_found() {
        let frame: Vec<u8> = (0..12).chain([0x08, 0x00, 0x45]).collect();
        let two = tagged(&frame, &[ad(7), q(0x6005)]);
        let bytes = [0x88, 0xa8, 0, 7, 0x81, 0, 0x60, 5];
        assert_eq!(two, [&frame[..12], &bytes, &frame[12..]].concat());
        assert_eq!(tags(&two), [ad(7), q(0x6005)]);
        assert_eq!(bare(&two), frame);
        assert_eq!((tags(&frame), bare(&frame)), (vec![], frame));
    }
}

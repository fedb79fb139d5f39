//! The rules once more, slowly: packets are vectors that are cut and joined, tables are lists.
//!
//! Written from the numbered rules of `raddle_srv6`, and sharing nothing with it but the image's types.

use raddle_image::{LINK_TABLE, Reason, Segment, VlanEntry, flavours, segment_flags, segment_kind};

/// What a prefix leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leads {
    Adjacency(u32, usize),
    Neighbour(u32, usize),
    Segment(u32),
    Kernel(Reason),
}

/// Routes of one table: first bytes, number of bits, where to.
pub(crate) type Table = Vec<(Vec<u8>, usize, Leads)>;

#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// By table.
    pub(crate) v4: [Table; 2],
    pub(crate) v6: [Table; 2],
    /// By number; with the template's bytes.
    pub(crate) segments: Vec<(u32, Segment, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Through an adjacency: the IP packet, TTL already less one.
    Packet(u32, Vec<u8>),
    /// Through a link.
    Frame(u32, Vec<u8>),
    Kernel(Reason),
    Drop(Reason),
}

pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    /// Number, and bytes where it was carried out.
    pub(crate) counted: Vec<(u32, Option<usize>, Option<Reason>)>,
}

struct Header {
    kind: u8,
    at: usize,
    named_at: usize,
    len: usize,
}

/// Headers up to the last one, which is no extension header; it is missing when the packet ends.
fn headers(packet: &[u8]) -> Vec<Header> {
    let mut all = Vec::new();
    let (mut kind, mut at, mut named_at) = (packet[6], 40, 6);
    loop {
        let have = packet.len().saturating_sub(at);
        let byte = |i: usize| usize::from(packet[at + i]);
        let len = match kind {
            0 | 60 if have >= 2 => 8 * (byte(1) + 1),
            43 if have >= 4 => 8 * (byte(1) + 1),
            51 if have >= 2 => 4 * (byte(1) + 2),
            44 if have >= 4 && (byte(2) << 8 | byte(3)) >> 3 == 0 => 8,
            0 | 60 | 43 | 51 | 44 => return all,
            _ => 0,
        };
        all.push(Header {
            kind,
            at,
            named_at,
            len,
        });
        if len == 0 {
            return all;
        }
        (kind, named_at) = (packet[at], at);
        at += len;
    }
}

#[derive(Clone)]
struct Srh {
    at: usize,
    named_at: usize,
    bytes: Vec<u8>,
    list: Vec<[u8; 16]>,
    left: usize,
}

/// Rule S3.
fn srh(packet: &[u8], skip: bool) -> Result<Srh, Reason> {
    let srh = shape(packet, skip)?;
    hmac(packet, &srh)?;
    Ok(srh)
}

/// Rule S3.4 where no key is known and none is demanded.
fn hmac(packet: &[u8], srh: &Srh) -> Result<(), Reason> {
    let flagged = srh.bytes[5] & 8 != 0;
    if !flagged && packet[45] & 8 == 0 {
        return Ok(());
    }
    if srh.at != 40 {
        return Err(Reason::HmacCheck);
    }
    let tlvs = &srh.bytes[8 + 16 * srh.list.len()..];
    let found = tlvs.len() >= 40 && tlvs[tlvs.len() - 40..][..2] == [5, 38];
    match flagged && found {
        true => Err(Reason::Hmac),
        false => Ok(()),
    }
}

fn shape(packet: &[u8], skip: bool) -> Result<Srh, Reason> {
    let wanted = |h: &&Header| h.kind == 43 && !(skip && packet[h.at + 3] == 0);
    let all = headers(packet);
    let header = all.iter().find(wanted).ok_or(Reason::NoSrh)?;
    if header.at + header.len > packet.len() || packet[header.at + 2] != 4 {
        return Err(Reason::BadSrh);
    }
    let bytes = packet[header.at..header.at + header.len].to_vec();
    let segments = usize::from(bytes[4]) + 1;
    if 8 + 16 * segments > bytes.len() || usize::from(bytes[3]) > segments {
        return Err(Reason::BadSrh);
    }
    let mut tlvs = &bytes[8 + 16 * segments..];
    while !tlvs.is_empty() {
        if tlvs.len() < 2 || tlvs.len() < 2 + usize::from(tlvs[1]) {
            return Err(Reason::BadSrh);
        }
        tlvs = &tlvs[2 + usize::from(tlvs[1])..];
    }
    let list = (0..segments).map(|i| bytes[8 + 16 * i..24 + 16 * i].try_into().unwrap());
    Ok(Srh {
        at: header.at,
        named_at: header.named_at,
        list: list.collect(),
        left: bytes[3].into(),
        bytes,
    })
}

fn set_payload(packet: &mut [u8]) {
    let payload = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
}

fn pop(packet: &mut Vec<u8>, srh: &Srh) {
    packet[srh.named_at] = srh.bytes[0];
    packet.drain(srh.at..srh.at + srh.bytes.len());
    set_payload(packet);
}

fn go(packet: &mut Vec<u8>, srh: &Srh, left: usize, dst: &[u8], pops: bool) {
    packet[srh.at + 3] = left as u8;
    packet[24..40].copy_from_slice(dst);
    if pops {
        pop(packet, srh);
    }
}

/// Whether what is inside is IPv6.
fn inner(packet: &mut Vec<u8>, kinds: &[u8]) -> Result<bool, Reason> {
    let all = headers(packet);
    let last = all.last().filter(|h| h.len == 0).ok_or(Reason::Payload)?;
    let need = match last.kind {
        41 => 40,
        4 => 20,
        143 => 14,
        _ => return Err(Reason::Payload),
    };
    if !kinds.contains(&last.kind) || packet.len() < last.at + need {
        return Err(Reason::Payload);
    }
    packet.drain(..last.at);
    Ok(last.kind == 41)
}

/// Rules S4 and S5; whether what is left is IPv6.
fn step(segment: &Segment, packet: &mut Vec<u8>, flavours: u8) -> Result<bool, Reason> {
    let (own, has) = (
        segment.flags & segment_flags::NO_PUNT != 0,
        |flavour: u8| flavours & flavour != 0,
    );
    let (block, csid) = (usize::from(segment.block), usize::from(segment.csid));
    if has(flavours::NEXT_CSID) && csid > 0 && block + csid < 16 {
        let dst = packet[24..40].to_vec();
        let argument = &dst[block + csid..];
        if argument.iter().any(|byte| *byte != 0) {
            let moved = [&dst[..block], argument, &vec![0; csid]].concat();
            packet[24..40].copy_from_slice(&moved);
            return Ok(true);
        }
    }
    let upper = |packet: &mut Vec<u8>, had: bool| match has(flavours::USD) {
        true => inner(packet, &[41, 4]),
        false if had => Err(Reason::Payload),
        false => Err(Reason::NoSrh),
    };
    if has(flavours::REPLACE_CSID) {
        if csid == 0 || block + csid > 15 {
            return Err(Reason::Encap);
        }
        let srh = match srh(packet, false) {
            Err(Reason::NoSrh) => return upper(packet, false),
            other => other?,
        };
        let slots = 16 / csid;
        let mut bits = 0;
        while csid << bits < 16 {
            bits += 1;
        }
        let mask = (1 << bits) - 1;
        let mut dst = packet[24..40].to_vec();
        let index = usize::from(dst[15]) & mask;
        let slot = |entry: usize, i: usize| -> Result<Vec<u8>, Reason> {
            if i >= slots {
                return Err(Reason::BadSrh);
            }
            let entry = srh.list.get(entry).ok_or(Reason::BadSrh)?;
            Ok(entry[i * csid..(i + 1) * csid].to_vec())
        };
        let zero = vec![0; csid];
        if srh.left == 0 && (index == 0 || slot(0, index - 1)? == zero) {
            if has(flavours::USP) {
                pop(packet, &srh);
            }
            return upper(packet, true);
        }
        let psp = has(flavours::PSP);
        let (left, index) = if index > 0 {
            if slot(srh.left, index - 1)? == zero {
                let left = srh.left - 1;
                go(packet, &srh, left, &srh.list[left], psp && left == 0);
                return Ok(true);
            }
            (srh.left, index - 1)
        } else {
            (srh.left - 1, slots - 1)
        };
        dst[block..block + csid].copy_from_slice(&slot(left, index)?);
        dst[15] = (usize::from(dst[15]) & !mask | index) as u8;
        let done = left == 0 && (index == 0 || slot(0, index - 1)? == zero);
        go(packet, &srh, left, &dst, psp && done);
        return Ok(true);
    }
    let psp = has(flavours::PSP) && (own || !has(flavours::NEXT_CSID));
    if has(flavours::USP) || has(flavours::USD) {
        let first = match srh(packet, false) {
            Err(Reason::NoSrh) => None,
            other => Some(other?),
        };
        if let Some(first) = &first
            && first.left == 0
            && has(flavours::USP)
        {
            pop(packet, first);
        }
        let srh = match srh(packet, true) {
            Err(Reason::NoSrh) => return upper(packet, first.is_some()),
            other => other?,
        };
        let left = srh.left - 1;
        go(packet, &srh, left, &srh.list[left], psp && left == 0);
        return Ok(true);
    }
    let srh = srh(packet, !psp || own)?;
    if srh.left == 0 {
        return Err(Reason::NoSrh);
    }
    let left = srh.left - 1;
    go(packet, &srh, left, &srh.list[left], psp && left == 0);
    Ok(true)
}

fn decap(packet: &mut Vec<u8>, kinds: &[u8]) -> Result<bool, Reason> {
    if let Ok(srh) = shape(packet, false) {
        if srh.left > 0 {
            return Err(Reason::SegmentsLeft);
        }
        hmac(packet, &srh)?;
    }
    inner(packet, kinds)
}

/// Rule S9.
fn around(
    segment: &Segment,
    template: &[u8],
    packet: &mut Vec<u8>,
    v6: bool,
    mac: &[u8],
) -> Result<(), Reason> {
    let l2 = segment.kind == segment_kind::ENCAPS_L2;
    let has_srh = segment.flags & segment_flags::HAS_SRH != 0;
    let mut outer = template.to_vec();
    if v6 {
        outer[..4].copy_from_slice(&packet[..4]);
        outer[7] = packet[7];
    } else {
        // The hop limit is the template's.
        outer[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    }
    outer[0] = 0x60 | outer[0] & 0xf;
    if segment.flags & segment_flags::LABEL_FROM_INNER == 0 {
        outer[1] &= 0xf0;
        outer[2..4].fill(0);
    }
    let number = match (l2, v6) {
        (true, _) => 143,
        (false, true) => 41,
        (false, false) => 4,
    };
    outer[6] = 43;
    outer[if has_srh { 40 } else { 6 }] = number;
    let mac = if l2 { mac } else { &[] };
    *packet = [&outer, mac, packet].concat();
    if packet.len() > 40 + 65535 {
        return Err(Reason::Mtu);
    }
    set_payload(packet);
    Ok(())
}

fn insert(template: &[u8], packet: &mut Vec<u8>) -> Result<(), Reason> {
    let mut srh = template.to_vec();
    srh[0] = packet[6];
    srh[8..24].copy_from_slice(&packet[24..40]);
    let first = 8 + 16 * usize::from(srh[4]);
    let dst = srh[first..first + 16].to_vec();
    packet[24..40].copy_from_slice(&dst);
    packet[6] = 43;
    packet.splice(40..40, srh);
    if packet.len() > 40 + 65535 {
        return Err(Reason::Mtu);
    }
    set_payload(packet);
    Ok(())
}

fn sum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Rules A1 to A7 or B1 to B5, of a packet of any family; whether it is IPv6.
fn checked(packet: &[u8], v6: bool) -> Result<(), Reason> {
    if !v6 {
        let header = packet.get(..20).ok_or(Reason::Truncated)?;
        match header[0] {
            0x45 => {}
            0x46..=0x4f => return Err(Reason::Options),
            _ => return Err(Reason::BadHeader),
        }
        if sum(header) != 0xffff {
            return Err(Reason::BadChecksum);
        }
        let total = usize::from(header[2]) << 8 | usize::from(header[3]);
        if total < 20 || total > packet.len() {
            return Err(Reason::BadLength);
        }
        if header[12..16] == [0; 4]
            || header[12..16] == [255; 4]
            || header[12] == 127
            || header[12] >> 4 == 14
        {
            return Err(Reason::MartianSource);
        }
        return match header[16..20] {
            [0, 0, 0, 0] | [127, ..] => Err(Reason::MartianDestination),
            [224..=239, ..] => Err(Reason::Multicast),
            [255, 255, 255, 255] => Err(Reason::Broadcast),
            _ => Ok(()),
        };
    }
    let header = packet.get(..40).ok_or(Reason::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(Reason::BadHeader);
    }
    if header[6] == 0 {
        return Err(Reason::Options);
    }
    if 40 + (usize::from(header[4]) << 8 | usize::from(header[5])) > packet.len() {
        return Err(Reason::BadLength);
    }
    let low = |a: &[u8]| a[..15] == [0; 15] && a[15] <= 1;
    let link_local = |a: &[u8]| a[0] == 0xfe && a[1] >> 6 == 2;
    let (src, dst) = (&header[8..24], &header[24..]);
    if src[0] == 0xff || low(src) || src[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255] {
        return Err(Reason::MartianSource);
    }
    if link_local(src) || !low(dst) && link_local(dst) {
        return Err(Reason::LinkLocal);
    }
    if low(dst) {
        return Err(Reason::MartianDestination);
    }
    if dst[0] == 0xff {
        return Err(Reason::Multicast);
    }
    Ok(())
}

fn look_up(table: &Table, address: &[u8]) -> Leads {
    let matches = |prefix: &[u8], bits: usize| {
        (0..bits).all(|i| (prefix[i / 8] ^ address[i / 8]) >> (7 - i % 8) & 1 == 0)
    };
    let found = table.iter().filter(|(p, bits, _)| matches(p, *bits));
    let longest = found.max_by_key(|(_, bits, _)| *bits);
    longest.map_or(Leads::Kernel(Reason::NoRoute), |(_, _, leads)| *leads)
}

impl World {
    /// What becomes of a frame to the router's MAC address.
    pub(crate) fn pass(&self, frame: &[u8]) -> Answer {
        let mut met = Vec::new();
        let mut own = false;
        match self.walk(frame, &mut met, &mut own) {
            Ok(outcome) => Answer {
                outcome,
                counted: met.iter().map(|(n, len)| (*n, Some(*len), None)).collect(),
            },
            Err(reason) => {
                let drops = reason.is_drop() || own;
                let counted = met.iter().map(|(n, len)| match reason {
                    Reason::Blackhole => (*n, Some(*len), None),
                    reason => (*n, None, Some(reason)),
                });
                Answer {
                    counted: counted.collect(),
                    outcome: match drops {
                        true => Outcome::Drop(reason),
                        false => Outcome::Kernel(reason),
                    },
                }
            }
        }
    }

    fn walk(
        &self,
        frame: &[u8],
        met: &mut Vec<(u32, usize)>,
        own: &mut bool,
    ) -> Result<Outcome, Reason> {
        let mac = &frame[..14];
        let mut v6 = frame[12..14] == [0x86, 0xdd];
        checked(&frame[14..], v6)?;
        let at = if v6 { 18 } else { 16 };
        let total = usize::from(frame[at]) << 8 | usize::from(frame[at + 1]);
        let mut packet = frame[14..14 + total + if v6 { 40 } else { 0 }].to_vec();
        let (mut table, mut target, mut gateway) = (LINK_TABLE, None, false);
        loop {
            let table_of = |tables: &[Table; 2]| match table {
                LINK_TABLE => tables[0].clone(),
                n => tables[n as usize].clone(),
            };
            let leads = match target {
                Some(Ok(v4)) => look_up(&table_of(&self.v4), &u32::to_be_bytes(v4)),
                Some(Err(v6)) => look_up(&table_of(&self.v6), &u128::to_be_bytes(v6)),
                None if v6 => look_up(&table_of(&self.v6), &packet[24..40]),
                None => look_up(&table_of(&self.v4), &packet[16..20]),
            };
            let number = match leads {
                Leads::Kernel(reason) => return Err(reason),
                Leads::Segment(number) => number,
                Leads::Neighbour(..) if gateway => return Err(Reason::Encap),
                Leads::Adjacency(number, mtu) | Leads::Neighbour(number, mtu) => {
                    if packet[if v6 { 7 } else { 8 }] <= 1 {
                        return Err(Reason::TtlExceeded);
                    }
                    if packet.len() > mtu {
                        return Err(Reason::Mtu);
                    }
                    if v6 {
                        packet[7] -= 1;
                    } else {
                        packet[8] -= 1;
                        packet[10..12].fill(0);
                        let check = !sum(&packet[..20]);
                        packet[10..12].copy_from_slice(&check.to_be_bytes());
                    }
                    return Ok(Outcome::Packet(number, packet));
                }
            };
            let found = self.segments.iter().find(|(n, ..)| *n == number);
            let (_, segment, template) = found.unwrap();
            if segment.kind == segment_kind::KERNEL {
                *own |= segment.flags & segment_flags::NO_PUNT != 0;
                return Err(Reason::from_number(segment.reason).unwrap());
            }
            if met.len() == 4 {
                return Err(Reason::SidChain);
            }
            met.push((number, packet.len()));
            *own |= segment.flags & segment_flags::NO_PUNT != 0;
            if !v6 && segment.kind <= segment_kind::INSERT {
                return Err(Reason::Encap);
            }
            if matches!(segment.kind, segment_kind::END_DX2 | segment_kind::END_DX2V) {
                decap(&mut packet, &[143])?;
                return leaves(segment, template, packet);
            }
            v6 = carry(segment, template, &mut packet, v6, mac)?;
            let address = u128::from_be_bytes(segment.target);
            target = match segment.kind {
                segment_kind::END_X | segment_kind::END_DX6 => Some(Err(address)),
                segment_kind::END_DX4 => Some(Ok((address >> 96) as u32)),
                _ => None,
            }
            .filter(|target| !matches!(target, Ok(0) | Err(0)));
            gateway = segment.kind == segment_kind::END_DX4
                && target.is_some()
                && segment.flags & segment_flags::DIRECT_NH4 == 0;
            table = match (v6, target) {
                (_, Some(Err(_))) | (true, _) => segment.table6,
                (false, _) => segment.table4,
            };
            checked(&packet, v6)?;
        }
    }
}

/// One segment; whether what is left is IPv6.
fn carry(
    segment: &Segment,
    template: &[u8],
    packet: &mut Vec<u8>,
    v6: bool,
    mac: &[u8],
) -> Result<bool, Reason> {
    match segment.kind {
        segment_kind::END | segment_kind::END_X | segment_kind::END_T => {
            return step(segment, packet, segment.flavours);
        }
        segment_kind::END_DX6 | segment_kind::END_DT6 => return decap(packet, &[41]),
        segment_kind::END_DX4 | segment_kind::END_DT4 => return decap(packet, &[4]),
        segment_kind::END_DT46 => return decap(packet, &[41, 4]),
        segment_kind::END_B6 => {
            srh(packet, true)?;
            insert(template, packet)?;
        }
        segment_kind::END_B6_ENCAPS => {
            let compressed = flavours::NEXT_CSID | flavours::REPLACE_CSID;
            step(segment, packet, segment.flavours & compressed)?;
            around(segment, template, packet, true, mac)?;
        }
        segment_kind::INSERT => insert(template, packet)?,
        _ => around(segment, template, packet, v6, mac)?,
    }
    Ok(true)
}

/// Rule S8.
fn leaves(segment: &Segment, template: &[u8], frame: Vec<u8>) -> Result<Outcome, Reason> {
    if frame[12] < 6 {
        return Err(Reason::Payload);
    }
    let (mut out, mut mtu) = (segment.out, segment.mtu);
    if segment.kind == segment_kind::END_DX2V {
        if frame.len() < 16 || frame[12..14] != [0x81, 0] {
            return Err(Reason::Payload);
        }
        let vlan = u16::from(frame[14] & 0xf) << 8 | u16::from(frame[15]);
        let words = template
            .chunks(8)
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()));
        let mut entries = words.map(VlanEntry::from_word);
        let entry = entries
            .find(|entry| entry.vlan == vlan)
            .ok_or(Reason::Payload)?;
        (out, mtu) = (entry.out, entry.mtu.into());
    }
    if out == 0 || frame.len() - 14 > mtu as usize {
        return Err(Reason::SegmentLink);
    }
    Ok(Outcome::Frame(out, frame))
}

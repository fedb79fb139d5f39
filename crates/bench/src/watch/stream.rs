//! A steady stream of numbered frames, and what became of each.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use raddle_packet::checksum::checksum;

use super::packet::{BURST, Packets};

/// Flows that the stream sends in turn.
pub(super) const FLOWS: usize = 16;
/// How far apart bursts are, where the machine keeps up.
const GAP: Duration = Duration::from_micros(50);
/// Where a frame has its number.
const NUMBER: usize = 14 + 20 + 8;
/// UDP destination port of ours.
const PORT: u16 = 30_000;

/// What arrived of one frame: by which link, and to which MAC address.
pub(super) type Way = (usize, [u8; 6]);

/// Which frames are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// To the router, from the source.
    pub(super) macs: [[u8; 6]; 2],
    pub(super) source: Ipv4Addr,
    /// Of an IP packet, in bytes.
    pub(super) length: usize,
}

/// A frame of a flow; its number is not in it yet.
fn frame(shape: &Shape, flow: usize) -> Vec<u8> {
    let length = shape.length as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(length.to_be_bytes());
    // No identification, not to be fragmented; TTL, UDP, room for the checksum.
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(shape.source.octets());
    ip.extend([10, 9, 0, 2 + flow as u8]);
    let sum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    ip.extend((20_000 + flow as u16).to_be_bytes());
    ip.extend(PORT.to_be_bytes());
    ip.extend((length - 20).to_be_bytes());
    ip.resize(shape.length, 0);
    let mut frame = shape.macs.concat();
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    frame
}

/// The number of a frame of ours.
fn number(frame: &[u8]) -> Option<usize> {
    let port = frame.get(NUMBER - 6..NUMBER - 4)?;
    if frame.get(12..14)? != [0x08, 0x00] || port != PORT.to_be_bytes() {
        return None;
    }
    let bytes = frame.get(NUMBER..NUMBER + 8)?.try_into().ok()?;
    usize::try_from(u64::from_be_bytes(bytes)).ok()
}

/// Sends so many frames a second until it is told to stop, or has sent `most`; numbers begin with 0. When each was
/// handed to the kernel.
pub(super) fn send(
    link: &Packets,
    shape: &Shape,
    rate: u32,
    most: usize,
    stop: &AtomicBool,
) -> io::Result<Vec<Instant>> {
    let flows: Vec<Vec<u8>> = (0..FLOWS).map(|flow| frame(shape, flow)).collect();
    let mut burst: Vec<Vec<u8>> = Vec::with_capacity(BURST);
    let mut sent = Vec::new();
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) && sent.len() < most {
        let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as usize;
        let last = due.min(most).min(sent.len() + BURST);
        burst.clear();
        for number in sent.len()..last {
            let mut frame = flows[number % FLOWS].clone();
            frame[NUMBER..NUMBER + 8].copy_from_slice(&(number as u64).to_be_bytes());
            burst.push(frame);
        }
        if !burst.is_empty() {
            let now = Instant::now();
            link.send(&mut burst)?;
            sent.resize(last, now);
        }
        std::thread::sleep(GAP);
    }
    Ok(sent)
}

/// What has arrived of `count` frames by these links. What arrived is taken away by it.
pub(super) fn arrived(links: &[Packets], count: usize) -> io::Result<Vec<Option<Way>>> {
    let mut ways = vec![None; count];
    for (place, link) in links.iter().enumerate() {
        link.take(|frame| {
            let way = number(frame).and_then(|number| ways.get_mut(number));
            if let Some(way) = way
                && let Some((to, _)) = frame.split_first_chunk()
            {
                *way = Some((place, *to));
            }
        })?;
    }
    Ok(ways)
}

/// The last frame that the change had no effect on: which arrived though none may any more (`stops`), or arrived by
/// another way than its flow does in the end. None if there is no such frame.
pub(super) fn last_around(ways: &[Option<Way>], stops: bool) -> Option<usize> {
    let mut ends = [None; FLOWS];
    if !stops {
        for (number, way) in ways.iter().enumerate() {
            ends[number % FLOWS] = way.or(ends[number % FLOWS]);
        }
    }
    ways.iter()
        .enumerate()
        .rposition(|(number, way)| way.is_some() && *way != ends[number % FLOWS])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        source: Ipv4Addr::new(10, 1, 1, 2),
        length: 46,
    };

    #[test]
    fn frames_are_well_formed_and_known_again() {
        let mut one = frame(&SHAPE, 3);
        assert_eq!(one.len(), 60);
        assert!(raddle_packet::checksum::is_valid(&one[14..34]));
        assert_eq!(number(&one), Some(0));
        one[NUMBER + 7] = 9;
        assert_eq!(number(&one), Some(9));
        one[NUMBER - 5] ^= 1;
        assert_eq!(number(&one), None);
        assert_eq!(number(&one[..40]), None);
    }

    #[test]
    fn the_last_frame_around_a_change_is_found() {
        let at = |link| Some((link, [0; 6]));
        let (a, b) = (at(0), at(1));
        // Nothing may arrive.
        assert_eq!(last_around(&[a, b, None, a, None], true), Some(3));
        assert_eq!(last_around(&[None, None], true), None);
        // Each flow for itself: 0 moves from a to b, 1 stays, and what is lost is no matter.
        let mut ways = vec![None; 4 * FLOWS];
        for round in 0..4 {
            ways[round * FLOWS] = if round < 2 { a } else { b };
            ways[round * FLOWS + 1] = a;
        }
        ways[2 * FLOWS] = None;
        ways[3 * FLOWS + 1] = None;
        assert_eq!(last_around(&ways, false), Some(FLOWS));
        assert_eq!(last_around(&ways[2 * FLOWS..], false), None);
        // Another MAC address is another way.
        ways[3 * FLOWS] = Some((1, [1; 6]));
        ways[2 * FLOWS] = b;
        assert_eq!(last_around(&ways, false), Some(2 * FLOWS));
    }
}

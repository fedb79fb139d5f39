//! The userspace engine in memory: packets of many flows to one SID, in vectors, one core.
//!
//! The flows differ in the source port of the packet that is carried. The destination is the SID, as it is for
//! all packets that a router gets for it; behind End and around H.Encaps there is one segment.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use raddle_forward::{Engine, HEADROOM, Verdict};
use raddle_image::{Capacity, Memory, Reason};
use raddle_netlink::mirror::snapshot;
use raddle_rib::{Ports, Rib};

use super::Rates;
use super::network::{What, sid_of};
use super::packets;
use crate::measure::progress;
use crate::router::index_of;
use raddle_exit::Failure;

/// Packets that are gone through: few enough to stay in the cache, as those do that a driver brings.
const PACKETS: usize = 256;
/// Times that each is forwarded in a round.
const TIMES: usize = 400;
/// What is measured.
const ROWS: [What; 3] = [What::End, What::Dx2, What::Encaps];

/// One packet with room in front of it.
struct Room {
    buffer: Vec<u8>,
    frame: Range<usize>,
    /// The part of the frame that forwarding changes, as it was.
    before: Vec<u8>,
}

impl Room {
    /// Makes the frame what it was. Behind the outer IPv6 header and the SRH's first 8 bytes nothing
    /// is ever changed.
    #[inline]
    fn restore(&mut self) {
        let start = self.frame.start;
        self.buffer[start..start + self.before.len()].copy_from_slice(&self.before);
    }
}

impl AsMut<[u8]> for Room {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

/// Million packets a second of each row, by round. By the state of this thread's namespace.
pub(super) fn measure(rounds: u32) -> Result<Vec<(What, Rates)>, Failure> {
    let capacity = Capacity::default();
    let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
    for event in snapshot()? {
        rib.apply(event);
    }
    let ingress = index_of("in0")?;
    rib.set_ports(Ports {
        enabled: [ingress].into(),
        out: [index_of("out0")?, index_of("out1")?].into(),
    });
    rib.commit();
    let mut engine = Engine::new(Arc::clone(rib.memory()));
    let mut results = Vec::new();
    let mut rooms = Vec::new();
    for what in ROWS {
        rooms.push(make(what)?);
        results.push((what, Rates::new()));
    }
    for round in 0..rounds {
        for ((what, rates), rooms) in results.iter_mut().zip(&mut rooms) {
            progress(&format!("in memory, round {}: {}", round + 1, what.name()));
            let mut other = None;
            let mut verdicts = [Verdict::Kernel(Reason::None); PACKETS];
            let mut took = Duration::ZERO;
            for _ in 0..TIMES {
                rooms.iter_mut().for_each(Room::restore);
                let range = |room: &mut Room| room.frame.clone();
                let start = Instant::now();
                engine.forward_all_in(rooms, range, ingress, 0, &mut verdicts);
                took += start.elapsed();
                let stays = |verdict: &&Verdict| !matches!(verdict, Verdict::Forward { .. });
                other = other.or(verdicts.iter().find(stays).copied());
            }
            if let Some(verdict) = other {
                let what = what.name();
                let said = format!("the engine does not forward {what}: {verdict:?}");
                return Err(Failure::system(said));
            }
            rates.push((PACKETS * TIMES) as f64 / took.as_secs_f64() / 1e6);
        }
    }
    Ok(results)
}

/// Packets of as many flows.
fn make(what: What) -> Result<Vec<Room>, Failure> {
    let template = packets::payload(what, sid_of(what))?;
    let room = |n: usize| {
        let mut bytes = template.frame().to_vec();
        let at = template.port_at();
        bytes[at..at + 2].copy_from_slice(&(0x8000 | n as u16).to_be_bytes());
        // MAC addresses, and where nothing is put in front, the IPv6 header and the segments left.
        let changed = match what {
            What::End | What::EndX => packets::ETHERNET + 40 + 8,
            _ => packets::ETHERNET,
        };
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(&bytes);
        Room {
            frame: HEADROOM..buffer.len(),
            buffer,
            before: bytes[..changed].to_vec(),
        }
    };
    Ok((0..PACKETS).map(room).collect())
}

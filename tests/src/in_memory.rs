//! The userspace engine over an image of the router as its kernel describes it.

use std::sync::Arc;

use raddle_forward::{Engine, HEADROOM, Verdict};
use raddle_image::{Capacity, Memory, Reason, SEGMENT_COUNTERS, segment_counter};
use raddle_rib::event::HmacKey;
use raddle_rib::{Owner, Ports, Rib};
use raddle_srv6::{Algorithm, Key};

use crate::agreement::{Counted, state};
use crate::{Arrival, Crafted, World};

/// The engine, and what it was told.
#[expect(missing_debug_implementations, reason = "a mirror has none")]
pub struct InMemory {
    rib: Rib,
    engine: Engine,
    ingress: u32,
}

/// What the engine did with packets.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// What it forwarded.
    pub sent: Vec<Arrival>,
    /// What it left to the kernel, and why.
    pub punted: Vec<(Crafted, Reason)>,
    /// How many it dropped.
    pub dropped: usize,
}

impl InMemory {
    /// By the router's state of now.
    pub fn of(world: &World) -> InMemory {
        let capacity = Capacity::default();
        let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
        for event in state(world) {
            rib.apply(event);
        }
        let ingress = rib.link_named("source").unwrap().index;
        rib.set_ports(Ports {
            enabled: [ingress].into(),
            out: rib.links().map(|link| link.index).collect(),
        });
        rib.commit();
        let mut engine = Engine::new(Arc::clone(rib.memory()));
        let key = |key: &HmacKey| {
            let algorithm = Algorithm::from_number(key.algorithm as u8)?;
            Some((key.id, Key::new(algorithm, &key.secret)?))
        };
        engine.set_hmac_keys(rib.hmac_keys().values().filter_map(key).collect());
        InMemory {
            engine,
            rib,
            ingress,
        }
    }

    /// Puts packets through it.
    ///
    /// # Panics
    /// When it changes a packet that it leaves to the kernel.
    pub fn forward(&mut self, frames: &[Crafted]) -> Decided {
        let mut decided = Decided::default();
        for frame in frames {
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(&frame.bytes);
            let range = HEADROOM..buffer.len();
            match self.engine.forward_in(&mut buffer, range, self.ingress, 0) {
                Verdict::Forward {
                    index, start, len, ..
                } => decided.sent.push(Arrival {
                    link: self.rib.link(index).unwrap().name.clone(),
                    frame: buffer[start..start + len].to_vec(),
                }),
                Verdict::Kernel(reason) => {
                    assert_eq!(buffer[HEADROOM..], frame.bytes, "{reason}: {}", frame.kind);
                    decided.punted.push((frame.clone(), reason));
                }
                Verdict::Drop(_) => decided.dropped += 1,
            }
        }
        decided
    }

    /// What it has counted of the SID with this name: packets that it forwarded, and as errors those
    /// that it dropped. What it left to the kernel the kernel counts.
    pub fn counted(&self, sid: &str) -> Counted {
        let mut sum = [0; 3];
        for (number, used, _) in self.rib.segments() {
            let owned = matches!(&used.owner, Owner::Route { dst, .. } if dst.to_string() == sid);
            if owned {
                let of: [u64; SEGMENT_COUNTERS] = self.engine.counters().segment(number);
                sum[0] += of[segment_counter::PACKETS];
                sum[1] += of[segment_counter::BYTES];
                let dropped = segment_counter::REASONS.into_iter().filter(|r| r.is_drop());
                sum[2] += dropped.map(|r| of[segment_counter::of(r)]).sum::<u64>();
            }
        }
        sum
    }
}

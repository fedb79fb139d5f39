//! An image for questions.

use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

use raddle_forward::{Engine, HEADROOM, Verdict};
use raddle_image::{Capacity, Memory, Reason, Segment, segment_kind};
use raddle_rib::event::{Event, HmacKey};
use raddle_rib::{AlgoRules, Owner, Ports, Rib, SegmentUse};

use raddle_srv6::{Key, Keys};

use super::steps::View;

/// The image of a state, made when the first question about that state needs it.
#[derive(Default)]
pub struct Images(OnceCell<Image>);

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let made = if self.0.get().is_some() {
            "made"
        } else {
            "not made"
        };
        f.debug_tuple("Images").field(&made).finish()
    }
}

impl Images {
    /// The image of the view's state.
    pub(super) fn of(&self, view: View<'_>) -> &Image {
        self.0
            .get_or_init(|| Image::of(view.rib, view.around.algos.clone()))
    }
}

/// An image with the same state, for what engines would have and do: those of the mirror that
/// questions are put to drive no engine.
pub(super) struct Image(Rib, RefCell<Engine>);

impl Image {
    /// Costs a walk over all routes.
    pub(super) fn of(rib: &Rib, algos: AlgoRules) -> Image {
        let capacity = capacity_for(rib.routes4().count() + rib.routes6().count());
        let memory = Arc::new(Memory::heap(&capacity));
        let mut image = Rib::new(memory, &capacity, || ());
        image.know_as(rib);
        image.set_algos(algos);
        rib.snapshot()
            .into_events()
            .for_each(|event| image.apply(event));
        // Snapshots have no secrets in them.
        image.apply(Event::HmacKeys(rib.hmac_keys().values().cloned().collect()));
        let all = || rib.links().map(|link| link.index).collect();
        image.set_ports(Ports {
            enabled: all(),
            out: all(),
        });
        image.commit();
        let mut engine = Engine::new(Arc::clone(image.memory()));
        engine.set_hmac_keys(keys_of(rib));
        Image(image, RefCell::new(engine))
    }

    /// What an engine does with a frame that comes in on this link.
    pub(super) fn verdict(&self, frame: &[u8], ingress: u32) -> Verdict {
        let mut engine = self.1.borrow_mut();
        let mut decide = || {
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(frame);
            let range = HEADROOM..buffer.len();
            engine.forward_in(&mut buffer, range, ingress, 0)
        };
        match decide() {
            // The kernel would forward it by the same bucket, and here is no kernel to be shown it; nor is it shown
            // what comes to raddle's own.
            Verdict::Kernel(Reason::BucketActivity) | Verdict::Drop(Reason::BucketActivity) => {
                decide()
            }
            verdict => verdict,
        }
    }

    /// The neighbour that this adjacency stands for.
    pub(super) fn neighbour(&self, adjacency: u32) -> Option<IpAddr> {
        let mut all = self.0.adjacencies();
        let (_, _, neighbour, _) = all.find(|(number, ..)| *number == adjacency)?;
        neighbour
    }

    /// What engines read.
    pub(super) fn memory(&self) -> Arc<Memory> {
        Arc::clone(self.0.memory())
    }

    /// The segment that stands for this.
    pub(super) fn segment(&self, what: &SegmentUse) -> Result<Segment, Reason> {
        // A mirror that has seen replacements numbers them; this image has seen none.
        let mut what = what.clone();
        if let Owner::Route { generation, .. } = &mut what.owner {
            *generation = 0;
        }
        let number = self.0.segment_number(&what).ok_or(Reason::ImageFull)?;
        let (_, segment) = self.0.segment(number).ok_or(Reason::ImageFull)?;
        match segment.kind {
            segment_kind::KERNEL => {
                Err(Reason::from_number(segment.reason).unwrap_or(Reason::Encap))
            }
            _ => Ok(*segment),
        }
    }
}

/// The keys of HMACs that the kernel has.
pub(super) fn keys_of(rib: &Rib) -> Keys {
    let key = |key: &HmacKey| Some((key.id, Key::new(key.algorithm, &key.secret)?));
    rib.hmac_keys().values().filter_map(key).collect()
}

/// Room for so many routes, each of which may be a SID with a template.
fn capacity_for(routes: usize) -> Capacity {
    const FEW: usize = 4_096;
    match routes {
        ..FEW => Capacity {
            nodes4: 1 << 14,
            leaves4: 1 << 16,
            words6: 1 << 18,
            groups: 1 << 14,
            members: 1 << 16,
            adjacencies: 1 << 13,
            segments: 2 * FEW,
            templates: 1 << 18,
        },
        _ => Capacity {
            segments: 1 << 18,
            templates: 1 << 22,
            ..Capacity::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{
        DeviceSettings, HmacAlgorithm, HmacKey, Link, Route, RouteNexthop, RouteOp, RouteTarget,
    };
    use raddle_rib::seg6::{Encaps, Mode, Seg6};

    use super::*;

    /// A list with an HMAC is the kernel's only where the key is not known.
    #[test]
    fn keys_of_hmacs_are_known() {
        let segments = ["fc00:1::".parse().unwrap(), "fc00:2::".parse().unwrap()];
        let list = Encaps::new(Mode::Encap, &segments).unwrap();
        let mut srh = list.srh().to_vec();
        (srh[1], srh[5]) = (srh[1] + 5, 8);
        srh.extend([5, 38, 0, 0, 0, 0, 0, 42]);
        srh.extend([0; 32]);
        let list = Seg6::Encaps(Encaps::with_srh(Mode::Encap, srh).unwrap());
        let hop = RouteNexthop {
            encap: Some(list.encode()),
            ..RouteNexthop::default()
        };
        let mut rib = Rib::detached();
        rib.apply(Event::Link(Link::ethernet(1, "a", [2; 6])));
        rib.apply(Event::Device(1, DeviceSettings::default()));
        let settings = raddle_rib::event::Settings {
            tunsrc: Some("fd01::1".parse().unwrap()),
            ..*rib.settings()
        };
        rib.apply(Event::Settings(settings));
        let route = Route {
            dst: "2001:db8::/32".parse().unwrap(),
            table: 254,
            flags: raddle_rib::event::ROUTE_STATIC,
            target: RouteTarget::Single(hop),
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
        let kinds = |rib: &Rib| -> Vec<u8> {
            let image = Image::of(rib, AlgoRules::default());
            image.0.segments().map(|(_, _, s)| s.kind).collect()
        };
        rib.commit();
        assert_eq!(kinds(&rib), [segment_kind::KERNEL]);
        rib.apply(Event::HmacKeys(vec![HmacKey {
            id: 42,
            algorithm: HmacAlgorithm::Sha256,
            secret: b"secret".to_vec(),
        }]));
        assert_eq!(kinds(&rib), [segment_kind::ENCAPS]);
    }
}

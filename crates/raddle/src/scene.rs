//! What the preflight is to look at, of a mirror and of what drivers say.

use std::collections::BTreeSet;

use raddle_preflight::Scene;
use raddle_rib::Rib;
use raddle_xdp::Features;

/// The links of a mirror, where `attached` are those on which the XDP program is ours.
pub(crate) fn of(rib: &Rib, attached: BTreeSet<u32>) -> Scene {
    Scene::of(rib, attached, |index| {
        let features = raddle_xdp::features(index).ok().flatten();
        features.map(Features::can_receive_redirects)
    })
}

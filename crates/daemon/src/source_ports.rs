//! The key by which VXLANs choose the source ports of their packets: the kernel's own, where it can be read.
//!
//! A flow then has the same port whether raddle or the kernel sends it. Without the key ports are as good: the other end looks at none.

use raddle_preflight::is_usable_tunnel;
use raddle_rib::Rib;
use raddle_rib::event::{Link, TunnelKind};

/// Whether the key was asked for.
#[derive(Debug, Default)]
pub(crate) struct SourcePorts {
    asked: bool,
}

impl SourcePorts {
    /// Reads the kernel's key once there is a VXLAN that is sent through, and has the mirror choose by it. That takes some 50 milliseconds,
    /// once.
    pub(crate) fn know(&mut self, rib: &mut Rib) {
        if self.asked || !rib.links().any(chooses) {
            return;
        }
        self.asked = true;
        match raddle_key::read_software_key() {
            Ok(key) => rib.set_port_key(key.words()),
            Err(e) => tracing::info!(
                "the kernel's own key for source ports of VXLAN is not known: what raddle sends has others than what the kernel sends ({e})"
            ),
        }
    }
}

/// Whether source ports of a link go by the key.
fn chooses(link: &Link) -> bool {
    let kind = link.tunnel.filter(|_| is_usable_tunnel(link));
    kind.is_some_and(|tunnel| matches!(tunnel.kind, TunnelKind::Vxlan { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::Event;

    #[test]
    fn only_a_vxlan_asks_for_the_key() {
        let mut rib = Rib::detached();
        let mut ports = SourcePorts::default();
        let gre = TunnelKind::Gre {
            ikey: None,
            okey: None,
        };
        for (index, tunnel) in [(2, None), (3, Some(crate::links::tunnel(gre)))] {
            rib.apply(Event::Link(Link {
                tunnel,
                ..Link::ethernet(index, format!("l{index}"), [2; 6])
            }));
        }
        ports.know(&mut rib);
        assert!(!ports.asked);
        let vxlan = Link {
            tunnel: Some(crate::links::tunnel(crate::links::VXLAN)),
            ..Link::ethernet(4, "vxlan5", [2; 6])
        };
        assert!(chooses(&vxlan));
    }
}

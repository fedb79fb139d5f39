//! Links that are ports of bridges. A bridge tells what a port is to it (its state, whether it learns) in messages that lack the
//! rest of the link, and a change of state in no other (`br_ifinfo_notify`): so that the rest has to be known.

use std::collections::HashMap;

use raddle_rib::event::Link;

use crate::codec::PortChange;

/// Each port's link as it was told last.
#[derive(Debug, Default)]
pub(super) struct Ports(HashMap<u32, Link>);

impl Ports {
    /// This is told of a link.
    pub(super) fn note(&mut self, link: &Link) {
        if link.port.is_some() {
            self.0.insert(link.index, link.clone());
        } else {
            self.0.remove(&link.index);
        }
    }

    /// A link is gone.
    pub(super) fn forget(&mut self, index: u32) {
        self.0.remove(&index);
    }

    /// The link of a port after its bridge has told of it; none where it was not known as a port of this bridge.
    pub(super) fn after(&self, change: &PortChange) -> Option<Link> {
        let known = self.0.get(&change.index)?;
        (known.master == Some(change.bridge)).then(|| Link {
            port: Some(change.port),
            ..known.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::BridgePort;

    use super::*;

    #[test]
    fn only_what_the_bridge_tells_changes() {
        let link = Link {
            master: Some(9),
            port: Some(BridgePort::default()),
            qdisc: "noqueue".into(),
            ..Link::ethernet(2, "eth0", [2; 6])
        };
        let told = |bridge| PortChange {
            index: 2,
            bridge,
            port: BridgePort {
                state: 3,
                learns: true,
                ..BridgePort::default()
            },
        };
        let mut ports = Ports::default();
        assert_eq!(ports.after(&told(9)), None);
        ports.note(&link);
        let after = Link {
            port: Some(told(9).port),
            ..link.clone()
        };
        assert_eq!(ports.after(&told(9)), Some(after));
        // It was another bridge's when it was told last.
        assert_eq!(ports.after(&told(8)), None);
        ports.note(&Link {
            master: None,
            port: None,
            ..link.clone()
        });
        assert_eq!(ports.after(&told(9)), None);
        ports.note(&link);
        ports.forget(2);
        assert_eq!(ports.after(&told(9)), None);
    }
}

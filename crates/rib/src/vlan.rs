//! What is below a VLAN.

use raddle_image::{MAX_TAGS, Vlan};

use crate::event::Link;

/// The link that frames of a VLAN pass, and how they look there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// The link below all VLANs, by its index.
    pub lower: u32,
    /// VLANs between it and the link, the link among them, from the outermost tag on.
    pub through: Vec<(u32, Vlan)>,
}

impl Below {
    /// The tags of frames, the outermost first.
    pub fn tags(&self) -> impl Iterator<Item = Vlan> {
        self.through.iter().map(|(_, vlan)| *vlan)
    }
}

/// What is below a VLAN; none of a link that is no VLAN, and of those that engines do not know:
///
/// 1. Every VLAN on the way, the link itself among them, is of 802.1Q or 802.1ad.
/// 2. There are at most [`MAX_TAGS`] of them.
/// 3. All that they are upon is in this namespace, and in the mirror.
pub fn below<'a>(link: &'a Link, by_index: impl Fn(u32) -> Option<&'a Link>) -> Option<Below> {
    let mut through = Vec::new();
    let mut at = link;
    while let Some(vlan) = at.vlan {
        if through.len() == MAX_TAGS || at.lower_netns.is_some() {
            return None;
        }
        through.push((at.index, Vlan::of(vlan.protocol, vlan.id)?));
        at = by_index(at.lower?)?;
    }
    if through.is_empty() || at.kind.as_deref() == Some("vlan") {
        return None;
    }
    through.reverse();
    let lower = at.index;
    Some(Below { lower, through })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;

    fn vlan(index: u32, protocol: u16, id: u16, lower: u32) -> Link {
        Link {
            index,
            kind: Some("vlan".to_owned()),
            vlan: Some(event::Vlan {
                protocol,
                id,
                egress_qos: false,
            }),
            lower: Some(lower),
            ..Link::default()
        }
    }

    #[test]
    fn the_link_below_and_the_tags_are_found() {
        let wire = Link {
            index: 2,
            ..Link::default()
        };
        let elsewhere = Link {
            lower_netns: Some(0),
            ..vlan(7, 0x8100, 9, 2)
        };
        let odd = vlan(8, 0x9100, 9, 2);
        let links = [
            wire.clone(),
            vlan(3, 0x88a8, 5, 2),
            vlan(4, 0x8100, 6, 3),
            vlan(5, 0x8100, 7, 4),
            vlan(6, 0x8100, 7, 99),
            elsewhere,
            odd,
        ];
        let find = |index: u32| links.iter().find(|link| link.index == index);
        let found = |index: u32| below(find(index).unwrap(), find);
        let tag = |service, id| Vlan { service, id };
        assert_eq!(found(2), None);
        let (outer, inner) = ((3, tag(true, 5)), (4, tag(false, 6)));
        let lower = 2;
        let through = vec![outer];
        assert_eq!(found(3), Some(Below { lower, through }));
        let through = vec![outer, inner];
        assert_eq!(found(4), Some(Below { lower, through }));
        assert_eq!(found(5), None, "three tags");
        assert_eq!(found(6), None, "nothing below it");
        assert_eq!(found(7), None, "in another namespace");
        assert_eq!(found(8), None, "of another EtherType");
    }
}

//! Links upon links: by which VLAN, bridge or macvlan a frame comes in that was seen on a link below.

use raddle_image::{LinkEntry, MAX_TAGS, Memory, Reason, TAG, Upon, Vlan, link_flags};

use crate::arrive::{Mac, family};
use crate::rewrite::ETHERNET;

/// Both MAC addresses.
pub(crate) const MACS: usize = ETHERNET - 2;
/// One.
const MAC: usize = 6;

/// Whether a link with these flags has others upon it, enabled or not.
#[inline(always)]
pub(crate) fn has_upon(flags: u32) -> bool {
    flags & (link_flags::VLANS | link_flags::PORT | link_flags::MACVLANS) != 0
}

/// Whether a frame of a link that [`has_upon`] may come in by one of those. The link is read once more, lest all frames pay for its entry
/// being at hand.
///
/// 1. It has an Ethernet header.
/// 2. Of a port of a bridge, and of a link with macvlans that is not enabled itself: any.
/// 3. Of a link with VLANs: it has a tag.
/// 4. Of a link with macvlans: it holds an IP packet and is not to the link's own MAC address.
#[cold]
pub(crate) fn may_be_upon(memory: &Memory, ingress: u32, frame: &[u8]) -> bool {
    let link = memory.link(ingress);
    let has = |flags| link.flags & flags != 0;
    if !has(link_flags::ENABLED) && has(link_flags::PORT | link_flags::MACVLANS) {
        return frame.len() >= ETHERNET;
    }
    match family(frame, Mac::new(link.mac)) {
        Err(Reason::Vlan) => has(link_flags::VLANS),
        Err(Reason::OtherMac) => has(link_flags::MACVLANS),
        _ => false,
    }
}

/// The tags of a frame, the outermost first.
struct Tags {
    all: [Vlan; MAX_TAGS],
    count: usize,
}

impl Tags {
    /// 1. The frame has at most [`MAX_TAGS`]: `vlan`.
    /// 2. It does not end before the EtherType behind them: `truncated`.
    fn of(frame: &[u8]) -> Result<Tags, Reason> {
        let word = |at: usize| -> Result<u16, Reason> {
            let bytes = frame.get(at..at + 2).ok_or(Reason::Truncated)?;
            Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let mut all = [Vlan {
            service: false,
            id: 0,
        }; MAX_TAGS];
        for count in 0..=MAX_TAGS {
            let place = MACS + count * TAG;
            let ether_type = word(place)?;
            if !matches!(ether_type, Vlan::CUSTOMER | Vlan::SERVICE) {
                return Ok(Tags { all, count });
            }
            let Some(tag) = all.get_mut(count) else {
                break;
            };
            word(place + TAG)?;
            *tag = Vlan::of(ether_type, word(place + 2)?).ok_or(Reason::Vlan)?;
        }
        Err(Reason::Vlan)
    }
}

/// Where steps lead to.
struct Reached {
    /// Whose entry it is: the link that the frame was seen on, or the last that a step led to.
    at: u32,
    /// By which index there are steps from there.
    lower: u32,
    /// Whether there was a bridge on the way.
    bridged: bool,
    /// Where the source has to be learnt, or 0: see [`raddle_image::Step::learnt`].
    learnt: u16,
}

/// Takes the steps that tags and ports of bridges lead to ([`Memory::step`]; `__netif_receive_skb_core`, `vlan_do_receive`,
/// `br_handle_frame_finish`, `br_allowed_ingress`, `br_pass_frame_up`). It begins at link `ingress`, whose steps are those of the bond that it is a
/// member of, if it is.
///
/// 1. A port that has a step for all frames: to the bridge, with the tags that there are.
/// 2. Another port: by the next tag, which is taken; where it has the identifier 0, or there is none, as a frame without a tag. Without such a
///    step, or behind another bridge: `bridge`.
/// 3. Elsewhere the next tag is taken, and leads to its VLAN. Without such a VLAN it is passed over where its identifier is 0: it has a
///    priority only. Else: `vlan`.
/// 4. No tag is left, and it is no port.
fn walk(memory: &Memory, ingress: u32, tags: &[Vlan]) -> Result<Reached, Reason> {
    let link = memory.link(ingress);
    let mut is_port = link.flags & link_flags::PORT != 0;
    let mut tags = tags.iter().copied();
    let mut reached = Reached {
        at: ingress,
        lower: link.index,
        bridged: false,
        learnt: 0,
    };
    loop {
        let lower = reached.lower;
        let step = if is_port {
            if reached.bridged {
                return Err(Reason::Bridge);
            }
            reached.bridged = true;
            let by_tag = || match tags.next() {
                Some(vlan) if vlan.id != 0 => memory.step(lower, Upon::Tag(vlan)),
                _ => memory.step(lower, Upon::Untagged),
            };
            let step = memory.step(lower, Upon::All).or_else(by_tag);
            step.ok_or(Reason::Bridge)?
        } else {
            let Some(vlan) = tags.next() else {
                return Ok(reached);
            };
            match memory.step(lower, Upon::Tag(vlan)) {
                Some(step) => step,
                None if vlan.id == 0 => continue,
                None => return Err(Reason::Vlan),
            }
        };
        is_port = step.is_port;
        reached = Reached {
            at: step.index,
            lower: step.index,
            bridged: reached.bridged,
            learnt: reached.learnt | step.learnt,
        };
    }
}

/// The macvlan with this MAC address upon a link of another one (`macvlan_handle_frame`).
fn macvlan(memory: &Memory, link: &LinkEntry, lower: u32, to: [u8; MAC]) -> Option<LinkEntry> {
    if link.flags & link_flags::MACVLANS == 0 || link.mac == to {
        return None;
    }
    let step = memory.step(lower, Upon::mac(to))?;
    let macvlan = memory.link(step.index);
    (macvlan.mac == to).then_some(macvlan)
}

/// What a bridge takes for itself of what comes in by a port, and learns nothing from (`br_handle_frame`, `br_fdb_update`).
///
/// 1. The frame is to the MAC address of the link: `other-mac`, as it is bridged otherwise.
/// 2. It is from a MAC address that a link can have (`is_valid_ether_addr`), and where the port learns, from one that is learnt: `bridge`.
fn check_bridged(
    memory: &Memory,
    link: &LinkEntry,
    learnt: u16,
    (to, from): ([u8; MAC], [u8; MAC]),
) -> Result<(), Reason> {
    if link.mac != to {
        return Err(Reason::OtherMac);
    }
    let is_valid = from[0] & 1 == 0 && from != [0; MAC];
    match is_valid && (learnt == 0 || memory.is_learnt(from, learnt)) {
        true => Ok(()),
        false => Err(Reason::Bridge),
    }
}

/// The link that a frame of link `ingress` comes in by, and how many tags it has before its packet.
///
/// 1. Its tags are read: `vlan`, `truncated`.
/// 2. They lead to a link, and so do ports of bridges: `vlan`, `bridge`.
/// 3. From there the destination's MAC address may lead to a macvlan.
/// 4. What it has come to is enabled: `not-enabled`.
/// 5. A bridge on the way takes the frame for itself, and learns nothing from it: `other-mac`, `bridge`.
pub(crate) fn comes_in_by(
    memory: &Memory,
    ingress: u32,
    frame: &[u8],
) -> Result<(LinkEntry, usize), Reason> {
    let tags = Tags::of(frame)?;
    let macs = frame.first_chunk::<MACS>().ok_or(Reason::Truncated)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *macs;
    let (to, from) = ([a, b, c, d, e, f], [g, h, i, j, k, l]);
    let reached = walk(memory, ingress, &tags.all[..tags.count])?;
    let link = memory.link(reached.at);
    let link = macvlan(memory, &link, reached.lower, to).unwrap_or(link);
    if link.flags & link_flags::ENABLED == 0 {
        return Err(Reason::NotEnabled);
    }
    if reached.bridged {
        check_bridged(memory, &link, reached.learnt, (to, from))?;
    }
    Ok((link, tags.count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_image::{Capacity, Step};

    const LINK: u32 = 3;
    const BRIDGE: u32 = 4;
    const SVI: u32 = 5;
    const MACVLAN: u32 = 6;
    const TO: [u8; MAC] = [2, 0, 0, 0, 0, 1];
    const FROM: [u8; MAC] = [4, 0, 0, 0, 0, 9];
    const TAGGED: [u8; 4] = [0x81, 0, 0xe0, 5];
    const PRIORITY: [u8; 4] = [0x81, 0, 0xe0, 0];

    /// All links are enabled but the one with these flags, and have the same MAC address but for the macvlan.
    fn memory(flags: u32) -> Memory {
        let memory = Memory::heap(&Capacity::SMALL);
        for index in LINK..=MACVLAN {
            let mac = if index == MACVLAN {
                [2, 0, 0, 0, 0, 7]
            } else {
                TO
            };
            let flags = if index == LINK {
                flags
            } else {
                link_flags::ENABLED
            };
            let entry = LinkEntry {
                flags,
                mac,
                index,
                slot: index,
                ..LinkEntry::default()
            };
            memory.store_link(index, &entry);
        }
        memory
    }

    fn lead(memory: &Memory, lower: u32, upon: Upon, index: u32, learnt: u16) {
        let step = Step {
            index,
            is_port: false,
            learnt,
        };
        memory.store_step(lower, upon, Some(step)).unwrap();
    }

    fn tag(id: u16) -> Upon {
        Upon::Tag(Vlan { service: false, id })
    }

    /// Which link a frame of [`LINK`] comes in by, and how many tags are in front of its packet.
    fn by(
        memory: &Memory,
        to: [u8; MAC],
        from: [u8; MAC],
        tags: &[[u8; 4]],
    ) -> Result<(u32, usize), Reason> {
        let packet = [0x08, 0x00, 0x45, 0];
        let frame = [&to[..], &from, &tags.concat(), &packet].concat();
        comes_in_by(memory, LINK, &frame).map(|(link, tags)| (link.index, tags))
    }

    #[test]
    fn a_bridge_that_does_not_filter_gets_all() {
        let memory = memory(link_flags::PORT);
        assert_eq!(by(&memory, TO, FROM, &[]), Err(Reason::Bridge));
        lead(&memory, LINK, Upon::All, BRIDGE, 0);
        lead(&memory, BRIDGE, tag(5), SVI, 0);
        assert_eq!(by(&memory, TO, FROM, &[]), Ok((BRIDGE, 0)));
        assert_eq!(by(&memory, TO, FROM, &[PRIORITY]), Ok((BRIDGE, 1)));
        assert_eq!(by(&memory, TO, FROM, &[TAGGED]), Ok((SVI, 1)));
        assert_eq!(by(&memory, TO, FROM, &[PRIORITY, TAGGED]), Ok((SVI, 2)));
        assert_eq!(by(&memory, TO, FROM, &[TAGGED, TAGGED]), Err(Reason::Vlan));
        assert_eq!(by(&memory, TO, FROM, &[TAGGED; 3]), Err(Reason::Vlan));
    }

    #[test]
    fn a_bridge_that_filters_gets_what_its_vlans_let_in() {
        let memory = memory(link_flags::PORT);
        lead(&memory, LINK, tag(5), SVI, 0);
        assert_eq!(by(&memory, TO, FROM, &[TAGGED]), Ok((SVI, 1)));
        assert_eq!(by(&memory, TO, FROM, &[]), Err(Reason::Bridge));
        assert_eq!(by(&memory, TO, FROM, &[PRIORITY]), Err(Reason::Bridge));
        lead(&memory, LINK, Upon::Untagged, BRIDGE, 0);
        assert_eq!(by(&memory, TO, FROM, &[]), Ok((BRIDGE, 0)));
        assert_eq!(by(&memory, TO, FROM, &[PRIORITY]), Ok((BRIDGE, 1)));
        // The bridge has no such VLAN upon it.
        assert_eq!(
            by(&memory, TO, FROM, &[PRIORITY, TAGGED]),
            Err(Reason::Vlan)
        );
    }

    #[test]
    fn a_bridge_learns_nothing_from_what_it_gets() {
        let memory = memory(link_flags::PORT);
        lead(&memory, LINK, Upon::All, BRIDGE, 9);
        assert_eq!(by(&memory, TO, FROM, &[]), Err(Reason::Bridge));
        memory.store_learnt(FROM, 8, true).unwrap();
        assert_eq!(by(&memory, TO, FROM, &[]), Err(Reason::Bridge));
        memory.store_learnt(FROM, 9, true).unwrap();
        assert_eq!(by(&memory, TO, FROM, &[]), Ok((BRIDGE, 0)));
        assert_eq!(by(&memory, [2; MAC], FROM, &[]), Err(Reason::OtherMac));
        // What drops these does not ask whether the port learns.
        lead(&memory, LINK, Upon::All, BRIDGE, 0);
        assert_eq!(by(&memory, TO, [4; MAC], &[]), Ok((BRIDGE, 0)));
        assert_eq!(by(&memory, TO, [5; MAC], &[]), Err(Reason::Bridge));
        assert_eq!(by(&memory, TO, [0; MAC], &[]), Err(Reason::Bridge));
    }

    #[test]
    fn there_is_one_bridge_on_the_way() {
        let memory = memory(link_flags::PORT);
        let step = Step {
            index: BRIDGE,
            is_port: true,
            learnt: 0,
        };
        memory.store_step(LINK, Upon::All, Some(step)).unwrap();
        lead(&memory, BRIDGE, Upon::All, SVI, 0);
        assert_eq!(by(&memory, TO, FROM, &[]), Err(Reason::Bridge));
    }

    #[test]
    fn a_macvlan_gets_what_is_to_its_address() {
        let memory = memory(link_flags::MACVLANS | link_flags::ENABLED);
        let to = [2, 0, 0, 0, 0, 7];
        assert_eq!(by(&memory, to, FROM, &[]), Ok((LINK, 0)));
        lead(&memory, LINK, Upon::mac(to), MACVLAN, 0);
        assert_eq!(by(&memory, to, FROM, &[]), Ok((MACVLAN, 0)));
        assert_eq!(by(&memory, TO, FROM, &[]), Ok((LINK, 0)));
        // The step is the same, the address is not: the link's, to which it is another one.
        let alike = [2, 0, 0, 1, 0, 7];
        assert_eq!(Upon::mac(alike), Upon::mac(to));
        assert_eq!(by(&memory, alike, FROM, &[]), Ok((LINK, 0)));
    }
}

//! What an engine does with frames among links by the image, step by step.

use raddle_image::{LinkEntry, MAX_STEPS, MAX_TAGS, Memory, Upon, Vlan, link_flags};

use super::kernel::Mac;

/// Where a frame is taken to come in by; none where it is punted before.
pub(super) fn takes(
    memory: &Memory,
    by: u32,
    tags: &[Vlan],
    dst: Mac,
    src: Mac,
) -> Option<LinkEntry> {
    let mut entry = memory.link(by);
    let passes = link_flags::PORT | link_flags::VLANS | link_flags::MACVLANS;
    if !tags.is_empty() && entry.flags & passes == 0 {
        return None;
    }
    let (mut at, mut is_port) = (entry.index, entry.flags & link_flags::PORT != 0);
    let (mut left, mut taken, mut learnt) = (tags, 0, 0);
    for _ in 0..=MAX_STEPS {
        let (upon, consumed) = match left {
            _ if is_port && memory.step(at, Upon::All).is_some() => (Upon::All, 0),
            [] if is_port => (Upon::Untagged, 0),
            [tag, ..] if is_port && tag.id == 0 => (Upon::Untagged, 1),
            [] => break,
            [tag, ..] => (Upon::Tag(*tag), 1),
        };
        taken += consumed;
        if taken > MAX_TAGS {
            return None;
        }
        let is_priority = !is_port && left.first().is_some_and(|tag| tag.id == 0);
        left = &left[consumed..];
        match memory.step(at, upon) {
            Some(step) => {
                (at, is_port) = (step.index, step.is_port);
                learnt = learnt.max(step.learnt);
                entry = memory.link(at);
            }
            None if is_priority => {}
            None => return None,
        }
    }
    if is_port || !left.is_empty() {
        return None;
    }
    if entry.flags & link_flags::MACVLANS != 0 && dst != entry.mac {
        entry = memory.link(memory.step(at, Upon::mac(dst))?.index);
    }
    let is_ours = entry.flags & link_flags::ENABLED != 0 && entry.mac == dst;
    let is_known = learnt == 0 || memory.is_learnt(src, learnt);
    (is_ours && is_known).then_some(entry)
}
